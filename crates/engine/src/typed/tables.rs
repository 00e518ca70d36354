//! Tables of feature rows, one for each node type or edge type.

use std::sync::Arc;

use graphmill_loader::Feature;

/// Table of each type in some tier; `None` for a type without features.
pub(super) type Tables = Vec<Option<Arc<dyn Feature>>>;

/// References to tables.
pub(super) fn borrowed(tables: &Tables) -> Vec<Option<&dyn Feature>> {
    tables.iter().map(Option::as_deref).collect()
}
