//! Interface between host memory and the memory of an accelerator, which may accompany a matrix;
//! [`DeviceBlock`](crate::block::DeviceBlock) is the same for a block.
//!
//! This crate knows no device. Code that computes on a device provides memory behind these traits;
//! code that only reads values on the host ([`crate::matrix::View::host`]) gets them wherever the
//! newest are, at the cost of a copy.

#![forbid(unsafe_code)]

use std::{any::Any, fmt::Debug, sync::Arc};

/// Device memory that holds values of a matrix, from the first one on. Dropping it frees it.
///
/// ```
/// use std::{any::Any, sync::{Arc, Mutex}};
/// use graphmill_core::{Matrix, accelerator::DeviceMemory};
///
/// /// A simulated device's memory.
/// #[derive(Debug)]
/// struct Simulated(Mutex<Vec<u8>>);
///
/// impl DeviceMemory for Simulated {
///     fn device(&self) -> usize {
///         0
///     }
///     fn bytes(&self) -> usize {
///         self.0.lock().unwrap().len()
///     }
///     fn address(&self) -> u64 {
///         0
///     }
///     fn upload(&self, at: usize, from: &[u8]) {
///         self.0.lock().unwrap()[at..at + from.len()].copy_from_slice(from);
///     }
///     fn download(&self, at: usize, to: &mut [u8]) {
///         to.copy_from_slice(&self.0.lock().unwrap()[at..at + to.len()]);
///     }
///     fn as_any(&self) -> &dyn Any {
///         self
///     }
/// }
///
/// let memory = Simulated(Mutex::new(vec![0; 8]));
/// memory.upload(4, &1.5f32.to_ne_bytes());
/// let mut matrix = Matrix::default();
/// matrix.set_device(1, 2, Arc::new(memory));
/// assert_eq!(matrix.device(), Some(0));
/// assert_eq!(matrix.view().host(), [0.0, 1.5]);
/// ```
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
///
/// ```
/// use std::sync::Arc;
/// use graphmill_core::{Matrix, accelerator::{Accelerator, DeviceMemory}};
///
/// /// A device whose memory is full.
/// struct Full;
///
/// impl Accelerator for Full {
///     fn device(&self) -> usize {
///         0
///     }
///     fn allocate(&self, _bytes: usize) -> Option<Arc<dyn DeviceMemory>> {
///         None
///     }
///     fn read_only(&self, _bytes: &[u8]) -> Option<Arc<dyn DeviceMemory>> {
///         None
///     }
/// }
///
/// assert!(Matrix::zeros(2, 3).view().on_device(&Full).is_none());
/// ```
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
