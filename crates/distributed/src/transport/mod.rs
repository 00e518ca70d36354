//! Words from rank to rank.
//!
//! A transport is driven by one thread, the post's: it need not be shared. Messages of one rank to another arrive whole and in the order
//! in which they were sent; what they mean is none of its business.

pub mod local;
#[cfg(feature = "mpi")]
pub mod mpi;

use graphmill_graph::Result;

/// Carries messages between the ranks of a run.
pub trait Transport {
    /// Which rank this is, from 0.
    fn rank(&self) -> usize;

    /// How many ranks there are.
    fn size(&self) -> usize;

    /// Hands over a message for another rank. Does not wait for it to be taken.
    ///
    /// # Errors
    /// The message cannot be sent.
    fn send(&mut self, to: usize, words: Vec<u32>) -> Result<()>;

    /// The next message that has arrived and the rank it is from, if there is one; without words where only a part of one has arrived.
    /// Does not wait.
    ///
    /// # Errors
    /// Messages cannot be received.
    fn poll(&mut self) -> Result<Option<(usize, Vec<u32>)>>;

    /// How many messages are on their way still.
    fn in_flight(&mut self) -> usize {
        0
    }

    /// Ends the processes of all ranks, where they are processes: this one has failed and said so.
    fn abort(&mut self) {}
}
