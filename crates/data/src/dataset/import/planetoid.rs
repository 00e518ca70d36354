//! Import of the Planetoid files `ind.NAME.{x,y,tx,ty,allx,ally,graph,test.index}`
//! (kimiyoung/planetoid): pickled SciPy matrices and NumPy arrays, read by [`pickle`] without
//! executing code.
//!
//! Rows of `allx` and `ally` are the nodes from 0 on; row `i` of `tx` and `ty` is the node on line
//! `i` of `test.index`. Nodes without a row (15 of CiteSeer) have zero features and no label. The
//! public split trains on the first rows (as many as `y` has), validates on the next 500 and tests
//! on `test.index`. The graph is made symmetric, without self-loops or duplicates, as by PyG.

use std::path::{Path, PathBuf};

use graphmill_core::{Buffer, Error, Labels, NodeId, Result, Split, location::Location, memory};

use super::{
    ImportOptions, ImportReport, Raw,
    csr::Csr,
    features,
    pickle::{self, Pickle},
    splits,
};
use crate::external::{Edges, Scratch};

/// Number of validation nodes in the public split (Kipf and Welling, ICLR 2017, section 5.1).
const VALID: usize = 500;

/// Reads the files with the prefix `src` (`DIR/ind.cora`), or the only dataset in the directory
/// `src`.
pub(super) fn read(src: &Path, options: &ImportOptions, scratch: &Scratch) -> Result<Raw> {
    let prefix = find_prefix(src, options.name.as_deref())?;
    let file = |suffix: &str| {
        let mut path = prefix.clone().into_os_string();
        path.push(format!(".{suffix}"));
        PathBuf::from(path)
    };
    let (allx_path, tx_path) = (file("allx"), file("tx"));
    let allx = with_pickle(&allx_path, |pickle, at| pickle.csr(at))?;
    let tx = with_pickle(&tx_path, |pickle, at| pickle.csr(at))?;
    if allx.columns != tx.columns {
        return Err(Location::new(&tx_path, "pickle")
            .error(format!("{} features, but allx has {}", tx.columns, allx.columns)));
    }
    let (ally, classes) = one_hot(&file("ally"), Some(allx.rows), None)?;
    let (ty, _) = one_hot(&file("ty"), Some(tx.rows), Some(classes))?;
    let trained = one_hot(&file("y"), None, Some(classes))?.0.len();
    if trained > allx.rows {
        let message = format!("{trained} rows, but ally has {}", allx.rows);
        return Err(Location::new(&file("y"), "pickle").error(message));
    }

    let index_path = file("test.index");
    let tests = read_index(&index_path, allx.rows, tx.rows)?;
    // The test nodes may leave gaps, but at most a multiple of CiteSeer's: a damaged id must not
    // cause a large allocation.
    let num_nodes = tests.iter().max().map_or(allx.rows, |&last| last.saturating_add(1));
    if num_nodes > 2 * (allx.rows + tx.rows) + 1024 {
        return Err(Location::new(&index_path, "test ids").error(format!(
            "node {} is far beyond the {} rows of features",
            num_nodes - 1,
            allx.rows + tx.rows
        )));
    }
    let mut class = ally;
    memory::resize(&mut class, num_nodes, -1)?;
    for (i, &v) in tests.iter().enumerate() {
        class[v] = ty[i];
    }
    let valid_end = (trained + VALID).min(allx.rows);
    let at = Location::new(&tx_path, "pickle");
    let mut report = ImportReport::default();
    let features = features::from_csr(
        with_tests(allx, &tx, &tests, num_nodes)?,
        num_nodes,
        options.dense_features,
        &at,
        &at,
        &mut report,
    )?;

    if src.is_dir() {
        let read = ["allx", "tx", "ally", "ty", "y", "test.index", "graph"].map(file);
        report.ignore_unread(src, |name| read.contains(&src.join(name)))?;
    }
    let edges = read_graph(&file("graph"), num_nodes, scratch.edges(options.edge_options(true)))?;
    let range = |from: usize, to: usize| -> Buffer<NodeId> {
        (from as NodeId..to as NodeId).collect::<Vec<_>>().into()
    };
    let test = tests.iter().map(|&v| v as u64).collect();
    let split = Split {
        train: range(0, trained),
        valid: range(trained, valid_end),
        test: splits::from_ids(test, num_nodes, &Location::new(&index_path, "test ids"))?,
    };
    let name = prefix.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Raw {
        name: name.strip_prefix("ind.").unwrap_or(&name).to_string(),
        num_nodes,
        edges,
        features,
        labels: Labels::Single { class: class.into(), classes },
        splits: vec![split],
        report,
        ..Raw::default()
    })
}

