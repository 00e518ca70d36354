//! Options of the factored and the time-sharing design.

use clap::{Args, ValueEnum};
use graphmill_core::{by_name, options::OptionSet};
use serde::{Deserialize, Serialize};

use crate::{TrainConfig, accelerator::SamplingDevices, options::is_typed};

/// State of a behaviour that is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Toggle {
    /// On.
    On,
    /// Off.
    Off,
}

by_name!(Toggle);

/// Options of `factored`.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FactoredOptions {
    /// Number of sampling devices; 0 balances sampling and training.
    ///
    /// On several types, 0 takes all devices but one, which trains.
    #[arg(long, value_name = "N")]
    pub num_samplers: usize,
    /// Let devices that have finished sampling train: on or off.
    ///
    /// They train for the rest of the epoch.
    #[arg(long, value_name = "WHEN")]
    pub switching: Toggle,
}

impl Default for FactoredOptions {
    fn default() -> Self {
        Self { num_samplers: 0, switching: Toggle::On }
    }
}

impl OptionSet for FactoredOptions {
    const FREE: &'static [&'static str] = &["num_samplers", "switching"];
}

impl FactoredOptions {
    /// Resolves the number of sampling devices on several types, where none is timed.
    pub(crate) fn derive(config: &mut TrainConfig) {
        if is_typed(config) && config.own.get::<Self>().num_samplers == 0 {
            config.own.get_mut::<Self>().num_samplers = Self::samplers_of_types(config);
        }
    }

    /// Number of devices that do not train in a synchronous round.
    pub(crate) fn non_trainers(config: &TrainConfig) -> usize {
        if is_typed(config) {
            return Self::samplers_of_types(config);
        }
        config.own.get::<Self>().num_samplers.max(1)
    }

    /// Number of devices that only sample on several types: all but one, unless it is given. A
    /// single device does all stages.
    pub(crate) fn samplers_of_types(config: &TrainConfig) -> usize {
        match (config.own.get::<Self>().num_samplers, config.num_devices()) {
            (_, 0 | 1) => 0,
            (0, count) => count - 1,
            (given, _) => given,
        }
    }

    /// Devices that only sample, unless all devices sample.
    pub(crate) fn sampling_devices(config: &TrainConfig) -> Option<SamplingDevices> {
        let Self { num_samplers: given, switching } = config.own.get();
        let count = (given > 0).then_some(given);
        let devices = SamplingDevices { count, may_train: switching == Toggle::On };
        (given.max(1) < config.num_devices()).then_some(devices)
    }
}

/// Options of `time-sharing`.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimeSharingOptions {
    /// Extract the next batch of a device while it trains: on or off.
    ///
    /// Takes memory for the rows of the next batch. Results do not depend on it. Set it to on to
    /// compare with factored, whose Trainers do the same.
    #[arg(long, value_name = "WHEN")]
    pub overlap: Toggle,
}

impl Default for TimeSharingOptions {
    fn default() -> Self {
        Self { overlap: Toggle::Off }
    }
}

impl OptionSet for TimeSharingOptions {
    const FREE: &'static [&'static str] = &["overlap"];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::Chosen;

    #[test]
    fn only_samplers_hold_the_graph_if_some_device_trains() {
        let of = |strategy: &str, devices: &str, num_samplers, switching| {
            let mut config = TrainConfig {
                strategy: strategy.into(),
                devices: devices.parse().unwrap(),
                ..TrainConfig::default()
            };
            *config.own.get_mut() = FactoredOptions { num_samplers, switching };
            Chosen::find(&config).unwrap().sampling_devices(&config)
        };
        let some = |count, may_train| Some(SamplingDevices { count, may_train });
        assert_eq!(of("factored", "cuda:0,1", 1, Toggle::Off), some(Some(1), false));
        assert_eq!(of("factored", "cuda:0,1,2", 2, Toggle::On), some(Some(2), true));
        assert_eq!(of("factored", "cuda:0,1", 0, Toggle::On), some(None, true), "balanced later");
        assert_eq!(of("factored", "cuda:0", 0, Toggle::On), None, "the device samples and trains");
        assert_eq!(of("factored", "cuda:0,1", 2, Toggle::On), None, "all devices sample and train");
        assert_eq!(of("time-sharing", "cuda:0,1", 1, Toggle::On), None);
    }
}
