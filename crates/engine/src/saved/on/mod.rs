//! Predictions for new nodes, which a run's dataset does not hold: `predict --on`.
//!
//! Tables of new nodes are encoded by the statistics of the dataset, which an import of tables
//! stored, and their edges name new and known nodes by their keys. The model computes the new nodes
//! from all their neighbours, in the graph of the dataset with the new nodes and edges: as if they
//! had been imported with the others. Rows of known nodes do not change. Nothing is written but the
//! predictions.
//!
//! The features of the dataset are read in place. Its graph is copied, beyond the memory budget to
//! a temporary directory. A [`Predictor`](crate::predictor::Predictor) reads a `part` of it
//! instead.

mod graph;
pub(crate) mod joined;
mod known;
mod links;
pub(crate) mod part;
mod scratch;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use graphmill_core::{NodeId, progress::Progress};
use graphmill_data::{
    Dataset,
    dataset::Rescaling,
    tables::{MemoryTable, Names},
    typed::{self, Verify},
};
use serde::Serialize;

pub(crate) use self::{
    graph::{NewEdges, NodeIds, check_ids},
    joined::{Additions, count_rows},
    known::{FindKeys, Known, NewRows, encodings},
    links::NewQueries,
};
pub use self::{links::BestOfNew, scratch::remove_stale as remove_stale_scratch};
use super::{Kind, SavedRun, Written, keys};
use crate::{
    Error, Result,
    config::embedding::is_table,
    link::structure::{reads_structure, refused},
    predictions::{Identity, Predictions, Target},
};

/// Tables of new nodes and of their edges.
#[derive(Clone, Debug, Default)]
pub struct NewTables {
    /// Files of the new nodes: paths, directories or patterns, or keys of `memory`. The node type
    /// stands before a name, as in `account=new.csv`; without it the nodes are of the predicted
    /// type.
    pub nodes: Names,
    /// Files of the edges of the new nodes; may be empty. The edge type stands before a name, as in
    /// `account__transfer__account=new.csv` or `transfer=new.csv`, unless the dataset has one edge
    /// table.
    pub edges: Names,
    /// Tables in memory by name.
    pub memory: BTreeMap<String, MemoryTable>,
    /// Memory budget in bytes; half of the free memory by default.
    pub budget: Option<u64>,
}

/// New nodes as feature rows, for a dataset of any origin.
///
/// The new node number `i` has the id `V + i`, where `V` is the number of nodes of the dataset.
#[derive(Clone, Debug, Default)]
pub struct NewFeatures {
    /// Rows at the scale of the dataset's features (`N x F`).
    pub rows: Vec<f32>,
    /// Source, destination and weight of the new edges; the destination reads the source. Weights
    /// count if the graph has weights.
    pub edges: Vec<(NodeId, NodeId, f32)>,
    /// True to read every edge in both directions.
    pub undirected: bool,
}

/// New nodes of several types as feature rows, for a dataset of any origin.
///
/// The new node number `i` of a type has the id `V + i`, where `V` is the number of nodes of this
/// type in the dataset.
#[derive(Clone, Debug, Default)]
pub struct NewTypedFeatures {
    /// Width, and rows at the scale of the dataset's features, by the name of the node type
    /// (`N x F`).
    pub rows: BTreeMap<String, (usize, Vec<f32>)>,
    /// Source, destination and weight of the new edges by their edge type, such as
    /// `user:rates:movie` or `rates`; the destination reads the source. Weights count if the edge
    /// type has weights.
    pub edges: BTreeMap<String, Vec<(NodeId, NodeId, f32)>>,
    /// True to add each edge to the reverse of its edge type, too, if the dataset has one.
    pub undirected: bool,
}

/// Summary of the output of [`SavedRun::predict_new`].
#[derive(Clone, Debug, Serialize)]
pub struct WrittenNew {
    /// File and shape.
    #[serde(flatten)]
    pub written: Written,
    /// Rows and edges of the tables.
    #[serde(flatten)]
    pub read: ReadNew,
}

