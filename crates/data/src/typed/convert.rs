//! Conversion between datasets of one type and typed datasets: arrays are shared, not copied.

use std::{path::Path, sync::Arc};

use graphmill_core::{Buffer, Error, Features, Graph, Labels, Result, Split, location::Location, memory};

use super::{
    EdgeData, EdgeType, FeatureTable, NodeData, Targets, Task, TaskKind, TaskOn, TypedDataset, Verify,
    names::{EDGES, edge_directory},
    read,
    stored::is_typed,
};
use crate::{alias_file::AliasCache, dataset::Dataset};

/// Names of the types and the task of a converted dataset.
const NODE: &str = "node";
const EDGE: &str = "edge";
const TASK_NAME: &str = "classification";
const VALUES_NAME: &str = "regression";

impl TypedDataset {
    /// Dataset of one node type `node`, one edge type `edge` and the task `classification` or
    /// `regression` (omitted if no node has a label).
    pub fn from_dataset(data: &Dataset) -> Self {
        let (indptr, indices) = data.graph.buffers();
        let mut edges = EdgeData {
            edge_type: EdgeType::new(NODE, EDGE, NODE),
            reverse: None,
            // The empty graph has an empty indptr in memory.
            indptr: if indptr.is_empty() { vec![0].into() } else { indptr.clone() },
            indices: indices.clone(),
            weights: data.graph.weight_buffer().cloned(),
            time: None,
            features: None,
        };
        edges.reverse = edges.is_undirected().then(|| EDGE.into());
        let has_labels =
            data.labels.classes() > 0 || data.split.parts().iter().any(|(_, ids)| !ids.is_empty());
        let task = || Task {
            targets: match &data.labels {
                Labels::Values { values, width } => Targets::Values { values: values.clone(), width: *width },
                labels => Targets::Classes(labels.clone()),
            },
            split: data.split.clone(),
            metric: data.metric.clone(),
            ..Task::new(
                if data.labels.is_values() { VALUES_NAME } else { TASK_NAME },
                TaskOn::Nodes(NODE.into()),
            )
        };
        Self {
            name: data.name.clone(),
            nodes: vec![NodeData {
                name: NODE.into(),
                count: data.num_nodes(),
                features: FeatureTable::of_features(&data.features),
                normalization: data.normalization.clone(),
                keys: data.keys.clone(),
                time: None,
                original_ids: data.original_ids.clone(),
                graphs: data.graphs.clone(),
            }],
            edges: vec![edges],
            tasks: if has_labels { vec![task()] } else { Vec::new() },
            ..Self::default()
        }
    }

    /// Dataset for training on one type, without a copy. Edge features and times are not part of
    /// it.
    ///
    /// # Errors
    /// There are several types or tasks, the task is not on all nodes, or the
    /// features are neither 16-bit nor 32-bit floats; the message names the types. Or the topology
    /// is invalid.
    pub fn to_dataset(&self) -> Result<Dataset> {
        let data = self.share()?;
        let (indptr, indices) = data.graph.buffers();
        let graph = Graph::new(indptr.clone(), indices.clone())?;
        let weights = data.graph.weight_buffer().cloned();
        let data =
            Dataset { graph: weights.map_or(Ok(graph.clone()), |w| graph.with_edge_weight(w))?, ..data };
        data.validate()?;
        Ok(data)
    }

    /// Returns true if [`TypedDataset::to_dataset`] converts the dataset.
    pub fn is_one_type(&self) -> bool {
        self.share().is_ok()
    }

