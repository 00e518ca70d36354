//! Import of the PPI dataset in DGL's layout (`dgl/data/ppi.py`): for each part of the split
//! (`train`, `valid`, `test`) the graphs of the part as one, `<part>_graph.json` (node-link JSON),
//! `<part>_feats.npy`, `<part>_labels.npy`, and `<part>_graph_id.npy` with the graph of each node.
//! The parts are concatenated to one dataset of several graphs.

use std::path::{Path, PathBuf};

use graphmill_core::{Buffer, Features, NodeId, Result, Split, location::Location};

use super::{
    super::{
        ImportOptions, ImportReport, Raw, feature_rows,
        label_rows::{self, LabelRows},
    },
    edge_options, name_of,
    node_link::NodeLink,
    numbering::Numbering,
    push_links,
};
use crate::{
    dataset::NamedGraph,
    external::{Needs, Scratch},
    npy::{self, NpyFile},
};

/// Reads the directory `src`.
pub(super) fn read(src: &Path, options: &ImportOptions, scratch: &Scratch) -> Result<Raw> {
    let mut parts = Vec::new();
    for name in ["train", "valid", "test"] {
        let path = src.join(format!("{name}_graph.json"));
        if path.exists() {
            parts.push(Part { dir: src, name, graph: NodeLink::open(&path)? });
        }
    }
    let directed = parts[0].graph.directed; // the caller has found the training graph
    if let Some(other) = parts.iter().find(|part| part.graph.directed != directed) {
        let message = format!("\"directed\" is {}, but {directed} in the training graph", !directed);
        return Err(Location::new(other.graph.path(), "document").error(message));
    }
    let num_nodes: usize = parts.iter().map(|part| part.graph.len()).sum();
    if num_nodes >= NodeId::MAX as usize {
        return Err(Location::new(src, "nodes").error("more nodes than 32-bit ids can number"));
    }
    let arrays = feature_files(&parts)?;
    let mut edges = scratch.edges(edge_options(directed, options));
    let links: u64 = parts.iter().map(|part| part.graph.estimated_links()).sum();
    scratch.expect(&Needs {
        nodes: num_nodes as u64,
        edges: links.saturating_mul(edges.directions()),
        features: arrays.iter().map(|array| feature_rows::bytes(&array.shape)).sum(),
        weighted: false,
        estimated: true,
    })?;
    let complete = edges.take_up_all();
    let mut graphs: Vec<NamedGraph> = Vec::new();
    let mut ids = Vec::new();
    let mut first = 0;
    for part in &parts {
        if !complete {
            let numbering = Numbering::by_place(part.graph.path(), part.graph.keys(), first as NodeId)?;
            edges = push_links(&part.graph, &numbering, edges, scratch)?;
        }
        part.add_graphs(&mut graphs, first)?;
        let end = first + part.graph.len();
        ids.push((part.name, (first as NodeId..end as NodeId).collect::<Vec<_>>()));
        first = end;
    }
    let mut of = |part: &str| -> Buffer<NodeId> {
        ids.iter_mut()
            .find(|(name, _)| *name == part)
            .map(|(_, ids)| std::mem::take(ids))
            .unwrap_or_default()
            .into()
    };
    let split = Split { train: of("train"), valid: of("valid"), test: of("test") };
    let features = features(&parts, &arrays, num_nodes, scratch)?;
    let labels_at = parts[0].file("labels.npy");
    let mut labels = LabelRows::new(num_nodes, Location::new(&labels_at, "labels"));
    for part in &parts {
        let array = npy::open(part.file("labels.npy"))?;
        label_rows::extend_from_npy(&mut labels, &array, part.graph.len())?;
    }
    let labels = labels.finish()?;
    let name = name_of(src);
    const FILES: [&str; 4] = ["graph.json", "labels.npy", "graph_id.npy", "feats.npy"];
    let read: Vec<PathBuf> = parts.iter().flat_map(|part| FILES.map(|ending| part.file(ending))).collect();
    let mut report = ImportReport::default();
    report.ignore_unread(src, |name| read.contains(&src.join(name)))?;
    Ok(Raw {
        name,
        num_nodes,
        edges,
        features,
        labels,
        splits: vec![split],
        graphs,
        report,
        ..Raw::default()
    })
}

