//! Memory of simulated devices, and host memory as they see it.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::{
    collections::BTreeMap,
    ffi::c_void,
    ops::Bound,
    ptr,
    sync::{Mutex, atomic::Ordering},
};

use super::{Shim, locked};
use crate::{Error, Result, driver::Address};

/// Maximum size of guarded memory; larger memory would be slow to map.
const MAX_GUARDED: usize = 1 << 26;
/// Value of memory that was never written: NaN as f32.
const UNWRITTEN: u32 = 0x7fc0_dead;

/// Memory that a device may access.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub(super) bytes: usize,
    /// Owning device, or `None` for host memory.
    pub(super) device: Option<usize>,
    /// Start and size of the underlying mapping.
    base: usize,
    size: usize,
    mapped: bool,
}

/// Memory of all devices, by address.
static REGIONS: Mutex<BTreeMap<u64, Region>> = Mutex::new(BTreeMap::new());

impl Shim {
    /// Registers host memory that a device may access. Returns false if it is already registered.
    pub(super) fn list_host(at: *const u8, bytes: usize) -> bool {
        let region = Region { bytes, device: None, base: 0, size: 0, mapped: false };
        locked(&REGIONS).insert(at as u64, region).is_none()
    }

    /// Maps memory of the device or of the host.
    pub(super) fn map(&self, bytes: usize, device: bool) -> Result<Address> {
        let guard = locked(&self.options).guard;
        let requested = bytes.max(1);
        let free = self.properties.memory.saturating_sub(self.used.load(Ordering::Relaxed));
        let full = || Error::OutOfMemory {
            device: self.name(),
            bytes: bytes as u64,
            free,
            budget: self.properties.memory,
        };
        if device && requested as u64 > free {
            return Err(full());
        }
        // host memory starts at a page, as with a driver
        let alignment = if device { 16 } else { 4096 };
        let guarded = guard && requested <= MAX_GUARDED;
        let page = 4096.max(page_size());
        let padded = requested.next_multiple_of(alignment).next_multiple_of(page);
        let size = if guarded { padded + page } else { padded };
        // SAFETY: new anonymous memory, at an address chosen by the system.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(full());
        }
        let at = if guarded {
            // SAFETY: the last page of the new mapping, whose address is not yet shared.
            unsafe { libc::mprotect(base.byte_add(padded), page, libc::PROT_NONE) };
            base as usize + padded - requested.next_multiple_of(alignment)
        } else {
            base as usize
        };
        if device {
            // SAFETY: the new mapping up to the guard: at least `padded` bytes from `base` on,
            // aligned as pages are.
            unsafe { std::slice::from_raw_parts_mut(base.cast::<u32>(), padded / 4) }.fill(UNWRITTEN);
            self.used.fetch_add(requested as u64, Ordering::Relaxed);
        }
        let region = Region {
            bytes: requested,
            device: device.then_some(self.index),
            base: base as usize,
            size,
            mapped: true,
        };
        locked(&REGIONS).insert(at as u64, region);
        Ok(Address(at as u64))
    }

    /// Unmaps memory of [`Shim::map`].
    pub(super) fn unmap(&self, at: Address) {
        let Some(region) = locked(&REGIONS).remove(&at.0) else { return };
        if region.device.is_some() {
            self.used.fetch_sub(region.bytes as u64, Ordering::Relaxed);
        }
        if region.mapped {
            // SAFETY: the region is no longer registered, so its mapping is removed once; the
            // caller guarantees that it is not used any more.
            unsafe { libc::munmap(region.base as *mut c_void, region.size) };
        }
    }
}

fn page_size() -> usize {
    // SAFETY: queries a constant of the system.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Region that contains this address.
pub(super) fn region_of(at: u64) -> Option<(u64, Region)> {
    let regions = locked(&REGIONS);
    let (&first, &region) = regions.range(..=at).next_back()?;
    (at - first < region.bytes as u64).then_some((first, region))
}

/// Describes the location of an address outside all regions.
pub(super) fn describe(at: u64) -> String {
    let regions = locked(&REGIONS);
    let below = regions.range(..=at).next_back();
    let above = regions.range((Bound::Excluded(at), Bound::Unbounded)).next();
    let behind = below.map(|(first, of)| (at - first, of.bytes));
    match (behind, above) {
        (Some((by, bytes)), _) if by < 2 * bytes as u64 + 8192 => {
            format!("byte {by} of memory of {bytes} bytes")
        }
        (_, Some((first, of))) if first - at < 8192 => {
            format!("{} bytes before memory of {} bytes", first - at, of.bytes)
        }
        _ => "not in the memory of a device".to_owned(),
    }
}
