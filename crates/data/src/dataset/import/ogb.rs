//! Import of an OGB node property directory (`ogb/io/read_graph_raw.py`,
//! `ogb/nodeproppred/dataset.py` of snap-stanford/ogb). `SRC` is the dataset's root, such as
//! `ogbn_arxiv/`:
//!
//! - text: `raw/edge.csv.gz` (source, destination), `raw/num-node-list.csv.gz`,
//!   `raw/num-edge-list.csv.gz`, `raw/node-feat.csv.gz`, `raw/node-label.csv.gz` (a column per
//!   task);
//! - binary (papers100M): `raw/data.npz` (`edge_index` of shape `[2, E]`, `num_nodes_list`,
//!   `node_feat`) and `raw/node-label.npz` (`node_label`);
//! - `split/NAME/{train,valid,test}.csv.gz`: an id per line; one split per directory, by name.
//!
//! One task is a class per node, NaN (or an empty line) if unknown; several tasks of zeros and ones
//! are a set of classes per node, or only NaN if unknown. Other files (`node_year`, `node_species`,
//! `edge-feat`, `split_dict.pt`) are not read; the typed importer `ogb-nodes` reads `edge-feat`.
//!
//! OGB lists the edges of products and proteins once and adds their reverse when it loads them
//! (`add_inverse_edge` in its `master.csv`), so these two become undirected; arxiv and papers100M
//! stay directed.

use std::path::{Path, PathBuf};

use graphmill_core::{
    Buffer, EdgeOptions, Error, Features, Labels, NodeId, Result, Split, location::Location,
};

use super::{
    ImportOptions, ImportReport, Raw,
    edges::{
        text::{finite, for_each_batch, table, whole, width},
        weights::{Weights, unread_columns},
    },
    feature_rows, label_rows,
    pairs::{Shape, Sink},
    splits,
};
use crate::{
    external::{Edges, Needs, Scratch},
    npz::Npz,
};

/// Reads the directory `src`.
pub(super) fn read(src: &Path, options: &ImportOptions, scratch: &Scratch) -> Result<Raw> {
    let raw = src.join("raw");
    refuse_others(src, &raw)?;
    // Even "." needs a name, because the name decides on inverse edges.
    let root = src.canonicalize().map_err(|e| Error::io(src, "open", e))?;
    let name = root.file_name().unwrap_or_default().to_string_lossy().replace('_', "-");
    let mut edges = scratch.edges(edge_options(&name, options));
    let Parts { num_nodes, features, labels } = if raw.join("data.npz").is_file() {
        read_binary(&raw, &mut edges, scratch)?
    } else {
        read_text(&raw, &mut edges, scratch)?
    };
    if features.dim == 0 {
        scratch.note("there is no node-feat: the nodes have no features");
    }
    if find(&raw, "edge-feat").is_some() {
        scratch.note(
            "edge-feat is not read; import the directory as 'ogb-nodes', which keeps the features of edges",
        );
    }
    let mut report = unread(&raw)?;
    report.ignore_unread(src, |name| ["raw", "split"].contains(&name))?;
    let splits = read_splits(&src.join("split"), num_nodes, scratch)?;
    // OGB scores all single-label datasets by accuracy, and proteins with its many tasks by
    // ROC-AUC.
    let metric = if labels.is_multi() { "roc-auc" } else { "accuracy" };
    let metric = (labels.classes() > 0).then(|| metric.into());
    Ok(Raw { name, num_nodes, edges, features, labels, splits, metric, report, ..Raw::default() })
}

