//! Devices by number.

#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::{Device, Result, driver::nvidia};

/// Opens the NVIDIA device of this number with a memory budget of `budget` bytes (0: all free
/// memory).
///
/// With the feature `shim`, and `GRAPHMILL_DEVICE=shim` in the environment, opens a simulated
/// device.
///
/// # Errors
/// The driver or the device does not exist.
pub fn open(index: usize, budget: u64) -> Result<Arc<Device>> {
    #[cfg(feature = "shim")]
    if std::env::var_os("GRAPHMILL_DEVICE").is_some_and(|name| name == "shim") {
        let shim = crate::driver::shim::open(index, crate::driver::shim::Options::default());
        return Device::new(shim, index, budget);
    }
    Device::new(nvidia::open(index)?, index, budget)
}
