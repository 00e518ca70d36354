//! Interface between host memory and the memory of an accelerator, which may accompany a matrix or
//! a block.
//!
//! This crate knows no device. Code that computes on a device provides memory behind these traits;
//! code that only reads values on the host ([`crate::matrix::View::host`]) gets them wherever the
//! newest are, at the cost of a copy.

use std::{any::Any, fmt::Debug, sync::Arc};

/// Device memory that holds values of a matrix, from the first one on. Dropping it frees it.
pub trait DeviceMemory: Any + Debug + Send + Sync {
    /// Number of the device, unique within the process.
    fn device(&self) -> usize;

    /// Size in bytes.
    fn bytes(&self) -> usize;

    /// Address in the device's address space.
    fn address(&self) -> u64;

    /// Copies bytes from the host to the memory from `at` on.
    fn upload(&self, at: usize, from: &[u8]);

    /// Copies the bytes from `at` on to the host, after all pending work of the device on them.
    fn download(&self, at: usize, to: &mut [u8]);

    /// Copies the first `bytes` bytes of another device's memory, after that device's pending work
    /// on them; returns false, without copying, if the devices cannot reach each other.
    fn copy_from(&self, _other: &dyn DeviceMemory, _bytes: usize) -> bool {
        false
    }

    /// Upcasts for downcasting to the device's own type.
    fn as_any(&self) -> &dyn Any;
}

/// Allocator of device memory.
pub trait Accelerator {
    /// Number of the device ([`DeviceMemory::device`]).
    fn device(&self) -> usize;

    /// Allocates `bytes` bytes; `None` if the memory is exhausted, which the accelerator records as
    /// its failure.
    fn allocate(&self, bytes: usize) -> Option<Arc<dyn DeviceMemory>>;

    /// Makes host values, which must not change while they are used, readable for the device.
    /// `None` as for [`Accelerator::allocate`].
    fn read_only(&self, bytes: &[u8]) -> Option<Arc<dyn DeviceMemory>>;
}

/// Block in device memory: the arrays of [`crate::Block`], whose lengths the host knows.
pub trait DeviceBlock: Any + Debug + Send + Sync {
    /// Number of the device.
    fn device(&self) -> usize;

    /// Number of edges, `E`.
    fn num_edges(&self) -> usize;

    /// Returns true if its edges have weights.
    fn is_weighted(&self) -> bool;

    /// Returns true if it includes the transpose.
    fn is_transposed(&self) -> bool;

    /// Copies all arrays to the host, replacing those of `block`.
    fn download(&self, block: &mut crate::Block);

    /// Upcasts for downcasting to the device's own type.
    fn as_any(&self) -> &dyn Any;
}
