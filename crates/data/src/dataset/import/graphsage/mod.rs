//! Import of GraphSAGE's files (README of williamleif/GraphSAGE), by their common prefix:
//!
//! - `<prefix>-G.json`: the graph in networkx's node-link JSON, with nodes marked `val` and `test`
//!   (all others with marks train); undirected unless it has `"directed": true`.
//! - `<prefix>-id_map.json`: node id to row. Nodes missing from it are dropped with their links, as
//!   GraphSAGE drops the few of Reddit without marks. Without the file, rows are in node order.
//! - `<prefix>-class_map.json`: node id to class, or to a list of zeros and ones. An unlabelled
//!   node must not be marked: omit its `val` and `test`.
//! - `<prefix>-feats.npy`: a row per node; optional.
//!
//! `SRC` is the prefix, or a directory with one such dataset, or the PPI dataset in DGL's layout
//! (see [`parts`]). Walks (`<prefix>-walks.txt`) and the marks `train_removed`, `test_removed` of
//! links are not read.

mod node_link;
mod numbering;
mod parts;

use std::path::{Path, PathBuf};

use graphmill_core::{
    Buffer, EdgeOptions, Error, Features, Result, Split, location::Location, progress::Unit,
};
use node_link::{NodeLink, Role};
use numbering::{NO_ROW, Numbering};

use super::{ImportOptions, ImportReport, Raw, blocks::Blocks, class_map, feature_rows, splits};
use crate::{
    external::{Edges, Needs, Scratch},
    npy,
};

/// Reads the files of the prefix `src`, or those in the directory `src`.
pub(super) fn read(src: &Path, options: &ImportOptions, scratch: &Scratch) -> Result<Raw> {
    if src.join("train_graph.json").is_file() {
        return parts::read(src, options, scratch);
    }
    let prefix = find_prefix(src)?;
    let file = |ending: &str| {
        let mut path = prefix.clone().into_os_string();
        path.push(ending);
        PathBuf::from(path)
    };
    let graph = NodeLink::open(&file("-G.json"))?;
    let id_map = file("-id_map.json");
    let numbering = match id_map.exists() {
        true => Numbering::by_map(graph.path(), graph.keys(), &id_map)?,
        false => Numbering::by_place(graph.path(), graph.keys(), 0)?,
    };
    let mut report =
        ImportReport { nodes_dropped: numbering.num_without_row() as u64, ..ImportReport::default() };
    const FILES: [&str; 4] = ["-G.json", "-id_map.json", "-feats.npy", "-class_map.json"];
    if src.is_dir() {
        let read = FILES.map(file);
        report.ignore_unread(src, |name| read.contains(&src.join(name)))?;
    } else if file("-walks.txt").is_file() {
        report.ignore(format!("{}-walks.txt", name_of(&prefix)));
    }
    let num_nodes = numbering.len();
    let features = file("-feats.npy");
    let features = if features.exists() { Some(npy::open(features)?) } else { None };
    let mut edges = scratch.edges(edge_options(graph.directed, options));
    scratch.expect(&Needs {
        nodes: num_nodes as u64,
        edges: graph.estimated_links().saturating_mul(edges.directions()),
        features: features.as_ref().map_or(0, |array| feature_rows::bytes(&array.shape)),
        weighted: false,
        estimated: true,
    })?;
    if !edges.take_up_all() {
        edges = push_links(&graph, &numbering, edges, scratch)?;
    }
    let features = match features {
        Some(array) => feature_rows::from_npy(&array, num_nodes, scratch)?,
        None => Features::default(),
    };
    let labels = class_map::read(&file("-class_map.json"), num_nodes, |key| match numbering.of(key) {
        Some(NO_ROW) => Ok(None),
        Some(row) => Ok(Some(row as usize)),
        None => Err(format!("'{}' is not a node", key.escape_debug())),
    })?;
    let split = split(&graph, &numbering)?;
    let name = name_of(&prefix);
    let splits = split.into_iter().collect();
    Ok(Raw { name, num_nodes, edges, features, labels, splits, report, ..Raw::default() })
}

