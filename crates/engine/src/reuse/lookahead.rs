//! The batches of a super-batch, drawn without their bottom blocks.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use graphmill_core::{NodeId, ObjectPool};
use graphmill_loader::{Sampled, Seeds, Upper, Workspace};
use rayon::prelude::*;

use super::row_slots::{RowSlots, remove_reused};
use crate::{
    Result,
    stage::{DrawAhead, Loader},
};

/// Batches that are drawn ahead without their bottom blocks. The worker that draws a batch later
/// completes it.
#[derive(Debug, Default)]
pub struct Lookahead {
    epoch: u64,
    first: u64,
    batches: Vec<LookaheadBatch>,
    /// Slots of the nodes whose rows are reused.
    pub slots: RowSlots,
    /// True if gradients of reused rows are not needed.
    restrict: bool,
    /// Scratch for the new numbers of sources.
    renumbered: ObjectPool<Vec<u32>>,
}

/// Batch of the super-batch.
#[derive(Debug, Default)]
struct LookaheadBatch {
    pending: Mutex<Pending>,
    /// Number of rows that the batch requests and could reuse, and of those that have slots.
    counts: (u64, u64),
    /// Slots of the rows that the batch reuses, once it is complete.
    reused: OnceLock<Vec<u32>>,
}

/// State of a batch before it is complete.
#[derive(Debug, Default)]
struct Pending {
    /// The batch without its bottom block, until it is taken.
    upper: Option<Upper>,
    /// Memory for the next batch.
    memory: Seeds,
    reused: Vec<u32>,
}

impl LookaheadBatch {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pending_mut(&mut self) -> &mut Pending {
        self.pending.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the batch and recycles its memory.
    fn clear(&mut self) {
        let reused = self.reused.take();
        self.counts = (0, 0);
        let pending = self.pending_mut();
        if let Some(upper) = pending.upper.take() {
            pending.memory = upper.recycle();
        }
        if let Some(reused) = reused {
            pending.reused = reused;
        }
    }
}

impl Lookahead {
    /// Draws these batches of an epoch, `spaces.len()` at once, in the memory of the last ones. No
    /// rows are reused until [`Lookahead::slots`] are set. With `restrict`, gradients of reused
    /// rows are not computed.
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
        if self.batches.len() < count {
            self.batches.resize_with(count, LookaheadBatch::default);
        }
        self.batches.iter_mut().for_each(LookaheadBatch::clear);
        // with fewer batches than threads, each draw is spread over threads
        let spread = count < spaces.len().max(2);
        let lanes = spaces.len().max(1);
        let mut first = batches.start;
        for group in self.batches[..count].chunks_mut(lanes) {
            let draw = |(i, (batch, space)): (usize, (&mut LookaheadBatch, &mut Workspace))| {
                let pending = batch.pending_mut();
                space.set_parallel(spread);
                let memory = std::mem::take(&mut pending.memory);
                // a failed draw is repeated, and reported, after the batches before it are trained
                // on
                let draw = || {
                    let seeds = loader.pick(epoch, order, first + i as u64, memory)?;
                    loader.sample_upper(epoch, space, seeds)
                };
                let drawn = catch_unwind(AssertUnwindSafe(|| draw().ok()));
                pending.upper = drawn.unwrap_or(None);
            };
            let drawn = group.len() as u64;
            group.par_iter_mut().zip(&mut *spaces).enumerate().for_each(draw);
            first += drawn;
        }
    }

    /// Passes the nodes of each batch whose bottom-layer rows may be reused to `visit`, in
    /// parallel.
    pub fn candidates(&mut self, visit: &(dyn Fn(&[NodeId]) + Sync)) {
        self.batches.par_iter_mut().for_each(|batch| {
            if let Some(Upper { blocks, destinations, .. }) = &batch.pending_mut().upper {
                visit(&destinations[blocks[0].num_dst..]);
            }
        });
    }

