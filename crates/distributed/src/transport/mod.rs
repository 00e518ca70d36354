//! Frames from rank to rank.
//!
//! A transport is driven by one thread, the post's: it need not be shared. Frames of one rank to another arrive in the order in which they
//! were sent; what they mean is none of its business.

mod frame;
pub mod local;
#[cfg(feature = "mpi")]
pub mod mpi;

pub use frame::{FRAME_WORDS, Frame, Lane};
use graphmill_core::Result;

/// Carries frames between the ranks of a run.
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
    /// Which rank this is, from 0.
    fn rank(&self) -> usize;

    /// How many ranks there are.
    fn size(&self) -> usize;

    /// Hands over a frame for another rank. Does not wait for it to be taken.
    ///
    /// # Errors
    /// The frame cannot be sent.
    fn send(&mut self, to: usize, frame: Frame) -> Result<()>;

    /// The next frame that has arrived and the rank it is from, if there is one. Does not wait.
    ///
    /// # Errors
    /// Frames cannot be received.
    fn poll(&mut self) -> Result<Option<(usize, Frame)>>;

    /// How many frames are on their way to that rank: of a [`Lane`] that waits until that rank takes them, of others at least until they
    /// have left this one. None where nothing stands between the ranks.
    fn in_flight(&mut self, _to: usize) -> usize {
        0
    }

    /// Ends the processes of all ranks, where they are processes: this one has failed and said so.
    fn abort(&mut self) {}
}
