//! Contents of a source before the steps that all importers share, and helpers to describe them.

use std::collections::BTreeMap;

use graphmill_core::{
    Buffer, Labels, NodeId, Result, Split,
    keyed::{Stream, key},
    location::Location,
    memory,
};
use serde::Serialize;

use crate::dataset::import::claims;
use crate::typed::{EdgeType, FeatureTable, Keys, Negatives, NodeData, Seeds, Targets, Task, TaskOn};

/// Typed source in memory or mapped.
#[derive(Debug, Default)]
pub struct RawTyped {
    /// Name of the source.
    pub name: String,
    /// Node types.
    pub nodes: Vec<NodeData>,
    /// Edge types.
    pub edges: Vec<RawEdges>,
    /// Tasks. Those on edges list their rows as pairs.
    pub tasks: Vec<Task>,
    /// Record of ignored and counted parts.
    pub report: TypedReport,
}

/// Edges of an edge type in the order of the source.
#[derive(Debug)]
pub struct RawEdges {
    /// Edge type.
    pub edge_type: EdgeType,
    /// Local sources.
    pub src: Vec<NodeId>,
    /// Local destinations.
    pub dst: Vec<NodeId>,
    /// Weights, finite and not negative.
    pub weights: Option<Vec<f32>>,
    /// Times.
    pub time: Option<Vec<i64>>,
    /// Feature rows.
    pub features: Option<FeatureTable>,
    /// Reverse edges that the importer adds by itself.
    pub reverse: Reverse,
}

/// Reverse edges of an edge type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reverse {
    /// As the option says.
    #[default]
    ByOption,
    /// A reverse edge type of this name is added.
    Add(String),
    /// The edges are undirected: the reverse of every edge is added to the type itself.
    Undirected,
}

impl RawEdges {
    /// Creates an edge type without edges.
    pub fn new(edge_type: EdgeType) -> Self {
        Self {
            edge_type,
            src: Vec::new(),
            dst: Vec::new(),
            weights: None,
            time: None,
            features: None,
            reverse: Reverse::ByOption,
        }
    }

    /// Returns true if edges have no columns.
    pub(super) fn is_plain(&self) -> bool {
        self.weights.is_none() && self.time.is_none() && self.features.is_none()
    }

    /// Pairs of all edges, `E x 2`.
    pub(super) fn pairs(&self) -> Vec<NodeId> {
        self.src.iter().zip(&self.dst).flat_map(|(&u, &v)| [u, v]).collect()
    }
}

/// Record of an import: parts that were not stored unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TypedReport {
    /// Counts of each edge type, by its name.
    pub edges: BTreeMap<String, EdgeCounts>,
    /// Unread files, columns and fields.
    pub ignored_parts: Vec<String>,
    /// Counts of a format, by their description.
    pub other: BTreeMap<String, u64>,
    /// Choices that the importer made.
    pub notes: Vec<String>,
}

/// Counts of the edges of a type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EdgeCounts {
    /// Edges in the source.
    pub source: u64,
    /// Reverse edges that were added.
    pub reverse_added: u64,
    /// Self-loops in the dataset.
    pub self_loops_kept: u64,
    /// Self-loops removed.
    pub self_loops_removed: u64,
    /// Edges merged into another edge between the same nodes.
    pub duplicates_merged: u64,
    /// Parallel edges kept, beyond the first between the same nodes.
    pub duplicates_kept: u64,
}

impl TypedReport {
    /// Adds to a count of the format.
    pub(super) fn count(&mut self, what: &str, amount: u64) {
        if amount > 0 {
            *self.other.entry(what.into()).or_default() += amount;
        }
    }

    /// Adds an unread part.
    pub(super) fn ignore(&mut self, part: impl Into<String>) {
        let part = part.into();
        if !self.ignored_parts.contains(&part) {
            self.ignored_parts.push(part);
        }
    }

    /// Adds the files that `is_read` does not name.
    pub(super) fn ignore_unread(&mut self, names: &[String], is_read: impl Fn(&str) -> bool) {
        names.iter().filter(|name| !is_read(name)).for_each(|name| self.ignore(name));
    }

    /// Adds a choice of the importer.
    pub(super) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }
}

impl RawTyped {
    /// Bytes that the edges take in memory, without their features.
    pub(super) fn edge_bytes(&self) -> u64 {
        let bytes = |edges: &RawEdges| {
            let columns = 4 * usize::from(edges.weights.is_some()) + 8 * usize::from(edges.time.is_some());
            (edges.src.len() * (8 + columns)) as u64
        };
        self.edges.iter().map(bytes).sum()
    }

    /// Adds a node type with its keys, and returns it.
    pub(super) fn add_nodes(&mut self, name: &str, count: usize, keys: Option<Keys>) -> &mut NodeData {
        self.nodes.push(NodeData { name: name.into(), count, keys, ..NodeData::default() });
        let last = self.nodes.len() - 1;
        &mut self.nodes[last]
    }
}

