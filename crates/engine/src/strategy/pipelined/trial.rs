//! Timed comparison of allocations, and of no workers: the cost model does not cover everything
//! that a machine does.

use super::{
    stages::{STAGES, separate_groups},
    worker_set::WorkerSet,
};
use crate::{
    Result,
    allocate::{self, Allocation, Cost, Group},
};

/// Least number of batches of a part without workers, and with workers.
const MIN_PART_BATCHES: [u64; 2] = [12, 24];
/// Least seconds of a part: queues take time to fill and to empty, and the system to balance
/// threads.
const MIN_PART_SECONDS: f64 = 0.08;
/// Time of a candidate, relative to the fastest, above which it is left out of the second and of
/// the third round.
const ELIMINATION: [f64; 2] = [1.25, 1.1];
/// Round that times the fastest candidates and no workers again.
const FINAL_ROUND: usize = 2;
/// Time of the winner relative to no workers, at most.
const MAX_WINNER_TIME: f64 = 0.98;

/// Comparison that trains on the batches in parts.
///
/// The first round has a part without workers and one per candidate, the second round a part
/// without workers and one per candidate that may still win. Before its first part each candidate
/// is warmed up: its threads start, and its batches allocate their memory. The third round times
/// the fastest candidates and no workers again, in parts of twice the length, and decides: the
/// least of many measurements depends as much on luck as on speed.
pub(super) struct Trial {
    candidates: Vec<Candidate>,
    /// Next part: 0 without workers, else one above the candidate's index.
    turn: usize,
    /// True once that candidate is warmed up.
    warm: bool,
    /// True if parts are epochs.
    whole: bool,
    /// Number of completed rounds.
    round: usize,
    /// Least seconds per batch without workers.
    none: f64,
    /// Seconds per batch without workers, by the cost model.
    expected: f64,
    /// Measurements so far, as text.
    words: String,
}

/// Workers with their least seconds per batch, and their name in the verdict.
struct Candidate {
    name: String,
    workers: WorkerSet,
    seconds: f64,
}

impl Trial {
    /// Comparison of the best isolated and the best shared allocation, if the cost model predicts a
    /// gain, and of free competition on `threads` threads.
    ///
    /// # Errors
    /// The system refuses the threads.
    pub(super) fn new(costs: &[Cost; 3], threads: usize, num_nodes: usize) -> Result<Self> {
        let solved = allocate::solve(costs, threads);
        let expected: f64 = costs.iter().map(|cost| cost.seconds(threads)).sum();
        let free = separate_groups([threads; 3], false);
        let gain = |split: &Allocation| split.seconds < expected && split.groups != free.groups;
        let mut candidates = Vec::new();
        for split in allocate::splits(costs, threads).iter().filter(|split| gain(split)) {
            let name =
                if *split == solved { "as solved".into() } else { format!("with {}", describe(split)) };
            candidates.push(Candidate {
                name,
                workers: WorkerSet::new(split, num_nodes)?,
                seconds: f64::INFINITY,
            });
        }
        let (name, workers) = ("in free competition".into(), WorkerSet::new(&free, num_nodes)?);
        candidates.push(Candidate { name, workers, seconds: f64::INFINITY });
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
        Ok(Self {
            candidates,
            turn: 0,
            warm: false,
            whole: false,
            round: 0,
            none: f64::INFINITY,
            expected,
            words,
        })
    }

    /// Number of batches of the next part, of epochs of `batches` batches, and whether it is timed.
    /// An epoch that is too short for a part is a part.
    pub(super) fn next(&mut self, batches: u64) -> (u64, bool) {
        let least = MIN_PART_BATCHES[usize::from(self.turn > 0)];
        let timed = least.max((MIN_PART_SECONDS / self.expected.max(1e-6)).ceil() as u64);
        self.whole = batches <= timed;
        let warm = std::mem::replace(&mut self.warm, true) || self.round > 0;
        let length = if self.round == FINAL_ROUND { 2 * timed } else { timed };
        let length = if warm { length } else { least };
        (if self.whole { u64::MAX } else { length }, warm)
    }

    /// Workers of the next part; `None` without workers.
    pub(super) fn workers(&mut self) -> Option<&mut WorkerSet> {
        self.turn.checked_sub(1).map(|i| &mut self.candidates[i].workers)
    }

    /// Records the seconds per batch of the timed part; returns true after the last part.
    pub(super) fn record(&mut self, seconds: f64) -> bool {
        let least = match self.turn {
            0 => &mut self.none,
            turn => &mut self.candidates[turn - 1].seconds,
        };
        *least = least.min(seconds);
        self.turn += 1;
        self.warm = false;
        if self.turn <= self.candidates.len() {
            return false;
        }
        self.turn = 0;
        self.round += 1;
        // epochs are long enough without the third
        let last = if self.whole { FINAL_ROUND } else { FINAL_ROUND + 1 };
        if self.round < last {
            let best = self.candidates.iter().fold(self.none, |best, candidate| best.min(candidate.seconds));
            let bound = ELIMINATION[self.round - 1] * best;
            // a stable sort: the order of the others does not change
            self.candidates.sort_by_key(|candidate| candidate.seconds > bound);
            self.eliminate(self.candidates.partition_point(|candidate| candidate.seconds <= bound));
        }
        if self.round == FINAL_ROUND && last > FINAL_ROUND {
            self.none = f64::INFINITY;
            self.candidates.iter_mut().for_each(|candidate| candidate.seconds = f64::INFINITY);
        }
        self.round == last || self.candidates.is_empty()
    }

