//! Page-locked memory of the host that kernels write what a batch tells the host to. Taking it from
//! the driver costs more than drawing a batch, so it is kept.

use std::sync::Arc;

use graphmill_core::ObjectPool;

use crate::{
    Device, Result,
    driver::{Address, HostMemory},
};

/// Memory that nobody writes to but the kernels of one batch.
struct Staging {
    device: Arc<Device>,
    memory: HostMemory,
    bytes: usize,
}

// SAFETY: whoever has it may read it and give it back, whichever thread that is
unsafe impl Send for Staging {}

impl Staging {
    fn new(device: &Arc<Device>, bytes: usize) -> Result<Self> {
        let bytes = bytes.next_power_of_two();
        Ok(Self { device: device.clone(), memory: device.driver().allocate_host(bytes)?, bytes })
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // SAFETY: it was allocated by this driver, which waits for the device before it takes it
        // back
        unsafe { self.device.driver().free_host(self.memory) };
    }
}

/// The memory of batches that are drawn side by side, recycled.
#[derive(Default)]
pub(super) struct Stagings(ObjectPool<Staging>);

impl Stagings {
    /// Has a batch told to `bytes` of host memory, whose address `work` is given, and gives what
    /// `read` makes of them once `work` has waited for its stream.
    ///
    /// # Errors
    /// There is not as much page-locked memory, or `work` fails.
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
        // SAFETY: as many bytes were zeroed when it was taken; the kernels that wrote there are
        // done, and nobody else has it
        let told = read(unsafe { std::slice::from_raw_parts(staging.memory.pointer, bytes) });
        self.0.put(staging);
        Ok(told)
    }
}
