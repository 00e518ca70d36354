//! Import of a GraphBolt dataset before its preprocessing (DGL's `OnDiskDataset`: "YAML
//! specification" in `docs/source/stochastic_training/ondisk-dataset-specification.rst`). `SRC` is
//! the directory of `metadata.yaml`, or that file; paths in it are relative to its directory.
//!
//! - `graph`: one node type (`num`) and one edge type, as `csv` (source, destination; no header) or
//!   `numpy` (`[2, E]`).
//! - `feature_data` of nodes: the table `feat`, or else the only (or first) one; the table `label`
//!   or `labels`.
//! - Edge weights: the array `weight` (`edge_weight`, or the name in the option `weights`) in the
//!   `feature_data` of edges, of the graph (GraphBolt's sampling attributes) or of the dataset:
//!   `[E]`, `numpy`.
//! - `tasks`: the task `node_classification`, or else the first whose seeds are nodes: `seeds` and
//!   `labels` of `train_set`, `validation_set` and `test_set`. Labels of seeds take precedence over
//!   those of the table, unless they are missing (`nan` or -1).
//!
//! A missing label is `nan` or -1, or in a row of several classes only those; without a label
//! table, nodes outside of the sets are unlabelled.
//!
//! Arrays are `numpy`; the importer `graphbolt-typed` reads `torch` files too.

pub(crate) mod metadata;

use std::path::{Path, PathBuf};

use graphmill_core::{Buffer, Features, Labels, NodeId, Result, Split, location::Location, memory};
use metadata::{FeatureFile, Metadata, Set, SetFile, Task};

use super::{
    ImportOptions, ImportReport, Raw, WeightColumn, claims,
    edges::{
        ends,
        weights::{self, Weights, unread_columns},
    },
    feature_rows,
    label_rows::{self, LabelRows},
    labels::{self, MISSING},
    pairs::{Shape, Sink},
    splits,
};
use crate::{
    external::{Needs, Scratch},
    npy::{self, NpyFile},
};

/// Names of the seeds of a set.
const SEEDS: &[&str] = &["seeds", "seed_nodes", "node_ids"];
/// Preferred names of a feature table.
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
    let mut report = ImportReport::default();
    let (feature_file, label_file) = source.tables(weights, &mut report);
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
            report.ignore_columns("edges", unread_columns(&path, 2, &Weights::None)?);
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
    // A declared number alone must not cause an allocation; a row per node, or edges, may.
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
    let task = source.task(scratch)?;
    let tasks = source.metadata.tasks.as_deref().unwrap_or_default();
    for other in tasks.iter().filter(|other| task.is_none_or(|task| !std::ptr::eq(*other, task))) {
        report.ignore(format!("task {}", other.name.as_deref().unwrap_or("without a name")));
    }
    if let Some(task) = task {
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
    let directory = yaml.parent().unwrap_or(Path::new(""));
    let named: Vec<&str> =
        source.metadata.paths().filter_map(|path| path.split('/').find(|part| *part != ".")).collect();
    let own = yaml.file_name().and_then(|name| name.to_str());
    report
        .ignore_unread(if directory.as_os_str().is_empty() { Path::new(".") } else { directory }, |name| {
            own == Some(name) || named.contains(&name)
        })?;
    let labels = known.map_or_else(|| labels::unknown(num_nodes), Ok)?;
    let directory = yaml.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let name = source.metadata.dataset_name.clone().unwrap_or_else(|| directory.into_owned());
    let splits = split.into_iter().collect();
    Ok(Raw { name, num_nodes, edges, features, labels, splits, report, ..Raw::default() })
}

/// Description, and the files it names.
struct Source<'a> {
    yaml: &'a Path,
    metadata: Metadata,
}

