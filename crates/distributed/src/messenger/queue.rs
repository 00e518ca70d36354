//! Queues of outgoing messages, and reassembly of incoming ones.
//!
//! ```text
//!   to rank r:   urgent  ──────────────────────────────┐
//!                draws   ─ ─ frame | frame ─ ─ few in  ─┼─► transport ~~► by sender and lane ─► message
//!                rows    ─ ─ frame | frame ─ ─ flight  ─┘
//! ```
//!
//! A slow link delivers frames in sending order, so few are handed over at a time: an urgent
//! message is sent at once, behind at most [`WINDOW`] frames of other lanes, even within messages
//! of megabytes.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use graphmill_core::memory;

use crate::transport::{FRAME_WORDS, Frame, Lane};

/// Maximum number of frames of waiting lanes in flight to all other ranks together: enough to keep
/// 10 Gbit/s busy between two polls on both sides; each rank has at least two.
const WINDOW: usize = 8;
/// Maximum number of bytes in flight before an urgent message, in frames of all other lanes.
pub const IN_FLIGHT_BYTES: f64 = (4 * FRAME_WORDS * WINDOW) as f64;

/// Messages to all ranks that are still to be sent.
pub(super) struct Queue {
    lanes: Vec<[VecDeque<Message>; Lane::ALL.len()]>,
    window: usize,
}

struct Message {
    words: Arc<Vec<u32>>,
    /// Number of words sent.
    begun: usize,
}

impl Queue {
    /// Creates queues for `size` ranks, this one included.
    pub(super) fn new(size: usize) -> Self {
        let window = (WINDOW / size.saturating_sub(1).max(1)).max(2);
        Self { lanes: (0..size).map(|_| Default::default()).collect(), window }
    }

    /// Adds a message to rank `to`.
    pub(super) fn push(&mut self, to: usize, lane: Lane, words: Vec<u32>) {
        self.lanes[to][lane as usize].push_back(Message { words: Arc::new(words), begun: 0 });
    }

    /// Next frame to rank `to`, to which `in_flight` frames are in flight; `None` if no message
    /// waits or too many are in flight.
    pub(super) fn next(&mut self, to: usize, in_flight: usize) -> Option<Frame> {
        let lanes = Lane::ALL.into_iter().zip(&mut self.lanes[to]);
        let (lane, queue) = lanes.into_iter().find(|(_, queue)| !queue.is_empty())?;
        if lane.waits() && in_flight >= self.window {
            return None;
        }
        let first = queue.front_mut()?;
        let frame = Frame::piece(lane, first.words.clone(), first.begun);
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

/// Incomplete incoming messages, by sender and lane.
#[derive(Default)]
pub(super) struct Reassembly(HashMap<(usize, Lane), Vec<u32>>);

impl Reassembly {
    /// Adds a frame of rank `from`; returns the message that it completes. Unwinds as
    /// [`memory::demand`] if the system refuses the memory.
    pub(super) fn add(&mut self, from: usize, frame: Frame) -> Option<Vec<u32>> {
        let (key, is_last) = ((from, frame.lane), frame.is_last);
        match (self.0.remove(&key), is_last) {
            (None, true) => Some(frame.into_words()),
            (begun, _) => {
                let mut words = begun.unwrap_or_default();
                memory::demand_append(&mut words, frame.words());
                if is_last {
                    return Some(words);
                }
                self.0.insert(key, words);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Message of `len` words, identified by the first.
    fn message(name: u32, len: usize) -> Vec<u32> {
        (0..len as u32).map(|i| name + i).collect()
    }

    /// Sends all frames that may be sent, and returns for each the lane, the first word, the number
    /// of words, and whether the message ends.
    fn hand_over(queue: &mut Queue, in_flight: &mut Vec<Frame>) -> Vec<(Lane, u32, usize, bool)> {
        let mut sent = Vec::new();
        while let Some(frame) = queue.next(1, in_flight.len()) {
            sent.push((frame.lane, frame.words()[0], frame.words().len(), frame.is_last));
            in_flight.push(frame);
        }
        sent
    }

    #[test]
    fn urgent_messages_are_sent_at_once_and_others_a_few_frames_at_a_time() {
        let (mut queue, mut flying) = (Queue::new(2), Vec::new());
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
        let (mut queue, mut arriving) = (Queue::new(2), Reassembly::default());
        let (mut sent, mut got): (Vec<_>, Vec<_>) = (vec![Vec::new(); 3], vec![Vec::new(); 3]);
        let mut draw = 1u32;
        for round in 0..200u32 {
            draw = draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let lane = Lane::ALL[(draw >> 16) as usize % 3];
            let words = message(1000 * round, lens[(draw >> 20) as usize % lens.len()]);
            queue.push(1, lane, words.clone());
            sent[lane as usize].push(words);
            // One frame of each message, so that long ones are overtaken in the middle.
            let frame = queue.next(1, 0).unwrap();
            let lane = frame.lane as usize;
            got[lane].extend(arriving.add(0, frame));
        }
        while let Some(frame) = queue.next(1, 0) {
            let lane = frame.lane as usize;
            got[lane].extend(arriving.add(0, frame));
        }
        assert!(queue.is_empty() && arriving.0.is_empty());
        assert!(sent == got);
    }

    #[test]
    fn failed_ranks_send_only_urgent_messages() {
        let mut queue = Queue::new(3);
        queue.push(2, Lane::Rows, vec![1]);
        queue.push(2, Lane::Draws, vec![2]);
        queue.push(2, Lane::Urgent, vec![3]);
        queue.drop_replies();
        assert_eq!(queue.next(2, 0).unwrap().words(), [3]);
        assert!(queue.next(2, 0).is_none() && queue.is_empty());
    }
}
