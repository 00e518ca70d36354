//! Import of an OGB node property directory with the features of its edges
//! (`ogb/io/read_graph_raw.py`, `ogb/nodeproppred/dataset.py`), such as ogbn-proteins:
//!
//! - `raw/num-node-list.csv.gz`, `raw/edge.csv.gz`, `raw/edge-feat.csv.gz` and, optionally,
//!   `raw/num-edge-list.csv.gz` and `raw/node-feat.csv.gz`;
//! - `raw/node-label.csv.gz`: a class per node, or a column of zeros and ones per task;
//! - `split/NAME/{train,valid,test}.csv.gz`: a task per split.
//!
//! OGB adds the reverse of the edges of proteins and products when it loads them, so these become
//! undirected. The importer `ogb` reads the same directory without the features of edges, beyond
//! memory.

use std::path::Path;

use graphmill_core::Result;

use super::{
    TypedOptions,
    files::Files,
    lines::wrong,
    ogb_hetero::labels_of,
    ogb_tables::{count, edges, find, ids, required},
    raw::{RawEdges, RawTyped, Reverse, node_task},
    tables::text_features,
};
use crate::typed::EdgeType;

/// Datasets whose edges OGB's loader makes undirected.
const UNDIRECTED: [&str; 2] = ["proteins", "products"];
const NODE: &str = "node";

/// Reads the directory or archive `src`.
pub(super) fn read(src: &Path, options: &TypedOptions) -> Result<RawTyped> {
    let files = Files::open(src)?;
    let mut raw = RawTyped { name: files.title().replace('_', "-"), ..RawTyped::default() };
    let nodes = count(&files, required(&files, "raw/num-node-list")?)?;
    let path = required(&files, "raw/edge")?;
    let [src, dst] = edges(&files, path, [nodes; 2])?;
    let at = graphmill_core::location::Location::new(files.path(), "raw/num-node-list");
    crate::dataset::import::claims::nodes(nodes, src.len() as u64, &at)?;
    if let Some(list) = find(&files, "raw/num-edge-list") {
        let expected = count(&files, list)?;
        if src.len() != expected {
            let message = format!("{} edges, but num-edge-list says {expected}", src.len());
            return Err(wrong(&files, path, message));
        }
    }
    let features = text_features(&files, required(&files, "raw/edge-feat")?, src.len(), true)?;
    let short = raw.name.strip_prefix("ogbn-").unwrap_or(&raw.name);
    let is_undirected = UNDIRECTED.contains(&short) || options.undirected;
    let reverse = if is_undirected { Reverse::Undirected } else { Reverse::ByOption };
    let edge_type = EdgeType::new(NODE, "edge", NODE);
    raw.edges.push(RawEdges { src, dst, features, reverse, ..RawEdges::new(edge_type) });
    let features = match find(&files, "raw/node-feat") {
        Some(path) => text_features(&files, path, nodes, options.dense_features)?,
        None => None,
    };
    raw.add_nodes(NODE, nodes, None).features = features;
    read_tasks(&files, nodes, &mut raw)?;
    const READ: [&str; 6] =
        ["edge", "edge-feat", "num-node-list", "num-edge-list", "node-feat", "node-label"];
    raw.report.ignore_unread(files.names(), |name| {
        let stem =
            name.strip_prefix("raw/").and_then(|name| name.trim_end_matches(".gz").strip_suffix(".csv"));
        stem.is_some_and(|stem| READ.contains(&stem)) || name.starts_with("split/")
    });
    Ok(raw)
}

/// Adds a task for each directory of `split/`, which has the split's name.
fn read_tasks(files: &Files, nodes: usize, raw: &mut RawTyped) -> Result<()> {
    let labels = labels_of(files, required(files, "raw/node-label")?, nodes)?;
    let mut splits: Vec<&str> = files
        .names()
        .iter()
        .filter_map(|name| name.strip_prefix("split/")?.split_once('/').map(|(split, _)| split))
        .collect();
    splits.dedup();
    if splits.is_empty() {
        raw.report.note("there is no directory 'split', so the labels are no task");
    }
    for split in splits {
        let part = |name: &str| match find(files, &format!("split/{split}/{name}")) {
            Some(path) => ids(files, path, nodes),
            None => Ok(Vec::new()),
        };
        let parts = [part("train")?, part("valid")?, part("test")?];
        let mut task = node_task(split, NODE, labels.clone(), parts);
        if labels.is_multi() {
            // OGB's metric of proteins
            task.metric = Some("roc-auc".into());
        }
        raw.tasks.push(task);
    }
    Ok(())
}
