//! The seam between host memory and an accelerator's: what stands beside a matrix or a block once a device has worked with it.
//!
//! This crate knows no device. Whoever computes on one hands in memory behind these traits; who only reads values on the host
//! ([`crate::matrix::View::host`]) gets them, wherever the newest are, and pays for the copy.

use std::{any::Any, fmt::Debug, sync::Arc};

/// Memory of a device that holds values of a matrix, from their first on. Dropping it gives it back.
pub trait DeviceMemory: Any + Debug + Send + Sync {
    /// Which device it is of: every device of a process has a number of its own.
    fn device(&self) -> usize;

    /// How many bytes it holds.
    fn bytes(&self) -> usize;

    /// Where it is, as the device numbers its memory.
    fn address(&self) -> u64;

    /// Copies bytes from the host to those from `at` on.
    fn upload(&self, at: usize, from: &[u8]);

    /// Copies the bytes from `at` on to the host, after all work of the device on them.
    fn download(&self, at: usize, to: &mut [u8]);

    /// Copies the first `bytes` bytes of another device's memory, after that device's work on them; false where the two devices do not
    /// reach each other, and nothing was done.
    fn copy_from(&self, _other: &dyn DeviceMemory, _bytes: usize) -> bool {
        false
    }

    /// As what it is.
    fn as_any(&self) -> &dyn Any;
}

/// Who has memory of a device to give.
pub trait Accelerator {
    /// The number that its memory tells ([`DeviceMemory::device`]).
    fn device(&self) -> usize;

    /// So many bytes; `None` where there is no such memory, which the accelerator remembers as its failure.
    fn allocate(&self, bytes: usize) -> Option<Arc<dyn DeviceMemory>>;

    /// Values of the host that nobody changes while they are used, where the device can read them. `None` as with
    /// [`Accelerator::allocate`].
    fn read_only(&self, bytes: &[u8]) -> Option<Arc<dyn DeviceMemory>>;
}

/// A block as a device holds it: the arrays of [`crate::Block`], whose lengths the host knows.
pub trait DeviceBlock: Any + Debug + Send + Sync {
    /// Which device it is on.
    fn device(&self) -> usize;

    /// `E`.
    fn num_edges(&self) -> usize;

    /// Whether its edges have weights of their own.
    fn is_weighted(&self) -> bool;

    /// Whether the transpose is there too.
    fn is_transposed(&self) -> bool;

    /// Copies all arrays to the host, in the place of whatever they were there.
    fn download(&self, block: &mut crate::Block);

    /// As what it is.
    fn as_any(&self) -> &dyn Any;
}
