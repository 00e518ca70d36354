//! A plain edge list: one edge `from to` per line (further columns are not read), and beside it
//! features, labels and a split as text or `.npy`.
//!
//! `SRC` is the edge file, or a directory that holds, each as `.csv`, `.tsv`, `.txt` (also `.gz`) or
//! `.npy`: `edges` or `edge_list`; `features` (a row per node); `labels` (a column of classes, or
//! columns of zeros and ones); and the split as `split.json` / `splits.json`
//! (`{"train": [..], "valid": [..], "test": [..]}`, or a list of those) or as `train`, `valid` (or
//! `val`) and `test` (an id per line; as `.npy` also a mask). Options name other files.
//!
//! Rows belong to nodes in the order of their ids: 0, 1, 2, ..., or with `compact_ids` the ids that
//! the edges name, ascending.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{
    ImportOptions, Raw,
    edges_text::{Lines, fields, finite, is_header, table, whole},
    features,
    graphsaint::json_error,
    labels, splits,
};
use crate::{
    Buffer, Error, Features, Labels, NodeId, Result, Split,
    npy::{self, Kind},
    place::At,
};

/// Reads the file or directory `src`.
pub(super) fn read(src: &Path, options: &ImportOptions) -> Result<Raw> {
    let files = Files::find(src, options)?;
    let features = files.features.as_deref().map(read_features).transpose()?;
    let labels = files.labels.as_deref().map(read_labels).transpose()?;

    // Whoever says how many nodes there are must agree with the others.
    let mut known: Option<(usize, String)> = None;
    let claims = [
        (options.num_nodes, "the option num-nodes".to_string()),
        (features.as_ref().map(|(_, rows)| *rows), path_of(&files.features)),
        (labels.as_ref().map(|(_, rows)| *rows), path_of(&files.labels)),
    ];
    for (count, by) in claims {
        let Some(count) = count else { continue };
        match &known {
            Some((other, first)) if *other != count => {
                let message = format!("{count} nodes, but {first} has {other}");
                return Err(At::new(Path::new(&by), "rows").error(message));
            }
            _ => known = Some((count, by)),
        }
    }
    let known = known.map(|(count, _)| count);

    let at = At::new(&files.edges, "ids");
    let (src_ids, dst_ids, ids) = if options.compact_ids {
        let (from, to) = read_edges::<u64>(&files.edges, None)?;
        let ids = Ids::compact(&from, &to, known, &at)?;
        let number = |id: &u64| ids.number(*id).ok_or_else(|| at.error("more ids than 32 bits can number"));
        let src: Vec<NodeId> = from.iter().map(number).collect::<Result<_>>()?;
        drop(from);
        let dst = to.iter().map(number).collect::<Result<_>>()?;
        (src, dst, ids)
    } else {
        let (src, dst) = read_edges::<NodeId>(&files.edges, known)?;
        let ids = Ids::plain(&src, &dst, known, &at)?;
        (src, dst, ids)
    };
    if src_ids.is_empty() {
        return Err(at.error("the file holds no edges"));
    }
    let num_nodes = ids.len();
    let splits = files.splits(&ids)?;
    let labels = labels.map_or_else(|| labels::unknown(num_nodes), |(labels, _)| labels);
    let features = features.map_or_else(Features::default, |(features, _)| features);
    let name = src.file_name().unwrap_or_default().to_string_lossy();
    let name = if src.is_dir() { &name } else { name.split('.').next().unwrap_or_default() };
    Ok(Raw {
        name: name.to_string(),
        num_nodes,
        src: src_ids,
        dst: dst_ids,
        undirected: false,
        features,
        labels,
        splits,
        metric: None,
    })
}

fn path_of(path: &Option<PathBuf>) -> String {
    path.as_deref().unwrap_or(Path::new("")).display().to_string()
}

/// Where the parts are.
struct Files {
    edges: PathBuf,
    features: Option<PathBuf>,
    labels: Option<PathBuf>,
    json: Option<PathBuf>,
    parts: [Option<PathBuf>; 3],
}

