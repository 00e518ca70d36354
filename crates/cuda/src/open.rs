//! Devices by their numbers.

use std::sync::Arc;

use crate::{Device, Result, driver::nvidia};

/// The NVIDIA device of that number, of whose memory at most `budget` bytes are used (0: all that
/// is free).
///
/// With the feature `shim`, and `GRAPHMILL_DEVICE=shim` in the environment, a device for tests.
///
/// # Errors
/// There is no driver or no such device.
pub fn open(index: usize, budget: u64) -> Result<Arc<Device>> {
    #[cfg(feature = "shim")]
    if std::env::var_os("GRAPHMILL_DEVICE").is_some_and(|name| name == "shim") {
        let shim = crate::driver::shim::open(index, crate::driver::shim::Options::default());
        return Device::new(shim, index, budget);
    }
    Device::new(nvidia::open(index)?, index, budget)
}
