//! Predictions of a run on several types for nodes that its dataset does not hold: `predict --on`.
//!
//! New nodes may be of all types with features. The model computes those of the task's type from
//! all their neighbours, in the graph of the dataset with the new nodes and edges of all types. A
//! type without features has a learned row for each node of training, and no row for a new one.

use std::{path::Path, sync::Arc};

use graphmill_core::{
    NodeId,
    features::FeatureData,
    matrix::TableType,
    progress::Progress,
    typed::{NodeType, Schema, TypedGraph},
};
use graphmill_data::typed::TypedDataset;
use graphmill_loader::{Feature, feature::Host};
use graphmill_nn::Matrix;

use super::{
    build,
    inference::TypedInference,
    saved::{Loaded, SavedTypedRun},
    tables::Tables,
    task::TypedTask,
    tiers,
};
use crate::{
    Error, Result,
    inference::Output,
    predictions::{Identity, Predictions, Target},
    saved::{
        Kind, Written,
        keys::Names,
        on::{Known, NewRows, NewTables, WrittenNew, encodings},
    },
    tiers::Joined,
};

/// The graph of a task with new nodes, and counts of its edges.
struct Extended {
    graph: TypedGraph,
    /// Number of edges of new nodes.
    new_edges: usize,
    /// Number of edges between known nodes, which are left out.
    known_edges: u64,
}

impl SavedTypedRun<'_> {
    /// Writes predictions for the new nodes of the task's type to `out`, in the order of their
    /// table. `data` is the run's dataset, or another one that was imported by the same
    /// statistics.
    ///
    /// # Errors
    /// The dataset was not imported from tables; no table has nodes of the task's type; the rows of
    /// the task have times; new nodes have a type without features; a table has faults; a new key
    /// is in the dataset; an edge names a key that is neither there nor new; `out` cannot be
    /// written; or `watch` stops the work.
    pub fn predict_new(
        &self,
        data: &TypedDataset,
        new: &NewTables,
        kind: Kind,
        out: &Path,
        watch: &Arc<dyn Progress>,
    ) -> Result<WrittenNew> {
        let target = Target::new(out)?;
        self.run.check_kind(kind)?;
        self.run.check_new_nodes()?;
        let Loaded { task, model } = self.load(data)?;
        let t = task.node_type;
        let known = Known::new(data, encodings(&data.name, data.directory.as_deref())?.1);
        let tables = known.assign(new, t)?;
        check(data, &task, |t| !tables.nodes[t].is_empty())?;
        let new = known.import(new, &tables, watch)?;
        let extended = extend(data, &task.graph, &new)?;
        watch.check()?;
        let rows = joined(&data.name, tiers::whole(self.config(), data, &task)?, &task, &new)?;
        let mut names = Names::of_type(data, t, self.classes(&task));
        names.columns = self.run.columns().to_vec();
        let first = task.num_nodes() as NodeId;
        let wanted: Vec<NodeId> = (first..first + new.count(t) as NodeId).collect();
        let whole = TypedTask { graph: extended.graph, ..task }.with_added(self.config(), &[t])?;
        let sampler = self.run.blame_config(build::inference_sampler(self.config(), &whole))?;
        let mut inference = TypedInference::new(self.config(), &whole, &*sampler, rows)?.watched(&**watch);
        let output = if kind == Kind::Embeddings { Output::Embeddings } else { Output::Logits };
        let mut rows = Matrix::default();
        inference.run(&model, &wanted, output, &mut rows)?;
        let (cols, values) = self.run.values(kind, whole.labels.is_multi(), rows);
        let nodes: Vec<NodeId> = (0..new.count(t) as NodeId).collect();
        let identity = Identity { keys: Some(new.keys(t)), ..names.identity(&nodes) };
        target.write(&Predictions { nodes, cols, values, identity: Some(identity) })?;
        let written = Written {
            out: out.to_path_buf(),
            rows: new.count(t),
            cols,
            kind: self.run.name_of(kind),
            same_dataset: self.is_own(data),
            rescaled: None,
        };
        let Extended { new_edges, known_edges, .. } = extended;
        Ok(WrittenNew { written, new_edges, known_edges, unknown_values: new.unknown_values })
    }
}

