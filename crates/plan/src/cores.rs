//! Devices of strategies by device on each of several machines: its cores, or simulated devices
//! that divide them. The options of these strategies.

use graphmill_engine::{
    TrainConfig,
    strategy::{FactoredOptions, RoundOptions, TimeSharingOptions, Toggle, UpdateOptions},
};

use crate::sim::Updates;

/// Devices of every machine, which are its cores or divide them, and the options of strategies that
/// use them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cores {
    /// Number of devices, at least one.
    pub count: usize,
    /// Number of devices that sample; 0 balances sampling and training.
    pub num_samplers: usize,
    /// True if cores that have finished sampling may train.
    pub switching: bool,
    /// True if time-sharing cores extract their next batch meanwhile.
    pub overlap: bool,
    /// Batches that train on the same parameters.
    pub updates: Updates,
    /// True if a synchronous round has a batch for each device that trains, as on simulated devices
    /// without an option.
    pub rounds_by_device: bool,
}

impl Default for Cores {
    fn default() -> Self {
        Self::new(&TrainConfig::default(), 1)
    }
}

impl Cores {
    /// Devices of runs with these options on `threads` cores.
    pub fn new(config: &TrainConfig, threads: usize) -> Self {
        let count = match config.num_devices() {
            0 => threads,
            devices => devices,
        };
        let updates = config.own.get::<UpdateOptions>();
        // on the processor, a round without an option has one batch
        let given = config.own.get::<RoundOptions>().batches_per_update;
        let round = given.max(1) as u64;
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
            rounds_by_device: config.num_devices() > 0 && given == 0 && !updates.is_asynchronous(),
        }
    }

    /// Batches that train on the same parameters, if `trainers` devices train.
    pub(crate) fn updates_of(&self, trainers: usize) -> Updates {
        match self.rounds_by_device {
            true => Updates { round: trainers.max(1) as u64, staleness: 0 },
            false => self.updates,
        }
    }
}
