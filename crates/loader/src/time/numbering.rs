//! Numbers of the rows of one node type: pairs of a node and a time, or nodes alone.

use graphmill_core::NodeId;
use rustc_hash::FxHashMap;

use crate::Relabel;

/// Numbers the rows of one node type during a hop, in first-seen order.
///
/// The rows so far come first: each keeps its number, also if it equals an earlier one. New rows
/// are numbered from there.
#[derive(Debug)]
pub(super) struct Numbering {
    relabel: Relabel,
    /// Distinct nodes in the order of `relabel`, without times.
    distinct: Vec<NodeId>,
    /// Row of each distinct node among the rows so far.
    first: Vec<u32>,
    /// Rows of pairs.
    pairs: FxHashMap<(NodeId, i64), u32>,
    new: Vec<NodeId>,
}

impl Numbering {
    /// Creates the numbering of a type with `count` nodes.
    pub(super) fn new(count: usize) -> Self {
        Self {
            relabel: Relabel::new(count),
            distinct: Vec::new(),
            first: Vec::new(),
            pairs: FxHashMap::default(),
            new: Vec::new(),
        }
    }

    /// Begins a hop in which rows are nodes; `rows` are the rows so far.
    pub(super) fn start_nodes(&mut self, rows: &[NodeId]) {
        let Self { relabel, distinct, first, new, .. } = self;
        distinct.clear();
        first.clear();
        new.clear();
        relabel.start(&[]);
        new.extend_from_slice(rows);
        relabel.relabel(new, &[], distinct);
        for (&local, row) in new.iter().zip(0..) {
            if local as usize == first.len() {
                first.push(row);
            }
        }
    }

    /// Replaces nodes by rows, and appends those seen first to `rows`, of which `before` were known
    /// at the begin of the hop.
    pub(super) fn number_nodes(&mut self, ids: &mut [NodeId], before: usize, rows: &mut Vec<NodeId>) {
        let Self { relabel, distinct, first, new, .. } = self;
        new.clear();
        relabel.relabel(ids, distinct, new);
        rows.extend_from_slice(new);
        distinct.extend_from_slice(new);
        let known = first.len();
        if known < before {
            for id in ids {
                let local = *id as usize;
                *id = if local < known { first[local] } else { (before + local - known) as u32 };
            }
        }
    }

    /// Begins a hop in which rows are pairs of a node and a time; `nodes` and `times` are those so
    /// far. Returns the first row that equals an earlier one.
    pub(super) fn start_pairs(&mut self, nodes: &[NodeId], times: &[i64]) -> Option<usize> {
        self.pairs.clear();
        let mut repeated = None;
        for (row, pair) in nodes.iter().copied().zip(times.iter().copied()).enumerate() {
            if *self.pairs.entry(pair).or_insert(row as u32) != row as u32 {
                repeated = repeated.or(Some(row));
            }
        }
        repeated
    }

    /// Replaces nodes by the rows of the pairs of them and `times`; `see` is called for those seen
    /// first with the number of the edge and the node. `rows` is the number of rows so far.
    pub(super) fn number_pairs(
        &mut self,
        ids: &mut [NodeId],
        times: &[i64],
        rows: usize,
        mut see: impl FnMut(usize, NodeId),
    ) {
        let mut next = rows as u32;
        for (e, (id, &time)) in ids.iter_mut().zip(times).enumerate() {
            let node = *id;
            *id = *self.pairs.entry((node, time)).or_insert_with(|| {
                see(e, node);
                next += 1;
                next - 1
            });
        }
    }
}
