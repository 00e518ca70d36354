//! Tasks of the dataset that a configuration names, by its manifest.

use std::path::Path;

use graphmill_data::{partition::TypedPartitionDir, typed::is_typed};
use serde_json::Value as Json;

use super::TrainConfig;

/// Manifest of the dataset of several types or tasks, without a check of its checksum.
pub(super) fn manifest(config: &TrainConfig) -> Option<Json> {
    let dir = Path::new(&config.dataset);
    if config.dataset.is_empty() || config.is_in_memory() || !is_typed(dir) {
        return None;
    }
    let text = std::fs::read(dir.join("graphmill.json")).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Returns true if a task of the manifest has nodes as rows.
pub(super) fn is_of_nodes(task: &Json) -> bool {
    task["kind"].as_str().is_some_and(|kind| kind.starts_with("node-"))
}

/// Returns true if the run's task is on nodes: `--task` names such a task, or it names none and all
/// tasks of the dataset are on nodes, as those of a partition are.
pub(super) fn learns_nodes(config: &TrainConfig) -> bool {
    if !config.dataset.is_empty() && TypedPartitionDir::is_in(&config.dataset) {
        return true;
    }
    let Some(manifest) = manifest(config) else { return false };
    let tasks = manifest["tasks"].as_array().map_or(&[][..], Vec::as_slice);
    if config.task.is_empty() {
        return !tasks.is_empty() && tasks.iter().all(is_of_nodes);
    }
    tasks.iter().any(|task| task["name"] == config.task.as_str() && is_of_nodes(task))
}
