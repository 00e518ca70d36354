//! Pieces of messages, and which of them go first.

use std::{ops::Range, sync::Arc};

/// Words of a frame at most: Open MPI sends up to 64 KiB over TCP without being asked for it.
pub const FRAME_WORDS: usize = 15_000;

/// What a message is one of. Messages of a lane keep their order; those of an earlier one overtake those of a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// What all ranks wait for, such as sums of gradients, and signs of life.
    Urgent,
    /// Questions, and what is drawn for them.
    Draws,
    /// Rows of features.
    Rows,
}

impl Lane {
    /// All of them, the first to go first.
    pub const ALL: [Self; 3] = [Self::Urgent, Self::Draws, Self::Rows];

    /// Whether its frames wait while many are on their way, so that more urgent ones find few before them.
    pub fn waits(self) -> bool {
        self > Self::Urgent
    }
}

/// A message of a lane, or a piece of one: pieces follow each other within their lane.
#[derive(Clone, Debug)]
pub struct Frame {
    /// What it is one of.
    pub lane: Lane,
    /// Whether the message ends here.
    pub is_last: bool,
    message: Arc<Vec<u32>>,
    range: Range<usize>,
}

impl Frame {
    /// All these words.
    pub fn new(lane: Lane, is_last: bool, words: Vec<u32>) -> Self {
        let range = 0..words.len();
        Self { lane, is_last, message: Arc::new(words), range }
    }

    /// The words of a message from `from` on, as many as fit.
    pub fn piece(lane: Lane, message: Arc<Vec<u32>>, from: usize) -> Self {
        let end = message.len().min(from + FRAME_WORDS);
        Self { lane, is_last: end == message.len(), message, range: from.min(end)..end }
    }

    /// What it carries. The words stay where they are as long as the frame or a clone of it is kept.
    pub fn words(&self) -> &[u32] {
        &self.message[self.range.clone()]
    }

    /// What it carries; without a copy where it is a whole message that nobody else has.
    pub fn into_words(self) -> Vec<u32> {
        if self.range.len() < self.message.len() {
            return self.words().to_vec();
        }
        Arc::try_unwrap(self.message).unwrap_or_else(|shared| shared.to_vec())
    }
}
