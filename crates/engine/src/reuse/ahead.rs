//! The batches of a super-batch, drawn but for their bottom blocks.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, PoisonError},
};

use graphmill_core::NodeId;
use graphmill_loader::{MiniBatch, Workspace, reuse::Slots};
use rayon::prelude::*;

use crate::{
    Result,
    stage::{DrawAhead, Loader},
};

/// Batches that are drawn ahead: whoever draws one completes it.
#[derive(Debug, Default)]
pub struct Ahead {
    epoch: u64,
    first: u64,
    drawn: Vec<Mutex<Drawn>>,
    /// The nodes whose rows are reused.
    pub slots: Slots,
    /// Whether gradients of reused rows are of no use to anyone.
    restrict: bool,
}

/// A batch without its bottom block, or the memory of one.
#[derive(Debug, Default)]
struct Drawn {
    is_there: bool,
    batch: MiniBatch,
}

impl Ahead {
    /// Draws these batches of an epoch, as many at once as there are `spaces`, in the memory of those before. Nothing is
    /// reused until [`Ahead::slots`] are set.
    pub fn draw(
        &mut self,
        loader: &Loader,
        order: &[NodeId],
        epoch: u64,
        batches: std::ops::Range<u64>,
        restrict: bool,
        spaces: &mut [Workspace],
    ) {
        let count = (batches.end - batches.start) as usize;
        self.epoch = epoch;
        self.first = batches.start;
        self.restrict = restrict;
        self.slots.set(loader.graph.num_nodes(), []);
        if self.drawn.len() < count {
            self.drawn.resize_with(count, Mutex::default);
        }
        for drawn in &mut self.drawn {
            drawn.get_mut().unwrap_or_else(PoisonError::into_inner).is_there = false;
        }
        // a batch is spread over threads where there are more of those than batches
        let spread = count < spaces.len().max(2);
        let lanes = spaces.len().max(1);
        let mut first = batches.start;
        for group in self.drawn[..count].chunks_mut(lanes) {
            let draw = |(i, (drawn, space)): (usize, (&mut Mutex<Drawn>, &mut Workspace))| {
                let drawn = drawn.get_mut().unwrap_or_else(PoisonError::into_inner);
                space.set_parallel(spread);
                loader.pick(order, first + i as u64, &mut drawn.batch);
                // what cannot be drawn fails in its turn, when the batches before it are trained on
                let drawn_well = catch_unwind(AssertUnwindSafe(|| {
                    loader.sample_upper_blocks(epoch, space, &mut drawn.batch).is_ok()
                }));
                drawn.is_there = drawn_well.unwrap_or(false);
            };
            let drawn = group.len() as u64;
            group.par_iter_mut().zip(&mut *spaces).enumerate().for_each(draw);
            first += drawn;
        }
    }

    /// Shows, batch by batch, the nodes whose bottom-layer rows may be reused.
    pub fn candidates(&mut self, see: &(dyn Fn(&[NodeId]) + Sync)) {
        self.drawn.par_iter_mut().for_each(|drawn| {
            let Drawn { is_there, batch } = drawn.get_mut().unwrap_or_else(PoisonError::into_inner);
            if *is_there {
                see(&batch.input_nodes[batch.blocks[1].num_dst..]);
            }
        });
    }

    /// Shows each batch's own nodes, which the layer above reads as its own, and those whose bottom-layer rows may be reused.
    pub fn nodes(&mut self, see: &mut dyn FnMut(&[NodeId], &[NodeId])) {
        for drawn in &mut self.drawn {
            let Drawn { is_there, batch } = drawn.get_mut().unwrap_or_else(PoisonError::into_inner);
            if *is_there {
                let (own, others) = batch.input_nodes.split_at(batch.blocks[1].num_dst);
                see(own, others);
            }
        }
    }
}

impl DrawAhead for Ahead {
    fn complete(
        &self,
        loader: &Loader,
        order: &[NodeId],
        number: u64,
        workspace: &mut Workspace,
        batch: &mut MiniBatch,
    ) -> Result<()> {
        loader.pick(order, number, batch);
        let place = number.checked_sub(self.first).and_then(|i| self.drawn.get(i as usize));
        let taken = place.is_some_and(|drawn| {
            let mut drawn = drawn.lock().unwrap_or_else(PoisonError::into_inner);
            let Drawn { is_there, batch: above } = &mut *drawn;
            if *is_there {
                std::mem::swap(&mut above.input_nodes, &mut batch.input_nodes);
                batch.blocks.resize_with(above.blocks.len(), Default::default);
                // the memory of the bottom block stays with those that are whole
                batch.blocks[1..].swap_with_slice(&mut above.blocks[1..]);
            }
            std::mem::take(is_there)
        });
        if !taken {
            // somebody has had it before
            loader.sample_upper_blocks(self.epoch, workspace, batch)?;
        }
        batch.reuse(&self.slots, self.restrict, workspace);
        loader.sample_input_block(self.epoch, workspace, batch)
    }
}
