//! Records of finished nodes and edges, from which an import resumes.

use graphmill_core::Result;
use serde::{Deserialize, Serialize};

use super::{
    changed::{ChangedTargets, KeptChanged},
    kept::{Kept, KeptColumn},
    keys::{KeptKeys, NodeKeys},
    nodes::NodeRead,
    parts::{
        EdgePart, FeaturePart, KeptEdgePart, KeptFeatures, KeptNodePart, KeptTargets, KeptTask, NodePart,
        TargetPart, TaskPart, keep_split, optional, restore_split,
    },
    preprocessing::{EdgeEncoding, NodeEncoding},
    report::{EdgeReport, NodeReport},
};
use crate::typed::SortedEdges;

/// Node types that are read completely.
pub(super) struct FinishedNodes {
    pub(super) keys: Vec<NodeKeys>,
    pub(super) parts: Vec<NodePart>,
    pub(super) tasks: Vec<TaskPart>,
    /// Encoding of each node type.
    pub(super) encodings: Vec<NodeEncoding>,
    pub(super) reports: Vec<NodeReport>,
    /// Targets of nodes of the dataset that rows change.
    pub(super) changed: Vec<ChangedTargets>,
}

/// Record of [`NodeRead`].
#[derive(Serialize, Deserialize)]
struct KeptRead {
    keys: KeptKeys,
    targets: Option<KeptTargets>,
    split: [KeptColumn; 3],
    changed: Option<KeptChanged>,
    report: NodeReport,
}

/// Record of [`FinishedNodes`].
#[derive(Serialize, Deserialize)]
struct KeptNodes {
    keys: Vec<KeptKeys>,
    parts: Vec<KeptNodePart>,
    tasks: Vec<KeptTask>,
    encodings: Vec<NodeEncoding>,
    reports: Vec<NodeReport>,
    changed: Vec<KeptChanged>,
}

/// Record of sorted edges.
#[derive(Serialize, Deserialize)]
struct KeptSorted {
    indptr: KeptColumn,
    indices: KeptColumn,
    weights: Option<KeptColumn>,
    time: Option<KeptColumn>,
    features: Option<KeptFeatures>,
    report: EdgeReport,
}

/// Records the keys and targets of the node type number `i`.
pub(super) fn keep_read(read: &NodeRead, kept: &Kept, i: usize) -> Result<()> {
    if !kept.is_on() {
        return Ok(());
    }
    let name = format!("keys-{i}");
    // Keys that were sorted in memory are few.
    let Some(keys) = read.keys.keep(kept, &name)? else { return Ok(()) };
    kept.save(&name, || {
        let targets = read.targets.as_ref().map(|targets| targets.keep(kept, &name)).transpose()?;
        let split = keep_split(&read.split, kept, &name)?;
        let changed = read.changed.as_ref().map(|changed| changed.keep(kept, &name)).transpose()?;
        Ok(KeptRead { keys, targets, split, changed, report: read.report.clone() })
    })
}

/// Loads the keys and targets of the node type number `i`, whose keys are added to `empty`.
pub(super) fn load_read(kept: &Kept, i: usize, empty: impl FnOnce() -> NodeKeys) -> Option<NodeRead> {
    kept.load(&format!("keys-{i}"), |read: KeptRead| {
        Some(NodeRead {
            targets: optional(read.targets, |targets| TargetPart::restore(targets, kept))?,
            split: restore_split(&read.split, kept)?,
            changed: optional(read.changed, |changed| ChangedTargets::restore(changed, kept))?,
            keys: NodeKeys::restore(read.keys, kept, empty())?,
            report: read.report,
        })
    })
}

impl FinishedNodes {
    /// Records all node types.
    pub(super) fn keep(&self, kept: &Kept) -> Result<()> {
        if !kept.is_on() {
            return Ok(());
        }
        let keys = self.keys.iter().enumerate().map(|(i, keys)| keys.keep(kept, &format!("nodes-{i}")));
        let keys: Result<Option<Vec<KeptKeys>>> = keys.collect();
        let Some(keys) = keys? else { return Ok(()) };
        kept.save("nodes", || {
            let parts = self.parts.iter().enumerate();
            let parts: Result<_> =
                parts.map(|(i, part)| part.keep(kept, &format!("node-part-{i}"))).collect();
            let tasks = self.tasks.iter().enumerate();
            let tasks: Result<_> = tasks.map(|(i, task)| task.keep(kept, &format!("task-{i}"))).collect();
            let changed = self.changed.iter().enumerate();
            let changed: Result<_> =
                changed.map(|(i, changed)| changed.keep(kept, &format!("nodes-{i}"))).collect();
            let (encodings, reports) = (self.encodings.clone(), self.reports.clone());
            Ok(KeptNodes { keys, parts: parts?, tasks: tasks?, encodings, reports, changed: changed? })
        })
    }

