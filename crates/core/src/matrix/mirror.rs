//! The place of a matrix's newest values, and copies of them on the other side.
//!
//! The newest values have one place: host memory, or one device. A read from elsewhere makes a
//! copy, which stays until the values change. Only a write, which borrows the matrix exclusively,
//! changes the place; reads share the matrix, so copies are behind locks.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::Line;
use crate::{
    accelerator::{Accelerator, DeviceMemory},
    memory,
};

#[derive(Default)]
pub(super) struct Mirror {
    /// Memory on a device, kept for the matrix's next shapes.
    own: Option<Arc<dyn DeviceMemory>>,
    /// True if `own` holds the newest values.
    newest: bool,
    /// True if the values in host memory are of an earlier shape of the matrix.
    unwritten: bool,
    /// Copies of the newest values on devices that are not their place.
    copies: Mutex<Vec<Arc<dyn DeviceMemory>>>,
    /// A copy of a device's newest values on the host.
    fetched: OnceLock<Vec<Line>>,
}

impl Mirror {
    /// Reports whether the newest values are on a device.
    pub(super) fn is_newest(&self) -> bool {
        self.newest
    }

    /// Device that holds the newest values, if one does.
    pub(super) fn device(&self) -> Option<usize> {
        self.own.as_ref().filter(|_| self.newest).map(|own| own.device())
    }

    /// Reports whether host memory holds values that were written.
    pub(super) fn is_written_on_host(&self) -> bool {
        !self.newest && !self.unwritten
    }

    /// Address of the newest values on this device, if it holds them.
    pub(super) fn on(&self, device: usize) -> Option<u64> {
        let own = self.own.as_ref().filter(|own| self.newest && own.device() == device)?;
        Some(own.address())
    }

    /// A copy on the host of a device's newest values; none if the host's are the newest.
    pub(super) fn fetched(&self, values: usize) -> Option<&[Line]> {
        let own = self.own.as_ref().filter(|_| self.newest)?;
        Some(self.fetched.get_or_init(|| {
            let mut lines: Vec<Line> = memory::demand_zeros(values.div_ceil(16));
            own.download(0, &mut bytemuck::cast_slice_mut(&mut lines)[..4 * values]);
            lines
        }))
    }

    /// Zeros for a read of values that were never written.
    pub(super) fn unwritten(&self, values: usize) -> &[Line] {
        self.fetched.get_or_init(|| memory::demand_zeros(values.div_ceil(16)))
    }

    /// The address of a copy of the host's newest values on the accelerator. `None` where it has no
    /// memory.
    pub(super) fn uploaded(
        &self,
        accelerator: &dyn Accelerator,
        bytes: &[u8],
        read_only: bool,
    ) -> Option<u64> {
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(copy) = copies.iter().find(|copy| copy.device() == accelerator.device()) {
            return Some(copy.address());
        }
        let copy = if read_only {
            accelerator.read_only(bytes)?
        } else {
            let copy = accelerator.allocate(bytes.len())?;
            copy.upload(0, bytes);
            copy
        };
        let address = copy.address();
        copies.push(copy);
        Some(address)
    }

    /// Address of a copy on the accelerator of the newest values, which are on another device: made
    /// without the host if the devices reach each other, `None` if they do not.
    pub(super) fn copied(&self, accelerator: &dyn Accelerator, bytes: usize) -> Option<u64> {
        let own = self.own.as_ref().filter(|_| self.newest)?;
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(copy) = copies.iter().find(|copy| copy.device() == accelerator.device()) {
            return Some(copy.address());
        }
        let copy = accelerator.allocate(bytes)?;
        let address = copy.address();
        copy.copy_from(&**own, bytes).then(|| {
            copies.push(copy);
            address
        })
    }

    /// Makes the last copy of [`Mirror::uploaded`] the place of the newest values.
    pub(super) fn take_over(&mut self, device: usize) -> Option<u64> {
        let copies = self.copies.get_mut().unwrap_or_else(PoisonError::into_inner);
        let at = copies.iter().position(|copy| copy.device() == device)?;
        let memory = copies.swap_remove(at);
        let address = memory.address();
        self.put(memory);
        Some(address)
    }

    /// Makes this memory the place of the newest values.
    pub(super) fn put(&mut self, memory: Arc<dyn DeviceMemory>) {
        self.own = Some(memory);
        self.newest = true;
        self.written();
    }

    /// Makes memory of the accelerator, with unspecified values, the place of the newest values.
    pub(super) fn take_memory(&mut self, accelerator: &dyn Accelerator, bytes: usize) -> Option<u64> {
        let fits = |own: &Arc<dyn DeviceMemory>| own.device() == accelerator.device() && own.bytes() >= bytes;
        let memory = match self.own.take().filter(fits) {
            Some(memory) => memory,
            None => accelerator.allocate(bytes)?,
        };
        let address = memory.address();
        self.put(memory);
        Some(address)
    }

    /// Drops copies, because the values have changed.
    pub(super) fn written(&mut self) {
        self.copies.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        self.fetched.take();
    }

    /// Forgets the values, and keeps the memory.
    pub(super) fn forget_values(&mut self) {
        self.newest = false;
        self.unwritten = true;
        self.written();
    }

    /// Makes the host the place of the newest values, before it writes.
    pub(super) fn forget_device(&mut self) {
        self.own = None;
        self.newest = false;
        self.unwritten = false;
        self.written();
    }
}
