//! Node ids that a device has in its memory.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::sync::Arc;

use graphmill_core::{NodeId, accelerator::DeviceMemory};

/// Node ids in the memory of a device, one u32 each. Kernels read rows at them without checks, so
/// their number and the largest of them are kept beside.
#[derive(Clone)]
pub struct DeviceIds {
    memory: Arc<dyn DeviceMemory>,
    len: usize,
    last: Option<NodeId>,
}

impl DeviceIds {
    /// Ids in `memory`, which are those of `ids`.
    ///
    /// # Safety
    /// `memory` holds `ids`, one u32 each, from its beginning, and nothing changes it while it is
    /// used.
    pub unsafe fn new(memory: Arc<dyn DeviceMemory>, ids: &[NodeId]) -> Self {
        Self { memory, len: ids.len(), last: ids.iter().copied().max() }
    }

    /// Address of the ids, if they are on the device of this number, are `len` ids, and are rows of
    /// a table with `rows`.
    pub fn address(&self, device: usize, len: usize, rows: usize) -> Option<u64> {
        let fits = self.memory.bytes() >= 4 * self.len && self.last.is_none_or(|last| (last as usize) < rows);
        (self.memory.device() == device && self.len == len && fits).then(|| self.memory.address())
    }
}

impl std::fmt::Debug for DeviceIds {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "DeviceIds({} on device {})", self.len, self.memory.device())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Memory(usize);

    impl DeviceMemory for Memory {
        fn device(&self) -> usize {
            1
        }
        fn address(&self) -> u64 {
            64
        }
        fn bytes(&self) -> usize {
            self.0
        }
        fn upload(&self, _: usize, _: &[u8]) {}
        fn download(&self, _: usize, _: &mut [u8]) {}
        fn as_any(&self) -> &dyn std::any::Any {
            self
        }
    }

    #[test]
    fn ids_that_are_elsewhere_or_beyond_the_rows_have_no_address() {
        // SAFETY: nothing reads the memory.
        let ids = |bytes| unsafe { DeviceIds::new(Arc::new(Memory(bytes)), &[3, 9, 4]) };
        assert_eq!(ids(12).address(1, 3, 10), Some(64));
        assert_eq!(ids(12).address(0, 3, 10), None);
        assert_eq!(ids(12).address(1, 2, 10), None);
        assert_eq!(ids(12).address(1, 3, 9), None);
        assert_eq!(ids(8).address(1, 3, 10), None);
    }
}