/// Edge options of a graph that is undirected unless it is declared directed; self-loops and
/// duplicates are kept.
fn edge_options(directed: bool, options: &ImportOptions) -> EdgeOptions {
    let options = options.edge_options(false);
    EdgeOptions { undirected: options.undirected || !directed, ..options }
}

/// Collects the links.
fn push_links(graph: &NodeLink, numbering: &Numbering, edges: Edges, scratch: &Scratch) -> Result<Edges> {
    scratch.stage(&format!("edges of {}", name_of(graph.path())), None, Unit::Edges);
    let mut blocks = Blocks::new(edges);
    let mut done = 0u64;
    let gone = graph.links(numbering, |src, dst| {
        done += 1;
        if done.is_multiple_of(1 << 16) {
            scratch.done(done);
        }
        blocks.push(src, dst)
    })?;
    let mut edges = blocks.finish()?;
    edges.count_dropped(gone);
    Ok(edges)
}

/// Reads the split of the marked nodes; `None` if no node is marked.
fn split(graph: &NodeLink, numbering: &Numbering) -> Result<Option<Split>> {
    let part = |role| {
        let marked = graph.roles.iter().enumerate().filter(|(_, found)| **found == Some(role));
        let rows = marked.filter_map(|(place, _)| numbering.at(place)).filter(|&row| row != NO_ROW);
        let ids: Vec<u64> = rows.map(u64::from).collect();
        match ids.is_empty() {
            true => Ok(Buffer::default()),
            false => splits::from_ids(ids, numbering.len(), &Location::new(graph.path(), "nodes")),
        }
    };
    let split = Split { train: part(Role::Train)?, valid: part(Role::Valid)?, test: part(Role::Test)? };
    Ok(split.parts().iter().any(|(_, ids)| !ids.is_empty()).then_some(split))
}