/// Reports the unread contents of the directory `raw`.
fn unread(raw: &Path) -> Result<ImportReport> {
    const BINARY: [&str; 2] = ["data.npz", "node-label.npz"];
    const TEXT: [&str; 5] = ["edge", "num-node-list", "num-edge-list", "node-feat", "node-label"];
    let binary = raw.join(BINARY[0]).is_file();
    let stem = |name: &str| name.trim_end_matches(".gz").strip_suffix(".csv").map(str::to_string);
    let is_read = |name: &str| match binary {
        true => BINARY.contains(&name),
        false => {
            stem(name).is_some_and(|stem| TEXT.contains(&&*stem) && find(raw, &stem) == Some(raw.join(name)))
        }
    };
    let entries = std::fs::read_dir(raw).map_err(|e| Error::io(raw, "look into", e))?;
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.retain(|name| !is_read(name));
    names.sort_unstable();
    let mut report = ImportReport::default();
    names.into_iter().for_each(|name| report.ignore(format!("raw/{name}")));
    if let Some(path) = find(raw, "edge").filter(|_| !binary) {
        report.ignore_columns("edge", unread_columns(&path, 2, &Weights::None)?);
    }
    Ok(report)
}

/// Edge options of OGB's loader for the dataset `name`: an inverse of each edge, and no other
/// change.
fn edge_options(name: &str, options: &ImportOptions) -> EdgeOptions {
    let options = options.edge_options(false);
    let inverse = ["products", "proteins"].contains(&name.strip_prefix("ogbn-").unwrap_or(name));
    EdgeOptions { undirected: options.undirected || inverse, ..options }
}

/// Rejects other directories, naming their contents.
fn refuse_others(src: &Path, raw: &Path) -> Result<()> {
    let at = Location::new(src, "directory");
    if !src.is_dir() {
        std::fs::metadata(src).map_err(|e| Error::io(src, "open", e))?;
        return Err(at.error("this is a file; name the root of an OGB dataset, such as ogbn_arxiv"));
    }
    if !raw.is_dir() {
        let message = match src.join("edge.csv.gz").is_file() || src.join("data.npz").is_file() {
            true => "this looks like the 'raw' directory itself; name its parent, such as ogbn_arxiv",
            false => "there is no 'raw' directory; name the root of an OGB dataset, such as ogbn_arxiv",
        };
        return Err(at.error(message));
    }
    let hetero = ["num-node-dict.csv.gz", "triplet-type-list.csv.gz", "edge_index_dict.npz", "relations"];
    match hetero.into_iter().find(|name| raw.join(name).exists()) {
        Some(name) => Err(Location::new(raw, name)
            .error("a graph of several types of nodes (ogbn-mag); import it as 'ogb-hetero'")),
        None => Ok(()),
    }
}

struct Parts {
    num_nodes: usize,
    features: Features,
    labels: Labels,
}

fn read_text(raw: &Path, edges: &mut Edges, scratch: &Scratch) -> Result<Parts> {
    let node_list = required(raw, "num-node-list")?;
    let num_nodes = only_count(&node_list, node_list_values(&node_list)?)?;
    let edge_path = required(raw, "edge")?;
    let edge_list = required(raw, "num-edge-list")?;
    let expected = only_count(&edge_list, node_list_values(&edge_list)?)? as u64;
    let feature_path = find(raw, "node-feat");
    let width = feature_path.as_deref().map(width).transpose()?.unwrap_or(0);
    let mut sink = Sink { edges, nodes: num_nodes, scratch };
    sink.expect(Needs { edges: expected, ..Needs::default() }, feature_rows::bytes(&[num_nodes, width]))?;
    sink.text(&edge_path, None)?;
    if edges.len() != expected {
        let message = format!("{} edges, but {} says {expected}", edges.len(), edge_list.display());
        return Err(Location::new(&edge_path, "rows").error(message));
    }
    let features = match feature_path {
        Some(path) => text_features(&path, num_nodes, scratch)?,
        None => Features::default(),
    };
    let path = required(raw, "node-label")?;
    let mut rows = label_rows::LabelRows::new(num_nodes, Location::new(&path, "labels"));
    for_each_batch(&path, label_rows::EXPECTED, label_rows::parse, |columns, batch| {
        rows.extend(columns, batch)
    })?;
    Ok(Parts { num_nodes, features, labels: rows.finish()? })
}

