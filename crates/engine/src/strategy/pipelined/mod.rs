//! The stages of several batches side by side, as workers on a [line](super::line).
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
//! Which stages take turns and which have cores of their own is solved ([`crate::allocate`]) from what the first batches
//! cost ([`probe`]), and again when that has changed. Batches are trained on in the order of their numbers, and what a batch holds
//! depends on its number alone: the model is that of `sequential`, to the bit.

mod probe;

use std::{sync::Arc, time::Instant};

use graphmill_loader::Workspace;
use rayon::ThreadPool;

use super::{
    Done, Epoch, Flow, Strategy,
    line::{Can, Line, Rules, Slot, State, Task},
    monitor::Guarded,
    worker::{Batches, Closing, Work, Worker, attempt},
};
use crate::{
    Error, Result, TrainConfig,
    allocate::{self, Allocation, Cost, Group},
    cores,
    timeline::Stage,
};

/// The stages, in the order of their indices.
const STAGES: [Stage; 3] = [Stage::Sample, Stage::Extract, Stage::Train];
const SAMPLE: usize = 0;
const EXTRACT: usize = 1;
const TRAIN: usize = 2;
/// A stage that takes so many times longer or shorter than it did is looked at again.
const DRIFT: f64 = 1.5;

/// Who decides how many cores a stage has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cores {
    /// The solver, from what the first batches cost.
    Profiled,
    /// Nobody: every stage has as many threads as there are cores, and they compete.
    Naive,
    /// The user: cores to sample, extract and train.
    Given([usize; 3]),
}

impl Cores {
    /// From `profiled`, `naive` or three numbers.
    ///
    /// # Errors
    /// It is none of them.
    pub fn parse(word: &str) -> Result<Self, String> {
        match word {
            "profiled" => Ok(Self::Profiled),
            "naive" => Ok(Self::Naive),
            _ => {
                let numbers: Option<Vec<usize>> = word
                    .split(',')
                    .map(|n| n.trim().parse().ok().filter(|n| (1..=1 << 10).contains(n)))
                    .collect();
                let given = numbers.and_then(|numbers| <[usize; 3]>::try_from(numbers).ok());
                given.map(Self::Given).ok_or_else(|| {
                    format!("'{word}': profiled, naive, or cores to sample, extract and train, such as 1,1,2")
                })
            }
        }
    }
}

/// See the module's text.
pub struct Pipelined {
    num_nodes: usize,
    cores: Cores,
    /// Batches under way at most; 0 for as many as keep all workers busy.
    queue: usize,
    crew: Option<Crew>,
    note: Option<String>,
    slots: Vec<Slot>,
}

/// Who does what, from an allocation.
struct Crew {
    /// The one that trains, on the thread that runs the strategy.
    driver: Worker,
    others: Vec<Worker>,
    /// Seconds a batch of each stage in the first epoch, against which drift is judged.
    usual: Option<[f64; 3]>,
}

impl Pipelined {
    /// For a graph of that many nodes, as the options say.
    ///
    /// # Errors
    /// `--allocation` is none.
    pub fn new(config: &TrainConfig, num_nodes: usize) -> Result<Self> {
        let cores = Cores::parse(&config.allocation)
            .map_err(|message| Error::usage(format!("--allocation {message}")))?;
        Ok(Self { num_nodes, cores, queue: config.queue, crew: None, note: None, slots: Vec::new() })
    }

