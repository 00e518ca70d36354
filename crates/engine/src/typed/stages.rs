//! The stages of a batch on several types before training.

use std::time::Instant;

use graphmill_core::{NodeId, block::Aggregation};
use graphmill_distributed::NodeOwnership;
use graphmill_loader::{
    BatchKey,
    typed::{TypedExtracted, TypedRequest, TypedSampled, TypedSampler, TypedSeeds, TypedWorkspace},
};

use super::{
    tables::{Tables, borrowed},
    task::TypedTask,
};
use crate::{
    Result,
    record::Stages,
    strategy::{Flow, attempt},
    timeline::{Stage, Timeline, Track},
};

/// Makes the seeds of batches.
pub(super) trait SeedSource: Sync {
    /// Makes the seeds of the batch `key` from `part`, its part of the epoch's order. A pure
    /// function of both.
    ///
    /// # Errors
    /// An edge has no negative.
    fn fill(&self, key: BatchKey, part: &[NodeId], memory: TypedSeeds) -> Result<TypedSeeds>;
}

impl SeedSource for TypedTask {
    /// Nodes of the task's type.
    fn fill(&self, key: BatchKey, part: &[NodeId], memory: TypedSeeds) -> Result<TypedSeeds> {
        Ok(memory.refill(key.batch, &self.seeds(part)))
    }
}

/// The batches of an epoch: a batch is a function of its number.
#[derive(Clone, Copy)]
pub(super) struct EpochBatches<'e> {
    pub(super) task: &'e TypedTask,
    pub(super) source: &'e dyn SeedSource,
    pub(super) sampler: &'e dyn TypedSampler,
    /// Feature table of each type.
    pub(super) tables: &'e Tables,
    /// This epoch's order of the training nodes or edges.
    pub(super) order: &'e [NodeId],
    pub(super) batch_size: usize,
    pub(super) seed: u64,
    pub(super) epoch: u64,
    /// The sum over neighbours that the model computes.
    pub(super) aggregation: Aggregation,
    pub(super) timeline: &'e Timeline,
    /// Owners of the seeds, if several ranks train together: a rank trains on its own seeds.
    pub(super) owners: Option<&'e NodeOwnership>,
}

/// A batch before training, with the seconds of its stages.
pub(super) struct Made<B> {
    pub(super) batch: B,
    pub(super) spent: Stages,
}

/// Trains on a batch. Returns whether to go on, and the batch's memory.
pub(super) type Train<'t> = dyn FnMut(Made<TypedExtracted>) -> Result<(Flow, TypedSeeds)> + 't;

impl<'e> EpochBatches<'e> {
    /// Seeds of batch `number`, on all ranks.
    pub(super) fn seeds(&self, number: u64) -> &'e [NodeId] {
        let (from, size) = (number as usize * self.batch_size, self.batch_size);
        &self.order[from..self.order.len().min(from + size)]
    }

    /// Draws the blocks of batch `number`.
    ///
    /// # Errors
    /// Those of the sampler; a panic is an error.
    pub(super) fn sample(
        &self,
        number: u64,
        workspace: &mut TypedWorkspace,
        memory: TypedSeeds,
    ) -> Result<TypedSampled> {
        let all = self.seeds(number);
        let own: Vec<NodeId>;
        let seeds = match self.owners {
            Some(owners) => {
                own = all.iter().copied().filter(|&v| owners.is_own(v)).collect();
                &own
            }
            None => all,
        };
        let key = BatchKey { seed: self.seed, epoch: self.epoch, batch: number };
        let request = TypedRequest { aggregation: self.aggregation, ..self.task.request(key) };
        attempt(Stage::Sample, number, || {
            let seeds = self.source.fill(key, seeds, memory)?;
            Ok(self.sampler.sample(&request.transposed(), workspace, seeds)?)
        })
    }

    /// Gathers the feature rows of a batch.
    ///
    /// # Errors
    /// A tier cannot be read; a panic is an error.
    pub(super) fn extract(&self, track: Track, made: Made<TypedSampled>) -> Result<Made<TypedExtracted>> {
        let (clock, number) = (Instant::now(), made.batch.seeds.number);
        let edges = borrowed(&self.task.edges);
        let batch = attempt(Stage::Extract, number, || {
            Ok(made.batch.extract(&borrowed(self.tables))?.with_edges(&edges)?)
        })?;
        let extract = self.timeline.done(track, Stage::Extract, number, clock);
        Ok(Made { batch, spent: Stages { extract, ..made.spent } })
    }
}
