//! The batches of a super-batch on several types, drawn without their bottom blocks.

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, OnceLock, PoisonError},
};

use graphmill_core::{NodeId, typed::Schema};
use graphmill_loader::typed::{TypedSampled, TypedSeeds, TypedWorkspace};
use rayon::prelude::*;

use crate::{
    Result,
    reuse::{
        HotQueue, Ranking, RowSlots,
        row_slots::{renumber, take_reused},
    },
    typed::stages::{CompleteBatch, EpochBatches},
};

/// Batches that are drawn ahead without their bottom blocks, as
/// [`Lookahead`](crate::reuse::Lookahead) of one type. The worker that draws a batch later
/// completes it.
#[derive(Debug, Default)]
pub(in crate::typed) struct TypedLookahead {
    first: u64,
    batches: Vec<AheadBatch>,
    /// Slots of the nodes of each type whose rows are reused.
    pub(in crate::typed) slots: Vec<RowSlots>,
    /// Memory for batches.
    spare: Mutex<Vec<TypedSeeds>>,
}

/// Batch of the super-batch.
#[derive(Debug, Default)]
struct AheadBatch {
    /// The batch without its bottom block, until it is taken; `None` if its draw failed.
    upper: Mutex<Option<TypedSampled>>,
    /// Number of rows that the batch requests and could reuse, and of those that have slots.
    counts: (u64, u64),
    /// Slots of the rows that the batch reuses, by type, once it is complete.
    reused: OnceLock<Vec<Vec<u32>>>,
}

impl AheadBatch {
    fn upper_mut(&mut self) -> &mut Option<TypedSampled> {
        self.upper.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CompleteBatch for TypedLookahead {
    fn complete(
        &self,
        of: &EpochBatches,
        number: u64,
        workspace: &mut TypedWorkspace,
        memory: TypedSeeds,
    ) -> Result<TypedSampled> {
        let batch = self.batch(number);
        let drawn = batch.and_then(|batch| batch.upper.lock().unwrap_or_else(PoisonError::into_inner).take());
        let mut upper = match drawn {
            Some(upper) => {
                self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
                upper
            }
            None => of.upper(number, workspace, memory)?,
        };
        if let Some(batch) = batch {
            // a batch that is completed twice reuses the same rows
            let _ = batch.reused.set(self.remove_reused(of.task.graph.schema(), &mut upper));
        }
        of.bottom(number, workspace, upper)
    }
}

/// Nodes of each type that a batch requests and whose rows may be reused: sources of the lowest
/// drawn block that are not destinations of it.
fn requested(upper: &TypedSampled) -> impl Iterator<Item = (usize, &[NodeId])> {
    let own = &upper.blocks[1].num_dst;
    upper.input_nodes.iter().zip(own).map(|(nodes, &own)| &nodes[own..]).enumerate()
}

impl TypedLookahead {
    /// Draws these batches of an epoch, `spaces.len()` at once. No rows are reused until
    /// [`TypedLookahead::select`].
    pub(super) fn draw(&mut self, of: &EpochBatches, batches: Range<u64>, spaces: &mut [TypedWorkspace]) {
        let spare = self.spare.get_mut().unwrap_or_else(PoisonError::into_inner);
        let undone = self.batches.iter_mut().filter_map(|batch| batch.upper_mut().take());
        spare.extend(undone.map(TypedSampled::recycle));
        let count = (batches.end - batches.start) as usize;
        self.first = batches.start;
        self.batches.clear();
        self.batches.resize_with(count, AheadBatch::default);
        let types = of.task.graph.schema().types();
        self.slots.resize_with(types.len(), RowSlots::default);
        self.slots.iter_mut().zip(types).for_each(|(slots, of)| slots.set(of.count, []));
        // with fewer batches than threads, each draw is spread over threads
        let spread = count < spaces.len().max(2);
        let (mut first, lanes, spare) = (batches.start, spaces.len().max(1), &self.spare);
        for group in self.batches.chunks_mut(lanes) {
            let drawn = group.len() as u64;
            group.par_iter_mut().zip(&mut *spaces).enumerate().for_each(|(i, (batch, space))| {
                space.set_parallel(spread);
                let memory = spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
                // a failed draw is repeated, and reported, after the batches before it are trained
                // on
                let draw = || of.upper(first + i as u64, space, memory.unwrap_or_default()).ok();
                *batch.upper_mut() = catch_unwind(AssertUnwindSafe(draw)).unwrap_or(None);
            });
            first += drawn;
        }
    }

    /// Gives slots to the nodes of all types that most batches request: at most `max_hot`, by
    /// `ranking`, each requested by `min_batches` or more. Counts the rows that each batch
    /// requests.
    pub(super) fn select(
        &mut self,
        schema: &Schema,
        queue: &mut HotQueue,
        ranking: &Ranking,
        (min_batches, max_hot): (u16, usize),
    ) {
        queue.count(schema.num_nodes(), |count| {
            self.batches.par_iter_mut().for_each(|batch| {
                let of_types = batch.upper_mut().iter().flat_map(requested);
                of_types.for_each(|(t, nodes)| count(schema.range(t).start, nodes));
            });
        });
        let mut hot = vec![Vec::new(); schema.num_types()];
        for &v in queue.pick(ranking, min_batches, max_hot) {
            if let Some((t, local)) = schema.local(v) {
                hot[t].push(local);
            }
        }
        for ((slots, nodes), of) in self.slots.iter_mut().zip(hot).zip(schema.types()) {
            slots.set(of.count, nodes);
        }
        let slots = &self.slots;
        self.batches.par_iter_mut().for_each(|batch| {
            let has_slot = |t: usize, nodes: &[NodeId]| {
                nodes.iter().filter(|&&v| slots[t].get(v).is_some()).count() as u64
            };
            let of_types = batch.upper_mut().iter().flat_map(requested);
            let counts = of_types.map(|(t, nodes)| (nodes.len() as u64, has_slot(t, nodes)));
            batch.counts = counts.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        });
    }

    /// Number of rows that these batches request, and of those that they reuse.
    pub(super) fn counts(&self, batches: Range<u64>) -> (u64, u64) {
        let counts = batches.filter_map(|number| Some(self.batch(number)?.counts));
        counts.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
    }

    /// Slots of the rows of each type that batch `number` reuses, in the order of its sources;
    /// empty until it is complete.
    pub(super) fn reused(&self, number: u64) -> &[Vec<u32>] {
        self.batch(number).and_then(|batch| batch.reused.get()).map_or(&[], |reused| &reused[..])
    }

    fn batch(&self, number: u64) -> Option<&AheadBatch> {
        self.batches.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Removes the nodes with slots from the input nodes: among the sources of the lowest drawn
    /// block, they follow the others. Returns their slots, by type.
    fn remove_reused(&self, schema: &Schema, upper: &mut TypedSampled) -> Vec<Vec<u32>> {
        let TypedSampled { blocks, input_nodes, .. } = upper;
        let block = &mut blocks[1];
        let (mut reused, mut renumbered) =
            (vec![Vec::new(); input_nodes.len()], vec![Vec::new(); input_nodes.len()]);
        for (t, nodes) in input_nodes.iter_mut().enumerate() {
            let (renumbered, reused) = (&mut renumbered[t], &mut reused[t]);
            take_reused(nodes, block.num_dst[t], &self.slots[t], renumbered, reused);
        }
        for (slice, relation) in block.relations.iter_mut().zip(schema.relations()) {
            let t = relation.src;
            if !reused[t].is_empty() {
                renumber(&mut slice.indices, block.num_dst[t], input_nodes[t].len(), &renumbered[t]);
            }
        }
        reused
    }
}
