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
//! cost, put to the test on the next few, as is free competition, against no workers at all, and
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
/// Batches without workers, and with each crew, by which crews are put to the test, twice each.
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
    /// By what the stages cost; which crew is quicker than none is not known yet.
    Test(Box<Test>),
    /// None was.
    Inline,
    /// It was the quickest, or is what the user asked for.
    Crew(Box<Crew>),
}

/// Crews against none.
struct Test {
    /// The solved one, where the model has workers gain something, and the one that competes freely, always: the model does not know
    /// all that a machine does.
    crews: Vec<Contender>,
    /// Parts done: without a crew, with the first, with the second, and so on.
    parts: usize,
    /// Least seconds a batch without a crew.
    none: f64,
    words: String,
}

/// A crew in a test.
struct Contender {
    name: &'static str,
    crew: Crew,
    /// Least seconds a batch.
    seconds: f64,
}

impl Test {
    /// Of `solved`, and of free competition on as many threads.
    ///
    /// # Errors
    /// The system refuses the threads.
    fn new(solved: &Allocation, words: String, threads: usize, num_nodes: usize) -> Result<Self> {
        let free = apart([threads; 3], false);
        let solved = (solved.groups.len() > 1).then_some(("as solved", solved));
        let crews = solved.into_iter().chain([("in free competition", &free)]).map(|(name, allocation)| {
            Ok(Contender { name, crew: Crew::new(allocation, num_nodes)?, seconds: f64::INFINITY })
        });
        Ok(Self { crews: crews.collect::<Result<_>>()?, parts: 0, none: f64::INFINITY, words })
    }

    /// In words, what came of it.
    fn verdict(&self) -> String {
        let crews = self.crews.iter().map(|c| format!(", {:.2} ms {}", 1e3 * c.seconds, c.name));
        let crews = crews.collect::<String>();
        format!("{}; measured: {:.2} ms in turns{crews}", self.words, 1e3 * self.none)
    }

    /// The quickest crew, the solved one where they are level, if any is quicker than none.
    fn winner(self) -> Option<Crew> {
        let quickest = self.crews.into_iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds));
        quickest.filter(|crew| crew.seconds <= QUICKER * self.none).map(|contender| contender.crew)
    }
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
        // an NVIDIA device's stages wait for it and not for cores: one thread each, and two to draw on the device. What the processor
        // draws takes all cores
        let on_device = ["neighbor", "full", "random-walk", "weighted"].contains(&config.sampler.as_str());
        let mode = match cores {
            Cores::Profiled if !config.cuda_devices()?.is_empty() => {
                Mode::Crew(crew([if on_device { 2 } else { threads }, 1, 1], false)?)
            }
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
                    self.mode = Mode::Test(Box::new(Test::new(&solved, words, threads, self.num_nodes)?));
                }
                Ok(flow)
            }
            Mode::Test(test) => {
                // parts of a short epoch would mostly be beginnings and ends
                let whole = epoch.loader.num_batches() <= 2 * TEST[1];
                let turns = 1 + test.crews.len();
                let turn = test.parts % turns;
                let many = if whole { u64::MAX } else { TEST[usize::from(turn > 0)] };
                let (from, clock) = (epoch.from, Instant::now());
                let to = epoch.from.saturating_add(many).min(epoch.to);
                let (flow, least) = match turn {
                    0 => (self.inline.run(epoch.until(to))?, &mut test.none),
                    _ => {
                        let Contender { crew, seconds, .. } = &mut test.crews[turn - 1];
                        (crew.run(&mut epoch.until(to), self.queue, &mut self.slots)?, seconds)
                    }
                };
                epoch.from = to;
                let each = clock.elapsed().as_secs_f64() / (to - from).max(1) as f64;
                *least = least.min(each);
                test.parts += 1;
                if test.parts == 2 * turns {
                    self.note = Some(test.verdict());
                    if let Mode::Test(test) = std::mem::replace(&mut self.mode, Mode::Inline) {
                        // the others' memory is of no more use
                        self.slots = Vec::new();
                        if let Some(crew) = test.winner() {
                            self.mode = Mode::Crew(Box::new(crew));
                            self.inline = Sequential::new(self.num_nodes);
                        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quickest_stays_and_none_unless_it_gains_something() {
        let costs = |fixed| [Cost::default(), Cost { fixed, ..Cost::default() }, parallel(1.0)];
        let parallel_only = allocate::solve(&costs(0.0), 2);
        let waits = allocate::solve(&costs(1.0), 2);
        let test = |solved: &Allocation, none: f64, crews: &[f64]| {
            let mut test = Test { none, parts: 6, ..Test::new(solved, "a batch".into(), 2, 10).unwrap() };
            assert_eq!(test.crews.len(), crews.len());
            test.crews.iter_mut().zip(crews).for_each(|(crew, &seconds)| crew.seconds = seconds);
            test
        };
        // of this model's crews one has a sampler, the free one two
        let samplers = |none, crews: &[f64; 2]| test(&waits, none, crews).winner().map(|c| c.num_samplers());
        assert_eq!(samplers(1.0, &[0.99, 1.2]), None);
        assert_eq!(samplers(1.0, &[0.9, 1.2]), Some(0));
        assert_eq!(samplers(1.0, &[0.9, 0.9]), Some(0));
        assert_eq!(samplers(1.0, &[0.9, 0.8]), Some(2));
        assert_eq!(samplers(1.0, &[1.1, 0.8]), Some(2));
        let words = test(&waits, 0.001, &[0.002, 0.003]).verdict();
        assert!(
            words.contains("1.00 ms in turns, 2.00 ms as solved, 3.00 ms in free competition"),
            "{words}"
        );
        // where the model sees nothing to gain, free competition is tried all the same
        assert!(test(&parallel_only, 1.0, &[0.99]).winner().is_none());
        assert_eq!(test(&parallel_only, 1.0, &[0.9]).winner().unwrap().num_samplers(), 2);
        let words = test(&parallel_only, 0.001, &[0.003]).verdict();
        assert!(words.contains("1.00 ms in turns, 3.00 ms in free competition"), "{words}");
    }

    fn parallel(seconds: f64) -> Cost {
        Cost { divided: seconds, fixed: 0.0, busy: seconds }
    }

    #[test]
    fn cores_are_profiled_naive_or_given() {
        assert_eq!(Cores::parse("profiled"), Ok(Cores::Profiled));
        assert_eq!(Cores::parse("1, 2,3"), Ok(Cores::Given([1, 2, 3])));
        for wrong in ["", "1,2", "0,1,1", "1,2,3,4", "all"] {
            assert!(Cores::parse(wrong).unwrap_err().contains("profiled, naive, or cores"), "{wrong}");
        }
    }
}
