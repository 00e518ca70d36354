//! Options by name, as in files and on the command line.

#![allow(dead_code, reason = "every test file uses a part")]

use graphmill_engine::{Error, Result, TrainConfig, options::key};

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

/// The configuration with these options as given ones: the others are derived, and it is checked as
/// before a run.
pub(crate) fn checked(mut config: TrainConfig, options: &[(&str, &str)]) -> Result<TrainConfig> {
    for (name, value) in options {
        key(name).unwrap().parse(&mut config, value).map_err(Error::usage)?;
    }
    let given: Vec<&str> = options.iter().map(|(name, _)| *name).collect();
    config.derive_options(&given)?;
    config.check()?;
    config.refuse_unused(&given)?;
    Ok(config)
}
