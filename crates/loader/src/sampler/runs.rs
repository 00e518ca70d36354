//! A hop whose nodes show only as they are drawn how many edges they have.
//!
//! Destinations are cut into runs, each is drawn into a block of its own, runs in parallel, and the blocks are put one after the
//! other. On one thread the runs are drawn one after the other to where they belong.

use std::collections::BinaryHeap;

use graphmill_graph::{Block, NodeId, Result, alias::Aim};
use rayon::prelude::*;

use super::{Scratch, parts::append, random_walk::Walk, reservoir::Candidate};

/// Destinations of a run.
pub(super) const RUN: usize = 256;

/// A run being drawn.
#[derive(Debug, Default)]
pub(super) struct Run {
    room: Room,
    block: Block,
}

/// What drawing a run needs; every sampler finds here what it left.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Draws from alias tables that have not been looked at.
    pub(super) aims: Vec<Aim>,
    /// Positions among the graph's edges.
    pub(super) positions: Vec<u64>,
    /// Prefix sums of a row's weights.
    pub(super) sums: Vec<f64>,
    /// A bit for each edge of a row, all 0 between two rows.
    pub(super) bits: Vec<u64>,
    /// The edges that are ahead in a reservoir.
    pub(super) ahead: BinaryHeap<Candidate>,
    /// Where walks are.
    pub(super) walks: Vec<Walk>,
    /// What they visited.
    pub(super) visits: Vec<u64>,
}

/// Overwrites the edges of `block`, and the weights if any. `draw` appends those of some destinations: ends to `indptr`, ids to
/// `indices`, and weights.
///
/// # Errors
/// There are more edges than a block can number.
pub(super) fn draw_runs(
    dst: &[NodeId],
    scratch: &mut Scratch,
    block: &mut Block,
    draw: impl Fn(&[NodeId], &mut Room, &mut Block) + Sync,
) -> Result<()> {
    start(block);
    let spread = scratch.parallel && dst.len() >= 2 * RUN && rayon::current_num_threads() > 1;
    let num_runs = if spread { dst.len().div_ceil(RUN) } else { 1 };
    if scratch.runs.len() < num_runs {
        scratch.runs.resize_with(num_runs, Run::default);
    }
    let runs = &mut scratch.runs[..num_runs];
    if !spread {
        for dst in dst.chunks(RUN) {
            draw(dst, &mut runs[0].room, block);
            fits(block)?;
        }
        return Ok(());
    }
    dst.par_chunks(RUN).zip(runs.par_iter_mut()).for_each(|(dst, Run { room, block })| {
        start(block);
        draw(dst, room, block);
    });
    runs.iter().try_for_each(|run| append(&run.block, block))
}

/// An empty block to append to.
pub(super) fn start(block: &mut Block) {
    block.indptr.clear();
    block.indptr.push(0);
    block.indices.clear();
    block.edge_weight.clear();
}

/// Whether the block's positions have been numbered as they are.
pub(super) fn fits(block: &Block) -> Result<()> {
    match u32::try_from(block.num_edges()) {
        Ok(_) => Ok(()),
        Err(_) => Err(super::parts::too_many(block.num_edges() as u64)),
    }
}