    /// Loads all node types; `empty` creates the keys of a type.
    pub(super) fn load(kept: &Kept, empty: impl Fn(usize) -> NodeKeys) -> Option<Self> {
        kept.load("nodes", |nodes: KeptNodes| {
            let keys = nodes.keys.into_iter().enumerate();
            let keys: Option<_> = keys.map(|(i, keys)| NodeKeys::restore(keys, kept, empty(i))).collect();
            let parts: Option<_> =
                nodes.parts.into_iter().map(|part| NodePart::restore(part, kept)).collect();
            let tasks: Option<_> =
                nodes.tasks.into_iter().map(|task| TaskPart::restore(task, kept)).collect();
            let changed = nodes.changed.into_iter();
            let changed: Option<_> = changed.map(|changed| ChangedTargets::restore(changed, kept)).collect();
            let (encodings, reports) = (nodes.encodings, nodes.reports);
            Some(Self { keys: keys?, parts: parts?, tasks: tasks?, encodings, reports, changed: changed? })
        })
    }
}

/// Edges of a type that are read completely.
pub(super) struct FinishedEdges {
    pub(super) part: EdgePart,
    /// Task on the rows, if they have labels.
    pub(super) task: Option<TaskPart>,
    pub(super) encoding: EdgeEncoding,
    pub(super) report: EdgeReport,
}

/// Record of [`FinishedEdges`].
type KeptEdges = (KeptEdgePart, Option<KeptTask>, EdgeEncoding, EdgeReport);

/// Records the edge type number `e`.
pub(super) fn keep_edges(edges: &FinishedEdges, kept: &Kept, e: usize) -> Result<()> {
    let FinishedEdges { part, task, encoding, report } = edges;
    let name = format!("edges-{e}");
    kept.save(&name, || -> Result<KeptEdges> {
        let task = task.as_ref().map(|task| task.keep(kept, &name)).transpose()?;
        Ok((part.keep(kept, &name)?, task, encoding.clone(), report.clone()))
    })
}

/// Loads the edge type number `e`.
pub(super) fn load_edges(kept: &Kept, e: usize) -> Option<FinishedEdges> {
    let restore = |(part, task, encoding, report): KeptEdges| {
        let task = optional(task, |task| TaskPart::restore(task, kept))?;
        Some(FinishedEdges { part: EdgePart::restore(part, kept)?, task, encoding, report })
    };
    kept.load(&format!("edges-{e}"), restore)
}

/// Records the sorted edges of the type number `e`.
pub(super) fn keep_sorted(edges: &SortedEdges, report: &EdgeReport, kept: &Kept, e: usize) -> Result<()> {
    let name = format!("sorted-{e}");
    kept.save(&name, || {
        let features = edges.features.as_ref().and_then(FeaturePart::of_table);
        Ok(KeptSorted {
            indptr: kept.column(&format!("{name}-indptr"), &edges.indptr)?,
            indices: kept.column(&format!("{name}-indices"), &edges.indices)?,
            weights: optional_column(kept, &format!("{name}-weights"), edges.weights.as_ref())?,
            time: optional_column(kept, &format!("{name}-time"), edges.time.as_ref())?,
            features: features.map(|features| features.keep(kept, &name)).transpose()?,
            report: report.clone(),
        })
    })
}

fn optional_column<T: crate::npy::Element>(
    kept: &Kept,
    name: &str,
    values: Option<&graphmill_core::Buffer<T>>,
) -> Result<Option<KeptColumn>> {
    values.map(|values| kept.column(name, values)).transpose()
}

/// Loads the sorted edges of the type number `e`.
pub(super) fn load_sorted(kept: &Kept, e: usize) -> Option<(SortedEdges, EdgeReport)> {
    kept.load(&format!("sorted-{e}"), |edges: KeptSorted| {
        let features = optional(edges.features, |features| FeaturePart::restore(features, kept))?;
        let sorted = SortedEdges {
            indptr: kept.open(&edges.indptr)?,
            indices: kept.open(&edges.indices)?,
            weights: optional(edges.weights, |weights| kept.open(&weights))?,
            time: optional(edges.time, |time| kept.open(&time))?,
            features: features.map(FeaturePart::into_table),
        };
        Some((sorted, edges.report))
    })
}
