//! The rows of features that inference starts from: a table in memory, or rows that are read.

use graphmill_loader::Feature;
use graphmill_nn::Matrix;

use super::{rows::RowSource, streamed::StreamedRows, table::TableRows};

/// The rows of features (`V x F`).
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// All of them are in memory.
    Table(&'a Matrix),
    /// They are read, wherever they are, and only so many at a time.
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
    /// The rows as inference reads them.
    pub(super) fn rows(self) -> Box<dyn RowSource + 'a> {
        match self {
            Self::Table(table) => Box::new(TableRows(table)),
            Self::Feature(feature) => Box::new(StreamedRows(feature)),
        }
    }
}
