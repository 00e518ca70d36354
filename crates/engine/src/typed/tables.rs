//! Tables of feature rows, one for each node type or edge type.

use std::{path::Path, sync::Arc};

use graphmill_core::{Features, matrix::TableType};
use graphmill_data::{
    dataset::StoredTable,
    typed::{FeatureTable, TypedDataset, manifest_text},
};
use graphmill_loader::{
    Feature,
    feature::{Host, cached::RowFormat},
};
use serde_json::Value as Json;

use crate::{Result, build, tiers::in_form};

/// Table of each type in some tier; `None` for a type without features.
pub(super) type Tables = Vec<Option<Arc<dyn Feature>>>;

/// References to tables.
pub(super) fn borrowed(tables: &Tables) -> Vec<Option<&dyn Feature>> {
    tables.iter().map(Option::as_deref).collect()
}

/// The rows `features` in host memory, or mapped: dense rows in the number type `kind`, if one is
/// given.
///
/// # Errors
/// Those of [`Host::resident`].
pub(super) fn in_host(features: &Features, kind: Option<TableType>) -> Result<Arc<dyn Feature>> {
    let stored = features.data.kind();
    Ok(Arc::new(match kind.filter(|kind| stored.is_some_and(|stored| stored != *kind)) {
        Some(kind) => Host::resident(features, kind)?,
        None => Host::new(features),
    }))
}

/// Number of node types that the dataset in `dir` stores, of the `types` of a run. Types that the
/// run has added follow them: their nodes are the rows of its task, and no file holds them.
pub(super) fn num_stored(dir: &Path, types: usize) -> usize {
    let manifest = manifest_text(dir).and_then(|text| serde_json::from_slice::<Json>(&text).ok());
    manifest.and_then(|manifest| Some(manifest["node_types"].as_array()?.len())).unwrap_or(types)
}

/// Opens the feature file of type `t` in the directory of a dataset, whose rows are read in the
/// number type `kind`, if one is given.
///
/// # Errors
/// It cannot be opened.
pub(super) fn on_disk(
    dir: &Path,
    t: usize,
    data: &TypedDataset,
    kind: Option<TableType>,
) -> Result<Arc<dyn Feature>> {
    let table = StoredTable::features_of_type(dir, t)?;
    let verifier = data.nodes[t].features.as_ref().and_then(FeatureTable::verifier);
    let file = Arc::new(build::disk(&table, verifier)?);
    let format = RowFormat::Dense(kind.unwrap_or(file.kind()));
    Ok(in_form(file, format))
}
