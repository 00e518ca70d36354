//! Crews put to the test, against none and against each other: the model of what stages cost does
//! not know all that a machine does.

use super::{
    crew::WorkerSet,
    stages::{STAGES, apart},
};
use crate::{
    Result,
    allocate::{self, Allocation, Cost, Group},
};

/// Batches at least of a part without workers, and of one with a crew.
const BATCHES: [u64; 2] = [12, 24];
/// Seconds at least that a part is to take: a line takes its time to fill and to empty, and the
/// system to see who is busy.
const SECONDS: f64 = 0.08;
/// A crew that took so many times as long as the quickest has no part in the second round, nor in
/// the third.
const HOPELESS: [f64; 2] = [1.25, 1.1];
/// The round in which the quickest and none are measured anew.
const DECIDES: usize = 2;
/// Workers must be quicker by so much.
const QUICKER: f64 = 0.98;

/// Batches are trained on in parts: without workers, with the first crew, with the second, and so
/// on, and once more without workers and with those that may still win. Before its first part each
/// is warmed up: its threads start, its batches get their memory. The quickest and none are then
/// measured anew, in parts of twice the length, which decides: the least of many measurements is as
/// much luck as speed.
pub(super) struct Trial {
    crews: Vec<Contender>,
    /// Who does the next part: 0 without workers, and then by crew.
    turn: usize,
    /// Whether that one has been warmed up.
    warm: bool,
    /// Whether parts are epochs.
    whole: bool,
    /// How many times all have had their part.
    round: usize,
    /// Least seconds a batch without workers.
    none: f64,
    /// What the model says of it.
    expected: f64,
    /// What has been found out so far, in words.
    words: String,
}

/// A crew, the least seconds a batch that it took, and how the verdict names it.
struct Contender {
    name: String,
    crew: WorkerSet,
    seconds: f64,
}

impl Trial {
    /// Of what the model has gain anything, with groups that have cores of their own and with
    /// groups that share them, and of free competition on as many threads, always.
    ///
    /// # Errors
    /// The system refuses the threads.
    pub(super) fn new(costs: &[Cost; 3], threads: usize, num_nodes: usize) -> Result<Self> {
        let solved = allocate::solve(costs, threads);
        let expected: f64 = costs.iter().map(|cost| cost.seconds(threads)).sum();
        let free = apart([threads; 3], false);
        let gain = |split: &Allocation| split.seconds < expected && split.groups != free.groups;
        let mut crews = Vec::new();
        for split in allocate::splits(costs, threads).iter().filter(|split| gain(split)) {
            let name =
                if *split == solved { "as solved".into() } else { format!("with {}", describe(split)) };
            crews.push(Contender { name, crew: WorkerSet::new(split, num_nodes)?, seconds: f64::INFINITY });
        }
        let (name, crew) = ("in free competition".into(), WorkerSet::new(&free, num_nodes)?);
        crews.push(Contender { name, crew, seconds: f64::INFINITY });
        let times = STAGES
            .iter()
            .zip(costs)
            .map(|(stage, cost)| format!("{} {:.2} ms", stage.name(), 1e3 * cost.seconds(threads)));
        let words = format!(
            "a batch on {threads} cores takes {}; solved: {}, {:.2} ms; measured",
            times.collect::<Vec<_>>().join(", "),
            describe(&solved),
            1e3 * solved.seconds
        );
        Ok(Self { crews, turn: 0, warm: false, whole: false, round: 0, none: f64::INFINITY, expected, words })
    }

    /// Batches of the next part, of epochs of so many, and whether it is timed. An epoch too short
    /// for a part is one.
    pub(super) fn next(&mut self, batches: u64) -> (u64, bool) {
        let least = BATCHES[usize::from(self.turn > 0)];
        let timed = least.max((SECONDS / self.expected.max(1e-6)).ceil() as u64);
        self.whole = batches <= timed;
        let warm = std::mem::replace(&mut self.warm, true) || self.round > 0;
        let many = if self.round == DECIDES { 2 * timed } else { timed };
        let many = if warm { many } else { least };
        (if self.whole { u64::MAX } else { many }, warm)
    }

    /// Who does the next part; nobody in turns.
    pub(super) fn crew(&mut self) -> Option<&mut WorkerSet> {
        self.turn.checked_sub(1).map(|i| &mut self.crews[i].crew)
    }

    /// The timed part is done, in so many seconds a batch. Whether it was the last.
    pub(super) fn see(&mut self, seconds: f64) -> bool {
        let least = match self.turn {
            0 => &mut self.none,
            turn => &mut self.crews[turn - 1].seconds,
        };
        *least = least.min(seconds);
        self.turn += 1;
        self.warm = false;
        if self.turn <= self.crews.len() {
            return false;
        }
        self.turn = 0;
        self.round += 1;
        // epochs are long enough without the third
        let last = if self.whole { DECIDES } else { DECIDES + 1 };
        if self.round < last {
            let best = self.crews.iter().fold(self.none, |best, crew| best.min(crew.seconds));
            let bound = HOPELESS[self.round - 1] * best;
            // the others keep their order
            self.crews.sort_by_key(|crew| crew.seconds > bound);
            self.give_up(self.crews.partition_point(|crew| crew.seconds <= bound));
        }
        if self.round == DECIDES && last > DECIDES {
            self.none = f64::INFINITY;
            self.crews.iter_mut().for_each(|crew| crew.seconds = f64::INFINITY);
        }
        self.round == last || self.crews.is_empty()
    }

    /// Keeps so many crews.
    fn give_up(&mut self, left: usize) {
        for Contender { name, seconds, .. } in self.crews.drain(left..) {
            self.words += &format!(", {:.2} ms {name}", 1e3 * seconds);
        }
    }

