//! Tasks of the dataset that a configuration names, by its manifest.

use std::path::Path;

use graphmill_data::{
    partition::TypedPartitionDir,
    typed::{is_typed, manifest_text},
};
use serde_json::Value as Json;

use super::{TrainConfig, link::LINK};

/// Manifest of the dataset of several types or tasks, or of the one that was partitioned, without a
/// check of its checksum.
pub(super) fn manifest(config: &TrainConfig) -> Option<Json> {
    let dir = Path::new(&config.dataset);
    if config.dataset.is_empty() || config.is_in_memory() {
        return None;
    }
    if !is_typed(dir) {
        return of_partition(dir);
    }
    let text = manifest_text(dir)?;
    serde_json::from_slice(&text).ok()
}

/// Manifest of the edges and the link tasks of the partition in `dir`, with its tasks on nodes.
fn of_partition(dir: &Path) -> Option<Json> {
    let read = |text: Vec<u8>| serde_json::from_slice::<Json>(&text).ok();
    let [Some(on_nodes), Some(mut all)] = TypedPartitionDir::manifest_texts(dir)?.map(read) else {
        return None;
    };
    if let (Some(tasks), Some(others)) = (all["tasks"].as_array_mut(), on_nodes["tasks"].as_array()) {
        tasks.extend(others.iter().cloned());
    }
    if let (Some(files), Some(others)) = (all["files"].as_object_mut(), on_nodes["files"].as_object()) {
        files.extend(others.clone());
    }
    Some(all)
}

/// Returns true if a task of the manifest has nodes as rows.
pub(super) fn is_of_nodes(task: &Json) -> bool {
    task["kind"].as_str().is_some_and(|kind| kind.starts_with("node-"))
}

/// Returns true if the run learns links whose edges have no times: `--task` names such a task or an
/// edge type, or it is `link` (or names none) and no link task of the dataset has times.
pub(super) fn learns_links_without_times(config: &TrainConfig) -> bool {
    let Some(manifest) = manifest(config) else { return false };
    let tasks = manifest["tasks"].as_array().map_or(&[][..], Vec::as_slice);
    let is_link = |task: &&Json| task["kind"] == "link-prediction";
    if !config.task.is_empty() && config.task != LINK {
        let named = tasks.iter().find(|task| task["name"] == config.task.as_str());
        return named.is_none_or(|task| is_link(&task) && !has_times(&manifest, task));
    }
    let mut links = tasks.iter().filter(is_link).peekable();
    (config.task == LINK || links.peek().is_some()) && !links.any(|task| has_times(&manifest, task))
}

/// Returns true if the run's task has a class or value for each edge: `--task` names such a task,
/// or it names none and the dataset has no other task. With `with_times` edges may have times.
pub(super) fn learns_edge_targets(config: &TrainConfig, with_times: bool) -> bool {
    let Some(manifest) = manifest(config) else { return false };
    let tasks = manifest["tasks"].as_array().map_or(&[][..], Vec::as_slice);
    let task = match (&config.task[..], tasks) {
        ("", [task]) => Some(task),
        ("", _) => None,
        (name, _) => tasks.iter().find(|task| task["name"] == name),
    };
    task.is_some_and(|task| {
        task["kind"].as_str().is_some_and(|kind| kind.starts_with("edge-"))
            && (with_times || !has_times(&manifest, task))
    })
}

/// Returns true if the rows of a task on edges have times.
fn has_times(manifest: &Json, task: &Json) -> bool {
    let has = |file: String| manifest["files"].get(file).is_some();
    let own = format!("tasks/{}", task["directory"].as_str().unwrap_or_default());
    let edges = manifest["edge_types"].as_array().into_iter().flatten();
    let of_edges = edges.filter(|of| {
        ["source", "name", "destination"].iter().all(|part| of[part] == task["on"]["edges"][part])
    });
    let mut of_edges =
        of_edges.map(|of| format!("edges/{}/time.npy", of["directory"].as_str().unwrap_or_default()));
    has(format!("{own}/time.npy")) || !has(format!("{own}/seeds.npy")) && of_edges.any(has)
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
