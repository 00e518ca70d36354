//! Streams of events: edges with times, read in batches in the order of their times.

use std::ops::Range;

use graphmill_core::{
    Buffer, Error, NodeId, Result,
    keyed::{Stream, key},
    maps,
};
use rustc_hash::FxHashMap;

use crate::BatchKey;

/// Times that are checked before their pages leave memory.
const RUN: usize = 1 << 18;
/// Part of the keys of negatives.
const NEGATIVES: u64 = 0x6576_656e_7473;

/// Events in the order of their times.
///
/// ```
/// use graphmill_loader::time::Events;
///
/// let events = Events::new(vec![0, 1, 0].into(), vec![2, 3, 3].into(), vec![10, 10, 25].into())?;
/// let batches: Vec<_> = events.batches(0..events.len(), 2).collect();
/// assert_eq!(batches, [0..2, 2..3]);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Events {
    source: Buffer<NodeId>,
    destination: Buffer<NodeId>,
    time: Buffer<i64>,
}

impl Events {
    /// Creates a stream.
    ///
    /// # Errors
    /// The lists differ in length, or the times descend.
    pub fn new(source: Buffer<NodeId>, destination: Buffer<NodeId>, time: Buffer<i64>) -> Result<Self> {
        if source.len() != destination.len() || source.len() != time.len() {
            return Err(Error::invalid(format!(
                "events: {} sources, {} destinations and {} times; pass one of each for every event",
                source.len(),
                destination.len(),
                time.len()
            )));
        }
        if let Some(i) = first_descent(&time) {
            return Err(Error::invalid(format!(
                "events: event {} at time {} follows one at time {}; sort the events by time",
                i + 1,
                time[i + 1],
                time[i]
            )));
        }
        Ok(Self { source, destination, time })
    }

    /// Sources, destinations and times of the events.
    pub fn into_columns(self) -> (Buffer<NodeId>, Buffer<NodeId>, Buffer<i64>) {
        (self.source, self.destination, self.time)
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.time.len()
    }

    /// Returns true if there are no events.
    pub fn is_empty(&self) -> bool {
        self.time.is_empty()
    }

    /// Source of each event.
    pub fn source(&self) -> &[NodeId] {
        &self.source
    }

    /// Destination of each event.
    pub fn destination(&self) -> &[NodeId] {
        &self.destination
    }

    /// Time of each event.
    pub fn time(&self) -> &[i64] {
        &self.time
    }

    /// Batches of `size` consecutive events (at least 1) of a range; the last may have fewer.
    pub fn batches(&self, range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
        let (size, end) = (size.max(1), range.end.min(self.len()));
        (range.start..end).step_by(size).map(move |first| first..(first + size).min(end))
    }

    /// Training, validation and test events: the last `test` of all, and `valid` before them, as
    /// fractions. Events of one time stay together, in the earlier part, as in PyTorch Geometric's
    /// `train_val_test_split`.
    ///
    /// # Errors
    /// The fractions are negative, or more than 1 together.
    pub fn split(&self, valid: f64, test: f64) -> Result<[Range<usize>; 3]> {
        if !(valid >= 0.0 && test >= 0.0 && valid + test <= 1.0) {
            return Err(Error::invalid(format!(
                "split of events: fractions {valid} and {test}; use numbers from 0 whose sum is at most 1"
            )));
        }
        let until = |fraction: f64| match self.len() {
            0 => 0,
            count => {
                let at = (fraction * (count - 1) as f64).floor() as usize;
                self.time.partition_point(|&time| time <= self.time[at.min(count - 1)])
            }
        };
        let (first, second) = (until(1.0 - valid - test), until(1.0 - test));
        let second = if test == 0.0 { self.len() } else { second.max(first) };
        Ok([0..first, first..second, second..self.len()])
    }

    /// Draws `each` destinations of negatives for every event of a range, uniformly from
    /// `candidates` and without a test for true edges, as the published evaluations do. The draws
    /// are functions of (seed, epoch, event).
    ///
    /// # Errors
    /// There are no candidates.
    pub fn negatives(
        &self,
        range: Range<usize>,
        candidates: &Range<NodeId>,
        each: usize,
        of: BatchKey,
    ) -> Result<Vec<NodeId>> {
        if candidates.is_empty() {
            return Err(Error::invalid("negatives of events: no candidates; pass the range of destinations"));
        }
        let count = u64::from(candidates.end - candidates.start);
        let of_event = |event: usize| {
            let mut stream = Stream::new(key(&[of.seed, of.epoch, NEGATIVES, event as u64]));
            (0..each).map(move |_| candidates.start + stream.below(count) as NodeId)
        };
        Ok(range.flat_map(of_event).collect())
    }

