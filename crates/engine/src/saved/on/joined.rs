//! A dataset with new nodes: the graph and the feature rows that answers for them read.
//!
//! # Cost
//!
//! O(V + E): the graph is copied, beyond the memory budget to a temporary directory. Feature rows
//! of the dataset are read in place. A [`Part`](super::part::Part) of the graph takes no copy.

use std::sync::Arc;

use graphmill_core::{Features, NodeId, WholeDegrees, progress::Progress};
use graphmill_data::{Dataset, external::Scratch, typed::Keys};
use graphmill_loader::Feature;

use super::{
    NewFeatures, NewTables, ReadNew,
    graph::{NewEdges, NodeIds, check_ids},
    known::{Known, NewRows},
    part::{Edges, Part},
};
use crate::{
    Error, Result,
    label_inputs::LabelColumns,
    saved::SavedRun,
    tiers::{AllRows, Selected},
};

/// Edges of feature rows in messages.
const EDGES: &str = "new edges";

/// New nodes with their edges, checked against a dataset.
pub(crate) struct Additions {
    /// Number of new nodes, whose ids follow those of the known nodes.
    pub(crate) count: usize,
    /// Their rows, at the scale of the dataset.
    pub(crate) features: Features,
    pub(crate) edges: NewEdges,
    /// Keys of the new nodes, and of others behind them.
    pub(crate) keys: Option<Keys>,
    /// Columns with values that the encodings do not know, with the number of such values.
    pub(crate) unknown_values: Vec<(String, u64)>,
    /// Directory of the imported tables and of a large graph, removed with this value.
    pub(crate) tables: Option<NewRows>,
}

/// A dataset with new nodes.
pub(crate) struct Joined {
    /// The dataset with the joined graph. Its features and keys are those of the known nodes.
    pub(crate) data: Dataset,
    /// Rows of all nodes, at the scale of the run.
    pub(crate) rows: AllRows,
    /// The new nodes.
    pub(crate) new: Additions,
}

impl Joined {
    /// Ids of the new nodes.
    pub(crate) fn ids(&self) -> Vec<NodeId> {
        let end = self.data.num_nodes() as NodeId;
        (end - self.new.count as NodeId..end).collect()
    }
}

impl Additions {
    /// Rows and edges of the tables.
    pub(crate) fn read(self) -> ReadNew {
        ReadNew {
            new_edges: self.edges.len(),
            known_edges: self.edges.between_known,
            unknown_values: self.unknown_values,
        }
    }

    /// Imports the nodes and edges of tables, which the statistics of `known` encode.
    ///
    /// # Errors
    /// Those of [`SavedRun::predict_new`], but for the output.
    pub(crate) fn of_tables(known: &Known, new: &NewTables, watch: &Arc<dyn Progress>) -> Result<Self> {
        let mut new = known.import(new, &known.assign(new, 0)?, watch)?;
        Ok(Self {
            count: new.count(0),
            features: new.features(0),
            edges: new.edges(known.first_edge_type(), (0, 0)),
            keys: Some(new.keys(0)),
            unknown_values: std::mem::take(&mut new.unknown_values),
            tables: Some(new),
        })
    }

    /// Checks feature rows and edges for `data`.
    ///
    /// # Errors
    /// The rows have another width, or numbers that are not finite; an edge names a node that is
    /// neither known nor new, occurs twice, or has a weight that is negative or not finite.
    pub(crate) fn of_features(data: &Dataset, new: &NewFeatures) -> Result<Self> {
        let width = data.features.dim;
        let count = count_rows("new nodes", &new.rows, width)?;
        let ids = NodeIds { known: data.num_nodes(), new: count, places: &[] };
        let mut edges = NewEdges::listed(EDGES, new.edges.iter().copied(), [ids; 2])?;
        if new.undirected {
            edges = edges.undirected(EDGES)?;
        }
        let features = Features::f32(width, new.rows.clone());
        Ok(Self { count, features, edges, keys: None, unknown_values: Vec::new(), tables: None })
    }
}

impl SavedRun {
    /// Joins new nodes to a copy of the graph of `data`. O(V + E).
    ///
    /// # Errors
    /// There are too many nodes, or the copy cannot be written.
    pub(crate) fn join(&self, data: &Dataset, new: Additions) -> Result<Joined> {
        let scratch = match &new.tables {
            Some(tables) => tables.scratch("graph", 1)?,
            None => Scratch::in_memory(),
        };
        let graph = new.edges.added_to(&data.graph, new.count, &scratch)?;
        let known = self.known_rows(data)?;
        let rows = self.rows_followed_by((data, known), &new.features, self.label_columns(data)?)?;
        Ok(Joined { data: Dataset { graph, ..data.clone() }, rows, new })
    }

    /// The part of `data` with new nodes that rows of these depend on, by a model of `hops` layers.
    /// `rows` are those of the known nodes, and `labels` their label columns. `out_degrees` are
    /// those of the known nodes, if inference reads them.
    ///
    /// # Errors
    /// There are too many nodes, or rows cannot be allocated.
    pub(crate) fn part(
        &self,
        data: &Dataset,
        (rows, labels): (Arc<dyn Feature>, Option<LabelColumns>),
        new: Additions,
        (hops, out_degrees): (usize, Option<&[u32]>),
    ) -> Result<Joined> {
        let known = data.num_nodes();
        check_ids(known, new.count)?;
        let edges = Edges { known: &data.graph, new: &new.edges, src: 0, dst: 0, with_rows: false };
        let wanted = (known as NodeId..(known + new.count) as NodeId).collect();
        let Part { mut ids, relations, .. } =
            Part::around(std::slice::from_ref(&edges), &[known + new.count], &[wanted], hops);
        let ids = ids.swap_remove(0);
        let of_out = out_degrees.map(|degrees| edges.out_degrees(degrees, &ids));
        let whole = WholeDegrees { of_in: edges.in_degrees(&ids), of_out };
        let graph = relations.into_iter().next().unwrap_or_default().with_whole_degrees(whole);
        let rows = self.rows_followed_by((data, rows), &new.features, labels)?;
        let rows = AllRows::Rows(Arc::new(Selected::new(rows.into_feature(), ids)));
        Ok(Joined { data: Dataset { graph, ..data.clone() }, rows, new })
    }

    /// Rows of `data` that new ones may follow.
    ///
    /// # Errors
    /// The rows cannot be read.
    pub(crate) fn known_rows(&self, data: &Dataset) -> Result<Arc<dyn Feature>> {
        self.blame_config(AllRows::known(&self.config_for(data), data))
    }

    /// The `known` rows of `data` followed by `new` ones, at the scale of the run, and by label
    /// columns.
    fn rows_followed_by(
        &self,
        (data, known): (&Dataset, Arc<dyn Feature>),
        new: &Features,
        labels: Option<LabelColumns>,
    ) -> Result<AllRows> {
        let (config, rescaling) = (self.config_for(data), self.rescaling(data)?);
        let rows = AllRows::followed_by(&config, (data, known), new, rescaling.as_ref());
        Ok(AllRows::Rows(self.blame_config(rows)?).with_labels(labels))
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