    /// The crew of an allocation.
    fn crew(&self, allocation: &Allocation) -> Result<Crew> {
        let mut numbers = cores::available().into_iter();
        let mut own_pool = |group: &Group, name: &str| {
            let pinned: Vec<usize> =
                if allocation.isolated { numbers.by_ref().take(group.cores).collect() } else { Vec::new() };
            cores::pool(name, group.cores, &pinned).map(Arc::new)
        };
        let (mut driver, mut others) = (None, Vec::new());
        for group in &allocation.groups {
            let has = |stage: usize| group.stages.contains(&stage);
            let can = Can {
                sample: if has(SAMPLE) { group.cores } else { 0 },
                extract: has(EXTRACT).then_some(0),
                train: has(TRAIN).then_some(0),
                ..Can::default()
            };
            let name = group.stages.iter().map(|&i| STAGES[i].name()).collect::<Vec<_>>().join(" + ");
            let worker = |name: String, can: Can, pool: Option<Arc<ThreadPool>>| {
                Worker::new(name, can, pool, self.num_nodes)
            };
            if has(TRAIN) {
                // the pool of the run has all cores already
                let pool = if allocation.isolated { Some(own_pool(group, &name)?) } else { None };
                driver = Some(worker(name, can, pool));
            } else if group.stages == [SAMPLE] {
                // batches are drawn side by side: no thread waits for another
                for i in 0..group.cores {
                    let one = Group { stages: vec![SAMPLE], cores: 1 };
                    let pool = own_pool(&one, &name)?;
                    others.push(worker(format!("{name} {i}"), Can { sample: 1, ..can }, Some(pool)));
                }
            } else {
                let pool = own_pool(group, &name)?;
                others.push(worker(name, can, Some(pool)));
            }
        }
        let driver = driver.ok_or_else(|| Error::usage("an allocation without training"))?;
        Ok(Crew { driver, others, usual: None })
    }

    /// Everything in turns, on all cores.
    fn alone(threads: usize) -> Allocation {
        let all = Group { stages: vec![SAMPLE, EXTRACT, TRAIN], cores: threads };
        Allocation { groups: vec![all], isolated: false, seconds: f64::NAN }
    }

    /// A group of its own for each stage.
    fn apart(cores: [usize; 3], isolated: bool) -> Allocation {
        let group = |stage| Group { stages: vec![stage], cores: cores[stage] };
        Allocation { groups: [SAMPLE, EXTRACT, TRAIN].map(group).into(), isolated, seconds: f64::NAN }
    }

    /// As many slots as keep everyone busy: what each works on, and as much again ahead of it.
    fn fill_slots(&mut self, crew: &Crew) {
        let all = crew.others.iter().chain([&crew.driver]);
        let in_hand: usize =
            all.map(|worker| worker.can.sample + usize::from(worker.can.extract.is_some()) + 1).sum();
        let wanted = if self.queue > 0 {
            self.queue
        } else if crew.others.is_empty() {
            crew.driver.can.sample
        } else {
            2 * in_hand
        };
        self.slots.truncate(wanted);
        self.slots.resize_with(wanted, Slot::default);
    }
}

impl Strategy for Pipelined {
    fn note(&mut self) -> Option<String> {
        self.note.take()
    }

    fn run(&mut self, mut epoch: Epoch) -> Result<Flow> {
        let threads = rayon::current_num_threads();
        let batches = epoch.loader.num_batches();
        if self.crew.is_none() {
            let allocation = match self.cores {
                Cores::Naive => Self::apart([threads; 3], false),
                Cores::Given(cores) => Self::apart(cores, true),
                Cores::Profiled => {
                    let mut spaces: Vec<Workspace> =
                        (0..threads).map(|_| Workspace::new(self.num_nodes)).collect();
                    match probe::run(&mut epoch, &mut spaces, &mut self.slots)? {
                        probe::Outcome::Costs(costs) => {
                            let solved = allocate::solve(&costs, threads);
                            self.note = Some(describe(&costs, &solved, threads));
                            solved
                        }
                        probe::Outcome::TooFew => Self::alone(threads),
                        probe::Outcome::Stopped => return Ok(Flow::Stop),
                    }
                }
            };
            self.crew = Some(self.crew(&allocation)?);
        }
        if epoch.from >= batches {
            return Ok(Flow::Continue);
        }
        let Some(mut crew) = self.crew.take() else { return Ok(Flow::Continue) };
        self.fill_slots(&crew);
        let count = batches - epoch.from;
        let slots = std::mem::take(&mut self.slots);
        let line = Line::new(Guarded::new(State::new(epoch.from, batches, slots, Rules::ONE)));
        let mut spent = [0.0; 3];
        let flow = run_crew(&mut crew, &line, &mut epoch, &mut spent);
        let (failure, slots) = line.into_inner().into_inner().end();
        self.slots = slots;
        let flow = flow?;
        if let (Some(error), Flow::Continue) = (failure, flow) {
            return Err(error);
        }
        let now = spent.map(|seconds| seconds / count as f64);
        let drifted = crew.usual.is_some_and(|usual| has_drifted(usual, now));
        crew.usual.get_or_insert(now);
        // where it has, the next epoch begins with a probe
        self.crew = Some(crew).filter(|_| !(drifted && self.cores == Cores::Profiled));
        Ok(flow)
    }
}

