//! Host memory that devices read in place: locked in place, or a locked copy.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::{any::Any, sync::Arc};

use crate::{
    Device, Result,
    driver::{Address, HostMemory},
};

/// Minimum size of memory that is locked in place. Smaller memory may share its first and last page
/// with other allocations, which the driver might then treat as locked too and read after their
/// owner expects; larger memory has its own mapping.
const MIN_IN_PLACE: usize = 32 << 20;

/// Page-locked host memory.
pub struct Mapped {
    device: Arc<Device>,
    address: Address,
    bytes: usize,
    backing: Backing,
}

enum Backing {
    /// Memory of an owner, which is kept alive.
    InPlace(*const u8, #[allow(dead_code, reason = "it keeps the memory")] Box<dyn Any + Send + Sync>),
    Copy(HostMemory),
    Empty,
}

// SAFETY: the memory is immutable after construction, and its owner is `Send` and `Sync`
unsafe impl Send for Mapped {}
// SAFETY: as above
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Locks `bytes` in place, or copies them if the system cannot lock their memory or they are
    /// few. `owner` keeps them alive and unchanged.
    ///
    /// # Safety
    /// `bytes` stay readable at their address, and unchanged, while `owner` lives, also if it is
    /// moved.
    ///
    /// # Errors
    /// Memory for the copy is insufficient.
    pub unsafe fn new(device: &Arc<Device>, bytes: &[u8], owner: impl Any + Send + Sync) -> Result<Self> {
        let driver = device.driver();
        let in_place = || {
            // SAFETY: the owner keeps the memory alive, and lives until it is unregistered
            unsafe { driver.register(bytes.as_ptr(), bytes.len()) }.ok()
        };
        let (address, backing) = if bytes.is_empty() {
            (Address(0), Backing::Empty)
        } else if let Some(address) = (bytes.len() >= MIN_IN_PLACE).then(in_place).flatten() {
            (address, Backing::InPlace(bytes.as_ptr(), Box::new(owner)))
        } else {
            let memory = driver.allocate_host(bytes.len())?;
            // SAFETY: this many bytes were just allocated there, and no other reference exists
            unsafe { memory.pointer.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            (memory.address, Backing::Copy(memory))
        };
        Ok(Self { device: device.clone(), address, bytes: bytes.len(), backing })
    }

    /// Device address of the memory.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Number of bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if the memory is a copy.
    pub fn is_copy(&self) -> bool {
        matches!(self.backing, Backing::Copy(_))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let driver = self.device.driver();
        match &self.backing {
            // SAFETY: this driver registered it, and its readers wait for the device before they
            // drop it
            Backing::InPlace(at, _) => unsafe { driver.unregister(*at) },
            // SAFETY: as above, for allocated memory
            Backing::Copy(memory) => unsafe { driver.free_host(*memory) },
            Backing::Empty => {}
        }
    }
}

impl std::fmt::Debug for Mapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let how = if self.is_copy() { "a copy" } else { "in place" };
        write!(f, "Mapped({} bytes, {how})", self.bytes)
    }
}