/// Values of a list with one entry per graph.
fn node_list_values(path: &Path) -> Result<Vec<u64>> {
    Ok(table(path, "a number (of nodes or edges)", whole::<u64>)?.data)
}

/// Single entry of such a list, which must have exactly one graph.
fn only_count(path: &Path, values: Vec<u64>) -> Result<usize> {
    let at = Location::new(path, "values");
    match values[..] {
        [count] => {
            usize::try_from(count).map_err(|_| at.error(format!("{count} is more than can be numbered")))
        }
        _ => Err(at.error(format!(
            "{} graphs; one was expected: datasets of many graphs (graph property prediction) are not \
             supported",
            values.len()
        ))),
    }
}

fn text_features(path: &Path, nodes: usize, scratch: &Scratch) -> Result<Features> {
    let at = Location::new(path, "features");
    // The first row determines the width, so the first batch opens the table.
    let mut sink: Option<feature_rows::Sink> = None;
    for_each_batch(path, "a finite number", finite, |columns, batch| {
        let sink = match &mut sink {
            Some(sink) => sink,
            None => sink.insert(feature_rows::Sink::new(scratch, &[nodes, columns], nodes, &at)?),
        };
        sink.extend(batch)
    })?;
    match sink {
        Some(sink) => sink.finish(),
        None => Ok(Features::default()),
    }
}

fn read_binary(raw: &Path, edges: &mut Edges, scratch: &Scratch) -> Result<Parts> {
    let path = raw.join("data.npz");
    let mut npz = Npz::open(&path)?;
    let num_nodes = only_count(&path, npz.read_as::<u64>("num_nodes_list")?.data)?;
    let feature_bytes = match npz.contains("node_feat") {
        true => feature_rows::bytes(&npz.header("node_feat")?.shape),
        false => 0,
    };
    let mut sink = Sink { edges, nodes: num_nodes, scratch };
    let count = npz.header("edge_index")?.len() as u64 / 2;
    sink.expect(Needs { edges: count, ..Needs::default() }, feature_bytes)?;
    sink.npz(&mut npz, "edge_index", Shape::TwoRows, None)?;
    let features = match npz.contains("node_feat") {
        true => feature_rows::from_npz(&mut npz, "node_feat", num_nodes, scratch)?,
        false => Features::default(),
    };
    let mut npz = Npz::open(raw.join("node-label.npz"))?;
    let labels = label_rows::from_npz(&mut npz, "node_label", num_nodes)?;
    Ok(Parts { num_nodes, features, labels })
}

/// Reads one split per directory in `dir`, by name.
fn read_splits(dir: &Path, nodes: usize, scratch: &Scratch) -> Result<Vec<Split>> {
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    let entries = std::fs::read_dir(dir).map_err(|e| Error::io(dir, "look into", e))?;
    let mut names: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()).collect();
    names.sort();
    if names.len() > 1 {
        let list = names.iter().enumerate().map(|(k, path)| {
            format!("given:{k} is '{}'", path.file_name().unwrap_or_default().to_string_lossy())
        });
        scratch.note(&format!("splits: {}", list.collect::<Vec<_>>().join(", ")));
    }
    let part = |path: Option<PathBuf>| match path {
        Some(path) => read_ids(&path, nodes),
        None => Ok(Buffer::default()),
    };
    let split = |dir: &PathBuf| {
        let train = Some(required(dir, "train")?);
        Ok(Split { train: part(train)?, valid: part(find(dir, "valid"))?, test: part(find(dir, "test"))? })
    };
    names.iter().map(split).collect()
}

fn read_ids(path: &Path, nodes: usize) -> Result<Buffer<NodeId>> {
    let table = table(path, "a node id (a whole number)", whole::<u64>)?;
    let at = Location::new(path, "ids");
    if table.columns != 1 {
        return Err(at.error(format!("one id per line expected, {} columns found", table.columns)));
    }
    splits::from_ids(table.data, nodes, &at)
}

