//! Reuse of a queue's memory by its stream and by others.

use std::sync::Arc;

use graphmill_core::accelerator::DeviceMemory;
use graphmill_cuda::{
    Device, Queue,
    driver::shim::{self, Options},
};

use crate::counting::Counting;

fn device(memory: u64) -> (Arc<Counting>, Arc<Device>) {
    let driver = Counting::new(shim::open(0, Options { memory, ..Options::default() }));
    (driver.clone(), Device::new(driver, 0, 0).unwrap())
}

#[test]
fn memory_that_the_compute_stream_may_read_is_not_reused() {
    let (driver, device) = device(1 << 24);
    let train = Queue::compute(&device).unwrap();
    let sample = Queue::new(&device).unwrap();
    driver.set_done(false);
    let first = sample.take::<u8>(5000).unwrap().address();
    let second = sample.take::<u8>(5000).unwrap().address();
    assert_ne!(first, second, "the compute stream still reads the first");
    driver.set_done(true);
    // both are free now, in any order
    let (third, fourth) = (sample.take::<u8>(5000).unwrap(), sample.take::<u8>(5000).unwrap());
    let mut again = [third.address(), fourth.address()];
    again.sort();
    let mut before = [first, second];
    before.sort();
    assert_eq!(again, before);
    // memory freed by the compute stream itself is ordered by its own work
    driver.set_done(false);
    let own = train.take::<u8>(5000).unwrap().address();
    assert_eq!(train.take::<u8>(5000).unwrap().address(), own);
}

#[test]
fn scratch_is_reused_at_once() {
    let (driver, device) = device(1 << 24);
    let _train = Queue::compute(&device).unwrap();
    let sample = Queue::new(&device).unwrap();
    driver.set_done(false);
    let first = sample.scratch::<u8>(5000).unwrap().address();
    assert_eq!(sample.take::<u8>(4900).unwrap().address(), first, "both sizes round to the same value");
}

#[test]
fn full_devices_reclaim_memory_of_other_queues() {
    let (_, device) = device(1 << 20);
    let _train = Queue::compute(&device).unwrap();
    let (one, other) = (Queue::new(&device).unwrap(), Queue::new(&device).unwrap());
    drop(one.take::<u8>(600 << 10).unwrap());
    let (taken, _) = device.taken();
    assert!(taken >= 600 << 10, "cached for later allocations");
    let held = other.take::<u8>(700 << 10).unwrap();
    assert_eq!(held.bytes(), 700 << 10);
    let error = one.take::<u8>(600 << 10).unwrap_err().to_string();
    assert!(error.contains("cuda:0 is out of memory"), "{error}");
    drop(held);
    drop(other);
    assert_eq!(device.taken().0, 0, "a dropped queue frees its memory");
}
