//! Tables of feature rows, one for each node type or edge type.

use std::{path::Path, sync::Arc};

use graphmill_data::{
    dataset::StoredTable,
    typed::{FeatureTable, TypedDataset},
};
use graphmill_loader::Feature;

use crate::{Result, build};

/// Table of each type in some tier; `None` for a type without features.
pub(super) type Tables = Vec<Option<Arc<dyn Feature>>>;

/// References to tables.
pub(super) fn borrowed(tables: &Tables) -> Vec<Option<&dyn Feature>> {
    tables.iter().map(Option::as_deref).collect()
}

/// Opens the feature file of type `t` in the directory of a dataset.
///
/// # Errors
/// It cannot be opened.
pub(super) fn on_disk(dir: &Path, t: usize, data: &TypedDataset) -> Result<Arc<dyn Feature>> {
    let table = StoredTable::features_of_type(dir, t)?;
    let verifier = data.nodes[t].features.as_ref().and_then(FeatureTable::verifier);
    Ok(Arc::new(build::disk(&table, verifier)?))
}
