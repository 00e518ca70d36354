//! Queues of outgoing messages, and reassembly of incoming ones.
//!
//! ```text
//!   to rank r:   urgent  ──────────────────────────────┐
//!                draws   ─ ─ frame | frame ─ ─ few in  ─┼─► transport ~~► by sender and lane ─► message
//!                rows    ─ ─ frame | frame ─ ─ flight  ─┘
//! ```
//!
//! A slow link delivers frames in sending order, so few are handed over at a time: an urgent
//! message is sent at once, behind at most a [`Window`] of frames of other lanes, even within
//! messages of megabytes.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use graphmill_core::{Error, Result, memory};

use super::window::Window;
use crate::transport::{Frame, Lane};

/// Messages to all ranks that are still to be sent.
pub(super) struct Queue {
    lanes: Vec<[VecDeque<Message>; Lane::ALL.len()]>,
    windows: Vec<Window>,
}

struct Message {
    words: Arc<Vec<u32>>,
    /// Number of words sent.
    begun: usize,
}

impl Queue {
    /// Creates queues for `size` ranks, this one included, with windows of this delay.
    pub(super) fn new(size: usize, delay: Duration) -> Self {
        Self {
            lanes: (0..size).map(|_| Default::default()).collect(),
            windows: (0..size).map(|_| Window::new(size, delay)).collect(),
        }
    }

    /// Adds a message to rank `to`.
    pub(super) fn push(&mut self, to: usize, lane: Lane, words: Vec<u32>) {
        self.lanes[to][lane as usize].push_back(Message { words: Arc::new(words), begun: 0 });
    }

    /// Returns true if messages to rank `to` wait, or frames are in flight.
    pub(super) fn is_active(&self, to: usize) -> bool {
        !self.windows[to].is_empty() || self.lanes[to].iter().any(|queue| !queue.is_empty())
    }

    /// Next frame to rank `to`, to which `in_flight` frames are in flight at the time `now`; `None`
    /// if no message waits or too many are in flight.
    pub(super) fn next(&mut self, to: usize, in_flight: usize, now: Duration) -> Option<Frame> {
        let window = &mut self.windows[to];
        window.update(in_flight, now);
        let lanes = Lane::ALL.into_iter().zip(&mut self.lanes[to]);
        let (lane, queue) = lanes.into_iter().find(|(_, queue)| !queue.is_empty())?;
        if lane.waits() && in_flight >= window.size() {
            return None;
        }
        let first = queue.front_mut()?;
        let frame = Frame::piece(lane, first.words.clone(), first.begun);
        window.push(now, frame.words().len());
        first.begun += frame.words().len();
        if frame.is_last {
            queue.pop_front();
        }
        Some(frame)
    }

    /// Returns true if all queues are empty.
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.iter().flatten().all(VecDeque::is_empty)
    }

    /// Drops all messages that are not urgent.
    pub(super) fn drop_replies(&mut self) {
        let lanes = self.lanes.iter_mut().flat_map(|lanes| Lane::ALL.into_iter().zip(lanes));
        lanes.filter(|(lane, _)| lane.waits()).for_each(|(_, queue)| queue.clear());
    }
}

/// Incomplete incoming messages, by sender and lane. All of them together are bounded.
pub(super) struct Reassembly {
    begun: HashMap<(usize, Lane), Vec<u32>>,
    /// Number of their words.
    words: usize,
    /// Maximum number of their words.
    most: usize,
}

impl Reassembly {
    /// Creates an empty one for messages of `bytes` together.
    pub(super) fn new(bytes: u64) -> Self {
        let most = usize::try_from(bytes / size_of::<u32>() as u64).unwrap_or(usize::MAX);
        Self { begun: HashMap::new(), words: 0, most }
    }

