//! Random walks along a path of edge types, of which each step reads the graph of another one.
//!
//! A traversal of the path ends at a node of the type where it began, and visits that node. The
//! walks and the ranking of the visits are those of [`random_walk`](super::random_walk), whose
//! draws these are if the path is one edge type.

use graphmill_core::{Block, Graph, NodeId, Result, keyed, memory};

use super::{
    HopRequest, HopScratch,
    random_walk::{RandomWalk, rank},
    runs::{check_size, draw_runs, start},
    scratch::{Run, RunScratch, Walk},
};
use crate::{
    link::{ExcludedEdges, ExcludedPlaces},
    prefetch::prefetch,
};

/// In-neighbours of all nodes by each edge type, wherever their lists are.
///
/// ```
/// use graphmill_core::{NodeId, Result, typed::TypedGraph};
/// use graphmill_loader::sampler::{PathSource, drawn_neighbor};
///
/// /// Lists in memory.
/// struct InMemory(TypedGraph);
///
/// impl PathSource for InMemory {
///     fn step(&self, r: usize, at: &[(NodeId, u64)], to: &mut Vec<Option<NodeId>>) -> Result<()> {
///         to.clear();
///         to.extend(at.iter().map(|&(v, word)| drawn_neighbor(self.0.relation(r), v, word)));
///         Ok(())
///     }
/// }
/// ```
pub trait PathSource: Send + Sync {
    /// Overwrites `to` by an in-neighbour by relation `relation` of each node of `at`, that of
    /// [`drawn_neighbor`] by the random word beside the node.
    ///
    /// # Errors
    /// A list cannot be read.
    fn step(&self, relation: usize, at: &[(NodeId, u64)], to: &mut Vec<Option<NodeId>>) -> Result<()>;
}

/// Uniform in-neighbour of `v` by a random word; `None` if it has no in-neighbours.
///
/// ```
/// use graphmill_core::Graph;
/// use graphmill_loader::sampler::drawn_neighbor;
///
/// // node 0 has the in-neighbours 1 and 2
/// let graph = Graph::new(vec![0, 2, 2, 2].into(), vec![1, 2].into())?;
/// assert_eq!(drawn_neighbor(&graph, 0, u64::MAX / 4), Some(1));
/// assert_eq!(drawn_neighbor(&graph, 0, u64::MAX), Some(2));
/// assert_eq!(drawn_neighbor(&graph, 1, 7), None);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
#[inline]
pub fn drawn_neighbor(graph: &Graph, v: NodeId, word: u64) -> Option<NodeId> {
    let row = graph.in_neighbors(v);
    row.get(keyed::scaled(word, row.len() as u64) as usize).copied()
}

/// Step of a path: from a node to one of its in-neighbours.
pub(crate) trait PathStep: Sync {
    /// Uniform neighbour of `v` by a random word, for a walk from destination `from`; `None` if the
    /// walk can take no edge.
    fn neighbor(&self, from: NodeId, v: NodeId, word: u64) -> Option<NodeId>;

    /// Prefetches what a step from `v` reads first.
    fn prefetch(&self, v: NodeId);
}

/// Step over the edges of a graph that are not excluded.
pub(crate) struct EdgesLeft<'a> {
    graph: &'a Graph,
    excluded: Option<ExcludedPlaces<'a>>,
}

impl<'a> EdgesLeft<'a> {
    /// Creates a step over the edges of `graph` without the excluded ones.
    pub(crate) fn new(graph: &'a Graph, excluded: Option<&'a ExcludedEdges>) -> Self {
        let places = |excluded| ExcludedPlaces::new(excluded, graph, |_, v| v);
        Self { graph, excluded: excluded.map(places) }
    }
}