impl Source<'_> {
    fn at(&self, place: impl Into<String>) -> Location<'_> {
        Location::new(self.yaml, place.into())
    }

    fn path(&self, path: &str) -> PathBuf {
        self.yaml.parent().unwrap_or(Path::new("")).join(path)
    }

    /// Opens an array.
    fn open(&self, format: &str, path: &str, place: &str) -> Result<NpyFile> {
        match format {
            "numpy" => npy::open(self.path(path)),
            "torch" => Err(self.at(place).error(format!(
                "'{path}' is a torch file, which this format does not read; import it as graphbolt-typed, \
                 which does and makes a dataset of format 2, or save it as numpy: \
                 numpy.save('{path}.npy', torch.load('{path}').numpy()), and change its format here to numpy"
            ))),
            other => Err(self.at(place).error(format!("'{path}' has the format '{other}'; numpy expected"))),
        }
    }

    /// Number of nodes, and the edges.
    fn topology(&self) -> Result<(usize, &metadata::EdgeFile)> {
        let Some(graph) = &self.metadata.graph else {
            return Err(self.at("graph").error(match self.metadata.graph_topology {
                Some(_) => "this dataset was preprocessed by GraphBolt; import the original directory",
                None => "there is no field 'graph'",
            }));
        };
        match (&graph.nodes[..], &graph.edges[..]) {
            ([nodes], [edges]) => Ok((nodes.num, edges)),
            (nodes, edges) => Err(self.at("graph").error(format!(
                "{} types of nodes and {} of edges, but this format reads one of each; import it as \
                    'graphbolt-typed'",
                nodes.len(),
                edges.len()
            ))),
        }
    }

    /// Finds the weights of the edges.
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

    /// Finds the tables of features and of labels of the nodes; `weights` are also marked as read.
    fn tables(
        &self,
        weights: Option<&FeatureFile>,
        report: &mut ImportReport,
    ) -> (Option<&FeatureFile>, Option<&FeatureFile>) {
        let files = self.metadata.feature_data.as_deref().unwrap_or_default();
        let of_nodes = || files.iter().filter(|file| file.domain == "node");
        let label = of_nodes().find(|file| LABELS.contains(&file.name.as_str()));
        let tables = || of_nodes().filter(|file| !LABELS.contains(&file.name.as_str()));
        let chosen = tables().find(|file| FEATURES.contains(&file.name.as_str())).or_else(|| tables().next());
        for file in files {
            let read = [chosen, label, weights].into_iter().flatten().any(|read| std::ptr::eq(read, file));
            if !read {
                report.ignore(format!("{} of {}s", file.name, file.domain));
            }
        }
        (chosen, label)
    }

    /// Finds the task whose seeds are nodes.
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

    /// Reads the nodes of one set; enters their labels in `known`.
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
            return Err(self.at(name).error("its data contains no 'seeds'"));
        };
        let open = |file: &SetFile| self.open(&file.format, &file.path, name);
        let seeds = open(seeds)?;
        let at = Location::new(seeds.path(), "seeds");
        if !is_column(&seeds.shape) {
            return Err(at.error(format!("node ids [seeds] expected, shape {:?} found", seeds.shape)));
        }
        let ids = seeds.read_as::<u64>()?;
        let part = splits::from_ids(ids.clone(), nodes, &at)?;
        if let Some(file) = set.file(LABELS) {
            let array = open(file)?;
            let mut rows = LabelRows::new(ids.len(), Location::new(array.path(), "labels"));
            label_rows::extend_from_npy(&mut rows, &array, ids.len())?;
            enter(known, rows.finish()?, &ids, nodes, &Location::new(array.path(), "labels"))?;
        }
        Ok(part)
    }

    /// Extends the labels by declared classes without nodes.
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
            Labels::Multi { .. } | Labels::Columns { .. } | Labels::Values { .. } => {
                return Err(at.error(format!("{declared} classes, but the labels have {found} columns")));
            }
        }
        Ok(())
    }
}

/// Returns true if the shape is a vector or a single column.
fn is_column(shape: &[usize]) -> bool {
    matches!(shape, [_] | [_, 1])
}

/// Enters the labels `new` of the nodes `ids` (which are below `nodes`) in `known`.
fn enter(known: &mut Option<Labels>, new: Labels, ids: &[u64], nodes: usize, at: &Location) -> Result<()> {
    match (&mut *known, new) {
        (Some(Labels::Single { class, classes }), Labels::Single { class: new, classes: more }) => {
            let mut all = class.to_vec();
            let labelled = ids.iter().zip(&new[..]).filter(|(_, class)| **class >= 0);
            labelled.for_each(|(&v, &c)| all[v as usize] = c);
            (*class, *classes) = (all.into(), (*classes).max(more));
        }
        (Some(Labels::Multi { member, classes }), Labels::Multi { member: new, classes: width })
            if *classes == width =>
        {
            let mut all = member.to_vec();
            let labelled = ids.iter().zip(new.chunks_exact(width)).filter(|(_, row)| row[0] != MISSING);
            for (&v, row) in labelled {
                all[v as usize * width..(v as usize + 1) * width].copy_from_slice(row);
            }
            *member = all.into();
        }
        (Some(_), _) => return Err(at.error("these labels have another number of columns than those before")),
        (None, new) => {
            let empty = match &new {
                Labels::Single { .. } | Labels::Columns { .. } | Labels::Values { .. } => {
                    labels::unknown(nodes)?
                }
                Labels::Multi { member, classes } => {
                    let size = nodes.saturating_mul(*classes);
                    claims::dense(nodes, *classes, member.len(), at)?;
                    let mut all = at.locate(memory::reserve(size))?;
                    all.resize(size, MISSING);
                    Labels::Multi { member: all.into(), classes: *classes }
                }
            };
            *known = Some(empty);
            return enter(known, new, ids, nodes, at);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
