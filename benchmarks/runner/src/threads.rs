//! Model of a batch's time on several threads.
//!
//! ```text
//! T(n) = serial + joins join(n) + computation / n + memory max(1 / n, rate(1) / rate(n))
//! ```
//!
//! `joins` parallel operations fork and join once each, `memory` is the time in which one thread
//! moves the bytes of a batch, and `computation` is the rest of the time of one thread. The time of
//! one thread is measured, so the model predicts how a batch scales and not what it costs.
//!
//! The cost of a fork-join grows with the depth of its tree, so beyond the measured numbers of
//! threads it grows with `1 + log2(n)`. The rate of the memory saturates: it never falls, and
//! beyond the measured numbers it stays, unless the rate of a larger machine is given.
//!
//! The model leaves out operations with fewer pieces than threads, threads of one core, and several
//! sockets.

use std::{collections::BTreeMap, iter, thread};

/// Logical cores of the machine.
pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Powers of two below `most`, then `most`.
pub(crate) fn powers(most: usize) -> Vec<usize> {
    let below = iter::successors(Some(1), |n| Some(2 * n)).take_while(|&n| n < most);
    below.chain([most]).collect()
}

/// Counts of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// Seconds on one thread.
    pub(crate) seconds: f64,
    /// Seconds of them that no parallel operation takes.
    pub(crate) serial: f64,
    /// Number of parallel operations.
    pub(crate) joins: f64,
    /// Bytes that it reads from and writes to memory.
    pub(crate) bytes: f64,
}

/// Rates of the machine with a number of threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rates {
    /// Seconds of an empty parallel operation.
    pub(crate) join: f64,
    /// Bytes per second of the memory.
    pub(crate) memory: f64,
}

/// Rates of a machine by number of threads.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// Measured rates; those of one thread are among them.
    pub(crate) measured: BTreeMap<usize, Rates>,
    /// Bytes per second of the memory of a larger machine, on which more threads than measured run.
    pub(crate) larger: Option<f64>,
}

impl Machine {
    /// Rates with `threads` threads.
    fn rates(&self, threads: usize) -> Rates {
        let up_to = || self.measured.range(..=threads);
        let (&last, of_last) = up_to().next_back().expect("one thread is measured");
        let depth = |threads: usize| 1.0 + (threads as f64).log2();
        let one = self.measured.values().next().expect("one thread is measured");
        let join = (of_last.join * depth(threads) / depth(last)).max(one.join);
        let saturated = up_to().map(|(_, rates)| rates.memory).fold(0.0, f64::max);
        let is_beyond = self.measured.range(threads..).next().is_none();
        let larger =
            self.larger.filter(|_| is_beyond).map_or(0.0, |rate| rate.min(threads as f64 * one.memory));
        Rates { join, memory: saturated.max(larger) }
    }
}

