//! Cores of a machine as the devices of strategies by device, and the options of these.

use graphmill_engine::{
    TrainConfig,
    strategy::{FactoredOptions, RoundOptions, TimeSharingOptions, Toggle, UpdateOptions},
};

use crate::sim::Updates;

/// Cores of every machine, and the options of strategies that use them as devices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cores {
    /// Number of cores, at least one.
    pub count: usize,
    /// Number of cores that sample; 0 balances sampling and training.
    pub num_samplers: usize,
    /// True if cores that have finished sampling may train.
    pub switching: bool,
    /// True if time-sharing cores extract their next batch meanwhile.
    pub overlap: bool,
    /// Batches that train on the same parameters.
    pub updates: Updates,
}

impl Default for Cores {
    fn default() -> Self {
        Self::new(&TrainConfig::default(), 1)
    }
}

impl Cores {
    /// `count` cores of runs with these options.
    pub fn new(config: &TrainConfig, count: usize) -> Self {
        let updates = config.own.get::<UpdateOptions>();
        // on the processor, a round without an option has one batch
        let round = config.own.get::<RoundOptions>().batches_per_update.max(1) as u64;
        let FactoredOptions { num_samplers, switching } = config.own.get();
        Self {
            count: count.max(1),
            num_samplers,
            switching: switching == Toggle::On,
            overlap: config.own.get::<TimeSharingOptions>().overlap == Toggle::On,
            updates: if updates.is_asynchronous() {
                Updates { round: 1, staleness: updates.bound() }
            } else {
                Updates { round, staleness: 0 }
            },
        }
    }
}
