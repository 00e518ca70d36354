//! Memory of streams: who may use it again, and when.

mod counting;

use std::sync::Arc;

use counting::Counting;
use graphmill_core::accelerator::DeviceMemory;
use graphmill_cuda::{
    Device, Queue,
    driver::shim::{self, Options},
};

fn device(memory: u64) -> (Arc<Counting>, Arc<Device>) {
    let driver = Counting::new(shim::open(0, Options { memory, ..Options::default() }));
    (driver.clone(), Device::new(driver, 0, 0).unwrap())
}

#[test]
fn what_the_stream_that_trains_may_read_is_not_used_again() {
    let (driver, device) = device(1 << 24);
    let train = Queue::compute(&device).unwrap();
    let sample = Queue::new(&device).unwrap();
    driver.set_done(false);
    let first = sample.take(5000).unwrap().address();
    let second = sample.take(5000).unwrap().address();
    assert_ne!(first, second, "training is not done with the first");
    driver.set_done(true);
    // the oldest first, or the other: both are free now
    let (third, fourth) = (sample.take(5000).unwrap(), sample.take(5000).unwrap());
    let mut again = [third.address(), fourth.address()];
    again.sort();
    let mut before = [first, second];
    before.sort();
    assert_eq!(again, before);
    // what the stream that trains frees itself comes in its own order
    driver.set_done(false);
    let own = train.take(5000).unwrap().address();
    assert_eq!(train.take(5000).unwrap().address(), own);
}

#[test]
fn scratch_is_used_again_at_once() {
    let (driver, device) = device(1 << 24);
    let _train = Queue::compute(&device).unwrap();
    let sample = Queue::new(&device).unwrap();
    driver.set_done(false);
    let first = sample.scratch(5000).unwrap().address();
    assert_eq!(sample.take(4900).unwrap().address(), first, "of the same size when rounded");
}

#[test]
fn a_full_device_takes_back_what_other_queues_keep() {
    let (_, device) = device(1 << 20);
    let _train = Queue::compute(&device).unwrap();
    let (one, other) = (Queue::new(&device).unwrap(), Queue::new(&device).unwrap());
    drop(one.take(600 << 10).unwrap());
    let (taken, _) = device.taken();
    assert!(taken >= 600 << 10, "kept for the next");
    let held = other.take(700 << 10).unwrap();
    assert_eq!(held.bytes(), 700 << 10);
    let error = one.take(600 << 10).unwrap_err().to_string();
    assert!(error.contains("cuda:0 is out of memory"), "{error}");
    drop(held);
    drop(other);
    assert_eq!(device.taken().0, 0, "a queue that goes keeps nothing");
}
