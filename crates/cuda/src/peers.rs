//! Devices with access to each other's memory.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::{Device, Result};

/// Returns true if every device can read the memory of all others.
///
/// # Errors
/// A driver fails.
pub(crate) fn read_each_other(devices: &[Arc<Device>]) -> Result<bool> {
    for (i, device) in devices.iter().enumerate() {
        for other in devices.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, other)| other) {
            if !device.driver().enable_peer(other.index())? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
