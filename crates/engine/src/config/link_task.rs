//! Facts about the task of a run, by its options `task` and `model` and the dataset's manifest.

use std::path::Path;

use graphmill_data::typed::is_dataset;
use graphmill_nn::typed::TABLE;
use serde_json::Value as Json;

use super::{
    TrainConfig,
    embedding::is_table,
    events::is_of_events,
    link::{LINK, LinkOptions, Positives},
    stored_tasks::{self, is_of_nodes, manifest},
};

/// Returns true if the model of the run reads edge features, and the run learns no stream of
/// events.
pub(crate) fn reads_edges(config: &TrainConfig) -> bool {
    TABLE.get(&config.model).is_some_and(|entry| entry.make.reads_edges) && !is_of_events(config)
}

/// Returns true if the model of the run reads a graph by its types, and the run learns no stream of
/// events. The graph may have one type.
pub(crate) fn has_typed_model(config: &TrainConfig) -> bool {
    TABLE.get(&config.model).is_some() && !is_of_events(config)
}

/// Returns true if the dataset is partitioned.
pub(crate) fn is_partitioned(config: &TrainConfig) -> bool {
    !config.dataset.is_empty() && Path::new(&config.dataset).join("partition.json").is_file()
}

/// Returns true if the run learns links of a graph of one node type and one edge type, by a model
/// of one type.
pub fn is_link(config: &TrainConfig) -> bool {
    !is_table(config)
        && !is_of_events(config)
        && !has_typed_model(config)
        && (config.task == LINK && !has_types(config) || is_link_task(config))
}

/// Returns true if the run learns links of a graph of several node types or edge types, or of one
/// by a model of types: `--task` is `link`, or names a link task or edge types.
pub fn is_typed_link(config: &TrainConfig) -> bool {
    if config.task.is_empty() || is_table(config) || is_of_events(config) {
        return false;
    }
    let Some(manifest) = manifest(config) else {
        // a dataset of format 1 has one edge type and no link task
        return has_typed_model(config) && config.task == LINK && is_dataset(&config.dataset);
    };
    let is_several = len(&manifest, "node_types").max(len(&manifest, "edge_types")) > 1;
    let list = |name: &str| manifest[name].as_array().map_or(&[][..], Vec::as_slice);
    let task = config.task.as_str();
    let named = list("tasks").iter().find(|of| of["name"] == task);
    let types = || list("edge_types").iter().map(edge_type_name).collect::<Vec<_>>();
    let is_link = match named {
        Some(named) => named["kind"] == "link-prediction",
        None => task == LINK || edge_types_named(task, &types()).is_some(),
    };
    (is_several || has_typed_model(config)) && is_link
}

/// Returns true if the edges that validate and test links are drawn at random when the run starts,
/// and neither stored as a task of the dataset nor the latest ones.
pub(crate) fn draws_split(config: &TrainConfig) -> bool {
    let is_of_run = |task: &Json| {
        let is_chosen = config.task == LINK || task["name"] == config.task.as_str();
        task["kind"] == "link-prediction" && is_chosen
    };
    let is_stored = || {
        let tasks = manifest(config).and_then(|manifest| manifest["tasks"].as_array().cloned());
        tasks.into_iter().flatten().any(|task| is_of_run(&task))
    };
    let is_by_time = config.own.get::<LinkOptions>().split_edges.by_time;
    (is_link(config) || is_typed_link(config) || is_table(config)) && !is_by_time && !is_stored()
}

/// Returns true if the run learns a class or value of each edge, other than a stream of events.
pub fn learns_edge_targets(config: &TrainConfig) -> bool {
    !is_of_events(config) && !is_table(config) && stored_tasks::learns_edge_targets(config, true)
}

/// Numbers of the edge types among `known` that `task` names: one, or several with commas between
/// them. `None` if a name is unknown.
pub(crate) fn edge_types_named(task: &str, known: &[String]) -> Option<Vec<usize>> {
    let number = |name: &str| known.iter().position(|of| of == name);
    match number(task) {
        Some(r) => Some(vec![r]),
        None => task.split(',').map(|name| number(name.trim())).collect(),
    }
}

/// Name of an edge type of the manifest, as `--task` writes it.
fn edge_type_name(of: &Json) -> String {
    ["source", "name", "destination"].map(|part| of[part].as_str().unwrap_or_default()).join(":")
}

/// Name of the seeds of a run, in the plural.
pub fn seeds_are(config: &TrainConfig) -> &'static str {
    if is_of_events(config) {
        return "events";
    }
    if learns_edge_targets(config) {
        return "edges";
    }
    if !is_table(config) && !is_link(config) && !is_typed_link(config) {
        return "nodes";
    }
    match config.own.get::<LinkOptions>().positives {
        Positives::Edges => "edges",
        Positives::Walks => "walks",
    }
}

/// Returns true if a run on nodes has the default loss of its targets. Files of earlier runs hold
/// the name of the default of links, whatever the task.
pub(crate) fn has_default_loss(config: &TrainConfig) -> bool {
    ["auto", "bce"].contains(&config.loss.as_str())
}

/// Name of the loss of links.
pub(crate) fn loss_name(config: &TrainConfig) -> &str {
    if config.loss == "auto" { "bce" } else { &config.loss }
}

/// Number of entries of a list of the manifest.
fn len(manifest: &Json, name: &str) -> usize {
    manifest[name].as_array().map_or(0, Vec::len)
}

/// Returns true if the dataset has several node types or edge types.
fn has_types(config: &TrainConfig) -> bool {
    manifest(config)
        .is_some_and(|manifest| len(&manifest, "node_types").max(len(&manifest, "edge_types")) > 1)
}

/// Returns true if `--task` names a link task of a graph of one node type and one edge type.
fn is_link_task(config: &TrainConfig) -> bool {
    if config.task.is_empty() || config.task == LINK {
        return false;
    }
    manifest(config).is_some_and(|manifest| {
        let is_one = len(&manifest, "node_types") == 1 && len(&manifest, "edge_types") == 1;
        let mut tasks = manifest["tasks"].as_array().into_iter().flatten();
        is_one && tasks.any(|task| task["name"] == config.task.as_str() && task["kind"] == "link-prediction")
    })
}

/// Returns true if a task of the dataset has nodes as rows, each with a time.
pub fn has_node_times(config: &TrainConfig) -> bool {
    manifest(config).is_some_and(|manifest| {
        let mut tasks = manifest["tasks"].as_array().into_iter().flatten().filter(|task| is_of_nodes(task));
        tasks.any(|task| {
            let file = format!("tasks/{}/time.npy", task["directory"].as_str().unwrap_or_default());
            manifest["files"].get(file).is_some()
        })
    })
}
