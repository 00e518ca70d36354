//! Options by name, as in files and on the command line.

#![allow(dead_code, reason = "every test file uses a part")]

use graphmill_engine::{TrainConfig, options::key};

/// Sets options, written as `queue=2 updates=asynchronous`.
pub(crate) fn set(config: &mut TrainConfig, options: &str) {
    for option in options.split_whitespace() {
        let (name, value) = option.split_once('=').expect("name=value");
        key(name).expect(name).parse(config, value).unwrap();
    }
}

/// The configuration with other options, written as in [`set`].
pub(crate) fn with(mut config: TrainConfig, options: &str) -> TrainConfig {
    set(&mut config, options);
    config
}