/// Finds the common prefix of the files.
fn find_prefix(src: &Path) -> Result<PathBuf> {
    const GRAPH: &str = "-G.json";
    let without = |path: &Path| path.to_str().and_then(|text| text.strip_suffix(GRAPH)).map(PathBuf::from);
    if !src.is_dir() {
        return Ok(without(src).unwrap_or_else(|| src.to_path_buf()));
    }
    let entries = std::fs::read_dir(src).map_err(|e| Error::io(src, "look into", e))?;
    let mut found: Vec<PathBuf> = entries.filter_map(|entry| without(&entry.ok()?.path())).collect();
    found.sort();
    let at = Location::new(src, "directory");
    match &found[..] {
        [] => Err(at.error(
            "neither a file *-G.json (GraphSAGE) nor train_graph.json (PPI in DGL's layout) in this \
                directory",
        )),
        [one] => Ok(one.clone()),
        several => {
            let names = several.iter().map(|path| name_of(path)).collect::<Vec<_>>().join(", ");
            Err(at.error(format!("several datasets: {names}; name one, as directory/name")))
        }
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use graphmill_core::{Labels, features::FeatureData};

    use super::*;
    use crate::{Dataset, dataset::import::testing::import};

    const FILES: &[(&str, &str)] = &[
        (
            "x-G.json",
            r#"{"directed": false, "graph": {}, "nodes": [
                {"id": "a", "test": false, "val": false}, {"id": "b", "test": false, "val": true},
                {"id": "?"}, {"id": "c", "test": true, "val": false}, {"id": "d"}],
                "links": [{"source": 0, "target": 3}, {"source": 1, "target": 1}, {"source": 2, "target": 0}]}"#,
        ),
        ("x-id_map.json", r#"{"c": 0, "a": 1, "b": 2, "d": 3}"#),
        ("x-class_map.json", r#"{"a": 1, "b": 0, "c": 2}"#),
    ];

    fn directory() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        FILES.iter().for_each(|(name, text)| std::fs::write(dir.path().join(name), text).unwrap());
        npy::write(dir.path().join("x-feats.npy"), &[1f64, 2., 3., 4.], &[4, 1]).unwrap();
        dir
    }

    fn run(src: &Path) -> Result<Dataset, String> {
        import("graphsage", src, &ImportOptions::default()).map_err(|e| e.to_string())
    }

    #[test]
    fn rows_follow_the_id_map() {
        let dir = directory();
        for src in [dir.path().to_path_buf(), dir.path().join("x"), dir.path().join("x-G.json")] {
            let dataset = run(&src).unwrap();
            assert_eq!((dataset.name.as_str(), dataset.num_nodes()), ("x", 4));
            let graph = &dataset.graph;
            assert_eq!((graph.in_neighbors(0), graph.in_neighbors(1)), (&[1][..], &[0][..]));
            assert_eq!((graph.in_neighbors(2), graph.in_degree(3)), (&[2][..], 0));
            let FeatureData::F32(data) = &dataset.features.data else { panic!() };
            assert_eq!(data[..], [1., 2., 3., 4.]);
            let Labels::Single { class, classes: 3 } = &dataset.labels else { panic!() };
            assert_eq!(class[..], [2, 1, 0, -1]);
            let Split { train, valid, test } = &dataset.split;
            assert_eq!((&train[..], &valid[..], &test[..]), (&[1][..], &[2][..], &[0][..]));
        }
    }

    #[test]
    fn optional_files_may_be_missing() {
        let dir = directory();
        std::fs::remove_file(dir.path().join("x-feats.npy")).unwrap();
        assert_eq!(run(dir.path()).unwrap().features.dim, 0);
        std::fs::remove_file(dir.path().join("x-id_map.json")).unwrap();
        let dataset = run(dir.path()).unwrap();
        assert_eq!((dataset.num_nodes(), dataset.graph.in_neighbors(0)), (5, &[2, 3][..]));
        std::fs::remove_file(dir.path().join("x-class_map.json")).unwrap();
        assert!(run(dir.path()).unwrap_err().contains("x-class_map.json: cannot open"));
    }

    #[test]
    fn errors_contain_the_file() {
        let fails = |name: &str, text: &str, why: &str| {
            let dir = directory();
            std::fs::write(dir.path().join(name), text).unwrap();
            let error = run(dir.path()).unwrap_err();
            assert!(error.contains(why) && error.contains(name), "{error}");
        };
        fails(
            "x-id_map.json",
            r#"{"a": 0, "b": 2}"#,
            "rows: 'b' has the row 2: the rows of 2 ids are 0 to 1",
        );
        fails("x-id_map.json", r#"{"a": 0, "b": 0}"#, "has the row 0");
        fails("x-id_map.json", r#"{"a": 0, "a": 1}"#, "line 1 column 16: 'a' occurs twice");
        fails("x-id_map.json", r#"{"a": -1}"#, "line 1 column 8");
        fails("x-class_map.json", r#"{"z": 1}"#, "'z' is not a node");
        fails("x-class_map.json", r#"{"a": [1], "b": 1}"#, "mixed");
        fails("x-class_map.json", r#"{"a": 1, "a": 1}"#, "node a occurs twice");
        fails(
            "x-G.json",
            r#"{"nodes": [{"id": "a"}], "links": [{"source": "a", "target": "q"}]}"#,
            "ends at 'q'",
        );
        let dir = directory();
        npy::write(dir.path().join("x-feats.npy"), &[1f64, 2.], &[2, 1]).unwrap();
        assert!(run(dir.path()).unwrap_err().contains("x-feats.npy: features: shape [4, features]"));
        std::fs::write(dir.path().join("y-G.json"), "").unwrap();
        assert!(run(dir.path()).unwrap_err().contains("several datasets: x, y"));
        assert!(run(&dir.path().join("z")).unwrap_err().contains("z-G.json: cannot open"));
        assert!(run(tempfile::tempdir().unwrap().path()).unwrap_err().contains("neither a file *-G.json"));
    }

    #[test]
    fn damage_is_an_error_or_harmless() {
        for (name, text) in FILES {
            let dir = directory();
            let path = dir.path().join(name);
            for length in (0..text.len()).step_by(3) {
                std::fs::write(&path, &text[..length]).unwrap();
                assert!(run(dir.path()).is_err(), "{name} truncated to {length}");
            }
            for bit in 0..text.len() * 8 {
                let mut bad = text.as_bytes().to_vec();
                bad[bit / 8] ^= 1 << (bit % 8);
                std::fs::write(&path, &bad).unwrap();
                let _ = run(dir.path()); // no panic
            }
        }
    }
}
