//! Answers for nodes that the dataset does not hold: those of `graphmill predict --on`.
//!
//! The new nodes and their edges are joined to the graph for one call; the dataset does not change,
//! and a call sees no new nodes of another one.
//!
//! # Cost
//!
//! O(V + E), because the graph is copied, beyond the memory budget to a temporary directory.

use std::sync::Arc;

use graphmill_core::progress::{Progress, Quiet};
use graphmill_data::{
    tables::Preprocessing,
    typed::{self, KEY_SEPARATOR, Keys, TypedDataset, Verify},
};
use graphmill_nn::Matrix;

use super::{
    Predictor,
    answers::{Answers, Neighborhood},
    one_type::{OneType, draws, sampler},
};
use crate::{
    Error, Result,
    inference::Output,
    saved::on::{Known, NewFeatures, NewTables, NewTypedFeatures, encodings, joined::Joined},
};

/// Nodes that the dataset does not hold, and their edges.
#[derive(Clone, Debug)]
pub enum NewNodes {
    /// Rows with the columns of the imported tables, which the dataset's statistics encode.
    Tables(NewTables),
    /// Feature rows, for a dataset of one type and of any origin.
    Features(NewFeatures),
    /// Feature rows by node type, for a dataset of several types and of any origin.
    TypedFeatures(NewTypedFeatures),
}

/// Answers for new nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct NewAnswers {
    /// Answers in the order of the rows.
    pub answers: Answers,
    /// Keys of the rows of tables; empty for feature rows.
    pub keys: Vec<String>,
    /// Number of edges of new nodes.
    pub new_edges: usize,
    /// Number of edges between known nodes, which are left out.
    pub known_edges: u64,
    /// Columns with values that the encodings do not know, with the number of such values. They are
    /// encoded as zeros.
    pub unknown_values: Vec<(String, u64)>,
}

/// Logits of new nodes, or values at the scale of the targets; the other fields are those of
/// [`NewAnswers`].
pub(crate) struct NewLogits {
    pub(crate) rows: Matrix,
    pub(crate) keys: Vec<String>,
    pub(crate) new_edges: usize,
    pub(crate) known_edges: u64,
    pub(crate) unknown_values: Vec<(String, u64)>,
}

impl NewLogits {
    /// The first `count` of `keys`, with the parts of a key joined by `|`.
    pub(crate) fn joined_keys(keys: &Keys, count: usize) -> Vec<String> {
        (0..count).map(|i| keys.get(i).to_string().replace(KEY_SEPARATOR, "|")).collect()
    }
}

/// Tables of a dataset with the encodings of their columns.
pub(super) struct Tables {
    stored: TypedDataset,
    preprocessing: Preprocessing,
}

impl Predictor {
    /// Answers for new nodes, in the order of their rows: the bits of `graphmill predict --on` if
    /// all neighbours are read. With several types, nodes and edges of other types may be new too,
    /// and the answers are those for the type that the run predicts.
    ///
    /// # Errors
    /// Tables have faults or the dataset was not imported from tables; feature rows have another
    /// width, or name no types of a dataset of several; new nodes have a type without features; an
    /// edge names an unknown node; the sampler cannot draw for single nodes; features cannot be
    /// read.
    pub fn predict_new(&self, new: &NewNodes, of: Neighborhood) -> Result<NewAnswers> {
        self.check(of)?;
        let NewLogits { rows, keys, new_edges, known_edges, unknown_values } =
            self.opened.logits_of_new(new, of)?;
        Ok(NewAnswers { answers: self.answers(rows), keys, new_edges, known_edges, unknown_values })
    }
}

impl OneType {
    /// Logits of new nodes on the joined graph.
    pub(super) fn logits_of_joined(&self, new: &NewNodes, of: Neighborhood) -> Result<NewLogits> {
        let joined = self.join(new)?;
        let loaded = self.loaded.on(&self.run, &joined.data)?;
        let neighbors = match of {
            Neighborhood::All => loaded.exact.clone(),
            Neighborhood::Drawn { seed } => draws(&sampler(&self.run, &joined.data), seed)?,
        };
        let graph = (&joined.data.graph, &joined.rows);
        let rows = loaded.rows(graph, &neighbors, &joined.ids(), Output::Logits, &Quiet);
        let rows = self.run.blame_config(rows)?;
        let keys = joined.keys.as_ref();
        let keys = keys.map(|keys| NewLogits::joined_keys(keys, joined.count)).unwrap_or_default();
        let Joined { new_edges, known_edges, unknown_values, .. } = joined;
        Ok(NewLogits { rows, keys, new_edges, known_edges, unknown_values })
    }

    fn join(&self, new: &NewNodes) -> Result<Joined> {
        match new {
            NewNodes::Features(new) => self.run.join_features(&self.data, new),
            NewNodes::TypedFeatures(_) => Err(Error::usage(
                "new nodes: the dataset has one type, and the feature rows name types; pass rows without a \
                 type",
            )),
            NewNodes::Tables(new) => {
                let Tables { stored, preprocessing } = self.tables()?;
                let watch: Arc<dyn Progress> = Arc::new(Quiet);
                self.run.join_tables(&self.data, &Known::new(stored, preprocessing.clone()), new, &watch)
            }
        }
    }

    /// The dataset's tables, read by the first call.
    fn tables(&self) -> Result<&Tables> {
        let read = || {
            let (dir, preprocessing) = encodings(&self.data.name, self.data.directory.as_deref())?;
            Ok::<_, Error>(Tables { stored: typed::open(dir, Verify::Once)?, preprocessing })
        };
        let tables = self.tables.get_or_init(|| read().map_err(|error| error.to_string()));
        tables.as_ref().map_err(|why| Error::usage(why.clone()))
    }
}