/// Part of the split.
struct Part<'a> {
    dir: &'a Path,
    name: &'static str,
    graph: NodeLink,
}

impl Part<'_> {
    fn file(&self, ending: &str) -> PathBuf {
        self.dir.join(format!("{}_{ending}", self.name))
    }

    /// Adds the ranges of nodes with the same graph number, from node `first` on.
    fn add_graphs(&self, graphs: &mut Vec<NamedGraph>, first: usize) -> Result<()> {
        let path = self.file("graph_id.npy");
        let numbers = npy::open(&path)?.read_as_i64()?;
        let at = Location::new(&path, "graph numbers");
        if numbers.len() != self.graph.len() {
            let message =
                format!("{} graph numbers, but there are {} nodes", numbers.len(), self.graph.len());
            return Err(at.error(message));
        }
        let mut start = first;
        for run in numbers.chunk_by(|a, b| a == b) {
            let name = run[0].to_string();
            if graphs.iter().any(|graph| graph.name == name) {
                let message =
                    format!("the nodes of graph {name} are not contiguous in one part; sort them by graph");
                return Err(at.error(message));
            }
            graphs.push(NamedGraph::new(name, start..start + run.len()));
            start += run.len();
        }
        Ok(())
    }
}

/// Arrays of features; empty if the files are missing.
fn feature_files(parts: &[Part]) -> Result<Vec<NpyFile>> {
    let paths: Vec<PathBuf> = parts.iter().map(|part| part.file("feats.npy")).collect();
    if !paths.iter().any(|path| path.exists()) {
        return Ok(Vec::new());
    }
    paths.iter().map(npy::open).collect()
}

/// Features of all parts, concatenated.
fn features(parts: &[Part], arrays: &[NpyFile], num_nodes: usize, scratch: &Scratch) -> Result<Features> {
    let Some(array) = arrays.first() else {
        return Ok(Features::default());
    };
    let width = array.shape.get(1).copied().unwrap_or(0);
    for (array, part) in arrays.iter().zip(parts) {
        if array.shape != [part.graph.len(), width] {
            let message = format!("shape [{}, {width}] expected, {:?} found", part.graph.len(), array.shape);
            return Err(Location::new(array.path(), "features").error(message));
        }
    }
    let at = Location::new(array.path(), "features");
    feature_rows::stream(scratch, &[num_nodes, width], num_nodes, &at, |each| {
        arrays.iter().try_for_each(|array| array.for_each_rows(&mut *each))
    })
}

#[cfg(test)]
mod tests {
    use graphmill_core::{Labels, features::FeatureData};

    use super::*;
    use crate::{Dataset, dataset::import::testing::import};

