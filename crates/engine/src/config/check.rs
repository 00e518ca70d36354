//! Ranges of the general options.

use std::ops::Bound;

use graphmill_core::options::{Fault, probability, range, suggestion};
use graphmill_loader::feature::Access;

use super::TrainConfig;
use crate::cache_kind;

/// Maximum of `--layers`; deeper networks are probably a typo.
pub(crate) const MAX_LAYERS: usize = 64;

impl TrainConfig {
    /// Checks the ranges of general options, without a dataset.
    ///
    /// # Errors
    /// The first value out of range.
    pub(crate) fn check_general(&self) -> Result<(), Fault> {
        self.check_model()?;
        range("lr", self.lr, (Bound::Excluded(0.0), Bound::Unbounded))
            .map_err(|_| Fault::of("lr", self.lr, "a learning rate above 0"))?;
        range("weight_decay", self.weight_decay, 0.0..)?;
        range("warmup", self.warmup, 0.0..)?;
        range("clip", self.clip, 0.0..)?;
        range("epochs", self.epochs, 1..=1_000_000_000)?;
        range("batch_size", self.batch_size, ..=u32::MAX as usize)?;
        range("eval_chunk", self.eval_chunk, 1..)?;
        range("threads", self.threads, ..=1 << 12)?;
        range("checkpoint_seconds", self.checkpoint_seconds, 0.0..)?;
        self.check_targets()?;
        if self.peer_link.access != Access::default() {
            let why = "devices read the rows of others without an access; give it to --link, or leave it out";
            return Err(Fault::of("peer_link", &self.peer_link, why));
        }
        for (option, name) in [("cache", &self.cache), ("host_cache", &self.host_cache)] {
            if name != cache_kind::AUTO {
                cache_kind::kind(name)
                    .map_err(|e| Fault { option: Some(option.into()), message: e.to_string() })?;
            }
        }
        Ok(())
    }

    fn check_targets(&self) -> Result<(), Fault> {
        let (name, known) = (self.loss.as_str(), losses());
        if !known.contains(&name) {
            let wanted = format!("is unknown; known: {}{}", known.join(", "), suggestion(name, &known));
            return Err(Fault::of("loss", name, wanted));
        }
        range("quantile", self.quantile, (Bound::Excluded(0.0), Bound::Excluded(1.0)))?;
        range("huber_delta", self.huber_delta, (Bound::Excluded(0.0), Bound::Unbounded))?;
        range("focal", self.focal, 0.0..=10.0)?;
        range("label_inputs", self.label_inputs, 0.0..=1.0)
    }

    fn check_model(&self) -> Result<(), Fault> {
        range("hidden", self.hidden, 1..=1 << 20)?;
        range("layers", self.layers, 1..=MAX_LAYERS)?;
        range("head_layers", self.head_layers, ..=16)?;
        probability("dropout", self.dropout)?;
        probability("input_dropout", self.input_dropout)
    }
}

/// Names of all losses, of nodes and of links.
pub(crate) fn losses() -> Vec<&'static str> {
    let values = graphmill_nn::regression::TABLE.iter().map(|row| row.name);
    let links = graphmill_nn::link::loss::TABLE.iter().map(|row| row.name);
    ["auto", "cross-entropy"].into_iter().chain(values).chain(links).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_links_take_no_access() {
        let link = "12G,10us,direct".parse().unwrap();
        let mut config = TrainConfig { link, ..TrainConfig::default() };
        config.check_general().unwrap();
        config.peer_link = "50G,2us,direct".parse().unwrap();
        let message = config.check_general().unwrap_err().message;
        assert!(message.contains("give it to --link"), "{message}");
    }
}
