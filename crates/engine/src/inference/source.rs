//! Feature rows that inference starts from: a table in memory, or streamed rows.

use graphmill_loader::Feature;
use graphmill_nn::Matrix;

use super::{rows::RowSource, streamed::StreamedRows, table::TableRows};

/// Feature rows (`V x F`).
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// A table of all rows in memory.
    Table(&'a Matrix),
    /// Rows of any tier, read in chunks.
    Feature(&'a dyn Feature),
}

impl<'a> From<&'a Matrix> for Source<'a> {
    fn from(table: &'a Matrix) -> Self {
        Self::Table(table)
    }
}

impl<'a> From<&'a dyn Feature> for Source<'a> {
    fn from(feature: &'a dyn Feature) -> Self {
        Self::Feature(feature)
    }
}

impl<'a> Source<'a> {
    /// Row source of inference.
    pub(super) fn rows(self) -> Box<dyn RowSource + 'a> {
        match self {
            Self::Table(table) => Box::new(TableRows(table)),
            Self::Feature(feature) => Box::new(StreamedRows(feature)),
        }
    }
}
