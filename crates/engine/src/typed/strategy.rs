//! Workers of a run on several types, by the name of its strategy.
//!
//! # Algorithm
//!
//! ```text
//!   sequential:   main       draw b2 | gather b2 | train b2 | draw b3 | ..
//!   pipelined:    samplers   draw b4 | draw b5 | ..
//!                 extractor    gather b3 | gather b4 | ..
//!                 main           train b2 | train b3 | ..
//!   factored:     devices    the same; the last ones gather through their caches and train
//!   time-sharing: devices    all stages in turn
//! ```
//!
//! A batch is a function of its number, and training sees the batches in the order of their
//! numbers, so all strategies give the bits of `sequential` if every batch makes an update by a
//! gradient that is not stale. Several devices that train make updates of several batches, or by
//! stale gradients ([`super::rounds`]).
//!
//! # Source
//!
//! Liu et al., *BGL: GPU-Efficient GNN Training by Optimizing Graph Data I/O and Preprocessing*,
//! NSDI 2023, section 3 (`pipelined`); Yang et al., *GNNLab: A Factored System for Sample-based GNN
//! Training over GPUs*, EuroSys 2022, section 4 (`factored`).
//!
//! # Cost
//!
//! The time of the slowest stage, if the cores suffice.
//!
//! # Memory
//!
//! `--queue-depth` batches, by default twice as many as the workers handle at once.
//!
//! # Deviations
//!
//! Stages are not measured: `--allocation profiled` lets them compete as `naive` does.

use std::{ops::Range, sync::Arc};

use graphmill_loader::typed::{TypedExtracted, TypedSeeds, TypedWorkspace};

use super::{
    counts::total,
    devices::{TypedDevices, WHOLE, order},
    rounds::{RoundLearner, RoundWork, Rounds},
    stages::{EpochBatches, TypedBatches},
    task::TypedTask,
};
use crate::{
    Error, Result, TrainConfig,
    batchwise::Session,
    cores,
    record::{DeviceRecord, PresamplingCost, Traffic},
    strategy::{
        Cores, Flow, PipelinedOptions, QueueOptions, SingleTrainer, Timed, TypedOrder, Worker,
        scheduler::WorkerRole,
    },
};

/// Strategy of a run.
pub(super) struct Strategy {
    workers: SingleTrainer<TypedBatches>,
    /// Most batches under way; 0 keeps all workers busy.
    queue: usize,
    /// Memory of batches that are not under way.
    memory: Vec<TypedSeeds>,
    devices: Option<TypedDevices>,
    /// Batches that each device has trained on since the last record of the devices, and the
    /// traffic of their rows.
    done: Vec<(u64, Traffic)>,
}

impl Strategy {
    /// The strategy that the options name, on `devices` if its stages run on some.
    ///
    /// # Errors
    /// It is not for several types, or the system refuses the threads.
    pub(super) fn new(
        config: &TrainConfig,
        task: &TypedTask,
        mut devices: Option<TypedDevices>,
    ) -> Result<Self> {
        let space = || TypedWorkspace::new(task.graph.schema());
        let mut queue = config.own.get::<QueueOptions>().queue_depth;
        let workers = match (order(config)?, &mut devices) {
            (TypedOrder::Pipelined, _) => pipelined(config, &space)?,
            (TypedOrder::Factored | TypedOrder::TimeSharing, devices) => {
                on_devices(devices.as_mut().ok_or_else(without_devices)?, &space)?
            }
            (TypedOrder::Sequential, _) => {
                queue = 1;
                let role = WorkerRole { sample: 1, ..WHOLE };
                SingleTrainer { driver: Worker::new(MAIN.into(), role, None, space), others: Vec::new() }
            }
        };
        let trainers = devices.as_ref().map_or(1, |devices| devices.trainers().len());
        Ok(Self { workers, queue, memory: Vec::new(), devices, done: vec![Default::default(); trainers] })
    }

    /// Name of the worker that trains, for the timeline.
    pub(super) fn trainer(&self) -> &str {
        &self.workers.driver.name
    }

