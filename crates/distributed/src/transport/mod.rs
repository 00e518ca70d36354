//! Transport of frames between ranks.
//!
//! A transport is driven by a single thread of the messenger, so it need not be shared. Frames from
//! one rank to another arrive in sending order; their contents are opaque to the transport.

mod frame;
pub mod local;
#[cfg(feature = "mpi")]
pub mod mpi;

pub use frame::{FRAME_WORDS, Frame, Lane};
use graphmill_core::Result;

/// Transport of frames between the ranks of a run.
///
/// ```
/// use graphmill_distributed::{Transport, local, transport::{Frame, Lane}};
///
/// let mut ranks = local(2);
/// ranks[0].send(1, Frame::new(Lane::Draws, true, vec![7, 8]))?;
/// let (from, frame) = ranks[1].poll()?.expect("a frame has arrived");
/// assert_eq!((from, frame.words()), (0, &[7, 8][..]));
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub trait Transport {
    /// Number of this rank, from 0.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// Number of ranks on the machine of this one, itself included: all of them, unless the
    /// transport knows better.
    fn ranks_on_host(&self) -> usize {
        self.size()
    }

    /// Sends a frame to another rank, without waiting for its receipt.
    ///
    /// # Errors
    /// The frame cannot be sent.
    fn send(&mut self, to: usize, frame: Frame) -> Result<()>;

    /// Returns the next frame that has arrived and its sender, if any. Does not wait.
    ///
    /// # Errors
    /// Frames cannot be received.
    fn poll(&mut self) -> Result<Option<(usize, Frame)>>;

    /// Number of frames in flight to a rank: frames of a [`Lane`] that waits count until that rank
    /// receives them, others at least until they have left this one. Zero if nothing lies between
    /// the ranks.
    fn in_flight(&mut self, _to: usize) -> usize {
        0
    }

    /// Terminates all ranks that are processes, after this one has reported its failure.
    fn abort(&mut self) {}

    /// Ends the transport after a failure. The default drops it, which must not wait for another
    /// rank; a transport whose regular end does so overrides this.
    fn abandon(self)
    where
        Self: Sized,
    {
    }
}
