//! The devices that tests run on: the processor, or, with `GRAPHMILL_TEST_DEVICE=N`, NVIDIA's from
//! number N on.
#![allow(dead_code, reason = "every test file takes what it needs")]

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

/// The number of NVIDIA's first, where tests run on those.
fn real() -> Option<usize> {
    let number = env::var("GRAPHMILL_TEST_DEVICE").ok()?;
    Some(number.parse().expect("GRAPHMILL_TEST_DEVICE is a device's number"))
}

/// How many devices there are: of the processor, as many as a test wants.
pub(crate) fn count() -> usize {
    real().map_or(usize::MAX, |first| nvidia::count().expect("NVIDIA's driver") - first)
}

/// A driver; of the processor as the options say. NVIDIA's is opened once a process: it compiles
/// the kernels.
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

/// A device of [`driver`], of as much memory as the options say.
pub(crate) fn device(index: usize, options: Options) -> Arc<Device> {
    Device::new(driver(index, options), index, options.memory).unwrap()
}
