//! Random walks along a path of edge types, of which each step reads the graph of another one.
//!
//! A traversal of the path ends at a node of the type where it began, and visits that node. The
//! walks and the ranking of the visits are those of [`random_walk`](super::random_walk), whose
//! draws these are if the path is one edge type.

use graphmill_core::{Block, Graph, NodeId, Result};

use super::{
    HopRequest, HopScratch,
    random_walk::{RandomWalk, rank},
    runs::draw_runs,
    scratch::RunScratch,
};
use crate::{link::ExcludedEdges, prefetch::prefetch};

/// Step of a path: from a node to one of its in-neighbours.
#[derive(Clone, Copy)]
pub(crate) struct PathStep<'a> {
    pub(crate) graph: &'a Graph,
    /// Edges that no walk takes.
    pub(crate) excluded: Option<&'a ExcludedEdges>,
}

impl PathStep<'_> {
    /// Neighbour of `v` by the draw `below` of a number; `None` if no edge is left.
    fn neighbor(&self, v: NodeId, below: impl FnOnce(u64) -> u64) -> Option<NodeId> {
        let row = self.graph.in_neighbors(v);
        let excluded = self.excluded.map_or(&[][..], |excluded| excluded.sources_of(v));
        if excluded.is_empty() {
            return (!row.is_empty()).then(|| row[below(row.len() as u64) as usize]);
        }
        let is_left = |u: &&NodeId| excluded.binary_search(&(v, **u)).is_err();
        let left = row.iter().filter(is_left).count() as u64;
        if left == 0 {
            return None;
        }
        row.iter().filter(is_left).nth(below(left) as usize).copied()
    }
}

impl RandomWalk {
    /// Draws the neighbours of the destinations of `request` by walks along `path`, and ranks them
    /// by their visits. The graph of the request is not read. A weight is the number of visits or,
    /// if the layer sums the neighbours, a share of them.
    ///
    /// # Errors
    /// The block would have more edges than 32-bit positions can number.
    pub(crate) fn sample_paths(
        &self,
        request: &HopRequest,
        path: &[PathStep],
        scratch: &mut HopScratch,
        block: &mut Block,
    ) -> Result<()> {
        let &HopRequest { hop, dst, aggregation, .. } = request;
        let key = request.hop_key();
        draw_runs(dst, scratch, block, |dst, scratch, block| {
            for group in dst.chunks(self.group()) {
                self.walk_paths(group, key, path, scratch);
                rank(group, |_| 1, (self.fanout(hop), aggregation), scratch, block);
            }
        })
    }

    /// Overwrites `scratch.visits` with pairs, in any order: the number of a walk's start within
    /// `group`, and the node at the end of a traversal.
    fn walk_paths(&self, group: &[NodeId], key: u64, path: &[PathStep], scratch: &mut RunScratch) {
        self.begin(group, key, scratch);
        let RunScratch { walks, visits, .. } = scratch;
        for _ in 0..self.length() {
            for step in path {
                let rows = step.graph.indptr();
                walks.iter().for_each(|walk| prefetch(rows, walk.at as usize));
                walks.retain_mut(|walk| {
                    let to = step.neighbor(walk.at as NodeId, |n| walk.stream.below(n));
                    walk.at = to.unwrap_or_default().into();
                    to.is_some()
                });
            }
            walks.retain_mut(|walk| {
                visits.push(u64::from(walk.from) << 32 | walk.at);
                walk.stream.uniform() >= self.restart()
            });
        }
    }
}