    /// Adds a frame of rank `from`; returns the message that it completes.
    ///
    /// # Errors
    /// The incomplete messages exceed the bound, or the system refuses the memory.
    pub(super) fn add(&mut self, from: usize, frame: Frame) -> Result<Option<Vec<u32>>> {
        let (key, is_last, more) = ((from, frame.lane), frame.is_last, frame.words().len());
        let mut words = match self.begun.remove(&key) {
            None if is_last => return Ok(Some(frame.into_words())),
            begun => begun.unwrap_or_default(),
        };
        if more > self.most - self.words {
            let bytes = self.most.saturating_mul(size_of::<u32>());
            let message = format!(
                "its messages without an end exceed {bytes} bytes, the memory of this machine; use the same \
                 build on all ranks"
            );
            return Err(Error::Peer { rank: from, message });
        }
        memory::grow(&mut words, more)?;
        words.extend_from_slice(frame.words());
        if is_last {
            self.words -= words.len() - more;
            return Ok(Some(words));
        }
        self.words += more;
        self.begun.insert(key, words);
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::FRAME_WORDS;

    /// Frames in flight at most, with windows of constant size.
    const WINDOW: usize = 8;

    fn queue(size: usize) -> Queue {
        Queue::new(size, Duration::ZERO)
    }

    /// Message of `len` words, identified by the first.
    fn message(name: u32, len: usize) -> Vec<u32> {
        (0..len as u32).map(|i| name + i).collect()
    }

    /// Sends all frames that may be sent, and returns for each the lane, the first word, the number
    /// of words, and whether the message ends.
    fn hand_over(queue: &mut Queue, in_flight: &mut Vec<Frame>) -> Vec<(Lane, u32, usize, bool)> {
        let mut sent = Vec::new();
        while let Some(frame) = queue.next(1, in_flight.len(), Duration::ZERO) {
            sent.push((frame.lane, frame.words()[0], frame.words().len(), frame.is_last));
            in_flight.push(frame);
        }
        sent
    }

    #[test]
    fn urgent_messages_are_sent_at_once_and_others_a_few_frames_at_a_time() {
        let (mut queue, mut flying) = (queue(2), Vec::new());
        let frames = WINDOW + 2;
        queue.push(1, Lane::Rows, message(1, frames * FRAME_WORDS));
        queue.push(1, Lane::Rows, message(2_000_000, 3));
        let sent = hand_over(&mut queue, &mut flying);
        let piece = |i: usize| (Lane::Rows, 1 + (i * FRAME_WORDS) as u32, FRAME_WORDS, i + 1 == frames);
        assert_eq!(sent, (0..WINDOW).map(piece).collect::<Vec<_>>());

        // Only urgent messages fit now, in order and complete.
        queue.push(1, Lane::Draws, message(3_000_000, 5));
        queue.push(1, Lane::Urgent, message(4_000_000, FRAME_WORDS + 1));
        queue.push(1, Lane::Urgent, message(5_000_000, 1));
        let last = 4_000_000 + FRAME_WORDS as u32;
        assert_eq!(
            hand_over(&mut queue, &mut flying),
            [
                (Lane::Urgent, 4_000_000, FRAME_WORDS, false),
                (Lane::Urgent, last, 1, true),
                (Lane::Urgent, 5_000_000, 1, true)
            ]
        );
        assert!(!queue.is_empty());

        // A later lane continues when the earlier ones are empty.
        flying.drain(..5);
        assert_eq!(hand_over(&mut queue, &mut flying), [(Lane::Draws, 3_000_000, 5, true), piece(WINDOW)]);
        flying.clear();
        assert_eq!(hand_over(&mut queue, &mut flying), [piece(WINDOW + 1), (Lane::Rows, 2_000_000, 3, true)]);
        assert!(queue.is_empty());
    }

    #[test]
    fn interleaved_lanes_preserve_messages() {
        let lens = [0, 1, FRAME_WORDS - 1, FRAME_WORDS, FRAME_WORDS + 1, 3 * FRAME_WORDS + 7];
        let (mut queue, mut arriving) = (queue(2), Reassembly::new(u64::MAX));
        let (mut sent, mut got): (Vec<_>, Vec<_>) = (vec![Vec::new(); 3], vec![Vec::new(); 3]);
        let mut draw = 1u32;
        for round in 0..200u32 {
            draw = draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let lane = Lane::ALL[(draw >> 16) as usize % 3];
            let words = message(1000 * round, lens[(draw >> 20) as usize % lens.len()]);
            queue.push(1, lane, words.clone());
            sent[lane as usize].push(words);
            // One frame of each message, so that long ones are overtaken in the middle.
            let frame = queue.next(1, 0, Duration::ZERO).unwrap();
            let lane = frame.lane as usize;
            got[lane].extend(arriving.add(0, frame).unwrap());
        }
        while let Some(frame) = queue.next(1, 0, Duration::ZERO) {
            let lane = frame.lane as usize;
            got[lane].extend(arriving.add(0, frame).unwrap());
        }
        assert!(queue.is_empty() && arriving.begun.is_empty() && arriving.words == 0);
        assert!(sent == got);
    }

    #[test]
    fn messages_without_an_end_are_bounded() {
        let mut arriving = Reassembly::new(4 * 10);
        let frame = |lane, is_last, len| Frame::new(lane, is_last, vec![7; len]);
        // the bound is of all senders and lanes together
        assert!(arriving.add(0, frame(Lane::Rows, false, 4)).unwrap().is_none());
        assert!(arriving.add(1, frame(Lane::Draws, false, 4)).unwrap().is_none());
        assert_eq!(arriving.add(1, frame(Lane::Draws, true, 2)).unwrap().map(|words| words.len()), Some(6));
        assert!(arriving.add(2, frame(Lane::Rows, false, 6)).unwrap().is_none());
        // whole messages are not held
        assert_eq!(arriving.add(3, frame(Lane::Rows, true, 20)).unwrap().map(|words| words.len()), Some(20));
        let error = arriving.add(0, frame(Lane::Rows, false, 1)).unwrap_err().to_string();
        assert!(error.starts_with("rank 0: its messages without an end exceed 40 bytes"), "{error}");
    }

    #[test]
    fn more_frames_are_in_flight_over_a_fast_link() {
        for (delay, expected) in [(Duration::from_millis(1), 2 * WINDOW), (Duration::ZERO, WINDOW)] {
            let (mut queue, mut flying) = (Queue::new(2, delay), Vec::new());
            queue.push(1, Lane::Rows, message(1, 100 * FRAME_WORDS));
            hand_over(&mut queue, &mut flying);
            assert_eq!(flying.len(), WINDOW);
            assert!(queue.is_active(1) && !queue.is_active(0));
            // all are received after a tenth of the delay
            flying.clear();
            flying.extend(queue.next(1, 0, Duration::from_micros(100)));
            while let Some(frame) = queue.next(1, flying.len(), Duration::from_micros(100)) {
                flying.push(frame);
            }
            assert_eq!(flying.len(), expected, "{delay:?}");
        }
    }

    #[test]
    fn failed_ranks_send_only_urgent_messages() {
        let mut queue = queue(3);
        queue.push(2, Lane::Rows, vec![1]);
        queue.push(2, Lane::Draws, vec![2]);
        queue.push(2, Lane::Urgent, vec![3]);
        queue.drop_replies();
        assert_eq!(queue.next(2, 0, Duration::ZERO).unwrap().words(), [3]);
        assert!(queue.next(2, 0, Duration::ZERO).is_none() && queue.is_empty());
    }
}
