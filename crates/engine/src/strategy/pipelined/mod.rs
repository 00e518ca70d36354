//! Concurrent stages of several batches, as workers of a [scheduler](super::scheduler).
//!
//! # Algorithm
//!
//! ```text
//!   isolated, 1,1,2:   core 0  sample b4 | sample b5 | ..
//!                      core 1    extract b3 | extract b4 | ..
//!                      cores 2, 3   train b2 | train b3 | ..
//!   sample and train in turns, extract beside them (a disk, a link):
//!                      all cores  sample b4, b5 | train b2 | train b3 | sample b6, b7 | ..
//!                      waiting    read b4  | read b5  | ..
//! ```
//!
//! 1. Measure the costs of the stages on the first batches.
//! 2. Solve ([`crate::strategy::allocate`]) which stages take turns and which have their own cores.
//! 3. Time the solved allocations, free competition, and no workers on the next batches; use the
//!    fastest.
//! 4. Start again if the times of the stages change much.
//!
//! Batches are trained on in the order of their numbers, and a batch depends on its number alone:
//! the model equals that of `sequential`, to the bit.
//!
//! # Source
//!
//! Liu et al., *BGL: GPU-Efficient GNN Training by Optimizing Graph Data I/O and Preprocessing*,
//! NSDI 2023, resource isolation.
//!
//! # Cost
//!
//! Measurements cost no batches: the model is trained on all of them, on some with a single core.
//!
//! # Memory
//!
//! Twice as many minibatches as the workers handle at once, or `--queue-depth`.
//!
//! # Deviations
//!
//! The paper gives every stage its own cores; [`crate::strategy::allocate`] also considers groups
//! of stages and shared cores. Allocations are timed before one is chosen.

mod allocation;
mod pace;
mod probe;
mod stages;
mod trial;
mod worker_set;

use std::time::Instant;

use graphmill_loader::{MiniBatch, Workspace};

use super::{
    QueueOptions,
    interface::{CompletedBatch, Epoch, Flow, Strategy},
    sequential::Sequential,
};
use crate::{Result, TrainConfig, accelerator::draws_on_devices, learner::Learner};
pub use allocation::{Cores, PipelinedOptions};
use pace::Pace;
use probe::Probe;
use stages::separate_groups;
use trial::Trial;
use worker_set::WorkerSet;

/// Strategy that runs the stages of several batches concurrently.
pub struct Pipelined {
    num_nodes: usize,
    cores: Cores,
    /// Largest number of batches under way; 0 keeps all workers busy.
    queue: usize,
    mode: Mode,
    inline: Sequential,
    note: Option<String>,
    slots: Vec<MiniBatch>,
}

/// Phase of the choice of workers.
enum Mode {
    /// Measures the costs of the stages.
    Probe(Probe),
    /// Times the candidates.
    Test(Box<Trial>),
    /// Runs without workers, which was the fastest.
    Inline(Pace),
    /// Runs the fastest workers, or those of the options.
    WorkerSet(Box<WorkerSet>),
}

impl Pipelined {
    /// Strategy on a graph of `num_nodes` nodes.
    ///
    /// # Errors
    /// The system refuses the threads.
    pub fn new(config: &TrainConfig, num_nodes: usize) -> Result<Self> {
        let PipelinedOptions { allocation } = config.own.get();
        let cores = &*allocation;
        let threads = rayon::current_num_threads();
        let workers =
            |cores, isolated| WorkerSet::new(&separate_groups(cores, isolated), num_nodes).map(Box::new);
        // stages on an NVIDIA device wait for the device and not for cores: they have one thread
        // each, and sampling has two. Sampling on the processor takes all cores
        let on_device = draws_on_devices(&config.sampler);
        let mode = match cores {
            Cores::Profiled if !config.cuda_devices().is_empty() => {
                Mode::WorkerSet(workers([if on_device { 2 } else { threads }, 1, 1], false)?)
            }
            Cores::Profiled => Mode::Probe(Probe::default()),
            Cores::Naive => Mode::WorkerSet(workers([threads; 3], false)?),
            Cores::Given(cores) => Mode::WorkerSet(workers(*cores, true)?),
        };
        Ok(Self {
            num_nodes,
            cores: cores.clone(),
            queue: config.own.get::<QueueOptions>().queue_depth,
            mode,
            inline: Sequential::new(num_nodes),
            note: None,
            slots: Vec::new(),
        })
    }