impl Files {
    /// By convention in a directory; options go before.
    fn find(src: &Path, options: &ImportOptions) -> Result<Self> {
        let mut files = Self {
            edges: src.to_path_buf(),
            features: None,
            labels: None,
            json: None,
            parts: [None, None, None],
        };
        let named = [&options.train, &options.valid, &options.test];
        if src.is_dir() {
            let entries = std::fs::read_dir(src).map_err(|e| Error::io(src, "look into", e))?;
            let mut names: Vec<String> =
                entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
            names.sort_unstable();
            let one = |stems: &[&str], endings: &[&str]| one_of(src, &names, stems, endings);
            files.edges = one(&["edges", "edge_list"], TABLES)?.ok_or_else(|| {
                let message = "no edges.* or edge_list.* (.csv, .tsv, .txt, .npy, also .gz) here; name the edge file itself";
                Error::format(src, "directory", message)
            })?;
            // A file that an option replaces is not looked for, so it may be there twice.
            if options.features.is_none() {
                files.features = one(&["features"], TABLES)?;
            }
            if options.labels.is_none() {
                files.labels = one(&["labels"], TABLES)?;
            }
            if named.iter().all(|path| path.is_none()) {
                files.json = one(&["split", "splits"], &[".json"])?;
                if files.json.is_none() {
                    files.parts =
                        [one(&["train"], TABLES)?, one(&["valid", "val"], TABLES)?, one(&["test"], TABLES)?];
                }
            }
        }
        files.features = options.features.clone().or(files.features);
        files.labels = options.labels.clone().or(files.labels);
        if named.iter().any(|path| path.is_some()) {
            files.parts = named.map(Clone::clone);
        }
        Ok(files)
    }

    fn splits(&self, ids: &Ids) -> Result<Vec<Split>> {
        if let Some(path) = &self.json {
            return read_json(path, ids);
        }
        if self.parts.iter().all(|path| path.is_none()) {
            return Ok(Vec::new());
        }
        let part = |i: usize| match &self.parts[i] {
            Some(path) => read_part(path, ids),
            None => Ok(Buffer::default()),
        };
        Ok(vec![Split { train: part(0)?, valid: part(1)?, test: part(2)? }])
    }
}

const TABLES: &[&str] = &[".csv", ".tsv", ".txt", ".npy", ".csv.gz", ".tsv.gz", ".txt.gz"];

/// The one file called by one of the stems with one of the endings.
fn one_of(dir: &Path, names: &[String], stems: &[&str], endings: &[&str]) -> Result<Option<PathBuf>> {
    let fits = |name: &&String| {
        stems.iter().any(|stem| name.strip_prefix(stem).is_some_and(|ending| endings.contains(&ending)))
    };
    let found: Vec<&String> = names.iter().filter(fits).collect();
    match found[..] {
        [] => Ok(None),
        [name] => Ok(Some(dir.join(name))),
        [first, second, ..] => Err(Error::format(
            dir,
            "directory",
            format!(
                "both '{first}' and '{second}' are here; name the one to read by an option, or move one away"
            ),
        )),
    }
}

/// How ids become node numbers.
enum Ids {
    /// An id is its number.
    Plain(usize),
    /// The ids in use, ascending: the place is the number.
    Compact(Vec<u64>),
}

impl Ids {
    fn plain(from: &[NodeId], to: &[NodeId], known: Option<usize>, at: &At) -> Result<Self> {
        if let Some(nodes) = known {
            return Ok(Self::Plain(nodes));
        }
        let nodes = from.iter().chain(to).max().map_or(0, |&last| u64::from(last) + 1);
        // Sparse ids would make a graph of lone nodes, and a single one could ask for all memory.
        if nodes > 1_000_000 + 64 * from.len() as u64 {
            return Err(at.error(format!(
                "the largest id is {}, but there are only {} edges: use compact-ids if ids are sparse, or say num-nodes",
                nodes - 1,
                from.len()
            )));
        }
        Ok(Self::Plain(nodes as usize))
    }

    fn compact(from: &[u64], to: &[u64], known: Option<usize>, at: &At) -> Result<Self> {
        let mut ids = [from, to].concat();
        rayon::slice::ParallelSliceMut::par_sort_unstable(&mut ids[..]);
        ids.dedup();
        ids.shrink_to_fit();
        match known {
            Some(nodes) if nodes != ids.len() => Err(at.error(format!(
                "the edges name {} different ids, but there are {nodes} nodes; compact-ids needs every node to have an edge",
                ids.len()
            ))),
            _ => Ok(Self::Compact(ids)),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Plain(nodes) => *nodes,
            Self::Compact(ids) => ids.len(),
        }
    }