/// Pushes the edges of the neighbour lists at `path` into `edges`.
fn read_graph(path: &Path, num_nodes: usize, mut edges: Edges) -> Result<Edges> {
    let pairs = with_pickle(path, |pickle, at| pickle.adjacency().map_err(|e| at.error(e)))?;
    for (u, v) in pairs {
        if u.max(v) >= num_nodes as u64 {
            let message = format!("an edge joins nodes {u} and {v}, but there are {num_nodes} nodes");
            return Err(Location::new(path, "pickle").error(message));
        }
        edges.push(u as NodeId, v as NodeId)?;
    }
    Ok(edges)
}

/// Rows of all nodes: those of `allx`, then row `i` of `tx` for node `tests[i]`; other rows are
/// empty.
fn with_tests(mut allx: Csr, tx: &Csr, tests: &[usize], num_nodes: usize) -> Result<Csr> {
    let mut row_of = memory::filled(None, num_nodes - allx.rows)?;
    tests.iter().enumerate().for_each(|(i, &v)| row_of[v - allx.rows] = Some(i));
    for row in row_of {
        if let Some(i) = row {
            let run = tx.indptr[i] as usize..tx.indptr[i + 1] as usize;
            allx.indices.extend_from_slice(&tx.indices[run.clone()]);
            allx.data.extend_from_slice(&tx.data[run]);
        }
        allx.indptr.push(allx.indices.len() as u64);
    }
    allx.rows = num_nodes;
    Ok(allx)
}

/// Prefix `src` itself, or the dataset `ind.NAME` in the directory `src`.
fn find_prefix(src: &Path, name: Option<&str>) -> Result<PathBuf> {
    if !src.is_dir() {
        return Ok(src.to_path_buf());
    }
    let entries = std::fs::read_dir(src).map_err(|e| Error::io(src, "look into", e))?;
    let mut found: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|file| file.strip_suffix(".graph").map(str::to_string))
        .filter(|prefix| prefix.starts_with("ind."))
        .collect();
    found.sort_unstable();
    let wanted = name.map(|name| format!("ind.{name}"));
    match (&found[..], wanted) {
        (_, Some(wanted)) if found.contains(&wanted) => Ok(src.join(wanted)),
        ([only], _) => Ok(src.join(only)),
        ([], _) => Err(Error::format(src, "directory", "no ind.NAME.graph here; expected Planetoid's files")),
        _ => Err(Error::format(
            src,
            "directory",
            format!(
                "several sets ({}); name one, such as {}",
                found.join(", "),
                src.join(&found[0]).display()
            ),
        )),
    }
}

/// Reads the pickle at `path` and extracts a value.
fn with_pickle<T>(path: &Path, take: impl FnOnce(&Pickle, &Location) -> Result<T>) -> Result<T> {
    let data = std::fs::read(path).map_err(|e| Error::io(path, "read", e))?;
    let pickle = pickle::read(&data)
        .map_err(|(position, message)| Error::format(path, format!("byte {position}"), message))?;
    take(&pickle, &Location::new(path, "pickle"))
}

