//! Host memory that devices read in place: locked where it is, or a locked copy.

use std::{any::Any, sync::Arc};

use crate::{
    Device, Result,
    driver::{Address, HostMemory},
};

/// Memory smaller than this is copied. What is smaller shares its first and last page with memory
/// of others, which the driver might take for locked too, and which would then be read later than
/// whoever copies it expects; larger memory is mapped for itself.
const SHARES_PAGES: usize = 32 << 20;

/// Page-locked host memory with the values that were given.
pub struct Mapped {
    device: Arc<Device>,
    address: Address,
    bytes: usize,
    held: Held,
}

enum Held {
    /// Memory of somebody else's, who is kept.
    InPlace(*const u8, #[allow(dead_code, reason = "it keeps the memory")] Box<dyn Any + Send + Sync>),
    Copy(HostMemory),
    Nothing,
}

// SAFETY: the memory is only read once it is made, and whoever owns it may be sent and shared
unsafe impl Send for Mapped {}
// SAFETY: as above
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Locks the `bytes` that `owner` keeps alive and unchanged, or copies them where the system
    /// does not lock such memory, or they are few.
    ///
    /// # Errors
    /// There is not as much memory for the copy.
    pub fn new(device: &Arc<Device>, bytes: &[u8], owner: impl Any + Send + Sync) -> Result<Self> {
        let driver = device.driver();
        let in_place = || {
            // SAFETY: the owner keeps the memory, and is kept until it is taken back
            unsafe { driver.register(bytes.as_ptr(), bytes.len()) }.ok()
        };
        let (address, held) = if bytes.is_empty() {
            (Address(0), Held::Nothing)
        } else if let Some(address) = (bytes.len() >= SHARES_PAGES).then(in_place).flatten() {
            (address, Held::InPlace(bytes.as_ptr(), Box::new(owner)))
        } else {
            let memory = driver.allocate_host(bytes.len())?;
            // SAFETY: as many bytes were just allocated there, and nobody else has them yet
            unsafe { memory.pointer.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            (memory.address, Held::Copy(memory))
        };
        Ok(Self { device: device.clone(), address, bytes: bytes.len(), held })
    }

    /// Where devices read it.
    pub fn address(&self) -> Address {
        self.address
    }

    /// How many bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it is a copy.
    pub fn is_copy(&self) -> bool {
        matches!(self.held, Held::Copy(_))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let driver = self.device.driver();
        match &self.held {
            // SAFETY: it was locked by this driver, and who reads it waits for the device before
            // giving it up
            Held::InPlace(at, _) => unsafe { driver.unregister(*at) },
            // SAFETY: as above, of memory that was allocated
            Held::Copy(memory) => unsafe { driver.free_host(*memory) },
            Held::Nothing => {}
        }
    }
}

impl std::fmt::Debug for Mapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let how = if self.is_copy() { "a copy" } else { "in place" };
        write!(f, "Mapped({} bytes, {how})", self.bytes)
    }
}
