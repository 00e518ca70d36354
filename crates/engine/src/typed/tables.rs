//! Tables of feature rows, one for each node type or edge type.

use std::{path::Path, sync::Arc};

use graphmill_data::{
    dataset::StoredTable,
    typed::{FeatureTable, TypedDataset, manifest_text},
};
use graphmill_loader::Feature;
use serde_json::Value as Json;

use crate::{Result, build};

/// Table of each type in some tier; `None` for a type without features.
pub(super) type Tables = Vec<Option<Arc<dyn Feature>>>;

/// References to tables.
pub(super) fn borrowed(tables: &Tables) -> Vec<Option<&dyn Feature>> {
    tables.iter().map(Option::as_deref).collect()
}

/// Number of node types that the dataset in `dir` stores, of the `types` of a run. Types that the
/// run has added follow them: their nodes are the rows of its task, and no file holds them.
pub(super) fn num_stored(dir: &Path, types: usize) -> usize {
    let manifest = manifest_text(dir).and_then(|text| serde_json::from_slice::<Json>(&text).ok());
    manifest.and_then(|manifest| Some(manifest["node_types"].as_array()?.len())).unwrap_or(types)
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
