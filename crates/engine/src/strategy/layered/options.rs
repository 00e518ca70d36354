//! Options of the layered strategy.

use clap::{Args, ValueEnum};
use graphmill_core::{
    by_name,
    options::{Fault, OptionSet, range},
};
use serde::{Deserialize, Serialize};

use super::super::options::unused_in_rounds;
use crate::{
    TrainConfig, cache_kind,
    config::{Devices, Ratio, Switch},
};

/// A super-batch is drawn before it is trained on, and counted in 16 bits.
const MOST_BATCHES: usize = 1 << 14;
/// With more directions rows may as well be computed.
const MOST_DIRECTIONS: usize = 1 << 10;
/// The hotness by the super-batch itself.
pub(crate) const ASKED: &str = "asked";

/// Where the gradient of reused rows goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HotGradient {
    /// Projected where it can be.
    Auto,
    /// Nowhere: the rows are constants.
    None,
    /// To the weights, in the directions that the rows follow.
    Projected,
    /// To the weights, through all that the rows were made from.
    Kept,
}

by_name!(HotGradient);

/// Options of `layered`.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LayeredOptions {
    /// Largest part of the nodes whose bottom-layer rows are reused.
    ///
    /// Auto is all that two batches of a super-batch ask for, as far as there is memory.
    #[arg(long, value_name = "R")]
    pub hot_ratio: Ratio,
    /// Batches of a super-batch; 0 for as few as save most of the work.
    #[arg(long, value_name = "N")]
    pub super_batch: usize,
    /// Hotness of a node: asked, or a metric such as presc:1.
    ///
    /// Asked counts the batches of the super-batch that ask for the node.
    #[arg(long, value_name = "NAME")]
    pub hot_by: String,
    /// Directions in which reused rows follow the parameters; 0 for none.
    ///
    /// In other directions rows are as old as their super-batch.
    #[arg(long, value_name = "K")]
    pub hot_rank: usize,
    /// Gradient of reused rows: auto, projected, kept or none.
    ///
    /// Projected goes to the weights in the directions of --hot-rank; kept goes to the weights
    /// through all that the rows were made from, without directions; none makes the rows constants;
    /// auto is projected where it can be.
    #[arg(long, value_name = "NAME")]
    pub hot_gradient: HotGradient,
    /// Make reused rows during the super-batch before: auto, on or off.
    ///
    /// Auto is on with devices.
    #[arg(long, value_name = "WHEN")]
    pub hot_ahead: Switch,
    /// Part of the hot nodes whose rows are reused; auto adapts it.
    ///
    /// The others are left to the devices' caches of features. Auto adapts to the time that devices
    /// wait, so that results depend on time.
    #[arg(long, value_name = "R")]
    pub hot_split: Ratio,
    /// Largest change of weights within a super-batch; 0 for any.
    ///
    /// A super-batch is shorter if the largest change of a bottom-layer weight, times twice its
    /// updates, is more.
    #[arg(long, value_name = "X")]
    pub max_variation: f64,
}

impl Default for LayeredOptions {
    fn default() -> Self {
        Self {
            hot_ratio: Ratio(None),
            super_batch: 0,
            hot_by: ASKED.into(),
            hot_rank: 16,
            hot_gradient: HotGradient::Auto,
            hot_ahead: Switch::Auto,
            hot_split: Ratio(Some(1.0)),
            max_variation: 0.0,
        }
    }
}

impl OptionSet for LayeredOptions {
    fn check(&self) -> Result<(), Fault> {
        range("max_variation", self.max_variation, 0.0..)?;
        range("super_batch", self.super_batch, ..=MOST_BATCHES)?;
        range("hot_rank", self.hot_rank, ..=MOST_DIRECTIONS)?;
        if self.hot_gradient == HotGradient::Projected && self.hot_rank == 0 {
            let why = "gradients go through the directions of --hot-rank, and --hot-rank 0 has none; use a rank of 1 or more";
            return Err(Fault::of("hot_gradient", self.hot_gradient, why));
        }
        if self.hot_by == ASKED {
            return Ok(());
        }
        let unknown = |e| Fault { option: Some("hot_by".into()), message: format!("{e}; or {ASKED}") };
        if matches!(cache_kind::kind(&self.hot_by).map_err(unknown)?, cache_kind::Kind::Pinned) {
            return Ok(());
        }
        let why = "rows that come and go make no node hot; use asked, or a hotness such as presc:1";
        Err(Fault::of("hot_by", &self.hot_by, why))
    }

    fn unused(&self, option: &str) -> Option<String> {
        match (option, self.hot_ratio.0) {
            ("hot_rank", _) if self.hot_gradient == HotGradient::Kept && self.hot_rank > 0 => Some(
                "--hot-gradient kept works without directions; use projected or none, or leave it out".into(),
            ),
            ("hot_by", ratio) if self.hot_by != ASKED && ratio.is_none_or(|ratio| ratio >= 1.0) => {
                Some(format!(
                    "--hot-ratio {} reuses the rows of every node that can be hot; give a smaller part such as \
                 --hot-ratio 0.3, or leave it out",
                    self.hot_ratio
                ))
            }
            _ => None,
        }
    }
}

/// Chooses whether rows are made ahead.
pub(crate) fn settle(config: &mut TrainConfig) {
    let ahead = if *config.devices == Devices::Cpu { Switch::Off } else { Switch::On };
    let options = config.own.get_mut::<LayeredOptions>();
    if options.hot_ahead == Switch::Auto {
        options.hot_ahead = ahead;
    }
}

/// Why an option of the strategy is without effect, and the remedy.
pub(crate) fn unused(config: &TrainConfig, option: &str) -> Option<String> {
    let split = config.own.get::<LayeredOptions>().hot_split;
    if option == "hot_split" && split.0.is_none() && *config.devices == Devices::Cpu {
        return Some(
            "auto adapts to how long devices wait, and --devices cpu has none; give a part from 0 to 1, or use \
             --devices virtual:N"
                .into(),
        );
    }
    unused_in_rounds(config, option)
}
