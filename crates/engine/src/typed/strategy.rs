//! The orders in which a run on several types goes through the stages of its batches.

use std::{ops::Range, time::Instant};

use graphmill_loader::typed::{TypedSeeds, TypedWorkspace};

use super::{
    pipeline::Pipeline,
    stages::{EpochBatches, Made, Train},
    task::TypedTask,
};
use crate::{
    Error, Result, TrainConfig,
    record::Stages,
    strategy::{self, Flow, TypedOrder},
    timeline::Stage,
};

/// Order of the stages of a run's batches.
pub(super) enum Strategy {
    /// One stage after the other.
    Sequential(Box<(TypedWorkspace, TypedSeeds)>),
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
                let workspace = TypedWorkspace::new(task.graph.schema());
                Ok(Self::Sequential(Box::new((workspace, TypedSeeds::default()))))
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
            Self::Sequential(own) => &mut **own,
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
