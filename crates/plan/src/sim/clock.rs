//! Simulated time: events ordered by time, and the one resource shared by all devices, the host's
//! gathers.

use std::{cmp::Ordering, collections::BinaryHeap};

/// Pending event. Simultaneous events occur in the order in which they were scheduled.
struct Due<E> {
    at: f64,
    number: u64,
    event: E,
}

impl<E> Ord for Due<E> {
    /// Reversed, because the heap returns the maximum and the earliest event is needed.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.total_cmp(&self.at).then(other.number.cmp(&self.number))
    }
}

impl<E> PartialOrd for Due<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Due<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Due<E> {}

/// Next occurrence.
pub(super) enum Next<E> {
    /// Scheduled event.
    Event(E),
    /// The host has gathered that device's rows.
    Gathered(usize),
}

/// Simulated clock with pending events and gathers.
pub(super) struct Clock<E> {
    now: f64,
    events: BinaryHeap<Due<E>>,
    asked: u64,
    /// Number of concurrent gathers at full speed.
    gathers: f64,
    /// Device and remaining seconds at full speed of each gather, in the order of their requests.
    gathering: Vec<(usize, f64)>,
}

impl<E> Clock<E> {
    /// Creates a clock at 0, with a host that serves `gathers` gathers at full speed.
    pub(super) fn new(gathers: f64) -> Self {
        Self { now: 0.0, events: BinaryHeap::new(), asked: 0, gathers, gathering: Vec::new() }
    }

    /// Seconds since the start.
    pub(super) fn now(&self) -> f64 {
        self.now
    }

    /// Schedules `event` after `seconds`.
    pub(super) fn after(&mut self, seconds: f64, event: E) {
        self.asked += 1;
        self.events.push(Due { at: self.now + seconds, number: self.asked, event });
    }

    /// Starts a gather of a device's rows, which would take `seconds` alone.
    pub(super) fn gather(&mut self, device: usize, seconds: f64) {
        self.gathering.push((device, seconds));
    }

    /// Speed of each gather relative to full speed.
    fn pace(&self) -> f64 {
        (self.gathers / self.gathering.len() as f64).min(1.0)
    }

    /// Advances to the next occurrence; `None` if there is none.
    pub(super) fn next(&mut self) -> Option<Next<E>> {
        let (pace, first) = (self.pace(), |a: f64, b: f64| a.total_cmp(&b));
        let shortest = (0..self.gathering.len())
            .min_by(|&a, &b| first(self.gathering[a].1, self.gathering[b].1).then(a.cmp(&b)));
        let gathered = shortest.map(|i| (i, self.now + self.gathering[i].1 / pace));
        let event = self.events.peek().map(|due| due.at);
        let (at, found) = match (gathered, event) {
            (None, None) => return None,
            (Some((i, at)), event) if event.is_none_or(|event| at <= event) => (at, Some(i)),
            (_, event) => (event?, None),
        };
        let done = (at - self.now) * pace;
        self.gathering.iter_mut().for_each(|(_, left)| *left = (*left - done).max(0.0));
        self.now = at;
        Some(match found {
            Some(i) => Next::Gathered(self.gathering.remove(i).0),
            None => Next::Event(self.events.pop()?.event),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut clock: Clock<char>) -> Vec<(f64, String)> {
        let mut seen = Vec::new();
        while let Some(next) = clock.next() {
            let what = match next {
                Next::Event(event) => event.to_string(),
                Next::Gathered(device) => format!("gathered {device}"),
            };
            seen.push((clock.now(), what));
        }
        seen
    }

    #[test]
    fn events_come_in_their_order() {
        let mut clock = Clock::new(1.0);
        for (seconds, event) in [(2.0, 'c'), (1.0, 'a'), (1.0, 'b'), (0.5, '0')] {
            clock.after(seconds, event);
        }
        let seen = all(clock);
        assert_eq!(seen.iter().map(|(_, event)| event.as_str()).collect::<String>(), "0abc");
        assert_eq!(seen.last().unwrap().0, 2.0);
    }

    #[test]
    fn gathers_share_the_host() {
        // Three at the pace 2/3 until the shortest is done, then two at full speed.
        let mut clock = Clock::new(2.0);
        for (device, seconds) in [(0, 4.0), (1, 2.0), (2, 3.0)] {
            clock.gather(device, seconds);
        }
        clock.after(1.0, 'x');
        let seen = all(clock);
        let (times, what): (Vec<f64>, Vec<&str>) = seen.iter().map(|(t, w)| (*t, w.as_str())).unzip();
        assert_eq!(what, ["x", "gathered 1", "gathered 2", "gathered 0"]);
        for (time, expected) in times.iter().zip([1.0, 3.0, 4.0, 5.0]) {
            assert!((time - expected).abs() < 1e-12, "{times:?}");
        }
    }
}
