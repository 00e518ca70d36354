//! Workers of a run on several types, by the name of its strategy.
//!
//! # Algorithm
//!
//! ```text
//!   sequential:   main       draw b2 | gather b2 | train b2 | draw b3 | ..
//!   pipelined:    samplers   draw b4 | draw b5 | ..
//!                 extractor    gather b3 | gather b4 | ..
//!                 main           train b2 | train b3 | ..
//!   factored:     devices    the same; the last one gathers through its cache and trains
//!   time-sharing: a device   all stages in turn
//! ```
//!
//! A batch is a function of its number, and training sees the batches in the order of their
//! numbers, so all strategies give the bits of `sequential`.
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
//! Stages are not measured: `--allocation profiled` lets them compete as `naive` does. One device
//! trains.

use std::{ops::Range, sync::Arc};

use graphmill_loader::typed::{TypedExtracted, TypedSeeds, TypedWorkspace};

use super::{
    counts::total,
    devices::{TypedDevices, WHOLE, order},
    stages::{EpochBatches, TypedBatches},
    task::TypedTask,
};
use crate::{
    Error, Result, TrainConfig, cores,
    record::{DeviceRecord, Traffic},
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
    /// Batches trained on since the last record of the devices, and the traffic of their rows.
    done: (u64, Traffic),
}

impl Strategy {
    /// The strategy that the options name, on `devices` if its stages run on some.
    ///
    /// # Errors
    /// It is not for several types, or the system refuses the threads.
    pub(super) fn new(config: &TrainConfig, task: &TypedTask, devices: Option<TypedDevices>) -> Result<Self> {
        let space = || TypedWorkspace::new(task.graph.schema());
        let mut queue = config.own.get::<QueueOptions>().queue_depth;
        let workers = match (order(config)?, &devices) {
            (TypedOrder::Pipelined, _) => pipelined(config, &space)?,
            (TypedOrder::Factored | TypedOrder::TimeSharing, Some(devices)) => devices.workers(&space)?,
            (TypedOrder::Factored | TypedOrder::TimeSharing, None) => {
                let why =
                    format!("--strategy {}: over ranks it does not train on several types", config.strategy);
                return Err(Error::usage(format!("{why}; use --strategy sequential or pipelined")));
            }
            (TypedOrder::Sequential, _) => {
                queue = 1;
                let role = WorkerRole { sample: 1, ..WHOLE };
                SingleTrainer { driver: Worker::new(MAIN.into(), role, None, space), others: Vec::new() }
            }
        };
        Ok(Self { workers, queue, memory: Vec::new(), devices, done: Default::default() })
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
            done.0 += 1;
            done.1 += traffic;
            Ok(trained)
        })
    }

    /// Sets the number of rows in the caches of the device that trains, if the stages run on
    /// devices.
    pub(super) fn set_cache_rows(&mut self, rows: usize) {
        self.devices.iter_mut().for_each(|devices| devices.cache_rows = rows);
    }

    /// Record of each device since the last call, if the stages run on devices.
    pub(super) fn records(&mut self) -> Vec<DeviceRecord> {
        let (batches, traffic) = std::mem::take(&mut self.done);
        self.devices.as_mut().map_or_else(Vec::new, |devices| devices.records(batches, traffic))
    }
}

/// Name of the thread of the run.
const MAIN: &str = "main";
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