/// An allocation in words, with what it was solved from.
fn describe(costs: &[Cost], allocation: &Allocation, threads: usize) -> String {
    let names = |group: &Group| {
        let names = group.stages.iter().map(|&i| STAGES[i].name()).collect::<Vec<_>>().join(", ");
        let turns = if group.stages.len() > 1 { " in turns" } else { "" };
        let cores =
            if allocation.isolated { format!(" on {} of its own", group.cores) } else { String::new() };
        format!("{names}{turns}{cores}")
    };
    let groups = allocation.groups.iter().map(names).collect::<Vec<_>>().join(" beside ");
    let times = STAGES
        .iter()
        .zip(costs)
        .map(|(stage, cost)| format!("{} {:.2} ms", stage.name(), 1e3 * cost.seconds(threads)));
    let times = times.collect::<Vec<_>>().join(", ");
    format!("a batch on {threads} cores takes {times}: {groups}, {:.2} ms expected", 1e3 * allocation.seconds)
}

/// Whether a stage that matters takes much longer, or much shorter, than it used to.
fn has_drifted(usual: [f64; 3], now: [f64; 3]) -> bool {
    let all: f64 = now.iter().sum::<f64>().max(usual.iter().sum());
    let changed = |(a, b): (&f64, &f64)| a.max(*b) > 0.1 * all && a.max(*b) > DRIFT * a.min(*b);
    usual.iter().zip(&now).any(changed)
}

/// An epoch's batches, on this thread and one for every other worker.
fn run_crew(crew: &mut Crew, line: &Batches, epoch: &mut Epoch, spent: &mut [f64; 3]) -> Result<Flow> {
    let Epoch { number, order, loader, learner, lr, after, timeline, .. } = epoch;
    let work = Work { loader, order, number: *number, timeline };
    let track = timeline.track(&crew.driver.name);
    let pool = crew.driver.pool.clone();
    let mut flow = Flow::Continue;
    let mut train = |task: Task<Slot>| -> Result<Flow> {
        let Task::Train(number, mut slot) = task else { return Ok(Flow::Continue) };
        let Slot { batch, spent: of_batch, .. } = &mut slot;
        let (clock, lr) = (Instant::now(), lr(number));
        let outcome = attempt(Stage::Train, number, || {
            Ok(match &pool {
                Some(pool) => pool.install(|| learner.train(batch, lr)),
                None => learner.train(batch, lr),
            })
        })?;
        of_batch.train = timeline.done(track, Stage::Train, number, clock);
        let parts = [of_batch.sample, of_batch.extract, of_batch.train];
        spent.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
        flow = after(learner, &[Done { batch, outcome, spent: *of_batch }])?;
        line.free(slot);
        Ok(flow)
    };
    let Crew { driver, others, .. } = crew;
    let outcome = if others.is_empty() {
        driver.run(line, work, &mut train)
    } else {
        std::thread::scope(|scope| {
            for worker in others.iter_mut() {
                scope.spawn(move || {
                    // it trains on nothing, so nothing fails but what the line is told
                    let _ = worker.run(line, work, &mut |_| Ok(Flow::Continue));
                });
            }
            // however this thread leaves, the others do not wait for it
            let _closing = Closing { line, always: true };
            driver.run(line, work, &mut train)
        })
    };
    outcome.map(|()| flow)
}