    /// Drops all but the first `left` candidates.
    fn eliminate(&mut self, left: usize) {
        for Candidate { name, seconds, .. } in self.candidates.drain(left..) {
            self.words += &format!(", {:.2} ms {name}", 1e3 * seconds);
        }
    }

    /// Describes the measurements for a note.
    pub(super) fn verdict(&self) -> String {
        let mut words = self.words.clone();
        let others = self.candidates.iter().map(|candidate| (&*candidate.name, candidate.seconds));
        for (name, seconds) in others.chain([("in turns", self.none)]) {
            words += &format!(", {:.2} ms {name}", 1e3 * seconds);
        }
        words
    }

    /// Returns the fastest workers, the first of equals, if they are faster than no workers.
    pub(super) fn winner(self) -> Option<WorkerSet> {
        let quickest = self.candidates.into_iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let winner = quickest.filter(|candidate| candidate.seconds <= MAX_WINNER_TIME * self.none);
        winner.map(|Candidate { mut workers, .. }| {
            // times of a comparison are not the usual times of the stages
            workers.pace = Default::default();
            workers
        })
    }
}

/// Describes an allocation.
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

    /// Trial with an extraction that waits `waits` seconds, and the given least seconds per batch
    /// without workers and of each candidate.
    fn trial(waits: f64, none: f64, candidates: &[f64]) -> Trial {
        let costs = [Cost::default(), Cost { fixed: waits, ..Cost::default() }, parallel(1.0)];
        let mut trial = Trial { none, ..Trial::new(&costs, 2, 10).unwrap() };
        assert_eq!(trial.candidates.len(), candidates.len());
        trial
            .candidates
            .iter_mut()
            .zip(candidates)
            .for_each(|(candidate, &seconds)| candidate.seconds = seconds);
        trial
    }

    #[test]
    fn the_fastest_workers_win_only_if_they_beat_no_workers() {
        // extraction beside the other stages, with shared cores and (training on one core takes as
        // long as extraction waits) with isolated cores. These candidates have no separate sampler;
        // free competition has two
        let samplers = |none, candidates: &[f64; 3]| {
            trial(1.0, none, candidates).winner().map(|workers| workers.num_samplers())
        };
        assert_eq!(samplers(1.0, &[0.99, 1.2, 1.2]), None);
        assert_eq!(samplers(1.0, &[0.9, 1.2, 1.2]), Some(0));
        assert_eq!(samplers(1.0, &[1.2, 0.9, 0.9]), Some(0));
        assert_eq!(samplers(1.0, &[0.9, 0.9, 0.8]), Some(2));
        assert_eq!(samplers(1.0, &[1.1, 1.1, 0.8]), Some(2));
        let words = trial(1.0, 0.001, &[0.002, 0.004, 0.003]).verdict();
        assert!(words.contains("; measured, 2.00 ms as solved, 4.00 ms with "), "{words}");
        assert!(words.ends_with(", 3.00 ms in free competition, 1.00 ms in turns"), "{words}");
        // free competition is timed even if the model predicts no gain
        assert!(trial(0.0, 1.0, &[0.99]).winner().is_none());
        assert_eq!(trial(0.0, 1.0, &[0.9]).winner().unwrap().num_samplers(), 2);
    }

    #[test]
    fn every_candidate_is_timed_and_the_fast_ones_again() {
        let mut trial = trial(1.0, f64::INFINITY, &[f64::INFINITY; 3]);
        // no workers and three candidates, then those that may still win, then the best
        let seconds = [4.0, 3.0, 2.0, 2.5, 5.0, 2.1, 1.5, 4.5, 1.7];
        for (part, seconds) in seconds.into_iter().enumerate() {
            let inline = [0, 4, 7].contains(&part);
            assert_eq!(trial.workers().is_none(), inline);
            // batches of 1.5 seconds
            let batches = if inline { 12 } else { 24 };
            if part < 4 {
                assert_eq!(trial.next(1000), (batches, false));
            }
            assert_eq!(trial.next(1000), (if part < 7 { batches } else { 2 * batches }, true));
            assert_eq!(trial.record(seconds), part == 8);
        }
        let candidates: Vec<f64> = trial.candidates.iter().map(|candidate| candidate.seconds).collect();
        assert_eq!((trial.none, &candidates[..]), (4.5, &[1.7][..]));
    }

    #[test]
    fn parts_last_long_enough_or_are_epochs() {
        let mut trial = trial(1.0, f64::INFINITY, &[f64::INFINITY; 3]);
        trial.expected = 1e-4;
        assert_eq!((trial.next(10_000), trial.next(10_000)), ((12, false), (800, true)));
        // epochs of 800 batches: two rounds instead of three
        let mut trial = super::tests::trial(1.0, f64::INFINITY, &[f64::INFINITY; 3]);
        trial.expected = 1e-4;
        for (part, seconds) in [4.0, 3.2, 2.9, 2.5, 5.0, 2.6].into_iter().enumerate() {
            let again = part > 3;
            assert_eq!(trial.next(800), (u64::MAX, again));
            assert_eq!(trial.next(800), (u64::MAX, true));
            assert!(!trial.record(seconds), "{part}");
        }
        assert!(trial.record(2.95));
        assert_eq!((trial.none, trial.winner().is_some()), (4.0, true));
        // no workers may win after the first round
        let mut trial = super::tests::trial(1.0, f64::INFINITY, &[f64::INFINITY; 3]);
        assert!([1.0, 2.0, 2.0, 2.0].map(|seconds| trial.record(seconds))[3]);
        assert!(trial.winner().is_none());
    }
}
