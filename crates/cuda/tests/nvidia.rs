//! The vendor's driver where there is none: a clear message. What needs a device is tested on one.

use graphmill_cuda::{Error, driver::nvidia};

#[test]
fn a_machine_without_a_driver_is_told_what_is_missing() {
    let Err(error) = nvidia::count() else {
        eprintln!("skipped: there is a driver");
        return;
    };
    assert!(matches!(&error, Error::Unavailable(_)), "{error}");
    let Err(error) = nvidia::open(0) else { panic!("a device, though none was counted") };
    let message = error.to_string();
    assert!(message.starts_with("--devices cuda:0: "), "{message}");
    assert!(message.contains("NVIDIA driver") && message.ends_with("or use --devices cpu"), "{message}");
}

#[test]
fn devices_that_are_not_there_are_refused() {
    for index in [1000, usize::MAX] {
        let Err(error) = nvidia::open(index) else { panic!("device {index} is there") };
        assert!(matches!(&error, Error::Unavailable(_)), "{error}");
        assert!(error.to_string().starts_with(&format!("--devices cuda:{index}: ")), "{error}");
    }
}