impl PathStep for EdgesLeft<'_> {
    fn neighbor(&self, _: NodeId, v: NodeId, word: u64) -> Option<NodeId> {
        let Some(excluded) = &self.excluded else { return drawn_neighbor(self.graph, v, word) };
        let row = self.graph.in_neighbors(v);
        let number = keyed::scaled(word, excluded.left(v, row.len() as u64));
        row.get(excluded.place(v, number) as usize).copied()
    }

    fn prefetch(&self, v: NodeId) {
        prefetch(self.graph.indptr(), v as usize);
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
        path: &[impl PathStep],
        scratch: &mut HopScratch,
        block: &mut Block,
    ) -> Result<()> {
        let &HopRequest { hop, dst, aggregation, .. } = request;
        draw_runs(dst, scratch, block, |dst, scratch, block| {
            for group in dst.chunks(self.group()) {
                self.walk_paths(group, request, path, scratch);
                rank(group, |_| 1, (self.fanout(hop), aggregation), scratch, block);
            }
        })
    }

    /// Draws as [`RandomWalk::sample_paths`] does, by walks along relations `path` without excluded
    /// edges, from neighbours that `source` returns. The walks of many nodes take a step together.
    ///
    /// # Errors
    /// As [`RandomWalk::sample_paths`] and [`PathSource::step`].
    pub(crate) fn sample_paths_from(
        &self,
        source: &dyn PathSource,
        request: &HopRequest,
        path: &[usize],
        scratch: &mut HopScratch,
        block: &mut Block,
    ) -> Result<()> {
        let &HopRequest { hop, dst, aggregation, .. } = request;
        start(block);
        memory::demand(&mut block.indptr, dst.len());
        if scratch.runs.is_empty() {
            scratch.runs.push(Run::default());
        }
        let scratch = &mut scratch.runs[0].scratch;
        let (mut at, mut to) = (Vec::new(), Vec::new());
        for group in dst.chunks(self.step_group()) {
            self.begin(group, request, scratch);
            for _ in 0..self.length() {
                for &r in path {
                    let walks = &mut scratch.walks;
                    if walks.is_empty() {
                        break;
                    }
                    at.clear();
                    let next = |walk: &mut Walk| (walk.at as NodeId, walk.stream.next_u64());
                    memory::demand_extend(&mut at, walks.iter_mut().map(next));
                    source.step(r, &at, &mut to)?;
                    let mut to = to.iter().copied();
                    walks.retain_mut(|walk| {
                        let to = to.next().flatten();
                        walk.at = to.unwrap_or_default().into();
                        to.is_some()
                    });
                }
                self.end_traversal(scratch);
            }
            rank(group, |_| 1, (self.fanout(hop), aggregation), scratch, block);
            check_size(block)?;
        }
        Ok(())
    }

    /// Overwrites `scratch.visits` with pairs, in any order: the number of a walk's start within
    /// `group`, and the node at the end of a traversal.
    fn walk_paths(
        &self,
        group: &[NodeId],
        request: &HopRequest,
        path: &[impl PathStep],
        scratch: &mut RunScratch,
    ) {
        self.begin(group, request, scratch);
        for _ in 0..self.length() {
            for step in path {
                let walks = &mut scratch.walks;
                walks.iter().for_each(|walk| step.prefetch(walk.at as NodeId));
                walks.retain_mut(|walk| {
                    let from = group[walk.from as usize];
                    let to = step.neighbor(from, walk.at as NodeId, walk.stream.next_u64());
                    walk.at = to.unwrap_or_default().into();
                    to.is_some()
                });
            }
            self.end_traversal(scratch);
        }
    }

    /// Appends the visits of walks at the end of a traversal, and ends some of the walks.
    fn end_traversal(&self, scratch: &mut RunScratch) {
        let RunScratch { walks, visits, .. } = scratch;
        memory::demand(visits, walks.len());
        walks.retain_mut(|walk| {
            visits.push(u64::from(walk.from) << 32 | walk.at);
            walk.stream.uniform() >= self.restart()
        });
    }
}