/// Checks that the model can compute new nodes of the types for which `is_given` is true.
fn check(data: &TypedDataset, task: &TypedTask, is_given: impl Fn(usize) -> bool) -> Result<()> {
    let target = &data.nodes[task.node_type].name;
    if task.times.is_some() {
        return Err(Error::usage(format!(
            "new nodes: the rows of task '{}' have times, and a table of new nodes of '{target}' gives no \
             time for a row; import the tables again with the new rows and their times, and pass --dataset",
            task.name
        )));
    }
    if !task.edges.is_empty() {
        return Err(Error::usage(format!(
            "new nodes of '{target}': the model reads features of edges, and tables of new edges give none; \
             import the tables again with the new rows, and pass --dataset"
        )));
    }
    let learned = (0..data.nodes.len()).find(|&t| is_given(t) && task.features[t].is_none());
    if let Some(t) = learned {
        return Err(Error::usage(format!(
            "new nodes of '{}': the type has no features, so the model has a learned row for each node that \
             it was trained on, and none for a new one; leave these nodes and their edges out, or train on \
             tables in which the type has feature columns",
            data.nodes[t].name
        )));
    }
    if !is_given(task.node_type) {
        return Err(Error::usage(format!(
            "new nodes: the run predicts nodes of '{target}', and no table has new ones; add such a table, \
             as {target}=TABLE"
        )));
    }
    Ok(())
}

/// The graph of `data` with new nodes and edges of all types.
fn extend(data: &TypedDataset, graph: &TypedGraph, new: &NewRows) -> Result<Extended> {
    let schema = graph.schema();
    let types = schema.types().iter().enumerate();
    let types = types.map(|(t, node)| NodeType::new(&node.name, new.ids(t).total())).collect();
    let (mut relations, mut new_edges, mut known_edges) = (Vec::new(), 0, 0);
    // without the relations that a sampler adds, which have no edges
    let stored = &schema.relations()[..data.edges.len()];
    for (r, relation) in stored.iter().enumerate() {
        let edges = new.edges(Some(&data.edges[r].edge_type), (relation.src, relation.dst));
        let scratch = new.scratch(&format!("relation-{r}"), stored.len())?;
        relations.push(edges.added_to(graph.relation(r), new.count(relation.dst), &scratch)?);
        new_edges += edges.len();
        known_edges += edges.between_known;
    }
    let schema = Schema::new(types, stored.to_vec())?;
    Ok(Extended { graph: TypedGraph::new(schema, relations)?, new_edges, known_edges })
}

/// The rows of each type of the dataset `name`, followed by those of the new nodes at the same
/// precision.
fn joined(name: &str, tables: Tables, task: &TypedTask, new: &NewRows) -> Result<Tables> {
    let join = |(t, table): (usize, Option<Arc<dyn Feature>>)| {
        let Some(known) = table else { return Ok(None) };
        if new.count(t) == 0 {
            return Ok(Some(known));
        }
        let kind = match task.features[t].as_ref().map(|features| &features.data) {
            Some(FeatureData::F16(_)) => TableType::F16,
            _ => TableType::F32,
        };
        let features = new.features(t);
        if features.dim != known.dim() {
            let message = format!(
                "type '{}' has {} features, but the columns of its table give {}; import the tables again",
                task.graph.schema().types()[t].name,
                known.dim(),
                features.dim
            );
            return Err(Error::dataset(name, message));
        }
        let rows = Host::resident(&features, kind)?;
        Ok(Some(Arc::new(Joined::new(known, rows)) as Arc<dyn Feature>))
    };
    tables.into_iter().enumerate().map(join).collect()
}