/// Class of every row of a one-hot matrix (-1 for a zero row), and the number of classes.
fn one_hot(path: &Path, rows: Option<usize>, classes: Option<usize>) -> Result<(Vec<i32>, usize)> {
    with_pickle(path, |pickle, at| {
        let (values, shape) = pickle.array::<u8>().map_err(|e| at.error(e))?;
        let &[found, width] = &shape[..] else {
            return Err(at.error(format!("shape [rows, classes] expected, {shape:?} found")));
        };
        if rows.is_some_and(|rows| rows != found) || classes.is_some_and(|classes| classes != width) {
            let (rows, classes) = (rows.unwrap_or(found), classes.unwrap_or(width));
            let message = format!("shape [{found}, {width}] found, [{rows}, {classes}] expected");
            return Err(at.error(message));
        }
        let mut class = memory::reserve(found)?;
        for (i, row) in values.chunks_exact(width.max(1)).enumerate() {
            match row.iter().map(|&x| usize::from(x)).sum::<usize>() {
                0 => class.push(-1),
                1 => class.push(row.iter().position(|&x| x == 1).map_or(-1, |c| c as i32)),
                _ => return Err(at.error(format!("row {i} is {row:?}: one 1 and zeros expected"))),
            }
        }
        class.resize(found, -1); // classes may be none
        Ok((class, width))
    })
}

