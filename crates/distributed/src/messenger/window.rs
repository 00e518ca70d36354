//! Window of frames in flight to a rank, by the bandwidth and the delay of the link.
//!
//! # Algorithm
//!
//! A frame that was handed over as the `n`th in flight and is received after a time `t` shows that
//! the link carries `n / t` frames per unit of time. The window becomes the number of frames that
//! the link carries within the configured delay `d`: `n d / t`, and at most `2 n`. So it doubles
//! with every round trip until frames take as long as `d`, and shrinks if they take longer. A frame
//! that was handed over with at most half the window in flight changes nothing, because it shows
//! how much there was to send and not how much the link carries. Nor does a frame that is not full:
//! many of them cross a slow link at once.
//!
//! The window has limits. [`MIN_FRAMES`] frames keep 10 Gbit/s busy between two polls on both
//! sides, so slow links, and ranks that poll rarely, never have fewer.
//!
//! # Source
//!
//! Ours. The product of bandwidth and delay is also the window of BBR (Cardwell et al., "BBR:
//! Congestion-Based Congestion Control", ACM Queue 14(5), 2016).
//!
//! # Cost
//!
//! Constant for each frame.
//!
//! # Memory
//!
//! 24 bytes for each frame in flight.
//!
//! # Deviations
//!
//! BBR measures the delay. Here it is an option, because an urgent message waits for it behind the
//! frames in flight, and because the pauses between polls would be most of the measured delay.

use std::{collections::VecDeque, time::Duration};

use crate::transport::FRAME_WORDS;

/// Minimum number of frames in flight to all other ranks together; each has at least two.
const MIN_FRAMES: usize = 8;
/// Maximum number of frames in flight to all other ranks together; each has at least two.
const MAX_FRAMES: usize = 256;
/// Delay of [`MessengerOptions`](super::MessengerOptions) by default: a frame is received and seen
/// as received within two polls on both sides, if the link is idle.
pub(super) const DELAY: Duration = Duration::from_micros(500);

/// Maximum number of bytes in flight before an urgent message, in frames of all other lanes, on a
/// link of `bandwidth` bytes per second with the default options.
pub fn bytes_in_flight(bandwidth: f64) -> f64 {
    let [least, most] = [MIN_FRAMES, MAX_FRAMES].map(|frames| (4 * FRAME_WORDS * frames) as f64);
    (bandwidth * DELAY.as_secs_f64()).max(least).min(most)
}

/// Frames in flight to a rank, and the maximum number of them.
pub(super) struct Window {
    delay: Duration,
    /// Minimum and maximum size.
    limits: [usize; 2],
    size: usize,
    /// Time at which each frame in flight was handed over, and the number of frames in flight then,
    /// itself included, or 0 if it is not full.
    frames: VecDeque<(Duration, usize)>,
}

impl Window {
    /// Creates a window to one of `ranks` ranks. With a `delay` of zero its size is constant.
    pub(super) fn new(ranks: usize, delay: Duration) -> Self {
        let limits = [MIN_FRAMES, MAX_FRAMES].map(|frames| (frames / ranks.saturating_sub(1).max(1)).max(2));
        Self { delay, limits, size: limits[0], frames: VecDeque::new() }
    }

    /// Maximum number of frames of waiting lanes in flight.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Returns true if no frame was in flight at the last update.
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Records that a frame of `words` words is handed over.
    pub(super) fn push(&mut self, now: Duration, words: usize) {
        let before = if words < FRAME_WORDS { 0 } else { self.frames.len() + 1 };
        self.frames.push_back((now, before));
    }

