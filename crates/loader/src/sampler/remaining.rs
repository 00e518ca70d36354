//! Hops of the graph without the edges that a batch excludes.
//!
//! # Algorithm
//!
//! A sampler that [leaves out](HopProperties::leaves_out) edges does so itself. Another one draws
//! from copies of lists in which these edges are missing, with [tables of
//! them](HopSampler::with_tables_of) if it has tables, and under the ids of the destinations in the
//! whole graph. So its draws are those from the graph without the edges, bit by bit. The lists
//! depend on those that the sampler [reads](NeighborAccess):
//!
//! - the list of a destination alone: those of the destinations with excluded edges. The others are
//!   drawn from the graph, and the two groups of rows are merged.
//! - the lists of all destinations together: these.
//! - any list: all lists of the graph.
//!
//! ```text
//!   destinations ─┬─ without excluded edges ─► graph ─────────────────────┐
//!                 └─ with excluded edges ────► lists without them, tables ┴─► rows in their order
//! ```
//!
//! # Source
//!
//! None: a draw from a shorter list.
//!
//! # Cost
//!
//! O(D) to find the destinations with excluded edges, O(edges) of the copied lists with their
//! tables, and O(E) to merge the rows; nothing without excluded edges.

#![forbid(unsafe_code)]

use graphmill_core::{Block, Error, Graph, NodeId, Result, memory};

#[cfg(doc)]
use super::HopProperties;
use super::{
    HopRequest, HopSampler, HopScratch, NeighborAccess,
    runs::{check_size, start},
};
use crate::link::{ExcludedEdges, append_places};

/// Draws a hop as [`HopSampler::sample_hop`], from the graph without the request's excluded edges.
///
/// # Errors
/// As for [`HopSampler::sample_hop`] and [`HopSampler::with_tables_of`].
///
/// ```
/// use graphmill_core::{Block, Graph};
/// use graphmill_loader::{
///     BatchKey,
///     link::ExcludedEdges,
///     sampler::{HopRequest, HopScratch, neighbor::Neighbor, sample_remaining},
/// };
///
/// // node 0 has the in-neighbours 1, 2 and 3
/// let graph = Graph::new(vec![0, 3, 3, 3, 3].into(), vec![1, 2, 3].into())?;
/// let mut excluded = ExcludedEdges::default();
/// excluded.refill([(2, 0)]);
/// let key = BatchKey { seed: 1, epoch: 0, batch: 0 };
/// let request = HopRequest { excluded: Some(&excluded), ..HopRequest::new(&graph, 0, &[0], key) };
/// let sampler = Neighbor::new(&[2]).expect("a number of neighbours");
/// let mut block = Block::default();
/// sample_remaining(&sampler, &request, &mut HopScratch::default(), &mut block)?;
/// // two neighbours, because two remain
/// assert_eq!(block.indices, [1, 3]);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub fn sample_remaining(
    sampler: &dyn HopSampler,
    request: &HopRequest,
    scratch: &mut HopScratch,
    block: &mut Block,
) -> Result<()> {
    let Some(excluded) = request.excluded.filter(|excluded| !excluded.is_empty()) else {
        return sampler.sample_hop(request, scratch, block);
    };
    let properties = sampler.properties();
    if properties.leaves_out {
        return sampler.sample_hop(request, scratch, block);
    }
    let plain = HopRequest { excluded: None, ..*request };
    let cut = Cut { sampler, request: &plain, excluded };
    let is_cut = |&v: &NodeId| !excluded.sources_of(request.name(v)).is_empty();
    match properties.access {
        NeighborAccess::OwnList => cut.sample_own_lists(scratch, block),
        NeighborAccess::Lists if !request.dst.iter().any(is_cut) => {
            sampler.sample_hop(&plain, scratch, block)
        }
        NeighborAccess::Lists => cut.sample_lists(request.dst, scratch, block),
        NeighborAccess::Graph => cut.sample_graph(scratch, block),
    }
}

/// Draws a hop as [`sample_remaining`], and overwrites `positions` as
/// [`sample_hop_edges`](super::EdgeSampler::sample_hop_edges).
///
/// # Errors
/// As for [`sample_remaining`]; the sampler names no edges, or does not leave out excluded ones
/// itself.
pub fn sample_remaining_edges(
    sampler: &dyn HopSampler,
    request: &HopRequest,
    scratch: &mut HopScratch,
    block: &mut Block,
    positions: &mut Vec<u64>,
) -> Result<()> {
    let Some(by_edges) = sampler.by_edges() else {
        return Err(Error::invalid(
            "the sampler does not name the edges that it draws; use neighbor or full",
        ));
    };
    if request.excluded.is_some_and(|excluded| !excluded.is_empty()) && !sampler.properties().leaves_out {
        return Err(Error::invalid(
            "the sampler names edges, but copies of lists without excluded edges have no positions; leave \
             the edges out in the sampler and declare HopProperties::leaves_out, or use neighbor",
        ));
    }
    by_edges.sample_hop_edges(request, scratch, block, positions)
}

/// A hop of the graph without some edges.
struct Cut<'a> {
    sampler: &'a dyn HopSampler,
    /// The request without its excluded edges.
    request: &'a HopRequest<'a>,
    excluded: &'a ExcludedEdges,
}

