//! Frames of messages, and their priorities.

use std::{ops::Range, sync::Arc};

use graphmill_core::memory;

/// Maximum words of a frame: Open MPI sends up to 64 KiB over TCP eagerly.
pub const FRAME_WORDS: usize = 15_000;

/// Lane of a message. Messages of a lane keep their order; those of an earlier lane overtake those
/// of a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Messages for which all ranks wait, such as gradient sums and heartbeats.
    Urgent,
    /// Requests, and sampled neighbours.
    Draws,
    /// Feature rows.
    Rows,
}

impl Lane {
    /// All lanes, in order of priority.
    pub const ALL: [Self; 3] = [Self::Urgent, Self::Draws, Self::Rows];

    /// Returns true if its frames wait while many are in flight, so that urgent ones find few
    /// before them.
    pub fn waits(self) -> bool {
        self > Self::Urgent
    }
}

/// Message of a lane, or a piece of one: pieces are consecutive within their lane.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Lane of the message.
    pub lane: Lane,
    /// True if the message ends here.
    pub is_last: bool,
    message: Arc<Vec<u32>>,
    range: Range<usize>,
}

impl Frame {
    /// Creates a frame of all these words.
    pub fn new(lane: Lane, is_last: bool, words: Vec<u32>) -> Self {
        let range = 0..words.len();
        Self { lane, is_last, message: Arc::new(words), range }
    }

    /// Creates a frame of a message's words from `from` on, as many as fit.
    pub fn piece(lane: Lane, message: Arc<Vec<u32>>, from: usize) -> Self {
        let end = message.len().min(from + FRAME_WORDS);
        Self { lane, is_last: end == message.len(), message, range: from.min(end)..end }
    }

    /// Payload. The words keep their address as long as the frame or a clone of it exists.
    pub fn words(&self) -> &[u32] {
        &self.message[self.range.clone()]
    }

    /// Payload by value; without a copy if it is a whole unshared message. Unwinds as
    /// [`memory::demand`] if the system refuses the memory of a copy.
    pub fn into_words(self) -> Vec<u32> {
        if self.range.len() < self.message.len() {
            return memory::demand_collect(self.words().iter().copied());
        }
        let copy = |shared: Arc<Vec<u32>>| memory::demand_collect(shared.iter().copied());
        Arc::try_unwrap(self.message).unwrap_or_else(copy)
    }
}