    /// Records that `in_flight` frames are still in flight, and adapts the size to the others.
    pub(super) fn update(&mut self, in_flight: usize, now: Duration) {
        let received = self.frames.len().saturating_sub(in_flight);
        let newest = self.frames.drain(..received).rev().find(|&(_, before)| before > 0);
        if let Some((sent, before)) = newest
            && before > self.size / 2
            && !self.delay.is_zero()
        {
            let took = now.saturating_sub(sent).as_secs_f64();
            let carried = before as f64 * (self.delay.as_secs_f64() / took).min(2.0);
            self.size = (carried as usize).clamp(self.limits[0], self.limits[1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::keyed::Stream;

    use super::*;

    /// Frames per second of a link of 1 Gbit/s.
    const GIGABIT: f64 = 1e9 / (32 * FRAME_WORDS) as f64;
    /// Simulated time, of which the first half is not measured.
    const END: Duration = Duration::from_millis(200);

    /// Sends as many frames as the window allows over a link of `rate` frames per second to a rank
    /// that polls, as this one does, at intervals of one to two `polls`, drawn from `seed`. Returns
    /// the share of the link's rate that was received, the longest time for which the link was
    /// occupied by frames in flight, and the largest window.
    fn send(window: &mut Window, rate: f64, polls: Duration, seed: u64) -> (f64, Duration, usize) {
        let mut stream = Stream::new(seed);
        let frame = Duration::from_secs_f64(1.0 / rate);
        // arrival of each frame at the other side, and those that it has received
        let (mut arrivals, mut received) = (VecDeque::<Duration>::new(), 0);
        let (mut free, mut longest, mut largest) = (Duration::ZERO, Duration::ZERO, 0);
        let (mut sent, mut measured) = (0, 0);
        let mut next = [Duration::ZERO; 2];
        loop {
            let side = usize::from(next[1] < next[0]);
            let now = next[side];
            if now >= END {
                let seconds = (END / 2).as_secs_f64();
                return (measured as f64 / (rate * seconds), longest, largest);
            }
            next[side] += polls.mul_f64(1.0 + stream.uniform());
            if side == 1 {
                while arrivals.front().is_some_and(|&time| time <= now) {
                    arrivals.pop_front();
                    received += 1;
                    measured += usize::from(now >= END / 2);
                }
                continue;
            }
            window.update(sent - received, now);
            while sent - received < window.size() {
                window.push(now, FRAME_WORDS);
                free = free.max(now) + frame;
                arrivals.push_back(free);
                sent += 1;
            }
            if now >= END / 2 {
                (longest, largest) = (longest.max(free.saturating_sub(now)), largest.max(window.size()));
            }
        }
    }

    /// Share of a link of `gigabits` that is used at the worst of some seeds, and the longest time
    /// for which it is occupied.
    fn worst(gigabits: f64, delay: Duration, polls: Duration) -> (f64, Duration) {
        let runs = (0..20).map(|seed| send(&mut Window::new(2, delay), gigabits * GIGABIT, polls, seed));
        runs.fold((f64::MAX, Duration::ZERO), |worst, run| (worst.0.min(run.0), worst.1.max(run.1)))
    }

    const POLLS: Duration = Duration::from_micros(120);

    #[test]
    fn fast_links_are_kept_busy_and_urgent_messages_wait_for_about_the_delay() {
        for gigabits in [25.0, 50.0, 100.0] {
            let (share, longest) = worst(gigabits, DELAY, POLLS);
            assert!(share > 0.9, "{gigabits} Gbit/s: {share}");
            assert!(longest < 2 * DELAY, "{gigabits} Gbit/s: {longest:?}");
            // a window of constant size does not
            let (constant, _) = worst(gigabits, Duration::ZERO, POLLS);
            assert!(constant < 0.9 * share, "{gigabits} Gbit/s: {constant} of {share}");
        }
    }

    #[test]
    fn slow_links_and_rare_polls_keep_the_least_window() {
        for (gigabits, polls) in [(0.1, POLLS), (1.0, POLLS), (25.0, 4 * DELAY)] {
            let mut window = Window::new(2, DELAY);
            let (.., largest) = send(&mut window, gigabits * GIGABIT, polls, 1);
            assert_eq!(largest, MIN_FRAMES, "{gigabits} Gbit/s");
        }
    }

    #[test]
    fn the_window_follows_a_link_that_becomes_slow() {
        let mut window = Window::new(2, DELAY);
        send(&mut window, 100.0 * GIGABIT, POLLS, 1);
        assert!(window.size() > 5 * MIN_FRAMES, "{}", window.size());
        window.frames.clear();
        send(&mut window, GIGABIT, POLLS, 1);
        assert_eq!(window.size(), MIN_FRAMES);
    }

    #[test]
    fn single_frames_change_nothing() {
        let mut window = Window::new(2, DELAY);
        for i in 1..100u32 {
            let now = i * Duration::from_millis(1);
            window.push(now, FRAME_WORDS);
            window.update(0, now + if i % 2 == 0 { Duration::ZERO } else { DELAY / 10 });
            assert!(window.size() == MIN_FRAMES && window.is_empty());
        }
    }

    #[test]
    fn frames_that_are_not_full_change_nothing() {
        let mut window = Window::new(2, DELAY);
        for _ in 0..20 {
            (0..window.size()).for_each(|_| window.push(Duration::ZERO, FRAME_WORDS / 2));
            window.update(0, Duration::ZERO);
        }
        assert_eq!(window.size(), MIN_FRAMES);
        // nor do they hide a full one
        (0..window.size()).for_each(|_| window.push(Duration::ZERO, FRAME_WORDS));
        window.push(Duration::ZERO, 1);
        window.update(0, Duration::ZERO);
        assert_eq!(window.size(), 2 * MIN_FRAMES);
    }

    #[test]
    fn ranks_share_the_limits() {
        for (ranks, least, most) in [(1, 8, 256), (2, 8, 256), (3, 4, 128), (9, 2, 32), (1000, 2, 2)] {
            let mut window = Window::new(ranks, DELAY);
            assert_eq!(window.size(), least);
            for _ in 0..20 {
                (0..window.size()).for_each(|_| window.push(Duration::ZERO, FRAME_WORDS));
                window.update(0, Duration::ZERO);
            }
            assert_eq!(window.size(), most, "{ranks} ranks");
        }
    }

    #[test]
    fn bytes_in_flight_are_those_of_the_windows() {
        let frame = (4 * FRAME_WORDS) as f64;
        assert_eq!(bytes_in_flight(1.25e8), 8.0 * frame);
        assert_eq!(bytes_in_flight(1.25e10), 1.25e10 * 500e-6);
        assert_eq!(bytes_in_flight(1e12), 256.0 * frame);
    }
}
