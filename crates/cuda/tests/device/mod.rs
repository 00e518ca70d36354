//! Devices for the tests: simulated ones, or, with `GRAPHMILL_TEST_DEVICE=N`, NVIDIA devices from
//! number N on.
use std::{
    env,
    sync::{Arc, Mutex},
};

use graphmill_cuda::{
    Device,
    driver::{
        Driver, nvidia,
        shim::{self, Options},
    },
};

/// Number of the first NVIDIA device, if tests run on those.
fn real() -> Option<usize> {
    let number = env::var("GRAPHMILL_TEST_DEVICE").ok()?;
    Some(number.parse().expect("GRAPHMILL_TEST_DEVICE is the number of a device"))
}

/// Number of devices; unlimited if they are simulated.
pub(crate) fn count() -> usize {
    real().map_or(usize::MAX, |first| nvidia::count().expect("NVIDIA's driver") - first)
}

/// Driver of a device; `options` apply to simulated ones. An NVIDIA driver is opened once per
/// process, because it compiles the kernels.
pub(crate) fn driver(index: usize, options: Options) -> Arc<dyn Driver> {
    static OPEN: Mutex<Vec<(usize, Arc<dyn Driver>)>> = Mutex::new(Vec::new());
    let Some(first) = real() else { return shim::open(index, options) };
    let mut open = OPEN.lock().unwrap();
    if let Some((_, driver)) = open.iter().find(|(number, _)| *number == index) {
        return driver.clone();
    }
    let driver = nvidia::open(first + index).expect("NVIDIA's driver and device");
    open.push((index, driver.clone()));
    driver
}

/// A device of [`driver`], with the memory of the options.
pub(crate) fn device(index: usize, options: Options) -> Arc<Device> {
    Device::new(driver(index, options), index, options.memory).unwrap()
}
