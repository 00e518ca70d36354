//! Feature rows of the edges of a task's graph, for models that read them.

use std::sync::Arc;

use graphmill_core::{Features, features::FeatureData, options::one_of, search::position};
use graphmill_data::typed::{EdgeData, FeatureTable, TableData, TypedDataset, Values};
use graphmill_loader::{Feature, feature::Host, typed as sampling};
use graphmill_nn::typed::TABLE;
use rayon::prelude::*;

use super::tables::Tables;
use crate::{Error, Result, TrainConfig};

/// Returns true if the model of this name reads edge features.
pub(super) fn reads(model: &str) -> bool {
    TABLE.get(model).is_some_and(|entry| entry.make.reads_edges)
}

/// Feature table of each edge type, `None` for a type without features; empty if the model of a
/// configuration does not read them. Rows stay mapped, or are converted to f32 in memory if they
/// are neither dense f16 nor dense f32.
///
/// # Errors
/// No edge type has features, or a value exceeds f32.
pub(super) fn tables(config: &TrainConfig, data: &TypedDataset) -> Result<Tables> {
    if !reads(&config.model) {
        return Ok(Vec::new());
    }
    let tables = data.edges.iter().map(|edges| table(data, edges)).collect::<Result<Tables>>()?;
    check_features(config, data, &tables)?;
    Ok(tables)
}

/// Checks that an edge type of `data` has features, of which `tables` are the rows.
///
/// # Errors
/// None has.
pub(super) fn check_features(config: &TrainConfig, data: &TypedDataset, tables: &Tables) -> Result<()> {
    if tables.iter().all(Option::is_none) {
        let others: Vec<&str> = TABLE.iter().map(|entry| entry.name).filter(|name| !reads(name)).collect();
        let has_features = data.nodes.iter().all(|nodes| nodes.features.is_some());
        let others = match data.nodes.len().max(data.edges.len()) {
            1 if has_features => "sage".into(),
            _ => one_of(&others),
        };
        let message = format!(
            "no edge type has features, which --model {} reads; use --model {others}, or import the edges \
             with their features (graphmill import tables --edge-features)",
            config.model
        );
        return Err(Error::dataset(&data.name, message));
    }
    Ok(())
}

/// Number of features of each edge type, 0 for a type without features; empty if they are not read.
pub(super) fn widths(tables: &Tables) -> Vec<usize> {
    tables.iter().map(|table| table.as_ref().map_or(0, |table| table.dim())).collect()
}

/// Checks that the sampler `name` can draw for a model that reads the rows of edges.
///
/// # Errors
/// It does not name the edges that it draws.
pub(super) fn check_sampler(config: &TrainConfig, name: &str) -> Result<()> {
    if sampling::TABLE.find(name).map_err(Error::name)?.make.names_edges {
        return Ok(());
    }
    let others = sampling::TABLE.iter().filter(|entry| entry.make.names_edges).map(|entry| entry.name);
    Err(Error::usage(format!(
        "--sampler {name}: it does not name the edges that it draws, and --model {} reads their features; \
         use --sampler {}",
        config.model,
        one_of(&others.collect::<Vec<_>>())
    )))
}

/// Feature rows of an edge type.
fn table(data: &TypedDataset, edges: &EdgeData) -> Result<Option<Arc<dyn Feature>>> {
    let Some(table) = &edges.features else { return Ok(None) };
    let rows = match &table.data {
        TableData::Dense(Values::F32(values)) => FeatureData::F32(values.clone()),
        TableData::Dense(Values::F16(values)) => FeatureData::F16(values.clone()),
        _ => FeatureData::F32(converted(data, edges, table)?.into()),
    };
    Ok(Some(Arc::new(Host::new(&Features { dim: table.width, data: rows }))))
}

/// Values of rows of any number type, or sparse ones, in f32.
fn converted(data: &TypedDataset, edges: &EdgeData, table: &FeatureTable) -> Result<Vec<f32>> {
    table.verify()?;
    let width = table.width;
    let mut values = graphmill_core::memory::zeroed(edges.num_edges() * width)?;
    values.par_chunks_mut(width.max(1)).enumerate().for_each_init(
        || vec![0.0; width],
        |row, (e, out)| {
            table.copy_row(e, row);
            out.iter_mut().zip(row).for_each(|(out, x)| *out = *x as f32);
        },
    );
    if let Some(i) = position(&values, |x: &f32| !x.is_finite()) {
        let message = format!(
            "feature {} of edge {} of type '{}' is beyond the range of f32; scale the column",
            i % width,
            i / width,
            edges.edge_type
        );
        return Err(Error::dataset(&data.name, message));
    }
    Ok(values)
}
