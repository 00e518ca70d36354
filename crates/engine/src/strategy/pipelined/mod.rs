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
//! cost, put to the test against no workers at all on the next few, and
//! looked at again when their stages take much longer or shorter than they did. Batches are trained on in the order of their numbers, and what a batch holds
//! depends on its number alone: the model is that of `sequential`, to the bit.

mod crew;
mod probe;

use std::time::Instant;

use graphmill_loader::Workspace;

use super::{Done, Epoch, Flow, Strategy, line::Slot, sequential::Sequential, worker::attempt};
use crate::{
    Error, Result, TrainConfig,
    allocate::{self, Allocation, Cost, Group},
    cores,
    timeline::Stage,
};
use crew::Crew;
use probe::Probe;

/// The stages, in the order of their indices.
const STAGES: [Stage; 3] = [Stage::Sample, Stage::Extract, Stage::Train];
const SAMPLE: usize = 0;
const EXTRACT: usize = 1;
const TRAIN: usize = 2;
/// A stage that takes so many times longer or shorter than it did is looked at again.
const DRIFT: f64 = 1.5;
/// Batches without and with workers by which workers are put to the test, twice each.
const TEST: [u64; 2] = [12, 24];
/// Workers must be quicker by so much.
const QUICKER: f64 = 0.98;

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
    mode: Mode,
    inline: Sequential,
    note: Option<String>,
    slots: Vec<Slot>,
}

/// How far it has got to know its stages.
enum Mode {
    /// Not at all.
    Probe(Probe),
    /// By what the stages cost, this crew should be quicker than none.
    Test(Box<Test>),
    /// It was not.
    Inline,
    /// It was, or is what the user asked for.
    Crew(Box<Crew>),
}

/// A crew against none.
struct Test {
    crew: Crew,
    /// Whether the next part is the crew's.
    is_crews: bool,
    /// Seconds a batch of each part so far: without and with the crew.
    seconds: [Vec<f64>; 2],
    words: String,
}

impl Pipelined {
    /// For a graph of that many nodes, as the options say.
    ///
    /// # Errors
    /// `--allocation` is none.
    pub fn new(config: &TrainConfig, num_nodes: usize) -> Result<Self> {
        let cores = Cores::parse(&config.allocation)
            .map_err(|message| Error::usage(format!("--allocation {message}")))?;
        let threads = rayon::current_num_threads();
        let crew = |cores, isolated| Crew::new(&apart(cores, isolated), num_nodes).map(Box::new);
        let mode = match cores {
            Cores::Profiled => Mode::Probe(Probe::default()),
            Cores::Naive => Mode::Crew(crew([threads; 3], false)?),
            Cores::Given(cores) => Mode::Crew(crew(cores, true)?),
        };
        Ok(Self {
            num_nodes,
            cores,
            queue: config.queue,
            mode,
            inline: Sequential::new(num_nodes),
            note: None,
            slots: Vec::new(),
        })
    }

    /// The next part of the epoch. A part ends where the epoch does, or where enough is known to go on otherwise.
    fn part(&mut self, epoch: &mut Epoch) -> Result<Flow> {
        match &mut self.mode {
            Mode::Probe(probe) => {
                let threads = rayon::current_num_threads();
                let mut spaces: Vec<Workspace> =
                    (0..threads).map(|_| Workspace::new(self.num_nodes)).collect();
                let (costs, flow) = probe.run(epoch, &mut spaces, &mut self.slots)?;
                if let Some(costs) = costs {
                    let solved = allocate::solve(&costs, threads);
                    let words = describe(&costs, &solved, threads);
                    self.mode = if solved.groups.len() > 1 {
                        let crew = Crew::new(&solved, self.num_nodes)?;
                        Mode::Test(Box::new(Test {
                            crew,
                            is_crews: false,
                            seconds: Default::default(),
                            words,
                        }))
                    } else {
                        self.note = Some(words);
                        Mode::Inline
                    };
                }
                Ok(flow)
            }
            Mode::Test(test) => {
                // parts of a short epoch would mostly be beginnings and ends
                let whole = epoch.loader.num_batches() <= 2 * TEST[1];
                let many = if whole { u64::MAX } else { TEST[usize::from(test.is_crews)] };
                let (from, clock) = (epoch.from, Instant::now());
                let to = epoch.from.saturating_add(many).min(epoch.to);
                let flow = if test.is_crews {
                    test.crew.run(&mut epoch.until(to), self.queue, &mut self.slots)?
                } else {
                    self.inline.run(epoch.until(to))?
                };
                epoch.from = to;
                let each = clock.elapsed().as_secs_f64() / (to - from).max(1) as f64;
                test.seconds[usize::from(test.is_crews)].push(each);
                test.is_crews = !test.is_crews;
                if test.seconds.iter().all(|seconds| seconds.len() == 2) {
                    let [none, crew] =
                        test.seconds.each_ref().map(|s| s.iter().copied().fold(f64::INFINITY, f64::min));
                    let verdict = if crew <= QUICKER * none { "quicker" } else { "no quicker" };
                    self.note = Some(format!(
                        "{}; {:.2} ms measured, {verdict} than {:.2} ms in turns",
                        test.words,
                        1e3 * crew,
                        1e3 * none
                    ));
                    let Mode::Test(test) = std::mem::replace(&mut self.mode, Mode::Inline) else {
                        return Ok(flow);
                    };
                    // the other's memory is of no more use
                    if crew <= QUICKER * none {
                        self.mode = Mode::Crew(Box::new(test.crew));
                        self.inline = Sequential::new(self.num_nodes);
                    } else {
                        self.slots = Vec::new();
                    }
                }
                Ok(flow)
            }
            Mode::Inline => {
                let flow = self.inline.run(epoch.until(epoch.to))?;
                epoch.from = epoch.to;
                Ok(flow)
            }
            Mode::Crew(crew) => {
                let flow = crew.run(epoch, self.queue, &mut self.slots)?;
                epoch.from = epoch.to;
                if crew.has_drifted() && self.cores == Cores::Profiled {
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

/// A group of its own for each stage.
fn apart(cores: [usize; 3], isolated: bool) -> Allocation {
    let group = |stage| Group { stages: vec![stage], cores: cores[stage] };
    Allocation { groups: [SAMPLE, EXTRACT, TRAIN].map(group).into(), isolated, seconds: f64::NAN }
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
