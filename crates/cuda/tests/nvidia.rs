//! Errors of the vendor's driver on machines without a device.

use graphmill_cuda::{Error, driver::nvidia};

#[test]
fn a_missing_driver_is_reported() {
    let Err(error) = nvidia::count() else {
        eprintln!("skipped: there is a driver");
        return;
    };
    assert!(matches!(&error, Error::Unavailable(_)), "{error}");
    let Err(error) = nvidia::open(0) else { panic!("opened a device although none was counted") };
    let message = error.to_string();
    assert!(message.starts_with("--devices cuda:0: "), "{message}");
    assert!(message.contains("NVIDIA driver") && message.ends_with("or use --devices cpu"), "{message}");
}

#[test]
fn missing_devices_are_errors() {
    for index in [1000, usize::MAX] {
        let Err(error) = nvidia::open(index) else { panic!("opened the missing device {index}") };
        assert!(matches!(&error, Error::Unavailable(_)), "{error}");
        assert!(error.to_string().starts_with(&format!("--devices cuda:{index}: ")), "{error}");
    }
}
