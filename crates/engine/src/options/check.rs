//! Checks of all options, and of those that depend on each other.

use graphmill_core::options::Fault;
use graphmill_nn::layer;

use super::{groups, keys};
use crate::{Error, Result, TrainConfig, config::MOST_LAYERS, strategy};

impl TrainConfig {
    /// Makes `layers` and `fanout` agree: the one that was not `given` follows the other; and chooses what the strategy
    /// leaves open.
    ///
    /// # Errors
    /// Both were given and disagree.
    pub fn settle(&mut self, given: &[&str]) -> Result<()> {
        strategy::settle(self);
        let (layers, hops, each) = (self.layers, self.fanout.0.len(), self.hops_of_layer());
        if layers.saturating_mul(each) == hops {
            return Ok(());
        }
        let fanout = given.contains(&"fanout");
        if fanout && (given.contains(&"layers") || hops % each != 0) {
            let per_layer = self.hops_per_layer();
            return Err(Error::usage(format!(
                "--fanout {} has {hops} hops, but --layers is {layers}: {per_layer}",
                self.fanout
            )));
        }
        if fanout {
            self.layers = hops / each;
        } else {
            let last = self.fanout.0.last().copied().unwrap_or(10);
            self.fanout.0.resize(layers.min(MOST_LAYERS) * each, last); // check() refuses more
        }
        Ok(())
    }

    /// Hops of the sampler for each layer.
    fn hops_of_layer(&self) -> usize {
        layer::hops(&self.model, &self.own)
    }

    /// The same in words.
    fn hops_per_layer(&self) -> String {
        match self.hops_of_layer() {
            1 => "one hop per layer".into(),
            each => format!("{each} hops per layer, as --hops says"),
        }
    }

    /// Checks every value that needs no dataset to be checked, also of options that the run does not read.
    ///
    /// # Errors
    /// The first impossible one, by the name of its flag.
    pub fn check(&self) -> Result<()> {
        let by_flag = |fault: Fault| Error::usage(keys::by_flag(&fault));
        self.check_general().map_err(by_flag)?;
        for group in groups() {
            self.own.check(group).map_err(by_flag)?;
        }
        let hops = self.layers * self.hops_of_layer();
        if self.fanout.0.len() != hops {
            let per_layer = self.hops_per_layer();
            return Err(Error::usage(format!("--fanout {} must have {hops} hops: {per_layer}", self.fanout)));
        }
        Ok(())
    }
}
