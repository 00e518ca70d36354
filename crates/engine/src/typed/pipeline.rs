//! Sampling and extraction of later batches on threads of their own, while a batch is trained on.
//!
//! # Algorithm
//!
//! ```text
//!   sampler:     draw b4, b5 | draw b6, b7 | ..
//!   extractor:     gather b3 | gather b4 | ..
//!   main:            train b2 | train b3 | ..
//! ```
//!
//! Batches pass through channels of a limited length in the order of their numbers. A batch is a
//! function of its number, and training sees the batches in their order, so the model has the bits
//! of `sequential`.
//!
//! # Source
//!
//! Liu et al., *BGL: GPU-Efficient GNN Training by Optimizing Graph Data I/O and Preprocessing*,
//! NSDI 2023, section 3.
//!
//! # Cost
//!
//! The time of the slowest stage, if the cores suffice.
//!
//! # Memory
//!
//! `--queue-depth` batches, by default one per sampling thread, one that is gathered, one that is
//! trained on, and one between each pair of stages.
//!
//! # Deviations
//!
//! Stages are not measured: `--allocation profiled` lets them compete as `naive` does.

use std::{
    ops::Range,
    panic::resume_unwind,
    sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    time::{Duration, Instant},
};

use graphmill_loader::typed::{TypedExtracted, TypedSampled, TypedSeeds, TypedWorkspace};
use rayon::{ThreadPool, ThreadPoolBuilder, prelude::*};

use super::{
    stages::{EpochBatches, Made, Train},
    task::TypedTask,
};
use crate::{
    Error, Result, TrainConfig,
    record::Stages,
    strategy::{Cores, Flow, PipelinedOptions, QueueOptions},
    timeline::Stage,
};

/// Threads and memory of the stages, which stay for all epochs.
pub(super) struct Pipeline {
    sampling: ThreadPool,
    extracting: ThreadPool,
    /// Workspace of each batch that is drawn at once.
    workspaces: Vec<TypedWorkspace>,
    /// Most batches under way.
    depth: usize,
    /// Memory of batches that are not under way.
    memory: Vec<TypedSeeds>,
}

/// Batch on its way to the next stage, or the error that ended the stage.
type Sent<B> = Result<Made<B>>;

impl Pipeline {
    /// Threads of a run.
    ///
    /// # Errors
    /// The system refuses the threads.
    pub(super) fn new(config: &TrainConfig, task: &TypedTask) -> Result<Self> {
        let threads = rayon::current_num_threads();
        let [sample, extract] = match *config.own.get::<PipelinedOptions>().allocation {
            Cores::Given([sample, extract, _]) => [sample, extract],
            Cores::Naive | Cores::Profiled => [threads; 2],
        };
        let depth = match config.own.get::<QueueOptions>().queue_depth {
            0 => sample + 4,
            depth => depth,
        };
        let pool = |name: &'static str, threads| {
            let builder = ThreadPoolBuilder::new().num_threads(threads);
            builder.thread_name(move |i| format!("{name}-{i}")).build().map_err(|error| {
                Error::usage(format!(
                    "--strategy pipelined: the system refuses {threads} threads: {error}; use --threads"
                ))
            })
        };
        let schema = task.graph.schema();
        Ok(Self {
            sampling: pool("sample", sample)?,
            extracting: pool("extract", extract)?,
            workspaces: (0..sample.min(depth)).map(|_| TypedWorkspace::new(schema)).collect(),
            depth,
            memory: (0..depth).map(|_| TypedSeeds::default()).collect(),
        })
    }

    /// Makes these batches ahead, and trains on them in their order on this thread.
    ///
    /// # Errors
    /// A stage or `train` fails. Batches before a failed one are trained on.
    pub(super) fn run(&mut self, of: &EpochBatches, batches: Range<u64>, train: &mut Train) -> Result<Flow> {
        let Self { sampling, extracting, workspaces, depth, memory } = self;
        let (sampling, extracting) = (&*sampling, &*extracting);
        // a batch needs free memory, so at most `depth` batches are under way
        let (free, freed) = channel();
        memory.drain(..).for_each(|memory| free.send(memory).unwrap_or(()));
        let (to_extract, sampled) = sync_channel(*depth);
        let (to_train, extracted) = sync_channel(1);
        let (outcome, freed) = std::thread::scope(|scope| {
            let sampler = scope.spawn(move || {
                sampling.install(move || sample_all(of, batches, workspaces, freed, to_extract))
            });
            scope.spawn(move || extracting.install(move || extract_all(of, sampled, to_train)));
            // drops its ends of the channels, so that no thread waits for it
            let outcome = train_all(extracted, free, train);
            (outcome, sampler.join().unwrap_or_else(|panic| resume_unwind(panic)))
        });
        memory.extend(freed.try_iter());
        memory.resize_with(*depth, TypedSeeds::default);
        outcome
    }
}

/// Trains on all batches.
fn train_all(
    extracted: Receiver<Sent<TypedExtracted>>,
    free: Sender<TypedSeeds>,
    train: &mut Train,
) -> Result<Flow> {
    for made in extracted {
        let (flow, recycled) = train(made?)?;
        if flow == Flow::Stop {
            return Ok(Flow::Stop);
        }
        // the sampler has ended after the last batch
        let _ = free.send(recycled);
    }
    Ok(Flow::Continue)
}

/// Draws all batches in groups, a batch per workspace. Ends early if a draw fails or a later stage
/// has ended. Returns the channel of free memory.
fn sample_all(
    of: &EpochBatches,
    batches: Range<u64>,
    workspaces: &mut [TypedWorkspace],
    freed: Receiver<TypedSeeds>,
    to_extract: SyncSender<Sent<TypedSampled>>,
) -> Receiver<TypedSeeds> {
    let track = of.timeline.track("sampler");
    let mut next = batches.start;
    while next < batches.end {
        // waits for one, and takes what else is free
        let Ok(first) = freed.recv() else { break };
        let most = workspaces.len().min((batches.end - next) as usize);
        let memory: Vec<TypedSeeds> = [first].into_iter().chain(freed.try_iter()).take(most).collect();
        let (clock, count) = (Instant::now(), memory.len());
        let pairs = memory.into_par_iter().zip(workspaces.par_iter_mut()).enumerate();
        let drawn: Vec<Result<TypedSampled>> =
            pairs.map(|(i, (memory, workspace))| of.sample(next + i as u64, workspace, memory)).collect();
        let sample = clock.elapsed().as_secs_f64() / count as f64;
        for (i, drawn) in drawn.into_iter().enumerate() {
            let began = clock + Duration::from_secs_f64(sample * i as f64);
            of.timeline.add(track, Stage::Sample, next + i as u64, began, sample);
            let spent = Stages { sample, ..Stages::default() };
            let is_failed = drawn.is_err();
            if to_extract.send(drawn.map(|batch| Made { batch, spent })).is_err() || is_failed {
                return freed;
            }
        }
        next += count as u64;
    }
    freed
}

/// Gathers the rows of all batches. Ends early if a stage fails or training ends.
fn extract_all(
    of: &EpochBatches,
    sampled: Receiver<Sent<TypedSampled>>,
    to_train: SyncSender<Sent<TypedExtracted>>,
) {
    let track = of.timeline.track("extractor");
    for made in sampled {
        let made = made.and_then(|made| of.extract(track, made));
        let is_failed = made.is_err();
        if to_train.send(made).is_err() || is_failed {
            return;
        }
    }
}