    /// Makes these batches and trains on them in their order. `train` returns whether to go on, and
    /// the batch's memory.
    ///
    /// # Errors
    /// A stage or `train` fails. Batches before a failed one are trained on.
    pub(super) fn run(
        &mut self,
        of: &EpochBatches,
        batches: Range<u64>,
        mut train: impl FnMut(Timed<TypedExtracted>) -> Result<(Flow, TypedSeeds)> + Send,
    ) -> Result<Flow> {
        let Self { workers, queue, memory, done, .. } = self;
        workers.run(*of, batches, *queue, memory, &mut |_, batch: Timed<TypedExtracted>| {
            let traffic = total(&batch.batch.traffic);
            let trained = train(batch)?;
            done[0].0 += 1;
            done[0].1 += traffic;
            Ok(trained)
        })
    }

    /// Makes these batches and trains on them by the devices of `rounds`, which the devices of this
    /// strategy are. `cost` is that of the batches whose reads are counted.
    ///
    /// # Errors
    /// As [`Rounds::train`].
    pub(super) fn run_rounds<L: RoundLearner>(
        &mut self,
        rounds: &mut Rounds<L>,
        session: &mut Session<L>,
        of: EpochBatches,
        (batches, cost): (Range<u64>, &PresamplingCost),
    ) -> Result<Flow> {
        let Self { workers: SingleTrainer { driver, others }, queue, memory, done, .. } = self;
        let workers = others.iter_mut().chain([driver]).collect();
        rounds.train(session, RoundWork { of, batches, workers, queue: *queue, memory, done, cost })
    }

    /// Sets the number of rows in the cache of each device that trains, if the stages run on
    /// devices, once the caches are filled.
    pub(super) fn set_cache_rows(&mut self, rows: usize) {
        self.devices.iter_mut().for_each(|devices| devices.set_cache_rows(rows));
    }

    /// Record of each device since the last call, if the stages run on devices.
    pub(super) fn records(&mut self) -> Vec<DeviceRecord> {
        let none = vec![Default::default(); self.done.len()];
        let done = std::mem::replace(&mut self.done, none);
        self.devices.as_mut().map_or_else(Vec::new, |devices| devices.records(&done))
    }
}

/// Error of a strategy on devices that has none.
fn without_devices() -> Error {
    Error::usage("a strategy without devices")
}

/// Name of the thread of the run.
const MAIN: &str = "main";

/// Workers of devices; the last one trains.
fn on_devices(
    devices: &mut TypedDevices,
    space: &dyn Fn() -> TypedWorkspace,
) -> Result<SingleTrainer<TypedBatches>> {
    let mut others = devices.workers(space)?;
    let driver = others.pop().ok_or_else(without_devices)?;
    Ok(SingleTrainer { driver, others })
}

/// Samplers of one thread each, an extractor, and the thread of the run.
fn pipelined(
    config: &TrainConfig,
    space: &dyn Fn() -> TypedWorkspace,
) -> Result<SingleTrainer<TypedBatches>> {
    let [sample, extract] = match *config.own.get::<PipelinedOptions>().allocation {
        Cores::Given([sample, extract, _]) => [sample, extract],
        Cores::Naive | Cores::Profiled => [rayon::current_num_threads(); 2],
    };
    let pool = |name, threads| cores::pool(name, threads, &[]).map(Arc::new);
    let mut others = Vec::with_capacity(sample + 1);
    for i in 0..sample {
        let role = WorkerRole { sample: 1, ..WorkerRole::default() };
        others.push(Worker::new(format!("sampler {i}"), role, Some(pool("sample", 1)?), space));
    }
    let role = WorkerRole { train: None, ..WHOLE };
    others.push(Worker::new("extractor".into(), role, Some(pool("extract", extract)?), space));
    let role = WorkerRole { extract: None, ..WHOLE };
    Ok(SingleTrainer { driver: Worker::new(MAIN.into(), role, None, space), others })
}
