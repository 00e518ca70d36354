//! Frames in flight between the ranks of a simulated cluster.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use graphmill_core::{Result, keyed::Stream};

use super::{
    super::lock,
    Clock,
    faults::{Faults, Lie},
};
use crate::{Transport, transport::Frame};

/// A frame on its way.
struct Flight {
    from: usize,
    to: usize,
    frame: Frame,
    /// True if it occupies a place in the sender's window.
    counts: bool,
}

/// The links between all ranks.
pub(super) struct Network {
    faults: Faults,
    clock: Clock,
    stream: Stream,
    flights: BTreeMap<(Duration, u64), Flight>,
    next: u64,
    inboxes: Vec<VecDeque<(usize, Frame)>>,
    /// Frames in flight, time of the last arrival and number of frames, by sender and receiver.
    links: Vec<Vec<Link>>,
}

#[derive(Clone, Default)]
struct Link {
    in_flight: usize,
    last: Duration,
    sent: u64,
    /// Frame that the next one overtakes.
    held: Option<Frame>,
}

impl Network {
    pub(super) fn new(faults: Faults, clock: Clock, seed: u64) -> Self {
        let size = faults.size;
        Self {
            faults,
            clock,
            stream: Stream::new(seed),
            flights: BTreeMap::new(),
            next: 0,
            inboxes: vec![VecDeque::new(); size],
            links: vec![vec![Link::default(); size]; size],
        }
    }

    /// Time of the next arrival.
    pub(super) fn next_delivery(&self) -> Option<Duration> {
        self.flights.keys().next().map(|&(time, _)| time)
    }

    /// Delivers what has arrived by `now`. Returns the receivers.
    pub(super) fn deliver(&mut self, now: Duration) -> Vec<usize> {
        let mut receivers = Vec::new();
        while let Some(first) = self.flights.first_entry()
            && first.key().0 <= now
        {
            let Flight { from, to, frame, counts } = first.remove();
            if self.faults.dies(to, now) {
                continue;
            }
            self.links[from][to].in_flight -= usize::from(counts);
            self.inboxes[to].push_back((from, frame));
            receivers.push(to);
        }
        receivers
    }

    fn send(&mut self, from: usize, to: usize, frame: Frame) {
        let link = &mut self.links[from][to];
        let nth = link.sent;
        link.sent += 1;
        link.in_flight += usize::from(frame.lane.waits());
        if let Some(held) = link.held.take() {
            self.fly(from, to, frame, true);
            return self.fly(from, to, held, true);
        }
        match self.faults.lie(from, to, nth) {
            Some(Lie::Lose) => self.links[from][to].in_flight -= usize::from(frame.lane.waits()),
            Some(Lie::Repeat) => {
                self.fly(from, to, frame.clone(), true);
                self.fly(from, to, frame, false);
            }
            Some(Lie::Exchange) => self.links[from][to].held = Some(frame),
            Some(Lie::Damage) => {
                let (lane, is_last) = (frame.lane, frame.is_last);
                let mut words = frame.into_words();
                let at = self.stream.below(words.len().max(1) as u64) as usize;
                if let Some(word) = words.get_mut(at) {
                    *word ^= 1 << self.stream.below(32);
                }
                self.fly(from, to, Frame::new(lane, is_last, words), true);
            }
            Some(Lie::Cut) => {
                let (lane, is_last) = (frame.lane, frame.is_last);
                let mut words = frame.into_words();
                words.truncate(self.stream.below(words.len().max(1) as u64) as usize);
                self.fly(from, to, Frame::new(lane, is_last, words), true);
            }
            None => self.fly(from, to, frame, true),
        }
    }

    /// Sends a frame that arrives behind the earlier ones.
    fn fly(&mut self, from: usize, to: usize, frame: Frame, is_counted: bool) {
        let delay = self.faults.delay(&mut self.stream);
        let counts = is_counted && frame.lane.waits();
        let Some(time) = self.faults.healed(from, to, self.clock.now() + delay) else {
            return; // the link is cut for good
        };
        let link = &mut self.links[from][to];
        link.last = link.last.max(time);
        self.flights.insert((link.last, self.next), Flight { from, to, frame, counts });
        self.next += 1;
    }
}

/// Transport of a rank.
pub(super) struct End {
    rank: usize,
    network: Arc<Mutex<Network>>,
}

impl End {
    pub(super) fn new(rank: usize, network: Arc<Mutex<Network>>) -> Self {
        Self { rank, network }
    }
}

impl Transport for End {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        lock(&self.network).inboxes.len()
    }

    fn send(&mut self, to: usize, frame: Frame) -> Result<()> {
        lock(&self.network).send(self.rank, to, frame);
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<(usize, Frame)>> {
        Ok(lock(&self.network).inboxes[self.rank].pop_front())
    }

    fn in_flight(&mut self, to: usize) -> usize {
        lock(&self.network).links[self.rank][to].in_flight
    }
}
