//! Exchange of devices that train with the host, besides feature rows: parameters, gradients,
//! learned rows and blocks.

use crate::{
    devices::Costs,
    sim::{Trainer, Updates},
};

impl Costs<'_> {
    /// Seconds in which a batch's gradient leaves its device, one of `trainers`, and new parameters
    /// arrive. Those of simulated devices cross the link to the host, which updates them: every
    /// gradient, and the parameters of every update. On several types a single device that makes
    /// every update by a gradient that is not stale trains the model itself, without a copy.
    pub(crate) fn exchange(&self, trainers: usize, updates: Updates) -> f64 {
        let parameters = self.profile.bytes.parameters;
        if !self.hardware.devices.shared {
            return self.hardware.reduce(trainers, parameters);
        }
        if !self.profile.types.is_empty() && !self.computes_gradients(trainers) {
            return 0.0;
        }
        let copies = (trainers as f64 / updates.round.max(1) as f64).min(1.0);
        (1.0 + copies) * self.hardware.link.seconds(parameters)
    }

    /// Seconds in which the blocks of a batch leave the device that drew them, or reach another.
    /// Only simulated devices charge them to the link.
    pub(crate) fn blocks(&self) -> f64 {
        let is_charged = self.hardware.devices.shared;
        if is_charged { self.hardware.link.seconds(self.profile.bytes.batch) } else { 0.0 }
    }

    /// True if each of `trainers` devices that train only computes gradients: a single one updates
    /// the model itself if every batch makes an update and no gradient may be stale.
    pub(crate) fn computes_gradients(&self, trainers: usize) -> bool {
        let Updates { round, staleness } = self.updates(trainers);
        trainers > 1 || round > 1 || staleness > 0
    }

    /// `trainer`, one of `trainers`, with the learned rows of a minibatch, which the host holds:
    /// they and their gradients cross the link of a device that only computes gradients.
    pub(crate) fn with_learned_rows(&self, trainer: Trainer, trainers: usize) -> Trainer {
        let way = match self.computes_gradients(trainers) {
            true => self.hardware.link.seconds(self.profile.learned_rows()),
            false => 0.0,
        };
        Trainer { train: trainer.train + 2.0 * way, ..trainer }
    }
}
