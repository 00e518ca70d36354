//! Simulated time: events in the order of their seconds, and the one resource that all devices share, the host's gathers.

use std::{cmp::Ordering, collections::BinaryHeap};

/// An event to come. Among events of one moment the one that was asked for first comes first.
struct Due<E> {
    at: f64,
    number: u64,
    event: E,
}

impl<E> Ord for Due<E> {
    /// Reversed: the heap gives the greatest, and the earliest is wanted.
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

/// What comes next.
pub(super) enum Next<E> {
    /// An event that was asked for.
    Event(E),
    /// The host has gathered that device's rows.
    Gathered(usize),
}

/// See the module's text.
pub(super) struct Clock<E> {
    now: f64,
    events: BinaryHeap<Due<E>>,
    asked: u64,
    /// Gathers that go on at full speed together.
    gathers: f64,
    /// Device and seconds of full speed that are left, in the order in which they were asked for.
    gathering: Vec<(usize, f64)>,
}

impl<E> Clock<E> {
    /// At 0, with a host that serves so many gathers at full speed.
    pub(super) fn new(gathers: f64) -> Self {
        Self { now: 0.0, events: BinaryHeap::new(), asked: 0, gathers, gathering: Vec::new() }
    }

    /// Seconds since the start.
    pub(super) fn now(&self) -> f64 {
        self.now
    }

    /// Lets `event` come in so many seconds.
    pub(super) fn after(&mut self, seconds: f64, event: E) {
        self.asked += 1;
        self.events.push(Due { at: self.now + seconds, number: self.asked, event });
    }

    /// Lets the host gather a device's rows, which would take so many seconds alone.
    pub(super) fn gather(&mut self, device: usize, seconds: f64) {
        self.gathering.push((device, seconds));
    }

    /// Seconds of work that each gather gets done in a second.
    fn pace(&self) -> f64 {
        (self.gathers / self.gathering.len() as f64).min(1.0)
    }

    /// Goes on to what comes next; `None` where nothing does.
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
        // three at the pace 2/3 until the shortest is done, then two at full speed
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
