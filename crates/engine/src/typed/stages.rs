//! The stages of a batch on several types before training, and the orders in which a run goes
//! through them.

use std::{ops::Range, time::Instant};

use graphmill_core::{NodeId, block::Aggregation};
use graphmill_loader::{
    BatchKey,
    typed::{TypedExtracted, TypedRequest, TypedSampled, TypedSampler, TypedSeeds, TypedWorkspace},
};

use super::{pipeline::Pipeline, task::TypedTask, tiers::TypedTiers};
use crate::{
    Error, Result, TrainConfig,
    record::Stages,
    strategy::{self, Flow, TypedOrder, attempt},
    timeline::{Stage, Timeline, Track},
};

/// The batches of an epoch: a batch is a function of its number.
#[derive(Clone, Copy)]
pub(super) struct EpochBatches<'e> {
    pub(super) task: &'e TypedTask,
    pub(super) sampler: &'e dyn TypedSampler,
    pub(super) tiers: &'e TypedTiers,
    /// This epoch's order of the training nodes.
    pub(super) order: &'e [NodeId],
    pub(super) batch_size: usize,
    pub(super) seed: u64,
    pub(super) epoch: u64,
    /// The sum over neighbours that the model computes.
    pub(super) aggregation: Aggregation,
    pub(super) timeline: &'e Timeline,
}

/// A batch before training, with the seconds of its stages.
pub(super) struct Made<B> {
    pub(super) batch: B,
    pub(super) spent: Stages,
}

/// Trains on a batch. Returns whether to go on, and the batch's memory.
pub(super) type Train<'t> = dyn FnMut(Made<TypedExtracted>) -> Result<(Flow, TypedSeeds)> + 't;

impl EpochBatches<'_> {
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
        let (from, size) = (number as usize * self.batch_size, self.batch_size);
        let seeds = &self.order[from..self.order.len().min(from + size)];
        let key = BatchKey { seed: self.seed, epoch: self.epoch, batch: number };
        let request =
            TypedRequest { aggregation: self.aggregation, ..TypedRequest::new(&self.task.graph, key) };
        attempt(Stage::Sample, number, || {
            let seeds = memory.refill(number, &self.task.seeds(seeds));
            Ok(self.sampler.sample(&request.transposed(), workspace, seeds)?)
        })
    }

    /// Gathers the feature rows of a batch.
    ///
    /// # Errors
    /// A tier cannot be read; a panic is an error.
    pub(super) fn extract(&self, track: Track, made: Made<TypedSampled>) -> Result<Made<TypedExtracted>> {
        let (clock, number) = (Instant::now(), made.batch.seeds.number);
        let batch = attempt(Stage::Extract, number, || Ok(made.batch.extract(&self.tiers.tables())?))?;
        let extract = self.timeline.done(track, Stage::Extract, number, clock);
        Ok(Made { batch, spent: Stages { extract, ..made.spent } })
    }
}

/// Order of the stages of a run's batches.
pub(super) enum Strategy {
    /// One stage after the other.
    Sequential(TypedWorkspace, TypedSeeds),
    /// Sampling and extraction of later batches during training.
    Pipelined(Pipeline),
}

impl Strategy {
    /// The strategy that the options name.
    ///
    /// # Errors
    /// It is not for several types, or the system refuses the threads.
    pub(super) fn new(config: &TrainConfig, task: &TypedTask) -> Result<Self> {
        let named = strategy::TABLE.find(&config.strategy).map_err(Error::name)?;
        match named.make.over_types {
            Some(TypedOrder::Sequential) => {
                Ok(Self::Sequential(TypedWorkspace::new(task.graph.schema()), TypedSeeds::default()))
            }
            Some(TypedOrder::Pipelined) => Ok(Self::Pipelined(Pipeline::new(config, task)?)),
            None => Err(Error::usage(format!(
                "--strategy {}: it does not train on several types; use --strategy sequential or pipelined",
                named.name
            ))),
        }
    }

    /// Makes these batches and trains on them in their order.
    ///
    /// # Errors
    /// A stage or `train` fails. Batches before a failed one are trained on.
    pub(super) fn run(&mut self, of: &EpochBatches, batches: Range<u64>, train: &mut Train) -> Result<Flow> {
        let (workspace, memory) = match self {
            Self::Sequential(workspace, memory) => (workspace, memory),
            Self::Pipelined(pipeline) => return pipeline.run(of, batches, train),
        };
        let track = of.timeline.track("main");
        for number in batches {
            let clock = Instant::now();
            let batch = of.sample(number, workspace, std::mem::take(memory))?;
            let sample = of.timeline.done(track, Stage::Sample, number, clock);
            let sampled = Made { batch, spent: Stages { sample, ..Stages::default() } };
            let (flow, recycled) = train(of.extract(track, sampled)?)?;
            *memory = recycled;
            if flow == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::Continue)
    }
}