/// Path of the table `name` in `dir`, compressed or not.
fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    let paths = [".csv.gz", ".csv"].map(|ending| dir.join(format!("{name}{ending}")));
    paths.into_iter().find(|path| path.is_file())
}

fn required(dir: &Path, name: &str) -> Result<PathBuf> {
    find(dir, name).ok_or_else(|| Error::format(dir, "directory", format!("there is no {name}.csv.gz")))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};
    use graphmill_core::features::FeatureData;

    use super::*;
    use crate::{
        Dataset,
        dataset::import::testing::import,
        npz::testing::{archive, member},
    };

    fn write(path: &Path, text: &str) {
        let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
        gz.write_all(text.as_bytes()).unwrap();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, gz.finish().unwrap()).unwrap();
    }

    const TEXT: &[(&str, &str)] = &[
        ("raw/num-node-list.csv.gz", "4\n"),
        ("raw/num-edge-list.csv.gz", "3\n"),
        ("raw/edge.csv.gz", "0,1\n1,2\n3,3\n"),
        ("raw/node-feat.csv.gz", "1,2\n3,4\n5,-6e-1\n7,8\n"),
        ("raw/node-label.csv.gz", "0\n2\nnan\n1.0\n"),
        ("raw/node_year.csv.gz", "1999\n1999\n1999\n1999\n"),
        ("split/time/train.csv.gz", "1\n"),
        ("split/time/valid.csv.gz", "0\n"),
        ("split/time/test.csv.gz", "3\n"),
        ("split/again/train.csv.gz", "3\n0\n"),
    ];

    fn directory(name: &str, files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join(name);
        std::fs::create_dir(&root).unwrap();
        files.iter().for_each(|(name, text)| write(&root.join(name), text));
        (dir, root)
    }

    fn run(root: &Path) -> Result<Dataset, String> {
        import("ogb", root, &ImportOptions::default()).map_err(|e| e.to_string())
    }

    fn check(dataset: &Dataset) {
        let FeatureData::F32(data) = &dataset.features.data else { panic!() };
        assert_eq!((dataset.features.dim, &data[..]), (2, &[1., 2., 3., 4., 5., -0.6, 7., 8.][..]));
        let Labels::Single { class, classes: 3 } = &dataset.labels else { panic!() };
        assert_eq!(class[..], [0, 2, -1, 1]);
        assert_eq!((dataset.graph.in_neighbors(2), dataset.graph.in_neighbors(3)), (&[1][..], &[3][..]));
        assert_eq!(dataset.metric.as_deref(), Some("accuracy"));
    }

    #[test]
    fn tables_of_text() {
        let (_dir, root) = directory("ogbn_arxiv", TEXT);
        let dataset = run(&root).unwrap();
        check(&dataset);
        assert_eq!((dataset.name.as_str(), dataset.graph.num_edges()), ("ogbn-arxiv", 3));
        assert_eq!(dataset.split.train[..], [0, 3], "'again' comes before 'time'");
        let options = ImportOptions { split: Some("given:1".parse().unwrap()), ..Default::default() };
        let split = import("ogb", &root, &options).unwrap().split;
        assert_eq!((split.train[0], split.valid[0], split.test[0]), (1, 0, 3));
    }

    #[test]
    fn products_and_proteins_get_inverse_edges() {
        for name in ["ogbn_products", "ogbn-proteins", "products"] {
            let (_dir, root) = directory(name, TEXT);
            let dataset = run(&root).unwrap();
            assert_eq!(
                (dataset.graph.num_edges(), dataset.graph.in_neighbors(1)),
                (5, &[0, 2][..]),
                "{name}"
            );
        }
    }

    #[test]
    fn many_tasks_are_sets_of_classes_and_features_may_be_missing() {
        let (_dir, root) = directory("ogbn_proteins", TEXT);
        write(&root.join("raw/node-label.csv.gz"), "1,0\n0,0\n1,1\n0,1\n");
        std::fs::remove_file(root.join("raw/node-feat.csv.gz")).unwrap();
        let dataset = run(&root).unwrap();
        let Labels::Multi { member, classes: 2 } = &dataset.labels else { panic!() };
        assert_eq!((&member[..], dataset.features.dim), (&[1, 0, 0, 0, 1, 1, 0, 1][..], 0));
        assert_eq!(dataset.metric.as_deref(), Some("roc-auc"));
    }

    fn binary() -> (tempfile::TempDir, PathBuf) {
        let (dir, root) = directory("ogbn_papers100M", &TEXT[6..]);
        std::fs::create_dir(root.join("raw")).unwrap();
        let members = [
            member("edge_index", &[2, 3], &[0i64, 1, 3, 1, 2, 3]),
            member("num_nodes_list", &[1], &[4i64]),
            member("num_edges_list", &[1], &[3i64]),
            member("node_feat", &[4, 2], &[1f32, 2., 3., 4., 5., -0.6, 7., 8.]),
            member("node_year", &[4, 1], &[1999i64; 4]),
        ];
        std::fs::write(root.join("raw/data.npz"), archive(&members, true)).unwrap();
        let labels = [member("node_label", &[4, 1], &[0f32, 2., f32::NAN, 1.])];
        std::fs::write(root.join("raw/node-label.npz"), archive(&labels, true)).unwrap();
        (dir, root)
    }

    #[test]
    fn the_binary_layout() {
        let (_dir, root) = binary();
        let dataset = run(&root).unwrap();
        check(&dataset);
        assert_eq!((dataset.name.as_str(), dataset.graph.num_edges()), ("ogbn-papers100M", 3));
    }

    #[test]
    fn missing_labels_keep_their_row_with_and_without_a_header() {
        for (labels, expected) in [
            ("label\n0\n\n1\n0\n", [0, -1, 1, 0]),
            ("0\n\n1\n0\n", [0, -1, 1, 0]),
            ("\"\"\n0\n1\n\"\"\n", [-1, 0, 1, -1]),
            ("nan\n0.0\n1.0\nnan\n", [-1, 0, 1, -1]),
            ("label\nnan\n0\n1\n\n", [-1, 0, 1, -1]),
        ] {
            let (_dir, root) = directory("ogbn_arxiv", TEXT);
            std::fs::remove_dir_all(root.join("split")).unwrap();
            write(&root.join("raw/node-label.csv.gz"), labels);
            let Labels::Single { class, .. } = run(&root).unwrap().labels else { panic!() };
            assert_eq!(class[..], expected, "{labels:?}");
        }
    }

    #[test]
    fn files_that_are_not_read_are_reported() {
        let (_dir, root) = directory("ogbn_arxiv", TEXT);
        write(&root.join("raw/node_year.csv.gz"), "2001\n");
        write(&root.join("raw/edge-feat.csv.gz"), "1\n");
        let report = crate::dataset::import::import("ogb", &root, &ImportOptions::default()).unwrap().report;
        assert_eq!(report.ignored_parts, ["raw/edge-feat.csv.gz", "raw/node_year.csv.gz"]);
        assert!(report.ignored_columns.is_empty());
    }

    #[test]
    fn faults_name_the_file_and_the_line() {
        let fails = |name: &str, text: &str, why: &str| {
            let (_dir, root) = directory("ogbn_arxiv", TEXT);
            write(&root.join(name), text);
            let error = run(&root).unwrap_err();
            assert!(error.contains(why) && error.contains(name), "{error}");
        };
        fails("raw/edge.csv.gz", "0,1\n1,4\n3,3\n", "line 2: the edge joins nodes 1 and 4, but there are 4");
        fails("raw/edge.csv.gz", "0,1\n1,2\n", "2 edges, but");
        fails("raw/num-node-list.csv.gz", "2\n2\n", "2 graphs; one was expected");
        fails("raw/num-node-list.csv.gz", "x\n4\n0\n", "2 graphs");
        fails("raw/node-feat.csv.gz", "1,2\n3,4\n", "2 rows of features, but there are 4 nodes");
        fails("raw/node-feat.csv.gz", "1,2\n3,nan\n5,6\n7,8\n", "line 2: column 2: 'nan' is not a finite");
        fails("raw/node-label.csv.gz", "0\n1\n2\n", "3 rows of labels, but there are 4 nodes");
        fails("raw/node-label.csv.gz", "0\n1\n2\n3\n4\n", "rows of labels, but there are 4 nodes");
        fails("raw/node-label.csv.gz", "0\n1\n0.5\n1\n", "line 3: column 1: '0.5' is not a class");
        fails("raw/node-label.csv.gz", "0\n1\n-2\n1\n", "node 2 is -2");
        fails("raw/node-label.csv.gz", "0,1\n0,1\n0,nan\n0,1\n", "entry 1 of node 2 is missing");
        fails("raw/node-label.csv.gz", "0,1\n0,1\n0,2\n0,1\n", "entry 1 of node 2 is 2");
        fails("raw/node-label.csv.gz", "0,1\n\n0,1\n0,1\n0,1\n", "line 2: the line is empty");
        fails("raw/node-feat.csv.gz", "1,2\n3,4\n5,6\n7,8\n\n", "line 5: the line is empty");
        fails("split/time/train.csv.gz", "1\n\n", "line 2: the line is empty, but a node id");
        fails("split/time/train.csv.gz", "4\n", "ids: entry 0 is node 4");
        fails("split/time/train.csv.gz", "1,0\n", "2 columns");
        let (_dir, root) = directory("ogbn_arxiv", TEXT);
        std::fs::remove_file(root.join("raw/node-label.csv.gz")).unwrap();
        assert!(run(&root).unwrap_err().contains("raw: directory: there is no node-label.csv.gz"));
        assert!(run(&root.join("raw")).unwrap_err().contains("name its parent"));
        assert!(run(&root.join("split")).unwrap_err().contains("no 'raw' directory"));
        assert!(run(&root.join("absent")).unwrap_err().contains("cannot open"));
        let (_dir, root) = directory("ogbn_mag", &[("raw/triplet-type-list.csv.gz", "a,b,c\n")]);
        assert!(run(&root).unwrap_err().contains("several types of nodes"));
        let (_dir, root) = binary();
        let labels = [member("node_label", &[4, 1], &[0f32, 2., 0.5, 1.])];
        std::fs::write(root.join("raw/node-label.npz"), archive(&labels, true)).unwrap();
        let error = run(&root).unwrap_err();
        assert!(error.contains("member node_label.npy: label of node 2 is 0.5"), "{error}");
    }

    #[test]
    fn damage_is_an_error_or_harmless() {
        let (_dir, text) = directory("ogbn_arxiv", &TEXT[..8]);
        let (_other, binary) = binary();
        let files = [
            "raw/edge.csv.gz",
            "raw/num-node-list.csv.gz",
            "raw/node-label.csv.gz",
            "split/time/train.csv.gz",
        ];
        let files = files.map(|name| (&text, name));
        for (root, name) in
            files.into_iter().chain([(&binary, "raw/data.npz"), (&binary, "raw/node-label.npz")])
        {
            let path = root.join(name);
            let good = std::fs::read(&path).unwrap();
            for length in (0..good.len()).step_by(3) {
                std::fs::write(&path, &good[..length]).unwrap();
                assert!(run(root).is_err(), "{name} truncated to {length}");
            }
            for bit in (0..good.len() * 8).step_by(13) {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                std::fs::write(&path, &bad).unwrap();
                let _ = run(root); // no panic
            }
            std::fs::write(&path, &good).unwrap();
            assert!(run(root).is_ok());
        }
    }
}