    fn number(&self, id: u64) -> Option<NodeId> {
        match self {
            Self::Plain(nodes) => (id < *nodes as u64).then_some(id).and_then(|id| id.try_into().ok()),
            Self::Compact(ids) => ids.binary_search(&id).ok().and_then(|i| i.try_into().ok()),
        }
    }

    /// The numbers of a part's ids.
    fn part(&self, ids: Vec<u64>, at: &At) -> Result<Buffer<NodeId>> {
        let ids = match self {
            Self::Plain(_) => ids,
            Self::Compact(_) => {
                let number = |id: u64| {
                    self.number(id)
                        .map(u64::from)
                        .ok_or_else(|| at.error(format!("no edge names the node {id}")))
                };
                ids.into_iter().map(number).collect::<Result<_>>()?
            }
        };
        splits::from_ids(ids, self.len(), at)
    }
}

fn is_npy(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "npy")
}

/// The two ends of every edge, as written; below `nodes` where that is known.
fn read_edges<T: Id>(path: &Path, nodes: Option<usize>) -> Result<(Vec<T>, Vec<T>)> {
    let limit = nodes.map_or(u64::MAX, |nodes| nodes as u64);
    if is_npy(path) {
        return read_edge_array(path, limit);
    }
    let (mut from, mut to) = (Vec::new(), Vec::new());
    let mut lines = Lines::open(path)?;
    let mut first = true;
    loop {
        let wrong = {
            let Some((_, line)) = lines.next()? else { break };
            if std::mem::take(&mut first) && is_header(fields(line).take(2)) {
                continue;
            }
            let mut ends = fields(line);
            let (a, b) = (ends.next().unwrap_or_default(), ends.next());
            match (whole::<T>(a), b.map(whole::<T>)) {
                (Some(u), Some(Some(v))) if u.max(v).into() < limit => {
                    from.push(u);
                    to.push(v);
                    continue;
                }
                (Some(u), Some(Some(v))) => outside(u, v, limit),
                (_, None) => format!("two node ids expected, '{}' found", line.escape_debug()),
                (None, _) => not_an_id::<T>(a),
                (_, Some(None)) => not_an_id::<T>(b.unwrap_or_default()),
            }
        };
        return Err(lines.at().error(wrong));
    }
    Ok((from, to))
}

/// Ids are numbers of 32 bits, or before they are made compact of 64.
trait Id: npy::Element + std::str::FromStr + std::fmt::Display + Ord + Into<u64> {}

impl Id for u32 {}
impl Id for u64 {}

fn outside<T: Id>(u: T, v: T, limit: u64) -> String {
    format!("the edge joins nodes {u} and {v}, but there are {limit} nodes")
}

fn not_an_id<T: Id>(field: &str) -> String {
    let most = T::DTYPE.size * 8;
    let hint = if most < 64 { "; compact-ids takes larger ones" } else { "" };
    format!(
        "'{}' is not a node id: ids are whole numbers from 0 that fit {most} bits{hint}",
        field.escape_debug()
    )
}

/// Edges as an array `[E, 2]` or, as PyG writes them, `[2, E]`.
fn read_edge_array<T: Id>(path: &Path, limit: u64) -> Result<(Vec<T>, Vec<T>)> {
    let array = npy::open(path)?;
    let data = array.read_as::<T>()?;
    let (from, to): (Vec<T>, Vec<T>) = match array.shape[..] {
        [_, 2] => data.chunks_exact(2).map(|edge| (edge[0], edge[1])).unzip(),
        [2, edges] => (data[..edges].to_vec(), data[edges..].to_vec()),
        _ => {
            let message = format!("shape [edges, 2] or [2, edges] expected, {:?} found", array.shape);
            return Err(At::new(path, "header").error(message));
        }
    };
    match from.iter().zip(&to).position(|(&u, &v)| u.max(v).into() >= limit) {
        None => Ok((from, to)),
        Some(e) => Err(At::new(path, format!("edge {e}")).error(outside(from[e], to[e], limit))),
    }
}