    /// Runs the next part of an epoch of `whole` batches. A part ends with the epoch, or when the
    /// mode may change.
    fn part<'a>(&mut self, epoch: &mut Epoch<'_, 'a>, whole: u64) -> Result<Flow> {
        match &mut self.mode {
            Mode::Probe(probe) => {
                let threads = rayon::current_num_threads();
                let mut spaces: Vec<Workspace> =
                    (0..threads).map(|_| Workspace::new(self.num_nodes)).collect();
                let (costs, flow) = probe.run(epoch, &mut spaces, &mut self.slots)?;
                if let Some(costs) = costs {
                    self.mode = Mode::Test(Box::new(Trial::new(&costs, threads, self.num_nodes)?));
                }
                Ok(flow)
            }
            Mode::Test(trial) => {
                let (many, timed) = trial.next(whole);
                let (from, clock) = (epoch.from, Instant::now());
                let to = epoch.from.saturating_add(many).min(epoch.to);
                let flow = match trial.workers() {
                    None => self.inline.run(epoch.until(to))?,
                    Some(workers) => workers.run(&mut epoch.until(to), self.queue, &mut self.slots)?,
                };
                epoch.from = to;
                let each = clock.elapsed().as_secs_f64() / (to - from).max(1) as f64;
                // a part that the end of the epoch cuts short is not timed
                let enough = many == u64::MAX || to - from >= many / 2;
                if timed && enough && trial.record(each) {
                    self.note = Some(trial.verdict());
                    if let Mode::Test(trial) =
                        std::mem::replace(&mut self.mode, Mode::Inline(Pace::default()))
                    {
                        // frees the memory of the other candidates
                        match trial.winner() {
                            Some(workers) => {
                                self.mode = Mode::WorkerSet(Box::new(workers));
                                self.inline = Sequential::new(self.num_nodes);
                            }
                            None => self.slots = Vec::new(),
                        }
                    }
                }
                Ok(flow)
            }
            Mode::Inline(pace) => {
                let batches = epoch.to - epoch.from;
                let (flow, spent) = run_timed(&mut self.inline, epoch)?;
                epoch.from = epoch.to;
                pace.record(batches, spent);
                if pace.has_drifted() {
                    self.mode = Mode::Probe(Probe::default());
                }
                Ok(flow)
            }
            Mode::WorkerSet(workers) => {
                let flow = workers.run(epoch, self.queue, &mut self.slots)?;
                epoch.from = epoch.to;
                if workers.pace.has_drifted() && self.cores == Cores::Profiled {
                    self.mode = Mode::Probe(Probe::default());
                }
                Ok(flow)
            }
        }
    }
}

impl Strategy for Pipelined {
    fn note(&mut self) -> Option<String> {
        self.note.take()
    }

    fn run(&mut self, mut epoch: Epoch) -> Result<Flow> {
        // with reuse, the batches of a super-batch come as an epoch
        let whole = match epoch.loader.ahead {
            Some(_) => epoch.to.saturating_sub(epoch.from),
            None => epoch.loader.num_batches(),
        };
        while epoch.from < epoch.to {
            if self.part(&mut epoch, whole)? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::Continue)
    }
}

/// Runs the rest of the epoch without workers; also returns the seconds of each stage.
///
/// # Errors
/// A stage or [`Epoch::after`] fails.
fn run_timed<'a>(inline: &mut Sequential, epoch: &mut Epoch<'_, 'a>) -> Result<(Flow, [f64; 3])> {
    let mut spent = [0.0; 3];
    let Epoch { number, order, from, to, loader, timeline, lr, .. } = *epoch;
    let report = &mut *epoch.after;
    let mut after = |learner: &Learner<'a>, done: &[CompletedBatch]| {
        for CompletedBatch { spent: of_batch, .. } in done {
            let parts = [of_batch.sample, of_batch.extract, of_batch.train];
            spent.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
        }
        report(learner, done)
    };
    let (learner, after) = (&mut *epoch.learner, &mut after);
    let flow = inline.run(Epoch { number, order, from, to, loader, learner, lr, after, timeline })?;
    Ok((flow, spent))
}
