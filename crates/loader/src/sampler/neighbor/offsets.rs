//! Draws of the positions of edges, for callers that need edges rather than nodes.

#![forbid(unsafe_code)]

use graphmill_core::{Block, Graph, NodeId, Result, memory};

use super::{Draws, Neighbor, count};
use crate::{
    link::ExcludedEdges,
    sampler::{EdgeSampler, HopRequest, HopScratch},
};

/// Rows of in-neighbours to draw from.
#[derive(Clone, Copy, Debug)]
pub struct NeighborRows<'a> {
    /// The graph that has the rows.
    pub graph: &'a Graph,
    /// Ids of its nodes by which draws are keyed and excluded edges found, if not their own.
    pub names: Option<&'a [NodeId]>,
    /// Edges that are not drawn.
    pub excluded: Option<&'a ExcludedEdges>,
}

impl<'a> NeighborRows<'a> {
    /// Creates the rows of `graph` with all edges.
    pub fn new(graph: &'a Graph) -> Self {
        Self { graph, names: None, excluded: None }
    }

    /// Rows of a request.
    pub(crate) fn of(request: &HopRequest<'a>) -> Self {
        let &HopRequest { graph, names, excluded, .. } = request;
        Self { graph, names, excluded }
    }
}

/// Draws the positions of a hop's neighbours, for callers that need edges rather than nodes.
///
/// Overwrites `indptr` (`D + 1`, from 0) and `offsets`, the position of each drawn neighbour within
/// the row of its destination. The draws are those of [`Neighbor`] at that fanout (`usize::MAX`:
/// all) if `key` is the key of the hop ([`keyed::key`](graphmill_core::keyed::key) of seed, epoch,
/// batch, hop). With names, the draws of node `v` are those of node `names[v]`. Runs on the calling
/// thread.
///
/// # Errors
/// There are more edges than 32 bits can number.
pub fn draw_offsets(
    rows: NeighborRows,
    fanout: usize,
    key: u64,
    dst: &[NodeId],
    scratch: &mut HopScratch,
    (indptr, offsets): (&mut Vec<u32>, &mut Vec<u32>),
) -> Result<()> {
    scratch.parallel = false;
    scratch.fit(1);
    let edges = count(rows.graph, fanout, dst, scratch, indptr)?;
    memory::demand_len(offsets, edges, 0);
    let draws = Draws { rows, fanout, key };
    draws.offsets(dst, indptr, offsets, &scratch.tables);
    if let Some(excluded) = rows.excluded.filter(|excluded| !excluded.is_empty()) {
        draws.redraw::<false>(excluded, dst, (indptr, offsets), &scratch.tables);
    }
    Ok(())
}

impl EdgeSampler for Neighbor {
    /// Draws on the calling thread.
    fn sample_hop_edges(
        &self,
        request: &HopRequest,
        scratch: &mut HopScratch,
        block: &mut Block,
        positions: &mut Vec<u64>,
    ) -> Result<()> {
        let &HopRequest { graph, hop, dst, .. } = request;
        let Block { indptr, indices, .. } = block;
        let parallel = scratch.parallel;
        let (rows, fanout) = (NeighborRows::of(request), self.fanout[hop]);
        let drawn = draw_offsets(rows, fanout, request.hop_key(), dst, scratch, (indptr, indices));
        scratch.parallel = parallel;
        drawn?;
        positions.clear();
        memory::demand(positions, indices.len());
        for (&v, ends) in dst.iter().zip(indptr.windows(2)) {
            let start = graph.indptr()[v as usize];
            let offsets = &indices[ends[0] as usize..ends[1] as usize];
            positions.extend(offsets.iter().map(|&offset| start + u64::from(offset)));
        }
        let sources = indices.iter_mut().zip(positions);
        sources.for_each(|(source, &mut position)| *source = graph.indices()[position as usize]);
        Ok(())
    }
}
