//! Faults of a simulated cluster.

use std::time::Duration;

use graphmill_core::keyed::Stream;

use super::PATIENCE;

/// Fault of a network at a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Lie {
    Lose,
    Repeat,
    /// The next frame overtakes it.
    Exchange,
    /// A bit is wrong.
    Damage,
    /// Its end is missing.
    Cut,
}

/// A fault.
#[derive(Clone, Debug)]
enum Fault {
    /// The rank dies without a word.
    Death { rank: usize, at: Duration },
    /// The rank does nothing for some time.
    Stall { rank: usize, from: Duration, to: Duration },
    /// Frames between two ranks arrive after some time, or never.
    Partition { ranks: [usize; 2], from: Duration, to: Option<Duration> },
    /// One frame is not delivered as it was sent.
    Lie { from: usize, to: usize, nth: u64, lie: Lie },
}

/// The faults of one run of a job.
#[derive(Clone, Debug)]
pub(super) struct Faults {
    /// Number of ranks.
    pub(super) size: usize,
    /// Shortest and longest time of a frame, in microseconds.
    delays: [u64; 2],
    faults: Vec<Fault>,
}

/// Time in which faults begin, in microseconds: a job takes about a fifth of a second.
const BEGIN: u64 = 300_000;

impl Faults {
    /// No fault: frames take some time.
    pub(super) fn none(size: usize) -> Self {
        Self { size, delays: [20, 4000], faults: Vec::new() }
    }

    /// Faults that are drawn from `stream`.
    pub(super) fn draw(size: usize, stream: &mut Stream) -> Self {
        let delays = match stream.below(4) {
            0 => [1, 2],
            1 => [1000, 400_000],
            _ => [20, 4000],
        };
        let count = stream.below(4);
        let faults = (0..count).map(|_| Self::draw_one(size, stream)).collect();
        Self { size, delays, faults }
    }

    fn draw_one(size: usize, stream: &mut Stream) -> Fault {
        let rank = stream.below(size as u64) as usize;
        let other = (rank + 1 + stream.below(size as u64 - 1) as usize) % size;
        let from = Duration::from_micros(stream.below(BEGIN));
        match stream.below(8) {
            0 | 1 => Fault::Death { rank, at: from },
            2 => Fault::Stall { rank, from, to: from + Self::draw_duration(stream) },
            3 => {
                let to = (stream.below(3) > 0).then(|| from + Self::draw_duration(stream));
                Fault::Partition { ranks: [rank, other], from, to }
            }
            _ => {
                let lies = [Lie::Lose, Lie::Repeat, Lie::Exchange, Lie::Damage, Lie::Cut];
                let lie = lies[stream.below(lies.len() as u64) as usize];
                Fault::Lie { from: rank, to: other, nth: stream.below(120), lie }
            }
        }
    }

    /// Short, about as long as the ranks' patience, or long.
    fn draw_duration(stream: &mut Stream) -> Duration {
        match stream.below(3) {
            0 => Duration::from_micros(stream.below(900_000)),
            1 => PATIENCE.mul_f64(0.8 + 0.4 * stream.uniform()),
            _ => PATIENCE.mul_f64(2.0 + 3.0 * stream.uniform()),
        }
    }

    /// True if no fault can end the job: short stalls and partitions, and delays.
    pub(super) fn are_harmless(&self) -> bool {
        // A heartbeat may just have been missed, and frames wait behind each other.
        let short = |from: Duration, to: Duration| to - from < PATIENCE / 4;
        let is_harmless = |fault: &Fault| match *fault {
            Fault::Stall { from, to, .. } | Fault::Partition { from, to: Some(to), .. } => short(from, to),
            _ => false,
        };
        self.faults.len() < 2 && self.faults.iter().all(is_harmless)
    }

    /// Time of this rank's death.
    pub(super) fn death(&self, rank: usize) -> Option<Duration> {
        let times = self.faults.iter().filter_map(|fault| match *fault {
            Fault::Death { rank: dead, at } if dead == rank => Some(at),
            _ => None,
        });
        times.min()
    }

    pub(super) fn dies(&self, rank: usize, now: Duration) -> bool {
        self.death(rank).is_some_and(|at| at <= now)
    }

    pub(super) fn is_stalled(&self, rank: usize, now: Duration) -> bool {
        self.after_stall(rank, now) > now
    }

    /// First time from `time` on at which the rank is not stalled.
    pub(super) fn after_stall(&self, rank: usize, mut time: Duration) -> Duration {
        let is_at = |fault: &Fault, time| match *fault {
            Fault::Stall { rank: stalled, from, to } if stalled == rank && (from..to).contains(&time) => {
                Some(to)
            }
            _ => None,
        };
        while let Some(to) = self.faults.iter().find_map(|fault| is_at(fault, time)) {
            time = to;
        }
        time
    }

    /// Fault at the `nth` frame from a rank to another.
    pub(super) fn lie(&self, from: usize, to: usize, nth: u64) -> Option<Lie> {
        self.faults.iter().find_map(|fault| match *fault {
            Fault::Lie { from: f, to: t, nth: n, lie } if (f, t, n) == (from, to, nth) => Some(lie),
            _ => None,
        })
    }

    pub(super) fn delay(&self, stream: &mut Stream) -> Duration {
        let [least, most] = self.delays;
        Duration::from_micros(least + stream.below(most - least))
    }

    /// Arrival of a frame between two ranks that would arrive at `time`; `None`: never.
    pub(super) fn healed(&self, a: usize, b: usize, mut time: Duration) -> Option<Duration> {
        for fault in &self.faults {
            if let Fault::Partition { ranks: [c, d], from, to } = *fault
                && ([c, d] == [a, b] || [d, c] == [a, b])
                && time >= from
            {
                time = time.max(to?);
            }
        }
        Some(time)
    }
}