    fn nodes(count: usize) -> String {
        (0..count).map(|i| format!(r#"{{"id": {i}}}"#)).collect::<Vec<_>>().join(",")
    }

    fn directory() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for (part, ids, link, value) in [
            ("train", &[1i64, 1, 2][..], (1, 0), 1.0f32),
            ("valid", &[21], (0, 0), 2.0),
            ("test", &[23, 23], (0, 1), 3.0),
        ] {
            let n = ids.len();
            let (source, target) = link;
            let links = format!(r#"[{{"source": {source}, "target": {target}}}]"#);
            let text = format!(r#"{{"directed": true, "nodes": [{}], "links": {links}}}"#, nodes(n));
            std::fs::write(path(&format!("{part}_graph.json")), text).unwrap();
            npy::write(path(&format!("{part}_graph_id.npy")), ids, &[n]).unwrap();
            npy::write(path(&format!("{part}_feats.npy")), &vec![value; 2 * n], &[n, 2]).unwrap();
            npy::write(path(&format!("{part}_labels.npy")), &[1i64, 0, 0].repeat(n), &[n, 3]).unwrap();
        }
        dir
    }

    fn run(src: &Path, split: Option<&str>) -> Result<Dataset, String> {
        let options = ImportOptions { split: split.map(|rule| rule.parse().unwrap()), ..Default::default() };
        import("graphsage", src, &options).map_err(|e| e.to_string())
    }

    #[test]
    fn parts_become_graphs_of_one_dataset() {
        let dir = directory();
        let dataset = run(dir.path(), None).unwrap();
        let graph = |name: &str, nodes| NamedGraph::new(name, nodes);
        assert_eq!(
            dataset.graphs,
            [graph("1", 0..2), graph("2", 2..3), graph("21", 3..4), graph("23", 4..6)]
        );
        let Split { train, valid, test } = &dataset.split;
        assert_eq!((&train[..], &valid[..], &test[..]), (&[0, 1, 2][..], &[3][..], &[4, 5][..]));
        let neighbors = |v| dataset.graph.in_neighbors(v);
        assert_eq!((neighbors(0), neighbors(3), neighbors(5)), (&[1][..], &[3][..], &[4][..]));
        let FeatureData::F32(data) = &dataset.features.data else { panic!() };
        assert_eq!(data[..], [1., 1., 1., 1., 1., 1., 2., 2., 3., 3., 3., 3.]);
        let Labels::Multi { member, classes: 3 } = &dataset.labels else { panic!() };
        assert_eq!(member[..], [1, 0, 0].repeat(6));
        let split = run(dir.path(), Some("graphs:23/1,2/21")).unwrap().split;
        assert_eq!((&split.train[..], &split.valid[..]), (&[4, 5][..], &[0, 1, 2][..]));
    }

    #[test]
    fn errors_contain_the_file() {
        let path = |dir: &tempfile::TempDir, name: &str| dir.path().join(name);
        let fails = |name: &str, write: &dyn Fn(&Path), why: &str| {
            let dir = directory();
            write(&path(&dir, name));
            let error = run(dir.path(), None).unwrap_err();
            assert!(error.contains(why), "{error}");
        };
        let ids = |ids: &'static [i64]| move |path: &Path| npy::write(path, ids, &[ids.len()]).unwrap();
        fails(
            "test_graph_id.npy",
            &ids(&[23]),
            "test_graph_id.npy: graph numbers: 1 graph numbers, but there are 2",
        );
        fails("test_graph_id.npy", &ids(&[23, 1]), "graph 1 are not contiguous");
        fails("train_graph_id.npy", &ids(&[1, 2, 1]), "graph 1 are not contiguous");
        fails("train_graph_id.npy", &ids(&[1, 2, 2]), "no edge joins two graphs");
        let floats = |shape: &'static [usize]| {
            move |path: &Path| npy::write(path, &vec![0f32; shape.iter().product()], shape).unwrap()
        };
        fails("valid_feats.npy", &floats(&[1, 3]), "valid_feats.npy: features: shape [1, 2] expected");
        fails(
            "valid_labels.npy",
            &floats(&[1, 2]),
            "valid_labels.npy: labels: 2 columns of labels, but 3 before",
        );
        fails(
            "valid_labels.npy",
            &floats(&[2, 3]),
            "valid_labels.npy: labels: 2 rows of labels, but there are 1",
        );
        let remove = |path: &Path| std::fs::remove_file(path).unwrap();
        fails("test_labels.npy", &remove, "test_labels.npy: cannot open");
        fails("test_feats.npy", &remove, "test_feats.npy: cannot open");
        let undirected =
            |path: &Path| std::fs::write(path, r#"{"nodes": [{"id": 0}], "links": []}"#).unwrap();
        fails("valid_graph.json", &undirected, "\"directed\" is false, but true");
        let dir = directory();
        for name in ["valid_graph.json", "train_feats.npy", "valid_feats.npy", "test_feats.npy"] {
            remove(&path(&dir, name));
        }
        let dataset = run(dir.path(), None).unwrap();
        assert_eq!((dataset.num_nodes(), dataset.features.dim, dataset.split.valid.len()), (5, 0, 0));
    }
}
