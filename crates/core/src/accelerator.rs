//! The interface between host memory and an accelerator's: device memory beside a matrix.
//! [`DeviceBlock`](crate::block::DeviceBlock) is the same for a block.
//!
//! This crate knows no device. A backend for a device passes its memory in behind these traits; a read on the
//! host ([`crate::matrix::View::host`]) copies the newest values from wherever they are.

use std::{any::Any, fmt::Debug, sync::Arc};

/// Memory of a device that holds the values of a matrix, from the first on. Dropping it frees it.
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
    /// Number of the device: unique in the process.
    fn device(&self) -> usize;

    /// Size in bytes.
    fn bytes(&self) -> usize;

    /// Address in the device's memory.
    fn address(&self) -> u64;

    /// Copies bytes from the host to offset `at`.
    fn upload(&self, at: usize, from: &[u8]);

    /// Copies the bytes at offset `at` to the host, after all work of the device on them.
    fn download(&self, at: usize, to: &mut [u8]);

    /// Copies the first `bytes` bytes of another device's memory, after that device's work on them; false if
    /// the devices do not reach each other, and nothing was copied.
    fn copy_from(&self, _other: &dyn DeviceMemory, _bytes: usize) -> bool {
        false
    }

    /// The implementation, for downcasts.
    fn as_any(&self) -> &dyn Any;
}

/// A device that allocates memory.
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

    /// Allocates memory; `None` if there is not enough, which the accelerator remembers as its failure.
    fn allocate(&self, bytes: usize) -> Option<Arc<dyn DeviceMemory>>;

    /// Makes values of the host, which do not change while they are used, readable by the device. `None` as
    /// for [`Accelerator::allocate`].
    fn read_only(&self, bytes: &[u8]) -> Option<Arc<dyn DeviceMemory>>;
}
