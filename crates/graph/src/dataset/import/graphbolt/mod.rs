//! A GraphBolt dataset before GraphBolt has preprocessed it (DGL's `OnDiskDataset`: "YAML specification" in
//! `docs/source/stochastic_training/ondisk-dataset-specification.rst`). `SRC` is the directory of `metadata.yaml`, or
//! that file; paths in it are relative to its directory.
//!
//! - `graph`: one type of nodes (`num`) and one of edges, as `csv` (source, destination; no header) or `numpy` (`[2, E]`).
//! - `feature_data` of nodes: the table `feat`, else the only one (else the first); the table `label` or `labels`.
//! - Weights of edges: what is called `weight` (`edge_weight`, or as the option `weights` says) among the `feature_data` of
//!   edges, of the graph (GraphBolt's attributes to sample by) or of the dataset: `[E]`, `numpy`.
//! - `tasks`: the one called `node_classification`, else the first whose seeds are nodes: `seeds` and `labels` of
//!   `train_set`, `validation_set` and `test_set`. Labels of seeds go before those of the table.
//!
//! Arrays are `numpy`; `torch` files are pickles and are not read.

mod metadata;

use std::path::{Path, PathBuf};

use metadata::{FeatureFile, Metadata, Set, SetFile, Task};

use super::{
    ImportOptions, Raw, WeightColumn, claims,
    edges::{ends, weights},
    feature_rows,
    label_rows::{self, LabelRows},
    labels,
    pairs::{Shape, Sink},
    splits,
};
use crate::{
    Buffer, Features, Labels, NodeId, Result, Split,
    external::{Needs, Scratch},
    memory,
    npy::{self, NpyFile},
    place::At,
};

/// What GraphBolt has called the seeds of a set.
const SEEDS: &[&str] = &["seeds", "seed_nodes", "node_ids"];
/// What a table of features is called before others.
const FEATURES: &[&str] = &["feat", "feats", "feature", "features"];
const LABELS: &[&str] = &["label", "labels"];

/// Reads the directory (or the `metadata.yaml`) `src`.
pub(super) fn read(src: &Path, options: &ImportOptions, scratch: &Scratch) -> Result<Raw> {
    let yaml = if src.is_dir() { src.join("metadata.yaml") } else { src.to_path_buf() };
    let source = Source { metadata: Metadata::read(&yaml)?, yaml: &yaml };
    let (num_nodes, edge_file) = source.topology()?;
    let weights = source.weights(options)?;
    let weighted = weights.is_some();
    let mut edges = scratch.maybe_weighted_edges(options.edge_options(false), weighted);
    let mut sink = Sink { edges: &mut edges, nodes: num_nodes, scratch };
    let (feature_file, label_file) = source.tables(weights, scratch);
    let features = match feature_file {
        Some(file) => Some(source.open(&file.format, &file.path, "feature_data")?),
        None => None,
    };
    let bytes = features.as_ref().map_or(0, |array| feature_rows::bytes(&array.shape));
    let weights = weights.map(|file| source.open(&file.format, &file.path, "feature_data")).transpose()?;
    match edge_file.format.as_str() {
        "csv" => {
            let path = source.path(&edge_file.path);
            sink.expect(Needs { weighted, ..ends::estimate(&path)? }, bytes)?;
            sink.text(&path, weights.as_ref())?
        }
        _ => {
            let array = source.open(&edge_file.format, &edge_file.path, "graph.edges")?;
            let edges = array.len() as u64 / 2;
            sink.expect(Needs { edges, weighted, ..Needs::default() }, bytes)?;
            sink.npy(&array, Shape::TwoRows, weights.as_ref())?
        }
    }
    let features = match features {
        Some(array) => feature_rows::from_npy(&array, num_nodes, scratch)?,
        None => Features::default(),
    };
    // A number alone is no reason to allocate; a row per node, or edges, are.
    if features.dim == 0 && label_file.is_none() && num_nodes as u64 > 1_000_000 + 64 * edges.len() {
        let message =
            format!("{num_nodes} nodes, but only {} edges and neither features nor labels", edges.len());
        return Err(source.at("graph.nodes").error(message));
    }
    let mut known = match label_file {
        Some(file) => {
            Some(label_rows::from_npy(&source.open(&file.format, &file.path, "feature_data")?, num_nodes)?)
        }
        None => None,
    };
    if features.dim == 0 && known.is_none() {
        claims::nodes(num_nodes, edges.len(), &source.at("graph.nodes"))?;
    }
    let mut split = None;
    if let Some(task) = source.task(scratch)? {
        let mut part = |name, sets| source.part(name, sets, num_nodes, &mut known);
        split = Some(Split {
            train: part("train_set", &task.train_set)?,
            valid: part("validation_set", &task.validation_set)?,
            test: part("test_set", &task.test_set)?,
        });
        if let (Some(known), Some(classes)) = (&mut known, task.num_classes) {
            source.widen(known, classes)?;
        }
    }
    let labels = known.unwrap_or_else(|| labels::unknown(num_nodes));
    let directory = yaml.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let name = source.metadata.dataset_name.clone().unwrap_or_else(|| directory.into_owned());
    let splits = split.into_iter().collect();
    Ok(Raw { name, num_nodes, edges, features, labels, splits, ..Raw::default() })
}

