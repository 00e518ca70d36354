//! Options of models of links, for exports: the decoder, the relations and, of a table of
//! embeddings, its rows.

use graphmill_core::options::one_of;
use graphmill_nn::link::decoder::{DecoderConfig, decoders_that};
use serde_json::{Map, Value, json};

use super::{SavedRun, kind::Kind, refused};
use crate::{
    Result,
    config::{embedding::EmbeddingOptions, link::LinkOptions},
    link::structure::reads_structure,
    record::{LinkRelation, TypedOrigin},
};

/// Types of a run's dataset, and the relations that it learned.
fn recorded(run: &SavedRun) -> Option<(&TypedOrigin, &[LinkRelation])> {
    let types = run.origin.as_ref()?.typed.as_ref()?;
    (!types.relations.is_empty()).then_some((types, &types.relations[..]))
}

/// Decoders that other libraries build: all but those that read the dataset's graph.
pub(super) fn decoders() -> Vec<&'static str> {
    decoders_that(|kind| !kind.reads_structure)
}

/// Refuses decoders that no module builds, and runs on several types or of tables that do not
/// record their relations.
pub(super) fn check(run: &SavedRun, kind: Kind, to: &str) -> Result<()> {
    let decoder = run.config().own.get::<LinkOptions>().decoder;
    if reads_structure(run.config()) {
        let why = format!(
            "--decoder {decoder} reads the graph of the dataset around each pair, which no module has; train \
             with one of {}",
            one_of(&decoders())
        );
        return Err(refused(to, why));
    }
    if !decoders().contains(&decoder.as_str()) {
        return Err(refused(to, format!("--decoder {decoder} is not one of {}", one_of(&decoders()))));
    }
    if !matches!(kind, Kind::Links) && recorded(run).is_none() {
        return Err(refused(to, "an older version wrote the run, which does not record its relations"));
    }
    Ok(())
}

/// Source type, name and destination type of an edge type.
fn parts(edge_type: &str) -> Vec<&str> {
    edge_type.splitn(3, ':').collect()
}

/// Adds the decoder and the relations of a run on links, and the node types of the rows of a table.
pub(super) fn add_options(run: &SavedRun, kind: Kind, options: &mut Map<String, Value>) {
    let config = run.config();
    let links: LinkOptions = config.own.get();
    let (width, distance) = match kind {
        Kind::Links => (options.get("outputs").cloned().unwrap_or_default(), DecoderConfig::default()),
        _ => {
            let of: EmbeddingOptions = config.own.get();
            let distance =
                DecoderConfig { gamma: of.gamma as f32, norm: of.distance_norm, ..Default::default() };
            (json!(config.hidden), distance)
        }
    };
    let decoder = json!({
        "name": links.decoder,
        "width": width,
        "hidden": links.decoder_hidden,
        "gamma": distance.gamma,
        "norm": distance.norm,
    });
    options.insert("decoder".into(), decoder);
    let Some((types, relations)) = recorded(run) else {
        options.insert("relations".into(), json!([{ "name": config.task }]));
        return;
    };
    let of_relation = |of: &LinkRelation| json!({ "name": of.name, "edge_type": parts(&of.on) });
    options.insert("relations".into(), relations.iter().map(of_relation).collect());
    if let Kind::Table = kind {
        options.insert("tables".into(), tables(run, types, relations));
    }
}

/// Node types of the rows of a table, which are those that edges join, in the order of the types.
fn tables(run: &SavedRun, types: &TypedOrigin, relations: &[LinkRelation]) -> Value {
    let ends: Vec<&str> = relations.iter().flat_map(|of| parts(&of.on)).collect();
    let is_end = |name: &str| ends.chunks(3).any(|of| of[0] == name || of[of.len() - 1] == name);
    let count = |name: &str| {
        let mut counts = run.origin.iter().flat_map(|origin| &origin.dataset.node_types);
        counts.find(|of| of.name == name).map_or(0, |of| of.count)
    };
    let tables = types.node_types.iter().filter(|of| is_end(&of.name));
    tables.map(|of| json!({ "name": of.name, "nodes": count(&of.name) })).collect()
}