    /// Converts as [`TypedDataset::to_dataset`] does, for contents that were verified.
    fn share(&self) -> Result<Dataset> {
        let (Some(nodes), Some(edges)) = (self.nodes.first(), self.edges.first()) else {
            return Err(Error::invalid(match self.nodes.len() {
                0 => self.refusal("it has no node type or no edge type"),
                _ => "it has no edge type; import it with a table of edges (--edges FILE --src COLUMN --dst \
                      COLUMN)"
                    .into(),
            }));
        };
        if self.nodes.len() > 1 || self.edges.len() > 1 {
            return Err(Error::invalid(self.refusal("it has several types")));
        }
        let (labels, split, metric) = match &self.tasks[..] {
            [] => {
                let class = memory::filled(-1, nodes.count)?.into();
                (Labels::Single { class, classes: 0 }, Split::default(), None)
            }
            [task] => match (&task.targets, task.kind()) {
                (Targets::Classes(labels), Some(TaskKind::NodeClassification))
                    if task.seeds.is_none() && task.time.is_none() =>
                {
                    (labels.clone(), task.split.clone(), task.metric.clone())
                }
                (Targets::Values { width, values }, Some(TaskKind::NodeRegression))
                    if task.seeds.is_none() && task.time.is_none() =>
                {
                    let labels = Labels::Values { values: values.clone(), width: *width };
                    (labels, task.split.clone(), task.metric.clone())
                }
                _ => return Err(Error::invalid(self.refusal("its task is of another kind"))),
            },
            _ => return Err(Error::invalid(self.refusal("it has several tasks"))),
        };
        let features = match &nodes.features {
            None => Features::default(),
            Some(table) => table.to_features()?,
        };
        // Both have an empty indptr only if there are no nodes.
        let indptr = if nodes.count == 0 { Buffer::from(vec![0]) } else { edges.indptr.clone() };
        Ok(Dataset {
            name: self.name.clone(),
            graph: Graph::sorted(indptr, edges.indices.clone(), edges.weights.clone()),
            features,
            normalization: nodes.normalization.clone(),
            labels,
            split,
            graphs: nodes.graphs.clone(),
            metric,
            checksum: self.checksum.clone(),
            directory: self.directory.clone(),
            original_ids: nodes.original_ids.clone(),
            keys: nodes.keys.clone(),
        })
    }

    /// Message for a dataset that training on one type cannot use.
    fn refusal(&self, why: &str) -> String {
        let listed = |names: Vec<String>| if names.is_empty() { "none".into() } else { names.join(", ") };
        let nodes = self.nodes.iter().map(|nodes| nodes.name.clone()).collect();
        let edges = self.edges.iter().map(|edges| edges.edge_type.to_string()).collect();
        let kind = |task: &Task| task.kind().map_or("unknown", TaskKind::name);
        let tasks = self.tasks.iter().map(|task| format!("{} ({})", task.name, kind(task))).collect();
        format!(
            "{why}, and this command works on one node type and one edge type with at most one task, the \
             classification or regression of its nodes; node types: {}; edge types: {}; tasks: {}; \
             'graphmill info' and 'graphmill export' read the whole dataset, and an import of one type makes \
             one for this command",
            listed(nodes),
            listed(edges),
            listed(tasks),
        )
    }
}

/// Maps the dataset in the directory `dir`, whatever its format: one of format 1 has the types of
/// [`TypedDataset::from_dataset`].
///
/// # Errors
/// As for [`super::open`] and [`Dataset::open_with`].
pub fn open_any(dir: impl AsRef<Path>, verify: Verify) -> Result<TypedDataset> {
    let dir = dir.as_ref();
    if is_typed(dir) {
        return read::open(dir, verify);
    }
    let data = Dataset::open_with(dir, verify)?;
    let typed = TypedDataset::from_dataset(&data);
    Ok(TypedDataset { checksum: data.checksum, directory: data.directory, ..typed })
}

/// Opens the directory of format 2 as a dataset of one type.
///
/// # Errors
/// As for [`super::open`] and [`TypedDataset::to_dataset`].
pub(crate) fn open_one_type(dir: &Path, verify: Verify) -> Result<Dataset> {
    let typed = read::open(dir, verify)?;
    let mut data = Location::new(dir, "types").locate(typed.share())?;
    let edges = dir.join(EDGES).join(edge_directory(&typed.edges[0].edge_type));
    data.graph = data.graph.with_table_store(Arc::new(AliasCache::new(&edges)));
    Ok(data)
}
