//! Checks of option values, and of options that depend on each other.

use std::collections::BTreeMap;

use graphmill_core::options::{Fault, OptionGroup};
use graphmill_nn::layer;

use super::{
    embedding, events, groups,
    keys::{self, GENERAL, heading},
    link, types,
};
use crate::{Error, Result, TrainConfig, config::MAX_LAYERS, strategy};

impl TrainConfig {
    /// Derives `layers` from `fanout` or `fanout` from `layers`, whichever was not `given`, and
    /// fills in the values that the strategy, the dataset and the times of links derive: on several
    /// types, the model.
    ///
    /// # Errors
    /// Both were given and disagree.
    pub fn derive_options(&mut self, given: &[&str]) -> Result<()> {
        types::derive_options(self, given);
        embedding::derive_options(self, given);
        events::derive_options(self, given);
        link::derive_options(self, given);
        // after the model, which says if the run is on several types
        strategy::derive_options(self);
        let (layers, hops, each) = (self.layers, self.fanout.0.len(), self.hops_of_layer());
        if layers.saturating_mul(each) == hops {
            return Ok(());
        }
        let fanout = given.contains(&"fanout");
        if fanout && (given.contains(&"layers") || hops % each != 0) {
            let per_layer = self.hops_per_layer();
            return Err(Error::usage(format!(
                "--fanout {} has {hops} hops, but --layers is {layers}; give {per_layer}",
                self.fanout
            )));
        }
        if fanout {
            self.layers = hops / each;
        } else {
            let last = self.fanout.0.last().copied().unwrap_or(10);
            self.fanout.0.resize(layers.min(MAX_LAYERS) * each, last); // check() refuses more
        }
        Ok(())
    }

    /// Number of sampler hops per layer.
    fn hops_of_layer(&self) -> usize {
        layer::hops(&self.model, &self.own)
    }

    /// [`Self::hops_of_layer`] in words.
    fn hops_per_layer(&self) -> String {
        match self.hops_of_layer() {
            1 => "one hop per layer".into(),
            each => format!("{each} hops per layer, as --hops says"),
        }
    }

    /// Checks the range of every option, without a dataset, including options that the run does
    /// not read.
    ///
    /// # Errors
    /// The first value out of range, with its flag.
    pub fn check(&self) -> Result<()> {
        let by_flag = |fault: Fault| Error::usage(keys::by_flag(&fault));
        let groups = groups();
        check_names(&groups)?;
        self.check_general().map_err(by_flag)?;
        for group in groups {
            self.own.check(group).map_err(by_flag)?;
        }
        let hops = self.layers * self.hops_of_layer();
        if self.fanout.0.len() != hops {
            let per_layer = self.hops_per_layer();
            return Err(Error::usage(format!(
                "--fanout {} must have {hops} hops; give {per_layer}",
                self.fanout
            )));
        }
        Ok(())
    }
}

/// Refuses two options of the same name, because files and the command line could set only one of
/// them. Built-in options have distinct names; those of a registered row may collide.
///
/// # Errors
/// Wrong usage: the first name declared twice, and the rows that declare it.
fn check_names(groups: &[OptionGroup]) -> Result<()> {
    let mut owners: BTreeMap<_, _> = GENERAL.iter().map(|key| (&key.name, None)).collect();
    let name_of = |owner| match owner {
        Some(group) => heading(group),
        None => "the general options".into(),
    };
    for &group in groups {
        for key in group.keys() {
            if let Some(owner) = owners.insert(&key.name, Some(group)) {
                return Err(Error::usage(format!(
                    "option '{}' is declared twice: by {} and by {}; rename the option of the \
                     registered algorithm",
                    key.name,
                    name_of(owner),
                    heading(group)
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Args;
    use graphmill_core::options::OptionSet;
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    struct First {
        /// Width of a window.
        #[arg(long)]
        window: usize,
    }

    #[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    struct Second {
        /// Width of another window.
        #[arg(long)]
        window: usize,
    }

    #[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    struct General {
        /// Epochs of a window.
        #[arg(long)]
        epochs: usize,
    }

    impl OptionSet for First {}
    impl OptionSet for Second {}
    impl OptionSet for General {}

    #[test]
    fn options_of_the_same_name_are_refused() {
        let refused = |groups: &[OptionGroup]| check_names(groups).unwrap_err().to_string();
        let [first, second] = [OptionGroup::of::<First>(), OptionGroup::of::<Second>()];
        check_names(&[first]).unwrap();
        assert!(refused(&[first, second]).contains("option 'window' is declared twice"));
        assert!(
            refused(&[OptionGroup::of::<General>()])
                .contains("'epochs' is declared twice: by the general options")
        );
        check_names(&groups()).unwrap();
    }
}
