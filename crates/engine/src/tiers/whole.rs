//! All feature rows, as inference reads them.

use std::sync::Arc;

use graphmill_core::Matrix;
use graphmill_loader::Feature;

use crate::inference::Source;

/// All feature rows, for inference: it reads each once, so caches are passed by and keep what
/// training asks for.
#[allow(clippy::large_enum_variant, reason = "a run has one")]
pub(crate) enum Whole {
    /// In memory.
    Table(Matrix),
    /// Read a chunk at a time: from the dataset's file, or converted to another scale.
    Rows(Arc<dyn Feature>),
}

impl Whole {
    /// Whether rows are multiplied sparse.
    pub(crate) fn is_sparse(&self) -> bool {
        matches!(self, Self::Table(table) if table.is_sparse())
    }
}

impl<'w> From<&'w Whole> for Source<'w> {
    fn from(whole: &'w Whole) -> Self {
        match whole {
            Whole::Table(table) => Source::Table(table),
            Whole::Rows(rows) => Source::Feature(&**rows),
        }
    }
}
