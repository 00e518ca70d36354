//! New nodes as a caller gives them, and the rows of their answers.

use std::sync::Arc;

use graphmill_data::{
    tables::Preprocessing,
    typed::{KEY_SEPARATOR, Keys, TypedDataset},
};
use graphmill_loader::Feature;
use graphmill_nn::Matrix;

use super::{answers::Answers, index::KeyIndexes};
use crate::saved::on::{NewFeatures, NewTables, NewTypedFeatures, ReadNew};

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
    /// Edges and unknown values.
    pub read: ReadNew,
}

/// Logits of new nodes, or values at the scale of the targets; the other fields are those of
/// [`NewAnswers`].
pub(crate) struct NewLogits {
    pub(crate) rows: Matrix,
    pub(crate) keys: Vec<String>,
    pub(crate) read: ReadNew,
}

impl NewLogits {
    /// The first `count` of `keys`, with the parts of a key joined by `|`.
    pub(crate) fn joined_keys(keys: &Keys, count: usize) -> Vec<String> {
        (0..count).map(|i| keys.get(i).to_string().replace(KEY_SEPARATOR, "|")).collect()
    }
}

/// Parts of the known nodes that answers for new ones read beside the graph.
pub(super) struct KnownNodes {
    /// Rows that new ones may follow.
    pub(super) rows: Arc<dyn Feature>,
    /// Out-degrees, if inference weights edges by them.
    pub(super) out_degrees: Option<Vec<u32>>,
}

/// Tables of a dataset with the encodings of their columns, and its nodes by their keys.
pub(super) struct Tables {
    pub(super) stored: TypedDataset,
    pub(super) preprocessing: Preprocessing,
    pub(super) keys: KeyIndexes,
}
