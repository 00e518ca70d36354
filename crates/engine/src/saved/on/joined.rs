//! A dataset with new nodes: the graph and the feature rows that answers for them read.
//!
//! # Cost
//!
//! O(V + E): the graph is copied, beyond the memory budget to a temporary directory. Feature rows
//! of the dataset are read in place.

use std::sync::Arc;

use graphmill_core::{Features, NodeId, progress::Progress};
use graphmill_data::{Dataset, external::Scratch, typed::Keys};

use super::{
    NewFeatures, NewTables,
    graph::{NewEdges, NodeIds},
    known::{Known, NewRows},
};
use crate::{Error, Result, saved::SavedRun, tiers::AllRows};

/// Edges of feature rows in messages.
const EDGES: &str = "new edges";

/// A dataset with new nodes.
pub(crate) struct Joined {
    /// The dataset with the joined graph. Its features and keys are those of the known nodes.
    pub(crate) data: Dataset,
    /// Rows of all nodes, at the scale of the run.
    pub(crate) rows: AllRows,
    /// Number of new nodes, whose ids follow those of the known nodes.
    pub(crate) count: usize,
    /// Keys of the new nodes, and of others behind them.
    pub(crate) keys: Option<Keys>,
    /// Number of edges of new nodes.
    pub(crate) new_edges: usize,
    /// Number of edges between known nodes, which are left out.
    pub(crate) known_edges: u64,
    /// Columns with values that the encodings do not know, with the number of such values.
    pub(crate) unknown_values: Vec<(String, u64)>,
    /// Directory of the imported tables and of a large graph, removed with this value.
    _tables: Option<NewRows>,
}

impl Joined {
    /// Ids of the new nodes.
    pub(crate) fn ids(&self) -> Vec<NodeId> {
        let end = self.data.num_nodes() as NodeId;
        (end - self.count as NodeId..end).collect()
    }
}

impl SavedRun {
    /// Joins the nodes and edges of tables, which the statistics of `known` encode, to `data`.
    ///
    /// # Errors
    /// Those of [`SavedRun::predict_new`], but for the output.
    pub(crate) fn join_tables(
        &self,
        data: &Dataset,
        known: &Known,
        new: &NewTables,
        watch: &Arc<dyn Progress>,
    ) -> Result<Joined> {
        let mut new = known.import(new, &known.assign(new, 0)?, watch)?;
        let count = new.count(0);
        let scratch = new.scratch("graph", 1)?;
        let edges = new.edges(known.first_edge_type(), (0, 0));
        let graph = edges.added_to(&data.graph, count, &scratch)?;
        watch.check()?;
        let rows = self.rows_followed_by(data, &new.features(0))?;
        Ok(Joined {
            data: Dataset { graph, ..data.clone() },
            rows,
            count,
            keys: Some(new.keys(0)),
            new_edges: edges.len(),
            known_edges: edges.between_known,
            unknown_values: std::mem::take(&mut new.unknown_values),
            _tables: Some(new),
        })
    }

    /// Joins feature rows and edges to `data`.
    ///
    /// # Errors
    /// The rows have another width, or numbers that are not finite; an edge names a node that is
    /// neither known nor new, occurs twice, or has a weight that is negative or not finite.
    pub(crate) fn join_features(&self, data: &Dataset, new: &NewFeatures) -> Result<Joined> {
        let width = data.features.dim;
        let count = count_rows("new nodes", &new.rows, width)?;
        let ids = NodeIds { known: data.num_nodes(), new: count, places: &[] };
        let mut edges = NewEdges::listed(EDGES, new.edges.iter().copied(), [ids; 2])?;
        if new.undirected {
            edges = edges.undirected(EDGES)?;
        }
        let graph = edges.added_to(&data.graph, count, &Scratch::in_memory())?;
        Ok(Joined {
            rows: self.rows_followed_by(data, &Features::f32(width, new.rows.clone()))?,
            data: Dataset { graph, ..data.clone() },
            count,
            keys: None,
            new_edges: edges.len(),
            known_edges: edges.between_known,
            unknown_values: Vec::new(),
            _tables: None,
        })
    }

    /// Rows of `data` followed by `new` ones, at the scale of the run.
    fn rows_followed_by(&self, data: &Dataset, new: &Features) -> Result<AllRows> {
        let (config, rescaling) = (self.config_for(data), self.rescaling(data)?);
        let rows = AllRows::followed_by(&config, data, new, rescaling.as_ref());
        Ok(AllRows::Rows(self.blame_config(rows)?).with_labels(self.label_columns(data)?))
    }
}

/// Number of feature rows of `width` numbers. Messages name the rows `what`.
///
/// # Errors
/// There are none, or numbers are left over or not finite.
pub(crate) fn count_rows(what: &str, rows: &[f32], width: usize) -> Result<usize> {
    if rows.is_empty() || width == 0 || !rows.len().is_multiple_of(width) {
        let found = rows.len();
        return Err(Error::usage(format!(
            "{what}: {found} numbers are no rows of {width} features; pass {width} numbers for each node"
        )));
    }
    if let Some(at) = rows.iter().position(|x| !x.is_finite()) {
        return Err(Error::usage(format!(
            "{what}: row {} has {} in column {}; pass finite numbers",
            at / width,
            rows[at],
            at % width
        )));
    }
    Ok(rows.len() / width)
}