impl Cut<'_> {
    /// Draws the destinations with excluded edges from lists, and the others from the graph.
    fn sample_own_lists(&self, scratch: &mut HopScratch, block: &mut Block) -> Result<()> {
        let &HopRequest { dst, .. } = self.request;
        let is_cut = |&i: &usize| !self.excluded.sources_of(self.request.name(dst[i])).is_empty();
        let at = memory::demand_collect((0..dst.len()).filter(is_cut));
        if at.is_empty() {
            return self.sampler.sample_hop(self.request, scratch, block);
        }
        let cut: Vec<NodeId> = memory::demand_collect(at.iter().map(|&i| dst[i]));
        if cut.len() == dst.len() {
            return self.sample_lists(dst, scratch, block);
        }
        let mut skip = at.iter().copied().peekable();
        let others = (0..dst.len()).filter(|i| skip.next_if_eq(i).is_none());
        let others: Vec<NodeId> = memory::demand_collect(others.map(|i| dst[i]));
        let [mut whole, mut rows] = std::mem::take(&mut scratch.spare);
        start(&mut whole);
        start(&mut rows);
        let request = HopRequest { dst: &others, ..*self.request };
        let drawn = self.sampler.sample_hop(&request, scratch, &mut whole);
        let drawn = drawn.and_then(|()| self.sample_lists(&cut, scratch, &mut rows));
        let merged = drawn.and_then(|()| merge(&at, [&whole, &rows], block));
        scratch.spare = [whole, rows];
        merged
    }

    /// Draws the destinations `dst` from lists.
    fn sample_lists(&self, dst: &[NodeId], scratch: &mut HopScratch, block: &mut Block) -> Result<()> {
        let names: Vec<NodeId> = memory::demand_collect(dst.iter().map(|&v| self.request.name(v)));
        let lists = self.lists(dst)?;
        let dst = memory::demand_collect(0..dst.len() as NodeId);
        let request = HopRequest { graph: &lists, dst: &dst, names: Some(&names), ..*self.request };
        self.sample_from(&request, scratch, block)
    }

    /// Draws from a copy of the graph without the excluded edges.
    fn sample_graph(&self, scratch: &mut HopScratch, block: &mut Block) -> Result<()> {
        let nodes = memory::demand_collect(0..self.request.graph.num_nodes() as NodeId);
        let graph = self.lists(&nodes)?;
        self.sample_from(&HopRequest { graph: &graph, ..*self.request }, scratch, block)
    }

    fn sample_from(&self, request: &HopRequest, scratch: &mut HopScratch, block: &mut Block) -> Result<()> {
        let made = self.sampler.with_tables_of(request.graph)?;
        made.as_deref().unwrap_or(self.sampler).sample_hop(request, scratch, block)
    }

    /// Graph of the lists of `nodes` alone without the excluded edges, in their order: node `i` has
    /// the list of `nodes[i]`, and neighbours keep their ids and weights.
    fn lists(&self, nodes: &[NodeId]) -> Result<Graph> {
        let graph = self.request.graph;
        let edges = nodes.iter().map(|&v| graph.in_degree(v)).sum();
        let (mut ends, mut sources) = (Vec::new(), Vec::new());
        memory::demand(&mut ends, nodes.len() + 1);
        memory::demand(&mut sources, edges);
        let mut weights = graph.edge_weight().map(|all| (all, Vec::new()));
        if let Some((_, copied)) = &mut weights {
            memory::demand(copied, edges);
        }
        let mut places = Vec::new();
        ends.push(0);
        for &v in nodes {
            places.clear();
            append_places(graph, v, self.excluded.sources_of(self.request.name(v)), &mut places);
            let first = graph.indptr()[v as usize] as usize;
            let mut from = first;
            for place in places.iter().copied().chain([graph.in_degree(v)]) {
                let run = from..first + place;
                sources.extend_from_slice(&graph.indices()[run.clone()]);
                if let Some((all, copied)) = &mut weights {
                    copied.extend_from_slice(&all[run]);
                }
                from = first + place + 1;
            }
            ends.push(sources.len() as u64);
        }
        let weights = weights.map(|(_, copied)| copied.into());
        Graph::of_sound_edges(ends.into(), sources.into(), weights)
    }
}

/// Overwrites `block` with the rows of all destinations: those of the second block are at the
/// numbers `at`, and those of the first between them.
///
/// # Errors
/// There are more edges than a block can number.
fn merge(at: &[usize], [others, rows]: [&Block; 2], block: &mut Block) -> Result<()> {
    start(block);
    let num_dst = others.indptr.len() + rows.indptr.len() - 2;
    memory::demand(&mut block.indptr, num_dst);
    memory::demand(&mut block.indices, others.num_edges() + rows.num_edges());
    memory::demand(&mut block.edge_weight, others.edge_weight.len() + rows.edge_weight.len());
    let (mut next, mut at) = ([0, 0], at.iter().copied().peekable());
    for i in 0..num_dst {
        let which = usize::from(at.next_if_eq(&i).is_some());
        let (from, row) = ([others, rows][which], next[which]);
        let run = from.indptr[row] as usize..from.indptr[row + 1] as usize;
        next[which] += 1;
        block.indices.extend_from_slice(&from.indices[run.clone()]);
        if !from.edge_weight.is_empty() {
            block.edge_weight.extend_from_slice(&from.edge_weight[run]);
        }
        block.indptr.push(block.indices.len() as u32);
    }
    check_size(block)
}

#[cfg(test)]
mod tests;
