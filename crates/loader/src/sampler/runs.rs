//! A hop whose number of edges per node is known only after drawing.
//!
//! Destinations are cut into runs. Each run is drawn into its own block, in parallel, and the
//! blocks are concatenated. On one thread the runs are drawn in order, straight into the result.

use graphmill_core::{Block, NodeId, Result, memory};
use rayon::prelude::*;

use super::{
    HopScratch,
    parts::append,
    scratch::{Run, RunScratch},
};

/// Number of destinations of a run.
pub(super) const RUN: usize = 256;

/// Overwrites the edges of `block`, and their weights if any. `draw` appends those of some
/// destinations: ends to `indptr`, which has capacity for them, ids to `indices`, and weights.
///
/// # Errors
/// There are more edges than a block can number.
pub(super) fn draw_runs(
    dst: &[NodeId],
    scratch: &mut HopScratch,
    block: &mut Block,
    draw: impl Fn(&[NodeId], &mut RunScratch, &mut Block) + Sync,
) -> Result<()> {
    start(block);
    memory::demand(&mut block.indptr, dst.len());
    let spread = scratch.parallel && dst.len() >= 2 * RUN && rayon::current_num_threads() > 1;
    let num_runs = if spread { dst.len().div_ceil(RUN) } else { 1 };
    if scratch.runs.len() < num_runs {
        scratch.runs.resize_with(num_runs, Run::default);
    }
    let runs = &mut scratch.runs[..num_runs];
    if !spread {
        for dst in dst.chunks(RUN) {
            draw(dst, &mut runs[0].scratch, block);
            check_size(block)?;
        }
        return Ok(());
    }
    dst.par_chunks(RUN).zip(runs.par_iter_mut()).for_each(|(dst, Run { scratch, block })| {
        start(block);
        memory::demand(&mut block.indptr, dst.len());
        draw(dst, scratch, block);
    });
    runs.iter().try_for_each(|run| append(&run.block, block))
}

/// Clears a block to append to.
pub(super) fn start(block: &mut Block) {
    block.indptr.clear();
    block.indptr.push(0);
    block.indices.clear();
    block.edge_weight.clear();
}

/// Checks that 32 bits number the block's edges.
pub(super) fn check_size(block: &Block) -> Result<()> {
    match u32::try_from(block.num_edges()) {
        Ok(_) => Ok(()),
        Err(_) => Err(super::parts::too_many(block.num_edges() as u64)),
    }
}