/// The features and the number of rows.
fn read_features(path: &Path) -> Result<(Features, usize)> {
    if is_npy(path) {
        let array = npy::open(path)?;
        let rows = array.shape.first().copied().unwrap_or(0);
        let features =
            features::from_array(array.load::<f32>()?, &array.shape, rows, &At::new(path, "features"))?;
        return Ok((features, rows));
    }
    let table = table(path, "a finite number", finite)?;
    Ok((Features::f32(table.columns, table.data), table.rows))
}

/// The labels and the number of rows.
fn read_labels(path: &Path) -> Result<(Labels, usize)> {
    let at = At::new(path, "labels");
    if is_npy(path) {
        let array = npy::open(path)?;
        let rows = array.shape.first().copied().unwrap_or(0);
        let labels = match labels::columns(&array.shape, &at)? {
            1 => labels::single(&array.read_as_i64()?, &at)?,
            classes => labels::multi(array.read_as()?, classes, &at)?,
        };
        return Ok((labels, rows));
    }
    let table = table(path, "a class (a whole number)", whole::<i32>)?;
    let labels = match table.columns {
        1 => labels::single(&table.data, &at)?,
        classes => {
            let member = table.data.into_iter().map(|x| u8::try_from(x).unwrap_or(u8::MAX)).collect();
            labels::multi(member, classes, &at)?
        }
    };
    Ok((labels, table.rows))
}

