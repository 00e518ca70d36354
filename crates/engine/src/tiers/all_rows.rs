//! Uncached feature rows for inference.

use std::sync::Arc;

use graphmill_core::Matrix;
use graphmill_loader::Feature;

use crate::inference::Source;

/// All feature rows, for inference. Inference reads each row once, so it bypasses the caches, which
/// keep the rows that training requests.
#[allow(clippy::large_enum_variant, reason = "a run has one")]
pub(crate) enum AllRows {
    /// In memory.
    Table(Matrix),
    /// Read in chunks, from the dataset's file or through a rescaling.
    Rows(Arc<dyn Feature>),
}

impl AllRows {
    /// Returns true if the first layer multiplies sparse rows.
    pub(crate) fn is_sparse(&self) -> bool {
        matches!(self, Self::Table(table) if table.is_sparse())
    }
}

impl<'r> From<&'r AllRows> for Source<'r> {
    fn from(rows: &'r AllRows) -> Self {
        match rows {
            AllRows::Table(table) => Source::Table(table),
            AllRows::Rows(rows) => Source::Feature(&**rows),
        }
    }
}
