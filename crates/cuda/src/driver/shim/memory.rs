//! Memory of the devices for tests, and of the host as they see it.

use std::{
    collections::BTreeMap,
    ffi::c_void,
    ops::Bound,
    ptr,
    sync::{Mutex, atomic::Ordering},
};

use super::{Shim, locked};
use crate::{Error, Result, driver::Address};

/// Larger memory is not guarded: it would be slow to map.
const MOST_GUARDED: usize = 1 << 26;
/// Value of memory that was never written: NaNs, as f32.
const UNWRITTEN: u32 = 0x7fc0_dead;

/// Memory that a device may touch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub(super) bytes: usize,
    /// Device that it belongs to; none for the host's.
    pub(super) device: Option<usize>,
    /// Beginning and size of the mapping behind it.
    base: usize,
    size: usize,
    mapped: bool,
}

/// The memory of all devices, by address.
static REGIONS: Mutex<BTreeMap<u64, Region>> = Mutex::new(BTreeMap::new());

impl Shim {
    /// Lists memory of the host that a device may touch; false if it is listed already.
    pub(super) fn list_host(at: *const u8, bytes: usize) -> bool {
        let region = Region { bytes, device: None, base: 0, size: 0, mapped: false };
        locked(&REGIONS).insert(at as u64, region).is_none()
    }

    /// Maps memory, the device's own or the host's.
    pub(super) fn map(&self, bytes: usize, device: bool) -> Result<Address> {
        let guard = locked(&self.options).guard;
        let wanted = bytes.max(1);
        let free = self.properties.memory.saturating_sub(self.used.load(Ordering::Relaxed));
        let full = || Error::OutOfMemory {
            device: self.name(),
            bytes: bytes as u64,
            free,
            budget: self.properties.memory,
        };
        if device && wanted as u64 > free {
            return Err(full());
        }
        // the host's starts at a page, as a driver's does
        let alignment = if device { 16 } else { 4096 };
        let guarded = guard && wanted <= MOST_GUARDED;
        let page = 4096.max(page_size());
        let padded = wanted.next_multiple_of(alignment).next_multiple_of(page);
        let size = if guarded { padded + page } else { padded };
        // SAFETY: new anonymous memory, at an address that the system picks.
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
            // SAFETY: the last page of what was just mapped; nobody has an address of it yet.
            unsafe { libc::mprotect(base.byte_add(padded), page, libc::PROT_NONE) };
            base as usize + padded - wanted.next_multiple_of(alignment)
        } else {
            base as usize
        };
        if device {
            // SAFETY: what was just mapped up to the guard: at least `padded` bytes from `base` on,
            // words aligned as pages are.
            unsafe { std::slice::from_raw_parts_mut(base.cast::<u32>(), padded / 4) }.fill(UNWRITTEN);
            self.used.fetch_add(wanted as u64, Ordering::Relaxed);
        }
        let region = Region {
            bytes: wanted,
            device: device.then_some(self.index),
            base: base as usize,
            size,
            mapped: true,
        };
        locked(&REGIONS).insert(at as u64, region);
        Ok(Address(at as u64))
    }

    /// Unmaps what [`Shim::map`] has mapped.
    pub(super) fn unmap(&self, at: Address) {
        let Some(region) = locked(&REGIONS).remove(&at.0) else { return };
        if region.device.is_some() {
            self.used.fetch_sub(region.bytes as u64, Ordering::Relaxed);
        }
        if region.mapped {
            // SAFETY: the region is no longer listed, so its mapping is given back once; the caller
            // promises that it is not used any more.
            unsafe { libc::munmap(region.base as *mut c_void, region.size) };
        }
    }
}

fn page_size() -> usize {
    // SAFETY: asks the system for a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// The region that starts at or before this address, where the address lies in it.
pub(super) fn region_of(at: u64) -> Option<(u64, Region)> {
    let regions = locked(&REGIONS);
    let (&first, &region) = regions.range(..=at).next_back()?;
    (at - first < region.bytes as u64).then_some((first, region))
}

/// Where an address lies that is in no region.
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
        _ => "no memory of a device".to_owned(),
    }
}