/// One part of the split: an id per line, or an array of ids, or an array that is a mask.
fn read_part(path: &Path, ids: &Ids) -> Result<Buffer<NodeId>> {
    let at = At::new(path, "ids");
    if is_npy(path) {
        let array = npy::open(path)?;
        if array.shape.len() != 1 {
            return Err(at.error(format!("one axis expected, shape {:?} found", array.shape)));
        }
        if array.dtype.kind == Kind::Bool {
            return splits::from_mask(&array.read_as::<u8>()?, ids.len(), &at);
        }
        return ids.part(array.read_as()?, &at);
    }
    let table = table(path, "a node id (a whole number)", whole::<u64>)?;
    if table.columns != 1 {
        return Err(at.error(format!("one id per line expected, {} columns found", table.columns)));
    }
    ids.part(table.data, &at)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts {
    train: Vec<u64>,
    #[serde(alias = "val")]
    valid: Option<Vec<u64>>,
    test: Option<Vec<u64>>,
}

fn read_json(path: &Path, ids: &Ids) -> Result<Vec<Split>> {
    let text = std::fs::read(path).map_err(|e| Error::io(path, "read", e))?;
    let list = text.trim_ascii_start().first() == Some(&b'[');
    let parsed = if list {
        serde_json::from_slice::<Vec<Parts>>(&text)
    } else {
        serde_json::from_slice::<Parts>(&text).map(|parts| vec![parts])
    };
    let parsed = parsed.map_err(|e| json_error(path, &e))?;
    let split = |(k, parts): (usize, Parts)| {
        let part = |name: &str, list: Option<Vec<u64>>| match list {
            Some(list) => ids.part(list, &At::new(path, format!("split {k}, '{name}'"))),
            None => Ok(Buffer::default()),
        };
        Ok(Split {
            train: part("train", Some(parts.train))?,
            valid: part("valid", parts.valid)?,
            test: part("test", parts.test)?,
        })
    };
    parsed.into_iter().enumerate().map(split).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::{
        Dataset,
        dataset::{FeatureData, import::import},
    };

    fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    fn run(dir: &Path, options: &ImportOptions) -> Result<Dataset, String> {
        import("edges", dir, options).map_err(|e| e.to_string())
    }

    fn edges(dataset: &Dataset) -> Vec<(u32, u32)> {
        let graph = &dataset.graph;
        (0..graph.num_nodes() as u32)
            .flat_map(|v| graph.in_neighbors(v).iter().map(move |&u| (u, v)))
            .collect()
    }

    const WHOLE: &[(&str, &str)] = &[
        ("edge_list.csv", "from,to,weight\n0.0,2.0,0.5\n2,1,0.5\n"),
        ("features.csv", "1,2\n3,4\n5,6\n"),
        ("labels.csv", "1.0,0.0\n0.0,0.0\n1.0,1.0\n"),
        ("split.json", r#"{"train": [2], "val": [0], "test": [1]}"#),
        ("train.txt", "Node_idx\n0\n"), // split.json goes before
        ("nodes.csv", "name\na\nb\nc\n"),
    ];

    #[test]
    fn a_directory_by_convention() {
        let dir = directory(WHOLE);
        let dataset = run(dir.path(), &ImportOptions::default()).unwrap();
        assert_eq!(edges(&dataset), [(2, 1), (0, 2)]);
        let FeatureData::F32(data) = &dataset.features.data else { panic!() };
        assert_eq!((dataset.features.dim, &data[..]), (2, &[1., 2., 3., 4., 5., 6.][..]));
        let Labels::Multi { member, classes: 2 } = &dataset.labels else { panic!() };
        assert_eq!(member[..], [1, 0, 0, 0, 1, 1]);
        assert_eq!((dataset.split.train[0], dataset.split.valid[0], dataset.split.test[0]), (2, 0, 1));
    }

    #[test]
    fn part_files_arrays_and_several_splits() {
        let dir = directory(&[("edges.txt", "# from to\n0 1\n1\t2\n"), ("val.txt", "1\n")]);
        let path = |name: &str| dir.path().join(name);
        npy::write(path("features.npy"), &[1f32, 2., 3.], &[3, 1]).unwrap();
        npy::write(path("labels.npy"), &[0i64, 1, -1], &[3]).unwrap();
        npy::write(path("train.npy"), &[0i32], &[1]).unwrap();
        let dataset = run(dir.path(), &ImportOptions::default()).unwrap();
        assert_eq!((edges(&dataset), dataset.labels.classes()), (vec![(0, 1), (1, 2)], 2));
        assert_eq!((dataset.split.train[..].to_vec(), dataset.split.valid[..].to_vec()), (vec![0], vec![1]));
        std::fs::write(path("splits.json"), r#"[{"train": [0]}, {"train": [1], "test": [0]}]"#).unwrap();
        let options = ImportOptions { split: Some("given:1".parse().unwrap()), ..Default::default() };
        assert_eq!(run(dir.path(), &options).unwrap().split.train[..], [1]);
        for (shape, data) in [(&[2, 2], [0u64, 1, 2, 1]), (&[2, 2], [0, 1, 2, 1])] {
            let dir = directory(&[]);
            npy::write(dir.path().join("edges.npy"), &data, shape).unwrap();
            assert_eq!(edges(&run(dir.path(), &ImportOptions::default()).unwrap()), [(0, 1), (2, 1)]);
        }
        let dir = directory(&[]);
        npy::write(dir.path().join("edges.npy"), &[0i64, 1, 2, 1, 1, 1], &[2, 3]).unwrap();
        assert_eq!(edges(&run(dir.path(), &ImportOptions::default()).unwrap()), [(0, 1), (1, 1), (2, 1)]);
    }

    #[test]
    fn a_file_with_options() {
        let dir = directory(&[("e.tsv", "0\t1\n"), ("f", "1\n2\n"), ("l", "0\n1\n"), ("s", "1\n")]);
        let path = |name: &str| Some(dir.path().join(name));
        let options =
            ImportOptions { features: path("f"), labels: path("l"), train: path("s"), ..Default::default() };
        let dataset = run(&dir.path().join("e.tsv"), &options).unwrap();
        assert_eq!((dataset.name.as_str(), dataset.split.train[0], dataset.features.dim), ("e", 1, 1));
        let bare =
            run(&dir.path().join("e.tsv"), &ImportOptions { num_nodes: Some(5), ..Default::default() });
        let bare = bare.unwrap();
        assert_eq!((bare.num_nodes(), bare.labels.classes(), bare.features.dim), (5, 0, 0));
    }

    #[test]
    fn gzip_and_compact_ids() {
        let dir = directory(&[("labels.txt", "0\n1\n2\n"), ("train.txt", "70000000000\n")]);
        let file = std::fs::File::create(dir.path().join("edges.txt.gz")).unwrap();
        let mut gz = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        gz.write_all(b"# sparse\n70000000000 1\n1 12\n").unwrap();
        gz.finish().unwrap();
        let options = ImportOptions { compact_ids: true, ..Default::default() };
        let dataset = run(dir.path(), &options).unwrap();
        assert_eq!((edges(&dataset), dataset.split.train[0]), (vec![(2, 0), (0, 1)], 2));
        let error = run(dir.path(), &ImportOptions::default()).unwrap_err();
        assert!(error.contains("line 2: '70000000000' is not") && error.contains("compact-ids"), "{error}");
        std::fs::write(dir.path().join("train.txt"), "5\n").unwrap();
        assert!(run(dir.path(), &options).unwrap_err().contains("no edge names the node 5"));
        std::fs::write(dir.path().join("labels.txt"), "0\n1\n").unwrap();
        assert!(run(dir.path(), &options).unwrap_err().contains("name 3 different ids, but there are 2"));
    }

    #[test]
    fn faults_name_the_file_and_the_line() {
        let fails = |name: &str, text: &str, why: &str| {
            let dir = directory(WHOLE);
            std::fs::write(dir.path().join(name), text).unwrap();
            let error = run(dir.path(), &ImportOptions::default()).unwrap_err();
            assert!(error.contains(why) && error.contains(name), "{error}");
        };
        fails("edge_list.csv", "0,1\n0,3\n", "line 2: the edge joins nodes 0 and 3");
        fails("edge_list.csv", "0,1\n0,-1\n", "line 2: '-1' is not a node id");
        fails("edge_list.csv", "0,1\n0\n", "line 2: two node ids expected");
        fails("edge_list.csv", "0,1\nx,1\n", "line 2: 'x' is not");
        fails("edge_list.csv", "0,1\n0.5,1\n", "line 2: '0.5' is not");
        fails("features.csv", "1,2\n3\n5,6\n", "line 2: 1 values");
        fails("features.csv", "1,2\n3,nan\n5,6\n", "line 2: column 2: 'nan'");
        fails("labels.csv", "1\n0\n", "2 nodes, but");
        fails("labels.csv", "1\n0.5\n1\n", "line 2: column 1: '0.5' is not a class");
        fails("labels.csv", "1\n-2\n1\n", "node 1 is -2");
        fails("labels.csv", "1,0\n0,2\n1,0\n", "entry 1 of node 1");
        fails("split.json", r#"{"train": [3]}"#, "split 0, 'train'");
        fails("split.json", r#"{"train": []}"#, "empty");
        fails("split.json", r#"{"train": [0], "trial": [1]}"#, "line 1 column");
        fails("split.json", r#"{"train": [0]"#, "line 1 column");
        fails("edges.csv", "0,1\n", "both 'edge_list.csv' and 'edges.csv'");
        fails("edge_list.csv", "from,to\n", "holds no edges");
        let lone = directory(&[("edges.txt", "0 1\n5 4000000000\n")]);
        let error = run(lone.path(), &ImportOptions::default()).unwrap_err();
        assert!(error.contains("largest id is 4000000000, but there are only 2 edges"), "{error}");
        assert!(run(directory(&[]).path(), &ImportOptions::default()).unwrap_err().contains("no edges.*"));
        assert!(run(Path::new("absent.csv"), &ImportOptions::default()).unwrap_err().contains("cannot open"));
    }

    #[test]
    fn damage_is_an_error_or_harmless() {
        let dir = directory(WHOLE);
        for (name, text) in WHOLE {
            let path = dir.path().join(name);
            for length in 0..text.len() {
                std::fs::write(&path, &text[..length]).unwrap();
                let _ = run(dir.path(), &ImportOptions::default()); // a shorter table may be a table
            }
            for bit in 0..text.len() * 8 {
                let mut bad = text.as_bytes().to_vec();
                bad[bit / 8] ^= 1 << (bit % 8);
                std::fs::write(&path, &bad).unwrap();
                let _ = run(dir.path(), &ImportOptions::default()); // no panic
            }
            std::fs::write(&path, text).unwrap();
        }
        assert!(run(dir.path(), &ImportOptions::default()).is_ok());
    }
}