    /// Passes each batch's own nodes (the destinations of the layer above) and the nodes whose
    /// bottom-layer rows may be reused to `visit`.
    pub fn nodes(&mut self, visit: &mut dyn FnMut(&[NodeId], &[NodeId])) {
        for batch in &mut self.batches {
            if let Some(Upper { blocks, destinations, .. }) = &batch.pending_mut().upper {
                let (own, others) = destinations.split_at(blocks[0].num_dst);
                visit(own, others);
            }
        }
    }

    /// Counts the rows that each batch requests, and those that have slots. Call it before the
    /// batches are completed.
    pub fn count_reused(&mut self) {
        let slots = &self.slots;
        self.batches.par_iter_mut().for_each(|batch| {
            let Some(Upper { blocks, destinations, .. }) = &batch.pending_mut().upper else { return };
            let requested = &destinations[blocks[0].num_dst..];
            let reused = requested.iter().filter(|&&v| slots.get(v).is_some()).count();
            batch.counts = (requested.len() as u64, reused as u64);
        });
    }

    /// Passes the counts of each batch to `visit`: rows that it requests, and those with slots.
    pub(super) fn visit_counts(&mut self, visit: &mut dyn FnMut(&mut (u64, u64))) {
        self.batches.iter_mut().for_each(|batch| visit(&mut batch.counts));
    }

    /// Number of rows that these batches request, and of those that they reuse.
    pub fn counts(&self, batches: std::ops::Range<u64>) -> (u64, u64) {
        let counts = batches.filter_map(|number| Some(self.batch(number)?.counts));
        counts.fold((0, 0), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1))
    }

    /// Slots of the rows that batch `number` reuses, in the order of its sources; empty until it is
    /// complete.
    pub fn reused(&self, number: u64) -> &[u32] {
        self.batch(number).and_then(|batch| batch.reused.get()).map_or(&[], |reused| &reused[..])
    }

    fn batch(&self, number: u64) -> Option<&LookaheadBatch> {
        self.batches.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }
}

impl DrawAhead for Lookahead {
    fn complete(
        &self,
        loader: &Loader,
        order: &[NodeId],
        number: u64,
        workspace: &mut Workspace,
        memory: Seeds,
    ) -> Result<Sampled> {
        let seeds = loader.pick(self.epoch, order, number, memory)?;
        let ahead = self.batch(number);
        let (drawn, mut reused) = ahead.map_or_else(Default::default, |batch| {
            let mut pending = batch.pending();
            (pending.upper.take(), std::mem::take(&mut pending.reused))
        });
        let mut upper = match (ahead, drawn) {
            (Some(ahead), Some(mut drawn)) => {
                // the memory of the bottom block stays with complete batches
                let mut upper = seeds.into_upper(drawn.blocks.len() + 1);
                std::mem::swap(&mut upper.blocks, &mut drawn.blocks);
                std::mem::swap(&mut upper.destinations, &mut drawn.destinations);
                // a sampler of subgraphs has drawn the seeds, too
                std::mem::swap(&mut upper.seeds.nodes, &mut drawn.seeds.nodes);
                std::mem::swap(&mut upper.loss_weight, &mut drawn.loss_weight);
                ahead.pending().memory = drawn.recycle();
                upper
            }
            // its draw failed, or another worker has taken it
            _ => loader.sample_upper(self.epoch, workspace, seeds)?,
        };
        if let Some(ahead) = ahead {
            self.renumbered.with(|renumbered| {
                remove_reused(&mut upper, &self.slots, self.restrict, renumbered, &mut reused);
            });
            // a batch that is completed twice reuses the same rows
            let _ = ahead.reused.set(reused);
        }
        loader.sample_bottom(self.epoch, workspace, upper)
    }

    fn extra_bytes(&self, number: u64) -> u64 {
        4 * self.reused(number).len() as u64
    }
}
