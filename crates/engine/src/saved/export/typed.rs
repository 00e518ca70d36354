//! Options of models of several types, for exports.

use serde_json::{Map, Value, json};

use super::refused;
use crate::{Result, config::link_task::has_node_times, typed::SavedTypedRun};

/// Models that `model_typed.py` builds.
pub(super) const MODELS: &[&str] = &["rsage", "rgcn", "rgat", "hgt", "simple-hgn"];

/// Refuses runs whose outputs a module over all edges does not give.
pub(super) fn check(run: SavedTypedRun, to: &str) -> Result<()> {
    let config = run.config();
    if !MODELS.contains(&config.model.as_str()) {
        return Err(refused(to, format!("--model {} reads edge features", config.model)));
    }
    if run.draws_in_inference() {
        let why = format!("--sampler {} draws the neighbours of predictions, too", config.sampler);
        return Err(refused(to, why));
    }
    if has_node_times(config) {
        return Err(refused(to, "the rows of the task read edges up to their times"));
    }
    if run.predicted_type().is_none() {
        return Err(refused(to, "the run does not record the type that it predicts"));
    }
    Ok(())
}

/// Adds the types, the predicted one, and for each layer from the bottom up the edge types that it
/// reads. Nothing is added for a run of an older version, which did not record them.
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
    options.insert("classes".into(), json!(types.classes));
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_typed_layer_without_edge_features_has_a_module() {
        let layers = graphmill_nn::typed::TABLE.iter().filter(|entry| !entry.make.reads_edges);
        let mut layers: Vec<&str> = layers.map(|entry| entry.name).collect();
        let mut models = super::MODELS.to_vec();
        layers.sort_unstable();
        models.sort_unstable();
        assert_eq!(models, layers);
    }
}