/// Purposes of random draws, part of the stream's key.
const HOLD_OUT: u64 = 0x7479_7001;
const PARTS: u64 = 0x7479_7002;

/// Draws a fraction of the training rows for validation; the bound is rounded to the nearest row.
/// Both parts ascend.
pub(super) fn hold_out(mut train: Vec<u32>, fraction: f64, seed: u64) -> (Vec<u32>, Vec<u32>) {
    train.sort_unstable();
    Stream::new(key(&[seed, HOLD_OUT])).shuffle(&mut train);
    let count = (train.len() as f64 * fraction).round() as usize;
    let mut valid = train.split_off(train.len() - count.min(train.len()));
    train.sort_unstable();
    valid.sort_unstable();
    (train, valid)
}

/// Draws validation and test rows out of `rows`; the three parts ascend.
pub(super) fn random_parts(rows: usize, valid: f64, test: f64, seed: u64) -> [Vec<u32>; 3] {
    let mut all: Vec<u32> = (0..rows as u32).collect();
    Stream::new(key(&[seed, PARTS])).shuffle(&mut all);
    let count = |fraction: f64| ((rows as f64 * fraction).round() as usize).min(rows);
    let test = all.split_off(rows - count(test));
    let valid = all.split_off(all.len() - count(valid).min(all.len()));
    [all, valid, test].map(|mut part| {
        part.sort_unstable();
        part
    })
}

/// Split of these rows, which ascend.
pub(super) fn split([train, valid, test]: [Vec<u32>; 3]) -> Split {
    Split { train: train.into(), valid: valid.into(), test: test.into() }
}

/// Classification of the nodes of a type.
pub(super) fn node_task(name: &str, node_type: &str, labels: Labels, parts: [Vec<u32>; 3]) -> Task {
    Task {
        metric: Some(if labels.is_multi() { "f1-micro" } else { "accuracy" }.into()),
        targets: Targets::Classes(labels),
        split: split(parts),
        ..Task::new(name, TaskOn::Nodes(node_type.into()))
    }
}

/// Link prediction with the given pairs (`N x 2`) of each part, and given negatives.
pub(super) fn link_task(
    name: &str,
    edge_type: &EdgeType,
    parts: [Vec<NodeId>; 3],
    negatives: [Option<Negatives>; 3],
) -> Task {
    let mut first = 0u32;
    let rows = [&parts[0], &parts[1], &parts[2]].map(|part| {
        let rows = first..first + (part.len() / 2) as u32;
        first = rows.end;
        rows.collect::<Vec<u32>>()
    });
    Task {
        seeds: Some(Seeds::Pairs(Buffer::from(parts.concat()))),
        split: split(rows),
        negatives,
        ..Task::new(name, TaskOn::Edges(edge_type.clone()))
    }
}

/// Labels of `count` nodes from `(node, class)`; nodes without one are unlabelled. `classes` is
/// the smallest number of classes.
///
/// # Errors
/// Memory runs out.
pub(super) fn single_labels(count: usize, pairs: &[(u32, u32)], classes: usize) -> Result<Labels> {
    let mut class = memory::filled(-1i32, count)?;
    let mut most = classes;
    for &(v, c) in pairs {
        class[v as usize] = c as i32;
        most = most.max(c as usize + 1);
    }
    Ok(Labels::Single { class: class.into(), classes: most })
}

/// Sets of classes of `count` nodes from `(node, class)`.
///
/// # Errors
/// The table would be almost empty: a class is damaged.
pub(super) fn multi_labels(count: usize, pairs: &[(u32, u32)], at: &Location) -> Result<Labels> {
    let classes = pairs.iter().map(|&(_, c)| c as usize + 1).max().unwrap_or(1);
    claims::dense(count, classes, pairs.len(), at)?;
    let mut member: Vec<u8> = memory::zeroed(count * classes)?;
    pairs.iter().for_each(|&(v, c)| member[v as usize * classes + c as usize] = 1);
    Ok(Labels::Multi { member: member.into(), classes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_disjoint_and_complete() {
        let (train, valid) = hold_out(vec![9, 4, 2, 7, 1], 0.4, 3);
        assert_eq!((train.len(), valid.len()), (3, 2));
        let mut all = [train, valid].concat();
        all.sort_unstable();
        assert_eq!(all, [1, 2, 4, 7, 9]);
        let parts = random_parts(20, 0.1, 0.2, 0);
        assert_eq!(parts.each_ref().map(Vec::len), [14, 2, 4]);
        let mut all = parts.concat();
        all.sort_unstable();
        assert_eq!(all, (0..20).collect::<Vec<_>>());
    }
}