    /// Numbers the nodes of a batch: sources, destinations, then negatives, in first-seen order.
    ///
    /// # Errors
    /// The range is not one of the stream.
    pub fn number(&self, range: Range<usize>, negatives: &[NodeId]) -> Result<EventBatch> {
        if range.start > range.end || range.end > self.len() {
            return Err(Error::invalid(format!(
                "events {} to {} of {}; use a range of the stream",
                range.start,
                range.end,
                self.len()
            )));
        }
        let mut batch = EventBatch { events: range.clone(), ..EventBatch::default() };
        let mut rows = FxHashMap::default();
        let mut number = |nodes: &[NodeId], all: &mut Vec<NodeId>| -> Vec<NodeId> {
            let of_node = |&node: &NodeId| {
                *rows.entry(node).or_insert_with(|| {
                    all.push(node);
                    all.len() as NodeId - 1
                })
            };
            nodes.iter().map(of_node).collect()
        };
        batch.source = number(&self.source[range.clone()], &mut batch.nodes);
        batch.destination = number(&self.destination[range], &mut batch.nodes);
        batch.negative = number(negatives, &mut batch.nodes);
        Ok(batch)
    }
}

/// First event that a later one precedes in time. Times in a file leave memory after each run.
fn first_descent(time: &[i64]) -> Option<usize> {
    let mut starts = (0..time.len()).step_by(RUN);
    starts.find_map(|start| {
        // with the first time of the next run
        let run = &time[start..time.len().min(start + RUN + 1)];
        let found = run.windows(2).position(|pair| pair[0] > pair[1]);
        maps::release(run);
        found.map(|at| start + at)
    })
}

/// Nodes of a batch of events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventBatch {
    /// Numbers of the events.
    pub events: Range<usize>,
    /// Distinct nodes in first-seen order.
    pub nodes: Vec<NodeId>,
    /// Position among the nodes of each event's source.
    pub source: Vec<NodeId>,
    /// Position of each event's destination.
    pub destination: Vec<NodeId>,
    /// Position of each negative.
    pub negative: Vec<NodeId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_keep_events_of_one_time_together() {
        let time: Vec<i64> = vec![0, 1, 2, 3, 4, 5, 6, 7, 7, 7];
        let events = Events::new(vec![0; 10].into(), vec![1; 10].into(), time.into()).unwrap();
        assert_eq!(events.split(0.2, 0.2).unwrap(), [0..6, 6..10, 10..10]);
        assert_eq!(events.split(0.3, 0.4).unwrap(), [0..3, 3..6, 6..10]);
        assert_eq!(events.split(0.0, 0.0).unwrap(), [0..10, 10..10, 10..10]);
        assert!(events.split(0.6, 0.5).unwrap_err().to_string().contains("0.6 and 0.5"));
        assert_eq!(Events::default().split(0.1, 0.1).unwrap(), [0..0, 0..0, 0..0]);
    }

    #[test]
    fn batches_number_their_nodes_and_negatives_depend_on_the_event() {
        let (source, destination) = (vec![3, 4, 3, 5], vec![8, 8, 9, 3]);
        let events = Events::new(source.into(), destination.into(), vec![1, 2, 2, 9].into()).unwrap();
        let batch = events.number(1..4, &[9, 7]).unwrap();
        assert_eq!(batch.nodes, [4, 3, 5, 8, 9, 7]);
        assert_eq!((&batch.source[..], &batch.destination[..]), (&[0, 1, 2][..], &[3, 4, 1][..]));
        assert_eq!(batch.negative, [4, 5]);
        assert!(events.number(2..5, &[]).unwrap_err().to_string().contains("events 2 to 5 of 4"));
        let of = BatchKey { seed: 1, epoch: 0, batch: 0 };
        let all = events.negatives(0..4, &(8..10), 5, of).unwrap();
        // another division into batches draws the same
        let parts = [0..1, 1..4].map(|range| events.negatives(range, &(8..10), 5, of).unwrap());
        assert_eq!(all, parts.concat());
        assert!(all.iter().all(|v| (8..10).contains(v)) && all.contains(&8) && all.contains(&9));
        assert_ne!(all, events.negatives(0..4, &(8..10), 5, BatchKey { epoch: 1, ..of }).unwrap());
        assert!(events.negatives(0..4, &(8..8), 1, of).is_err());
    }

    #[test]
    fn wrong_streams_are_rejected_with_the_reason() {
        let fault = |s: Vec<u32>, t: Vec<i64>| {
            Events::new(s.clone().into(), s.into(), t.into()).unwrap_err().to_string()
        };
        assert!(fault(vec![0], vec![]).contains("1 sources, 1 destinations and 0 times"));
        assert!(fault(vec![0, 0], vec![5, 4]).contains("event 1 at time 4 follows one at time 5"));
        for at in [0, 1, RUN - 1, RUN, RUN + 1, 2 * RUN] {
            let time: Vec<i64> = (0..2 * RUN + 3).map(|e| (e - usize::from(e > at)) as i64).collect();
            assert_eq!(first_descent(&time), None, "equal times are in order");
            let time: Vec<i64> =
                time.into_iter().enumerate().map(|(e, t)| t - i64::from(e == at + 1)).collect();
            assert_eq!(first_descent(&time), Some(at));
        }
    }
}