/// The description, and the files it names.
struct Source<'a> {
    yaml: &'a Path,
    metadata: Metadata,
}

impl Source<'_> {
    fn at(&self, place: impl Into<String>) -> At<'_> {
        At::new(self.yaml, place.into())
    }

    fn path(&self, path: &str) -> PathBuf {
        self.yaml.parent().unwrap_or(Path::new("")).join(path)
    }

    /// Opens an array.
    fn open(&self, format: &str, path: &str, place: &str) -> Result<NpyFile> {
        match format {
            "numpy" => npy::open(self.path(path)),
            "torch" => Err(self.at(place).error(format!(
                "'{path}' is a torch file, a pickle, and not read; save it as numpy: \
                 numpy.save('{path}.npy', torch.load('{path}').numpy()), and say so here"
            ))),
            other => Err(self.at(place).error(format!("'{path}' has the format '{other}'; numpy expected"))),
        }
    }

    /// The number of nodes, and the edges.
    fn topology(&self) -> Result<(usize, &metadata::EdgeFile)> {
        let Some(graph) = &self.metadata.graph else {
            return Err(self.at("graph").error(match self.metadata.graph_topology {
                Some(_) => "this is what GraphBolt made of a dataset; import the directory it was made from",
                None => "there is no field 'graph'",
            }));
        };
        match (&graph.nodes[..], &graph.edges[..]) {
            ([nodes], [edges]) => Ok((nodes.num, edges)),
            (nodes, edges) => Err(self.at("graph").error(format!(
                "{} types of nodes and {} of edges; Graphmill trains on one type of each",
                nodes.len(),
                edges.len()
            ))),
        }
    }

    /// The weights of the edges.
    fn weights(&self, options: &ImportOptions) -> Result<Option<&FeatureFile>> {
        let of_graph = self.metadata.graph.as_ref().and_then(|graph| graph.feature_data.as_deref());
        let files = of_graph.into_iter().chain(self.metadata.feature_data.as_deref()).flatten();
        let called = |name: &str| files.clone().find(|file| file.domain == "edge" && file.name == name);
        match &options.weights {
            WeightColumn::None => Ok(None),
            WeightColumn::Auto => Ok(weights::NAMES.into_iter().find_map(called)),
            WeightColumn::Named(name) => called(name).map(Some).ok_or_else(|| {
                self.at("feature_data").error(format!("edges have no '{name}', as the option weights says"))
            }),
        }
    }

    /// The tables of features and of labels of the nodes; `weights` are read as well.
    fn tables(
        &self,
        weights: Option<&FeatureFile>,
        scratch: &Scratch,
    ) -> (Option<&FeatureFile>, Option<&FeatureFile>) {
        let files = self.metadata.feature_data.as_deref().unwrap_or_default();
        let of_nodes = || files.iter().filter(|file| file.domain == "node");
        let label = of_nodes().find(|file| LABELS.contains(&file.name.as_str()));
        let tables = || of_nodes().filter(|file| !LABELS.contains(&file.name.as_str()));
        let chosen = tables().find(|file| FEATURES.contains(&file.name.as_str())).or_else(|| tables().next());
        for file in files {
            let read = [chosen, label, weights].into_iter().flatten().any(|read| std::ptr::eq(read, file));
            if !read {
                scratch.note(&format!("'{}' of {}s is not read", file.name, file.domain));
            }
        }
        (chosen, label)
    }

    /// The task whose seeds are nodes.
    fn task(&self, scratch: &Scratch) -> Result<Option<&Task>> {
        let tasks = self.metadata.tasks.as_deref().unwrap_or_default();
        let named = tasks.iter().find(|task| task.name.as_deref() == Some("node_classification"));
        if let Some(task) = named {
            return Ok(Some(task));
        }
        for task in tasks {
            let set = task.train_set.as_deref().unwrap_or_default().first();
            if let Some(seeds) = set.and_then(|set| set.file(SEEDS))
                && is_column(&self.open(&seeds.format, &seeds.path, "train_set")?.shape)
            {
                return Ok(Some(task));
            }
        }
        if !tasks.is_empty() {
            scratch.note("no task has nodes as seeds: there is no split");
        }
        Ok(None)
    }

    /// The nodes of one set; their labels are entered in `known`.
    fn part(
        &self,
        name: &str,
        sets: &Option<Vec<Set>>,
        nodes: usize,
        known: &mut Option<Labels>,
    ) -> Result<Buffer<NodeId>> {
        let set = match sets.as_deref().unwrap_or_default() {
            [] => return Ok(Buffer::default()),
            [set] => set,
            several => {
                let message = format!("{} types of nodes; Graphmill trains on one", several.len());
                return Err(self.at(name).error(message));
            }
        };
        let Some(seeds) = set.file(SEEDS) else {
            return Err(self.at(name).error("there is no 'seeds' among its data"));
        };
        let open = |file: &SetFile| self.open(&file.format, &file.path, name);
        let seeds = open(seeds)?;
        let at = At::new(seeds.path(), "seeds");
        if !is_column(&seeds.shape) {
            return Err(at.error(format!("node ids [seeds] expected, shape {:?} found", seeds.shape)));
        }
        let ids = seeds.read_as::<u64>()?;
        let part = splits::from_ids(ids.clone(), nodes, &at)?;
        if let Some(file) = set.file(LABELS) {
            let array = open(file)?;
            let mut rows = LabelRows::new(ids.len(), At::new(array.path(), "labels"));
            label_rows::extend_from_npy(&mut rows, &array, ids.len())?;
            enter(known, rows.finish()?, &ids, nodes, &At::new(array.path(), "labels"))?;
        }
        Ok(part)
    }

    /// Makes room for classes that no node has.
    fn widen(&self, labels: &mut Labels, declared: usize) -> Result<()> {
        let found = labels.classes();
        let at = self.at("num_classes");
        // Some classes may be empty, but not most of them.
        if declared < found || declared > 2 * found + 1024 {
            return Err(at.error(format!("{declared} classes, but the labels have {found}")));
        }
        match labels {
            Labels::Single { classes, .. } => *classes = declared,
            Labels::Multi { .. } if declared == found => {}
            Labels::Multi { .. } => {
                return Err(at.error(format!("{declared} classes, but the labels have {found} columns")));
            }
        }
        Ok(())
    }
}