/// Rows and edges that tables of new nodes gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReadNew {
    /// Number of edges of new nodes.
    pub new_edges: usize,
    /// Number of edges between known nodes, which are left out.
    pub known_edges: u64,
    /// Columns with values that the encodings do not know, with the number of such values. They are
    /// encoded as zeros.
    pub unknown_values: Vec<(String, u64)>,
}

impl ReadNew {
    /// Remarks for a person, a line each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for (column, count) in &self.unknown_values {
            let values = if *count == 1 { "value" } else { "values" };
            notes.push(format!(
                "column '{column}': {count} {values} that the dataset does not have, encoded as zeros"
            ));
        }
        if self.known_edges > 0 {
            notes.push(format!(
                "{} edges between known nodes are left out: the graph of the dataset does not change",
                self.known_edges
            ));
        }
        notes
    }
}

impl SavedRun {
    /// Refuses new nodes, whose tables give no times, of a run whose model does not compute them.
    ///
    /// # Errors
    /// The run predicts as of a time, learned a stream of events, has a row for each node of
    /// training, or its decoder reads the structure of the graph.
    pub fn check_new_nodes(&self) -> Result<()> {
        if let Some(at) = self.at {
            return Err(Error::usage(format!(
                "--at {at}: tables of new nodes and their edges give no times; leave it out"
            )));
        }
        if is_table(&self.config) {
            return Err(Error::usage(format!(
                "new nodes: --model {} has a row for each node of training and none for a new one; train a \
                 model that reads features, such as sage, or import the tables again and train on them",
                self.config.model
            )));
        }
        if reads_structure(&self.config) && (self.learns_links() || self.learns_typed_links()) {
            let why = "it reads the graph of the dataset around each pair, and new nodes are not in it; \
                       import the tables again with the new rows and pass --dataset";
            return Err(refused(&self.config, why));
        }
        if self.learns_events() {
            return Err(Error::usage(
                "new nodes: the run learned a stream of events, which tables of new nodes do not extend; \
                 import the tables again with the new rows, and pass --dataset",
            ));
        }
        Ok(())
    }

    /// Writes predictions for the nodes of `new` to `out`, in the order of their table. `data` is
    /// the run's dataset, or another one that was imported by the same statistics.
    ///
    /// # Errors
    /// The dataset was not imported from tables; a table has faults; a new key is in the dataset;
    /// an edge names a key that is neither there nor new; the model does not fit; `out` cannot be
    /// written; or `watch` stops the work.
    pub fn predict_new(
        &self,
        data: &Dataset,
        new: &NewTables,
        kind: Kind,
        out: &Path,
        watch: &Arc<dyn Progress>,
    ) -> Result<WrittenNew> {
        let target = Target::new(out)?;
        self.check_new_nodes()?;
        self.check_fit(data, false)?;
        let mut names = keys::Names::of(data, self.trained_on(data)?.as_deref())?;
        names.columns = self.columns().to_vec();
        let (dir, preprocessing) = encodings(&data.name, data.directory.as_deref())?;
        let stored = typed::open(dir, Verify::Once)?;
        let new = Additions::of_tables(&Known::new(&stored, &preprocessing), new, watch)?;
        watch.check()?;
        let joined = self.join(data, new)?;
        watch.check()?;
        let count = joined.new.count;
        let nodes: Vec<NodeId> = (0..count as NodeId).collect();
        let identity = Identity { keys: joined.new.keys.clone(), ..names.identity(&nodes) };
        let inferred = self.infer(&joined.data, &joined.rows, &joined.ids(), kind, &**watch);
        let (cols, values) = inferred.map_err(|error| error.with_row_name(|row| identity.row_name(row)))?;
        target.write(&Predictions { nodes, cols, values, identity: Some(identity) })?;
        let written = Written {
            out: out.to_path_buf(),
            rows: count,
            cols,
            kind: self.name_of(kind),
            same_dataset: self.is_own(data)?,
            rescaled: self.rescaling(data)?.as_ref().map(Rescaling::description),
        };
        Ok(WrittenNew { written, read: joined.new.read() })
    }
}
