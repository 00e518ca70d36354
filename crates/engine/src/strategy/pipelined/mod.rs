//! The stages of several batches side by side, as workers on a [line](super::scheduler).
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
//! Which stages take turns and which have cores of their own is solved
//! ([`crate::strategy::allocate`]) from what the first batches cost, put to the test on the next
//! few, as is free competition, against no workers at all, and looked at again when their stages
//! take much longer or shorter than they did. Batches are trained on in the order of their numbers,
//! and what a batch holds depends on its number alone: the model is that of `sequential`, to the
//! bit.

mod allocation;
mod crew;
mod pace;
mod probe;
mod stages;
mod trial;

use std::time::Instant;

use graphmill_loader::{MiniBatch, Workspace};

use super::{
    QueueOptions,
    interface::{Done, Epoch, Flow, Strategy},
    sequential::Sequential,
};
use crate::{Result, TrainConfig, accelerator::draws_on_devices, learner::Learner};
pub use allocation::{Cores, PipelinedOptions};
use crew::WorkerSet;
use pace::Pace;
use probe::Probe;
use stages::apart;
use trial::Trial;

/// Stages of several batches side by side.
pub struct Pipelined {
    num_nodes: usize,
    cores: Cores,
    /// Batches under way at most; 0 for as many as keep all workers busy.
    queue: usize,
    mode: Mode,
    inline: Sequential,
    note: Option<String>,
    slots: Vec<MiniBatch>,
}

/// How far it has got to know its stages.
enum Mode {
    /// Not at all.
    Probe(Probe),
    /// By what the stages cost; which crew is quicker than none is not known yet.
    Test(Box<Trial>),
    /// None was.
    Inline(Pace),
    /// It was the quickest, or is what the user asked for.
    WorkerSet(Box<WorkerSet>),
}

impl Pipelined {
    /// For a graph of that many nodes, as the options say.
    ///
    /// # Errors
    /// `--allocation` is none.
    pub fn new(config: &TrainConfig, num_nodes: usize) -> Result<Self> {
        let PipelinedOptions { allocation } = config.own.get();
        let cores = &*allocation;
        let threads = rayon::current_num_threads();
        let crew = |cores, isolated| WorkerSet::new(&apart(cores, isolated), num_nodes).map(Box::new);
        // an NVIDIA device's stages wait for it and not for cores: one thread each, and two to draw
        // on the device. What the processor draws takes all cores
        let on_device = draws_on_devices(&config.sampler);
        let mode = match cores {
            Cores::Profiled if !config.cuda_devices().is_empty() => {
                Mode::WorkerSet(crew([if on_device { 2 } else { threads }, 1, 1], false)?)
            }
            Cores::Profiled => Mode::Probe(Probe::default()),
            Cores::Naive => Mode::WorkerSet(crew([threads; 3], false)?),
            Cores::Given(cores) => Mode::WorkerSet(crew(*cores, true)?),
        };
        Ok(Self {
            num_nodes,
            cores: cores.clone(),
            queue: config.own.get::<QueueOptions>().queue,
            mode,
            inline: Sequential::new(num_nodes),
            note: None,
            slots: Vec::new(),
        })
    }

    /// The next part of the epoch. A part ends where the epoch does, or where enough is known to go
    /// on otherwise.
    fn part<'a>(&mut self, epoch: &mut Epoch<'_, 'a>) -> Result<Flow> {
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
                let (many, timed) = trial.next(epoch.loader.num_batches());
                let (from, clock) = (epoch.from, Instant::now());
                let to = epoch.from.saturating_add(many).min(epoch.to);
                let flow = match trial.crew() {
                    None => self.inline.run(epoch.until(to))?,
                    Some(crew) => crew.run(&mut epoch.until(to), self.queue, &mut self.slots)?,
                };
                epoch.from = to;
                let each = clock.elapsed().as_secs_f64() / (to - from).max(1) as f64;
                // what the epoch's end cuts short tells too little
                let enough = many == u64::MAX || to - from >= many / 2;
                if timed && enough && trial.see(each) {
                    self.note = Some(trial.verdict());
                    if let Mode::Test(trial) =
                        std::mem::replace(&mut self.mode, Mode::Inline(Pace::default()))
                    {
                        // the others' memory is of no more use
                        match trial.winner() {
                            Some(crew) => {
                                self.mode = Mode::WorkerSet(Box::new(crew));
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
                let (flow, spent) = watched(&mut self.inline, epoch)?;
                epoch.from = epoch.to;
                pace.see(batches, spent);
                if pace.has_drifted() {
                    self.mode = Mode::Probe(Probe::default());
                }
                Ok(flow)
            }
            Mode::WorkerSet(crew) => {
                let flow = crew.run(epoch, self.queue, &mut self.slots)?;
                epoch.from = epoch.to;
                if crew.pace.has_drifted() && self.cores == Cores::Profiled {
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
        while epoch.from < epoch.to {
            if self.part(&mut epoch)? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::Continue)
    }
}

/// What is left of the epoch without workers, and the seconds that each stage took.
///
/// # Errors
/// What a stage reports, or the listener.
fn watched<'a>(inline: &mut Sequential, epoch: &mut Epoch<'_, 'a>) -> Result<(Flow, [f64; 3])> {
    let mut spent = [0.0; 3];
    let Epoch { number, order, from, to, loader, timeline, lr, .. } = *epoch;
    let told = &mut *epoch.after;
    let mut after = |learner: &Learner<'a>, done: &[Done]| {
        for Done { spent: of_batch, .. } in done {
            let parts = [of_batch.sample, of_batch.extract, of_batch.train];
            spent.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
        }
        told(learner, done)
    };
    let (learner, after) = (&mut *epoch.learner, &mut after);
    let flow = inline.run(Epoch { number, order, from, to, loader, learner, lr, after, timeline })?;
    Ok((flow, spent))
}
