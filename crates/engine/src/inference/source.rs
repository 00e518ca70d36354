//! Feature rows that inference starts from: a table in memory, or streamed rows, either of which
//! may be followed by stored aggregates.

use graphmill_core::block::Aggregation;
use graphmill_loader::Feature;
use graphmill_nn::Matrix;

use super::{rows::RowSource, stacked::StackedRows, streamed::StreamedRows, table::TableRows};

/// Feature rows (`V x F`).
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// A table of all rows in memory.
    Table(&'a Matrix),
    /// Rows of any tier, read in chunks.
    Feature(&'a dyn Feature),
    /// A table of all rows, followed by the aggregates of each node's neighbours (`2 V x F`).
    StackedTable(&'a Matrix, Aggregation),
    /// The same rows of any tier.
    StackedFeature(&'a dyn Feature, Aggregation),
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
            Self::StackedTable(table, aggregation) => {
                Box::new(StackedRows { rows: Self::Table(table).rows(), aggregation })
            }
            Self::StackedFeature(feature, aggregation) => {
                Box::new(StackedRows { rows: Self::Feature(feature).rows(), aggregation })
            }
        }
    }
}
