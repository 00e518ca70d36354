//! What waits to be sent, and what has arrived in part.
//!
//! ```text
//!   to rank r:   urgent  ──────────────────────────────┐
//!                draws   ─ ─ frame | frame ─ ─ few in  ─┼─► transport ~~► by sender and lane ─► message
//!                rows    ─ ─ frame | frame ─ ─ flight  ─┘
//! ```
//!
//! Of a link that is slower than the ranks, what was handed over first arrives first. So little is handed over: an urgent message goes at
//! once, and finds a [`WINDOW`] of frames of other lanes before it at most, wherever those stand in messages of megabytes.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use crate::transport::{FRAME_WORDS, Frame, Lane};

/// Frames of lanes that wait which are on their way to all other ranks together: as many as keep 10 Gbit/s busy for the time between two
/// looks for messages on both sides, and a rank has two at least.
const WINDOW: usize = 8;
/// Bytes that an urgent message finds before it at most, all frames of the other lanes that are on their way.
pub const IN_FLIGHT_BYTES: f64 = (4 * FRAME_WORDS * WINDOW) as f64;

/// Messages to all ranks that have not been handed over.
pub(super) struct Queue {
    lanes: Vec<[VecDeque<Message>; Lane::ALL.len()]>,
    window: usize,
}

struct Message {
    words: Arc<Vec<u32>>,
    /// Words that were handed over.
    begun: usize,
}

impl Queue {
    /// For this many ranks, this one included.
    pub(super) fn new(size: usize) -> Self {
        let window = (WINDOW / size.saturating_sub(1).max(1)).max(2);
        Self { lanes: (0..size).map(|_| Default::default()).collect(), window }
    }

    /// Another message for rank `to`.
    pub(super) fn push(&mut self, to: usize, lane: Lane, words: Vec<u32>) {
        self.lanes[to][lane as usize].push_back(Message { words: Arc::new(words), begun: 0 });
    }

    /// The next frame for rank `to`, to which so many are on their way; none where there is none, or too many are.
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

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.iter().flatten().all(VecDeque::is_empty)
    }

    /// Forgets what is not urgent.
    pub(super) fn forget_answers(&mut self) {
        let lanes = self.lanes.iter_mut().flat_map(|lanes| Lane::ALL.into_iter().zip(lanes));
        lanes.filter(|(lane, _)| lane.waits()).for_each(|(_, queue)| queue.clear());
    }
}

/// Messages whose end has not arrived, by sender and lane.
#[derive(Default)]
pub(super) struct Arriving(HashMap<(usize, Lane), Vec<u32>>);

impl Arriving {
    /// Another frame of rank `from`; the message that it ends.
    pub(super) fn add(&mut self, from: usize, frame: Frame) -> Option<Vec<u32>> {
        let (key, is_last) = ((from, frame.lane), frame.is_last);
        match (self.0.remove(&key), is_last) {
            (None, true) => Some(frame.into_words()),
            (begun, _) => {
                let mut words = begun.unwrap_or_default();
                words.extend_from_slice(frame.words());
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

    /// A message of so many words, the first of which tells it from others.
    fn message(name: u32, len: usize) -> Vec<u32> {
        (0..len as u32).map(|i| name + i).collect()
    }

    /// Hands over all that may go, and says what it was: lane, first word, words, whether the message ends there.
    fn hand_over(queue: &mut Queue, in_flight: &mut Vec<Frame>) -> Vec<(Lane, u32, usize, bool)> {
        let mut told = Vec::new();
        while let Some(frame) = queue.next(1, in_flight.len()) {
            told.push((frame.lane, frame.words()[0], frame.words().len(), frame.is_last));
            in_flight.push(frame);
        }
        told
    }

    #[test]
    fn urgent_messages_go_at_once_and_others_by_their_lanes_a_few_frames_at_a_time() {
        let (mut queue, mut flying) = (Queue::new(2), Vec::new());
        let frames = WINDOW + 2;
        queue.push(1, Lane::Rows, message(1, frames * FRAME_WORDS));
        queue.push(1, Lane::Rows, message(2_000_000, 3));
        let told = hand_over(&mut queue, &mut flying);
        let piece = |i: usize| (Lane::Rows, 1 + (i * FRAME_WORDS) as u32, FRAME_WORDS, i + 1 == frames);
        assert_eq!(told, (0..WINDOW).map(piece).collect::<Vec<_>>());

        // nothing more fits but what is urgent, in its order and whole
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

        // a later lane goes on where it was when the one before it is through
        flying.drain(..5);
        assert_eq!(hand_over(&mut queue, &mut flying), [(Lane::Draws, 3_000_000, 5, true), piece(WINDOW)]);
        flying.clear();
        assert_eq!(hand_over(&mut queue, &mut flying), [piece(WINDOW + 1), (Lane::Rows, 2_000_000, 3, true)]);
        assert!(queue.is_empty());
    }

    #[test]
    fn messages_come_out_as_they_went_in_however_lanes_interleave() {
        let lens = [0, 1, FRAME_WORDS - 1, FRAME_WORDS, FRAME_WORDS + 1, 3 * FRAME_WORDS + 7];
        let (mut queue, mut arriving) = (Queue::new(2), Arriving::default());
        let (mut sent, mut got): (Vec<_>, Vec<_>) = (vec![Vec::new(); 3], vec![Vec::new(); 3]);
        let mut draw = 1u32;
        for round in 0..200u32 {
            draw = draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let lane = Lane::ALL[(draw >> 16) as usize % 3];
            let words = message(1000 * round, lens[(draw >> 20) as usize % lens.len()]);
            queue.push(1, lane, words.clone());
            sent[lane as usize].push(words);
            // one frame for every message: longer ones are overtaken in their middle
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
    fn who_has_failed_says_only_what_is_urgent() {
        let mut queue = Queue::new(3);
        queue.push(2, Lane::Rows, vec![1]);
        queue.push(2, Lane::Draws, vec![2]);
        queue.push(2, Lane::Urgent, vec![3]);
        queue.forget_answers();
        assert_eq!(queue.next(2, 0).unwrap().words(), [3]);
        assert!(queue.next(2, 0).is_none() && queue.is_empty());
    }
}
