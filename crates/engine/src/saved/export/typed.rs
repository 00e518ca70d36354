//! Options of models of several types, for exports.

use graphmill_core::options::one_of;
use serde_json::{Map, Value, json};

use super::refused;
use crate::{Result, config::link_task::has_node_times, typed::SavedTypedRun};

/// Typed models that other libraries build.
pub(super) const MODELS: &[&str] =
    &["rsage", "rgcn", "rgat", "hgt", "simple-hgn", "gine", "gatv2-edge", "sage-edge", "edge-gated"];

/// Refuses runs whose outputs a module over all edges does not give.
pub(super) fn check(run: SavedTypedRun, to: &str) -> Result<()> {
    check_edges(run, to)?;
    if has_node_times(run.config()) {
        return Err(refused(to, "the rows of the task read edges up to their times"));
    }
    if run.config().label_inputs > 0.0 {
        return Err(refused(to, "the model reads labels of training nodes (--label-inputs)"));
    }
    if run.predicted_type().is_none() {
        return Err(refused(to, "the run does not record the type that it predicts"));
    }
    Ok(())
}

/// Refuses other models than [`MODELS`], and runs that do not record their types or read drawn
/// edges.
pub(super) fn check_edges(run: SavedTypedRun, to: &str) -> Result<()> {
    let model = &run.config().model;
    if !MODELS.contains(&model.as_str()) {
        return Err(refused(to, format!("--model {model} is not one of {}", one_of(MODELS))));
    }
    if run.draws_in_inference() {
        let sampler = &run.config().sampler;
        let why = format!("--sampler {sampler} draws the neighbours of predictions, too");
        return Err(refused(to, why));
    }
    if run.types().is_none() {
        return Err(refused(to, "an older version wrote the run, which does not record its types"));
    }
    Ok(())
}

/// Adds the types, the predicted one, the widths of the edges' rows if the model reads them, and
/// for each layer from the bottom up the edge types that it reads. Nothing is added for a run of an
/// older version, which did not record them.
///
/// # Errors
/// The weights cannot be read, or the fanout does not fit the recorded types.
pub(super) fn add_options(run: SavedTypedRun, options: &mut Map<String, Value>) -> Result<()> {
    let Some(types) = run.types() else { return Ok(()) };
    let counts = run.learned_rows()?;
    let node_types = types.node_types.iter().zip(counts).map(|(of, nodes)| {
        json!({ "name": of.name, "width": of.width, "nodes": nodes, "normalization": of.normalization })
    });
    let edge_types = types.edge_types.iter().map(|name| name.splitn(3, ':').collect::<Vec<&str>>());
    options.insert("node_types".into(), node_types.collect());
    options.insert("edge_types".into(), json!(edge_types.collect::<Vec<_>>()));
    options.insert("followed".into(), json!(run.followed()?));
    options.insert("predicts".into(), json!(run.predicted_type()));
    if let Some(widths) = run.edge_widths() {
        options.insert("edge_widths".into(), json!(widths));
    }
    options.insert("classes".into(), json!(types.classes));
    Ok(())
}