/// Node of every test row: one id per line, each at least `first` and unique.
fn read_index(path: &Path, first: usize, rows: usize) -> Result<Vec<usize>> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, "read", e))?;
    let mut ids = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let at = Location::new(path, format!("line {}", i + 1));
        match line.trim().parse::<usize>() {
            Ok(v) if v >= first => ids.push(v),
            Ok(v) => return Err(at.error(format!("node {v} is one of the {first} nodes of allx"))),
            Err(_) => return Err(at.error(format!("'{}' is not a node id", line.trim().escape_debug()))),
        }
    }
    if ids.len() != rows {
        return Err(
            Location::new(path, "test ids").error(format!("{} ids for the {rows} rows of tx", ids.len()))
        );
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use graphmill_core::features::FeatureData;

    use super::{
        super::pickle::testing::{array, csr, lists, pickle},
        *,
    };
    use crate::{Dataset, dataset::import::testing::import};

    fn hot(rows: &[[i32; 2]]) -> Vec<u8> {
        pickle(&array("i4", &[rows.len(), 2], bytemuck::cast_slice(rows)))
    }

    /// Nodes 0 to 2 in allx, tests 5 and 3; node 4 is missing everywhere.
    fn directory() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let put = |suffix: &str, bytes: &[u8]| {
            std::fs::write(dir.path().join(format!("ind.tiny.{suffix}")), bytes).unwrap();
        };
        put("allx", &pickle(&csr(&[&[1., 0.], &[0., 2.], &[3., 3.]])));
        put("tx", &pickle(&csr(&[&[5., 5.], &[0., 4.]])));
        put("ally", &hot(&[[1, 0], [0, 1], [0, 1]]));
        put("ty", &hot(&[[1, 0], [0, 1]]));
        put("y", &hot(&[[1, 0]]));
        put("graph", &pickle(&lists(&[(0, &[1, 1, 0]), (1, &[0]), (5, &[2])])));
        put("test.index", b"5\n3\n");
        dir
    }

    fn run(dir: &tempfile::TempDir) -> Result<Dataset, String> {
        import("planetoid", dir.path(), &ImportOptions::default()).map_err(|e| e.to_string())
    }

    #[test]
    fn rows_are_assigned_to_their_nodes() {
        let dir = directory();
        let dataset = run(&dir).unwrap();
        assert_eq!(dataset.name, "tiny");
        let FeatureData::F32(data) = &dataset.features.data else { panic!() };
        assert_eq!(data[..], [1., 0., 0., 2., 3., 3., 0., 4., 0., 0., 5., 5.]);
        let Labels::Single { class, classes: 2 } = &dataset.labels else { panic!() };
        assert_eq!(class[..], [0, 1, 1, 1, -1, 0]);
        assert_eq!(dataset.graph.num_edges(), 4, "0 - 1 and 2 - 5");
        assert_eq!(dataset.graph.in_neighbors(2), [5]);
        assert_eq!((&dataset.split.train[..], &dataset.split.valid[..]), (&[0][..], &[1, 2][..]));
        assert_eq!(dataset.split.test[..], [3, 5]);
        let by_prefix = import("planetoid", dir.path().join("ind.tiny"), &ImportOptions::default()).unwrap();
        assert_eq!(by_prefix.graph.num_edges(), 4);
    }

    #[test]
    fn errors_contain_the_file() {
        let fails = |suffix: &str, bytes: &[u8], why: &str| {
            let dir = directory();
            std::fs::write(dir.path().join(format!("ind.tiny.{suffix}")), bytes).unwrap();
            let error = run(&dir).unwrap_err();
            assert!(error.contains(why) && error.contains(&format!("ind.tiny.{suffix}")), "{error}");
        };
        fails("test.index", b"5\n2\n", "line 2: node 2 is one of the 3");
        fails("test.index", b"5\nx\n", "line 2: 'x' is not");
        fails("test.index", b"5\n", "1 ids for the 2 rows");
        fails("test.index", b"5\n5\n", "occurs twice");
        fails("test.index", b"5\n99999999999\n", "far beyond");
        fails("test.index", b"5\n18446744073709551615\n", "far beyond");
        fails("ty", &hot(&[[1, 0]]), "[1, 2] found, [2, 2] expected");
        fails("ally", &hot(&[[1, 0], [1, 1], [0, 1]]), "row 1 is [1, 1]");
        fails("ally", &hot(&[[1, 0], [3, 0], [0, 1]]), "row 1 is [3, 0]");
        fails("tx", &pickle(&csr(&[&[5.], &[4.]])), "1 features, but allx has 2");
        fails("y", &hot(&[[1, 0]; 4]), "4 rows, but ally has 3");
        fails("graph", &pickle(&lists(&[(0, &[6])])), "nodes 0 and 6");
        fails("graph", &pickle(&lists(&[(0, &[-1])])), "negative");
        fails("graph", &hot(&[[1, 0]]), "neighbour lists expected");
        fails("allx", &hot(&[[1, 0]]), "CSR matrix expected");
        fails(
            "allx",
            b"\x80\x02cposix\nsystem\nU\x04true\x85R.",
            "byte 2: the pickle asks for 'posix.system'",
        );
        let dir = directory();
        std::fs::write(dir.path().join("ind.more.graph"), "").unwrap();
        assert!(run(&dir).unwrap_err().contains("several sets (ind.more, ind.tiny)"));
        let options = ImportOptions { name: Some("tiny".into()), ..Default::default() };
        assert_eq!(import("planetoid", dir.path(), &options).unwrap().num_nodes(), 6);
        std::fs::remove_file(dir.path().join("ind.tiny.allx")).unwrap();
        assert!(import("planetoid", dir.path(), &options).unwrap_err().to_string().contains("ind.tiny.allx"));
    }

    #[test]
    fn damage_is_an_error_or_harmless() {
        let dir = directory();
        for suffix in ["allx", "tx", "ally", "ty", "y", "graph", "test.index"] {
            let path = dir.path().join(format!("ind.tiny.{suffix}"));
            let good = std::fs::read(&path).unwrap();
            for length in (0..good.len()).step_by(3) {
                std::fs::write(&path, &good[..length]).unwrap();
                let _ = run(&dir);
            }
            for bit in (0..good.len() * 8).step_by(11) {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                std::fs::write(&path, &bad).unwrap();
                let _ = run(&dir); // no panic
            }
            std::fs::write(&path, &good).unwrap();
        }
        assert!(run(&dir).is_ok());
    }
}