    /// In words, what came of it.
    pub(super) fn verdict(&self) -> String {
        let mut words = self.words.clone();
        let others = self.crews.iter().map(|crew| (&*crew.name, crew.seconds));
        for (name, seconds) in others.chain([("in turns", self.none)]) {
            words += &format!(", {:.2} ms {name}", 1e3 * seconds);
        }
        words
    }

    /// The quickest crew, the first named where they are level, if any is quicker than none.
    pub(super) fn winner(self) -> Option<WorkerSet> {
        let quickest = self.crews.into_iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let winner = quickest.filter(|crew| crew.seconds <= QUICKER * self.none);
        winner.map(|Contender { mut crew, .. }| {
            // parts of a test are not what its stages usually take
            crew.pace = Default::default();
            crew
        })
    }
}

/// An allocation in words.
fn describe(allocation: &Allocation) -> String {
    let names = |group: &Group| {
        let names = group.stages.iter().map(|&i| STAGES[i].name()).collect::<Vec<_>>().join(", ");
        let turns = if group.stages.len() > 1 { " in turns" } else { "" };
        let cores =
            if allocation.isolated { format!(" on {} of its own", group.cores) } else { String::new() };
        format!("{names}{turns}{cores}")
    };
    allocation.groups.iter().map(names).collect::<Vec<_>>().join(" beside ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parallel(seconds: f64) -> Cost {
        Cost { divided: seconds, fixed: 0.0, busy: seconds }
    }

    /// With an extraction that waits for so long, and crews that took so many seconds.
    fn trial(waits: f64, none: f64, crews: &[f64]) -> Trial {
        let costs = [Cost::default(), Cost { fixed: waits, ..Cost::default() }, parallel(1.0)];
        let mut trial = Trial { none, ..Trial::new(&costs, 2, 10).unwrap() };
        assert_eq!(trial.crews.len(), crews.len());
        trial.crews.iter_mut().zip(crews).for_each(|(crew, &seconds)| crew.seconds = seconds);
        trial
    }

    #[test]
    fn the_quickest_stays_and_none_unless_it_gains_something() {
        // extraction beside the rest, with the cores shared and (training on one takes as long as
        // extraction waits) with cores of their own; of these crews none has a sampler of its own,
        // the free one two
        let samplers =
            |none, crews: &[f64; 3]| trial(1.0, none, crews).winner().map(|crew| crew.num_samplers());
        assert_eq!(samplers(1.0, &[0.99, 1.2, 1.2]), None);
        assert_eq!(samplers(1.0, &[0.9, 1.2, 1.2]), Some(0));
        assert_eq!(samplers(1.0, &[1.2, 0.9, 0.9]), Some(0));
        assert_eq!(samplers(1.0, &[0.9, 0.9, 0.8]), Some(2));
        assert_eq!(samplers(1.0, &[1.1, 1.1, 0.8]), Some(2));
        let words = trial(1.0, 0.001, &[0.002, 0.004, 0.003]).verdict();
        assert!(words.contains("; measured, 2.00 ms as solved, 4.00 ms with "), "{words}");
        assert!(words.ends_with(", 3.00 ms in free competition, 1.00 ms in turns"), "{words}");
        // where the model sees nothing to gain, free competition is tried all the same
        assert!(trial(0.0, 1.0, &[0.99]).winner().is_none());
        assert_eq!(trial(0.0, 1.0, &[0.9]).winner().unwrap().num_samplers(), 2);
    }

    #[test]
    fn every_crew_has_its_turn_and_a_second_where_there_is_hope() {
        let mut trial = trial(1.0, f64::INFINITY, &[f64::INFINITY; 3]);
        // none and three crews, those that may still win, and the best with none
        let seconds = [4.0, 3.0, 2.0, 2.5, 5.0, 2.1, 1.5, 4.5, 1.7];
        for (part, seconds) in seconds.into_iter().enumerate() {
            let inline = [0, 4, 7].contains(&part);
            assert_eq!(trial.crew().is_none(), inline);
            // batches of 1.5 seconds
            let batches = if inline { 12 } else { 24 };
            if part < 4 {
                assert_eq!(trial.next(1000), (batches, false));
            }
            assert_eq!(trial.next(1000), (if part < 7 { batches } else { 2 * batches }, true));
            assert_eq!(trial.see(seconds), part == 8);
        }
        let crews: Vec<f64> = trial.crews.iter().map(|crew| crew.seconds).collect();
        assert_eq!((trial.none, &crews[..]), (4.5, &[1.7][..]));
    }

    #[test]
    fn parts_last_long_enough_or_are_epochs() {
        let mut trial = trial(1.0, f64::INFINITY, &[f64::INFINITY; 3]);
        trial.expected = 1e-4;
        assert_eq!((trial.next(10_000), trial.next(10_000)), ((12, false), (800, true)));
        // epochs of 800 batches: the best of two, and no third
        let mut trial = super::tests::trial(1.0, f64::INFINITY, &[f64::INFINITY; 3]);
        trial.expected = 1e-4;
        for (part, seconds) in [4.0, 3.2, 2.9, 2.5, 5.0, 2.6].into_iter().enumerate() {
            let again = part > 3;
            assert_eq!(trial.next(800), (u64::MAX, again));
            assert_eq!(trial.next(800), (u64::MAX, true));
            assert!(!trial.see(seconds), "{part}");
        }
        assert!(trial.see(2.95));
        assert_eq!((trial.none, trial.winner().is_some()), (4.0, true));
        // none may win at once
        let mut trial = super::tests::trial(1.0, f64::INFINITY, &[f64::INFINITY; 3]);
        assert!([1.0, 2.0, 2.0, 2.0].map(|seconds| trial.see(seconds))[3]);
        assert!(trial.winner().is_none());
    }
}
