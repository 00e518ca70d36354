//! Page-locked host memory to which kernels write a batch's sizes and nodes. It is pooled, because
//! an allocation by the driver costs more than drawing a batch.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::sync::Arc;

use graphmill_core::ObjectPool;

use crate::{
    Device, Result,
    driver::{Address, HostMemory},
};

/// Memory to which only the kernels of one batch write.
struct Staging {
    device: Arc<Device>,
    memory: HostMemory,
    bytes: usize,
}

// SAFETY: any thread that owns it may read it and free it
unsafe impl Send for Staging {}

impl Staging {
    fn new(device: &Arc<Device>, bytes: usize) -> Result<Self> {
        let bytes = bytes.next_power_of_two();
        Ok(Self { device: device.clone(), memory: device.driver().allocate_host(bytes)?, bytes })
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // SAFETY: this driver allocated it, and waits for the device before it frees it
        unsafe { self.device.driver().free_host(self.memory) };
    }
}

/// Pool of the memory of concurrent batches.
#[derive(Default)]
pub(super) struct Stagings(ObjectPool<Staging>);

impl Stagings {
    /// Provides `bytes` of host memory at an address for `work`, and returns the result of `read`
    /// on them after `work` has waited for its stream.
    ///
    /// # Errors
    /// Page-locked memory is insufficient, or `work` fails.
    pub(super) fn with<R, E: From<crate::Error>>(
        &self,
        device: &Arc<Device>,
        bytes: usize,
        work: impl FnOnce(Address) -> Result<(), E>,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, E> {
        let fitting = self.0.take().filter(|staging| staging.bytes >= bytes);
        let staging = fitting.map_or_else(|| Staging::new(device, bytes), Ok)?;
        work(staging.memory.address)?;
        // SAFETY: this many bytes were zeroed at the allocation; the kernels that wrote them are
        // done, and no other reference exists
        let result = read(unsafe { std::slice::from_raw_parts(staging.memory.pointer, bytes) });
        self.0.put(staging);
        Ok(result)
    }
}