/// Whether an array is a list, maybe as a column.
fn is_column(shape: &[usize]) -> bool {
    matches!(shape, [_] | [_, 1])
}

/// Enters the labels `new` of the nodes `ids` (which are below `nodes`) in `known`.
fn enter(known: &mut Option<Labels>, new: Labels, ids: &[u64], nodes: usize, at: &At) -> Result<()> {
    match (&mut *known, new) {
        (Some(Labels::Single { class, classes }), Labels::Single { class: new, classes: more }) => {
            let mut all = class.to_vec();
            ids.iter().zip(&new[..]).for_each(|(&v, &c)| all[v as usize] = c);
            (*class, *classes) = (all.into(), (*classes).max(more));
        }
        (Some(Labels::Multi { member, classes }), Labels::Multi { member: new, classes: width })
            if *classes == width =>
        {
            let mut all = member.to_vec();
            for (&v, row) in ids.iter().zip(new.chunks_exact(width)) {
                all[v as usize * width..(v as usize + 1) * width].copy_from_slice(row);
            }
            *member = all.into();
        }
        (Some(_), _) => return Err(at.error("these labels have another number of columns than those before")),
        (None, new) => {
            let empty = match &new {
                Labels::Single { .. } => labels::unknown(nodes),
                Labels::Multi { member, classes } => {
                    let size = nodes.saturating_mul(*classes);
                    claims::dense(nodes, *classes, member.len(), at)?;
                    Labels::Multi { member: at.locate(memory::zeroed(size))?.into(), classes: *classes }
                }
            };
            *known = Some(empty);
            return enter(known, new, ids, nodes, at);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Dataset,
        dataset::{FeatureData, import::import},
    };

    const YAML: &str = r#"
dataset_name: bolt
graph:
  nodes:
    - num: 4
  edges:
    - type: null
      format: csv
      path: edges/cite.csv
feature_data:
  - {domain: node, name: year, format: numpy, path: year.npy}
  - domain: node
    type: null
    name: feat
    format: numpy
    in_memory: false
    path: data/feat.npy
  - {domain: edge, name: time, format: torch, path: time.pt}
tasks:
  - name: link_prediction
    train_set: [{data: [{name: seeds, format: numpy, path: data/links.npy}]}]
  - name: class
    num_classes: 5
    train_set:
      - type: null
        data:
          - {name: seeds, format: numpy, in_memory: true, path: data/train.npy}
          - {name: labels, format: numpy, path: data/train-labels.npy}
    validation_set: [{data: [{name: seeds, format: numpy, path: data/valid.npy}, {name: labels, format: numpy, path: data/valid-labels.npy}]}]
    test_set: [{data: [{name: seeds, format: numpy, path: data/valid2.npy}, {name: labels, format: numpy, path: data/valid-labels.npy}]}]
"#;

    fn directory(yaml: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        ["edges", "data"].iter().for_each(|name| std::fs::create_dir(path(name)).unwrap());
        std::fs::write(path("metadata.yaml"), yaml).unwrap();
        std::fs::write(path("edges/cite.csv"), "0,1\n3,1\n2,2\n").unwrap();
        npy::write(path("edges/cite.npy"), &[0i64, 3, 2, 1, 1, 2], &[2, 3]).unwrap();
        npy::write(path("data/feat.npy"), &[1f64, 2., 3., 4.], &[4, 1]).unwrap();
        npy::write(path("data/links.npy"), &[0i64, 1], &[1, 2]).unwrap();
        npy::write(path("data/train.npy"), &[3i64, 0], &[2]).unwrap();
        npy::write(path("data/train-labels.npy"), &[2i64, 1], &[2]).unwrap();
        npy::write(path("data/valid.npy"), &[1i32], &[1, 1]).unwrap();
        npy::write(path("data/valid2.npy"), &[2i32], &[1]).unwrap();
        npy::write(path("data/valid-labels.npy"), &[0f32], &[1, 1]).unwrap();
        npy::write(path("data/label.npy"), &[0f32, f32::NAN, 3., 0.], &[4]).unwrap();
        dir
    }

    fn run(src: &Path) -> Result<Dataset, String> {
        import("graphbolt", src, &ImportOptions::default()).map_err(|e| e.to_string())
    }

    #[test]
    fn the_parts_of_a_dataset() {
        let arrays = YAML.replace("format: csv", "format: numpy").replace("cite.csv", "cite.npy");
        for yaml in [YAML, &arrays] {
            let dir = directory(yaml);
            for src in [dir.path().to_path_buf(), dir.path().join("metadata.yaml")] {
                let dataset = run(&src).unwrap();
                assert_eq!((dataset.name.as_str(), dataset.graph.in_neighbors(1)), ("bolt", &[0, 3][..]));
                let FeatureData::F32(data) = &dataset.features.data else { panic!() };
                assert_eq!(data[..], [1., 2., 3., 4.]);
                let Labels::Single { class, classes: 5 } = &dataset.labels else { panic!() };
                assert_eq!(class[..], [1, 0, 0, 2]);
                let Split { train, valid, test } = &dataset.split;
                assert_eq!((&train[..], &valid[..], &test[..]), (&[0, 3][..], &[1][..], &[2][..]));
            }
        }
    }

    #[test]
    fn weights_of_edges_are_read_beside_text_and_arrays() {
        let weight = "- {domain: edge, name: weight, format: numpy, path: data/weight.npy}\n";
        let of_data = YAML.replace("tasks:", &format!("  {weight}tasks:"));
        let of_graph = YAML.replace("  nodes:", &format!("  feature_data:\n    {weight}  nodes:"));
        let arrays = of_graph.replace("format: csv", "format: numpy").replace("cite.csv", "cite.npy");
        for yaml in [of_data, of_graph, arrays] {
            let dir = directory(&yaml);
            let path = dir.path().join("data/weight.npy");
            npy::write(&path, &[0.5f64, 2.0, 0.0], &[3]).unwrap();
            // 0 -> 1, 3 -> 1, 2 -> 2
            assert_eq!(run(dir.path()).unwrap().graph.edge_weight(), Some(&[0.5, 2.0, 0.0][..]));
            let none = ImportOptions { weights: WeightColumn::None, ..Default::default() };
            assert!(import("graphbolt", dir.path(), &none).unwrap().graph.edge_weight().is_none());
            let named = ImportOptions { weights: WeightColumn::Named("w".into()), ..Default::default() };
            let error = import("graphbolt", dir.path(), &named).unwrap_err().to_string();
            assert!(error.contains("edges have no 'w'"), "{error}");
            for weights in [&[0.5f32, 2.0, -1.0][..], &[1.0, 1.0], &[1.0; 4]] {
                npy::write(&path, weights, &[weights.len()]).unwrap();
                let error = run(dir.path()).unwrap_err();
                assert!(error.contains("weight.npy"), "{error}");
            }
        }
    }

    #[test]
    fn labels_of_seeds_go_before_the_table() {
        let table = "  - {domain: node, name: label, format: numpy, path: data/label.npy}\ntasks:";
        let dir = directory(&YAML.replace("tasks:", table));
        let Labels::Single { class, classes: 5 } = run(dir.path()).unwrap().labels else { panic!() };
        assert_eq!(class[..], [1, 0, 0, 2]);
        let (before, _) = YAML.split_once("tasks:").unwrap();
        let dir = directory(&format!("{before}{}", table.replace("tasks:", "")));
        let dataset = run(dir.path()).unwrap();
        let Labels::Single { class, classes: 4 } = &dataset.labels else { panic!() };
        assert_eq!((&class[..], dataset.split.train.len()), (&[0, -1, 3, 0][..], 0));
        let dir = directory(before);
        assert_eq!(run(dir.path()).unwrap().labels.classes(), 0);
    }

    #[test]
    fn sets_of_classes() {
        let dir = directory(&YAML.replace("num_classes: 5", "num_classes: 2"));
        let path = |name: &str| dir.path().join(name);
        npy::write(path("data/train-labels.npy"), &[1i64, 1, 1, 0], &[2, 2]).unwrap();
        npy::write(path("data/valid-labels.npy"), &[0i64, 1], &[1, 2]).unwrap();
        let Labels::Multi { member, classes: 2 } = run(dir.path()).unwrap().labels else { panic!() };
        assert_eq!(member[..], [1, 0, 0, 1, 0, 1, 1, 1]);
        npy::write(path("data/valid-labels.npy"), &[0i64, 1, 1], &[1, 3]).unwrap();
        assert!(run(dir.path()).unwrap_err().contains("another number of columns"));
    }

    #[test]
    fn what_is_not_read_says_so() {
        let fails = |from: &str, to: &str, why: &str| {
            let error = run(directory(&YAML.replace(from, to)).path()).unwrap_err();
            assert!(error.contains(why), "{error}");
        };
        let feat = "format: numpy\n    in_memory: false";
        fails(
            feat,
            "format: torch\n    in_memory: false",
            "metadata.yaml: feature_data: 'data/feat.npy' is a torch",
        );
        fails(feat, "format: feather\n    in_memory: false", "'feather'; numpy expected");
        fails(
            "    - num: 4",
            "    - {type: a, num: 4}\n    - {type: b, num: 1}",
            "graph: 2 types of nodes and 1 of",
        );
        fails("graph:", "graph_topology: {type: x}\ngraf:", "import the directory it was made from");
        fails("graph:", "graf:", "no field 'graph'");
        fails("format: csv", "format: parquet", "graph.edges: 'edges/cite.csv' has the format 'parquet'");
        fails("num_classes: 5", "num_classes: 2", "num_classes: 2 classes, but the labels have 3");
        fails("num_classes: 5", "num_classes: 50000", "50000 classes");
        fails("num: 4", "num: 3", "cite.csv: line 2: the edge joins nodes 3 and 1, but there are 3");
        let error = run(directory(
            &YAML
                .replace("name: class", "name: node_classification")
                .replace("name: seeds, format: numpy, in_memory", "name: seats, format: numpy, in_memory"),
        )
        .path());
        assert!(error.unwrap_err().contains("train_set: there is no 'seeds'"));
        let set = "validation_set: [";
        fails(set, &format!("{set}{{data: []}}, "), "validation_set: 2 types of nodes");
        fails(
            "data/valid2.npy",
            "data/links.npy",
            "links.npy: seeds: node ids [seeds] expected, shape [1, 2]",
        );
        fails("data/valid2.npy", "data/absent.npy", "absent.npy: cannot open");
        fails("data/valid2.npy", "data/valid.npy", "node 1 is in 'test' and in 'valid'");
        fails("data/valid-labels.npy", "data/train-labels.npy", "train-labels.npy: labels: 2 rows of labels");
        let bare = YAML.split_once("feature_data:").unwrap().0.replace("num: 4", "num: 4000000000000000000");
        assert!(run(directory(&bare).path()).unwrap_err().contains("graph.nodes: 4000000000000000000 nodes"));
        assert!(run(Path::new("absent")).unwrap_err().contains("cannot open"));
    }

    #[test]
    fn damage_is_an_error_or_harmless() {
        let dir = directory(YAML);
        for name in ["metadata.yaml", "data/train.npy", "data/train-labels.npy", "edges/cite.csv"] {
            let path = dir.path().join(name);
            let good = std::fs::read(&path).unwrap();
            for length in (0..good.len()).step_by(7) {
                std::fs::write(&path, &good[..length]).unwrap();
                let _ = run(dir.path()); // a shorter description may be one
            }
            for bit in (0..good.len() * 8).step_by(5) {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                std::fs::write(&path, &bad).unwrap();
                let _ = run(dir.path()); // no panic
            }
            std::fs::write(&path, &good).unwrap();
        }
        assert!(run(dir.path()).is_ok());
    }
}