/// Predicts the seconds of a batch with `threads` threads, at least 1. One thread takes the
/// measured time, and no number of threads is faster than linear.
pub(crate) fn predict(work: Work, machine: &Machine, threads: usize) -> f64 {
    let (one, rates) = (machine.rates(1), machine.rates(threads));
    let serial = work.serial.clamp(0.0, work.seconds);
    let joins = work.joins.min((work.seconds - serial) / one.join);
    let parallel = work.seconds - serial - joins * one.join;
    let memory = (work.bytes / one.memory).min(parallel);
    let each = 1.0 / threads as f64;
    serial + joins * rates.join + (parallel - memory) * each + memory * each.max(one.memory / rates.memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREADS: [usize; 9] = [1, 2, 3, 4, 8, 16, 32, 64, 128];
    const WORK: Work = Work { seconds: 0.02, serial: 0.001, joins: 30.0, bytes: 40e6 };

    /// Machine of four cores whose memory is saturated by two.
    fn machine() -> Machine {
        let rates = |join: f64, memory: f64| Rates { join: 1e-6 * join, memory: 1e9 * memory };
        let measured = [(1, rates(0.5, 10.0)), (2, rates(5.0, 18.0)), (4, rates(12.0, 17.0))];
        Machine { measured: measured.into(), larger: None }
    }

    #[test]
    fn powers_of_two_end_at_the_cores_of_the_machine() {
        assert_eq!([1, 2, 8].map(powers), [vec![1], vec![1, 2], vec![1, 2, 4, 8]]);
        assert_eq!(powers(12), [1, 2, 4, 8, 12]);
        assert!(cores() > 0);
    }

    #[test]
    fn one_thread_takes_the_measured_time() {
        let machine = machine();
        for work in [
            WORK,
            Work { serial: 0.0, joins: 0.0, bytes: 0.0, ..WORK },
            // more than the whole time
            Work { serial: 1.0, ..WORK },
            Work { joins: 1e9, ..WORK },
            Work { bytes: 1e12, ..WORK },
        ] {
            let predicted = predict(work, &machine, 1);
            assert!((predicted - work.seconds).abs() < 1e-12, "{predicted}: {work:?}");
        }
    }

    #[test]
    fn no_number_of_threads_is_faster_than_linear() {
        let mut machine = machine();
        for larger in [None, Some(1e12)] {
            machine.larger = larger;
            for (serial, joins, bytes) in
                [(0.0, 0.0, 0.0), (0.001, 30.0, 40e6), (0.02, 0.0, 1e9), (0.0, 1e4, 1e12)]
            {
                let work = Work { seconds: 0.02, serial, joins, bytes };
                for threads in THREADS {
                    let linear = work.seconds / threads as f64;
                    assert!(
                        predict(work, &machine, threads) >= linear * (1.0 - 1e-12),
                        "{work:?}, {threads}"
                    );
                }
            }
        }
        let ideal = Work { serial: 0.0, joins: 0.0, bytes: 0.0, ..WORK };
        assert!((predict(ideal, &machine, 128) - 0.02 / 128.0).abs() < 1e-12, "only computation is left");
    }

    #[test]
    fn memory_bounds_the_time_of_a_batch_that_moves_bytes() {
        let machine = machine();
        let work = Work { seconds: 0.02, serial: 0.0, joins: 0.0, bytes: 200e6 };
        // one thread moves 200 MB in 20 ms, and no number of threads moves more than 18 GB/s
        for threads in [2, 4, 128] {
            let predicted = predict(work, &machine, threads);
            assert!((predicted - 0.2 / 18.0).abs() < 1e-9, "{threads}: {predicted}");
        }
        let larger = Machine { larger: Some(400e9), ..machine };
        assert!((predict(work, &larger, 4) - 0.2 / 18.0).abs() < 1e-9, "a measured rate is not replaced");
        assert!((predict(work, &larger, 8) - 0.02 / 8.0).abs() < 1e-9, "eight threads move 80 GB/s");
        assert!((predict(work, &larger, 128) - 0.2 / 400.0).abs() < 1e-9);
    }

    #[test]
    fn fork_joins_cost_more_with_the_depth_of_their_tree() {
        let machine = machine();
        let join = |threads| machine.rates(threads).join;
        for (threads, seconds) in [(1, 0.5e-6), (2, 5e-6), (4, 12e-6)] {
            assert!((join(threads) - seconds).abs() < 1e-12, "{threads}");
        }
        // three levels at four threads, eight at 128
        assert!((join(128) - 12e-6 * 8.0 / 3.0).abs() < 1e-12);
        let none = Work { joins: 0.0, ..WORK };
        for threads in [2, 128] {
            let added = predict(WORK, &machine, threads) - predict(none, &machine, threads);
            assert!(added > 0.0 && added <= 30.0 * join(threads), "{threads}: {added}");
        }
        let mut only_one = machine.clone();
        only_one.measured.retain(|&threads, _| threads == 1);
        assert!((only_one.rates(8).join - 4.0 * 0.5e-6).abs() < 1e-12);
    }
}
