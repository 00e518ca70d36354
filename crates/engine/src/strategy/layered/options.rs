//! Options of layered reuse.

use std::{fmt, str::FromStr};

use clap::{Args, ValueEnum};
use graphmill_core::{
    by_name, by_word,
    options::{Fault, OptionSet, range, suggestion},
};
use graphmill_loader::sampler;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    TrainConfig, cache_kind,
    config::{Devices, Ratio, Switch},
};

/// Largest length of a super-batch: it is drawn before training, and requests are counted in 16
/// bits.
const MAX_BATCHES: usize = 1 << 14;
/// Largest rank of the basis: with more directions, computing the rows costs no more.
const MAX_DIRECTIONS: usize = 1 << 10;
/// Name of the hotness by requests within the super-batch.
pub(crate) const REQUESTS: &str = "requests";
/// Earlier name of [`REQUESTS`], which is still accepted.
const FORMER_REQUESTS: &str = "asked";

/// Use of the gradient of reused rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HotGradient {
    /// `Projected` if the bottom layer supports it.
    Auto,
    /// The rows are constants.
    None,
    /// Gradient of the weights, in the directions of the basis.
    Projected,
    /// Gradient of the weights, through all aggregates of the rows.
    Kept,
}

by_name!(HotGradient);

/// Share of the hot nodes whose rows are made for reuse.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HotSplit {
    /// The share that moves the fewest bytes, by counts of the first batches.
    Auto,
    /// At first [`HotSplit::Auto`], then by the time that training waits for rows.
    Timed,
    /// A fixed share.
    Share(f64),
}

impl FromStr for HotSplit {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "auto" => return Ok(Self::Auto),
            "timed" => return Ok(Self::Timed),
            _ => {}
        }
        let share = word.parse().ok().filter(|share| (0.0..=1.0).contains(share));
        let near = || suggestion(word, &["auto", "timed"]);
        let wrong = || format!("'{word}' is neither auto, nor timed, nor a fraction from 0 to 1{}", near());
        share.map(Self::Share).ok_or_else(wrong)
    }
}

impl fmt::Display for HotSplit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Timed => f.write_str("timed"),
            Self::Share(share) => share.fmt(f),
        }
    }
}

impl Serialize for HotSplit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Share(share) => serializer.serialize_f64(*share),
            word => serializer.collect_str(word),
        }
    }
}

by_word!(HotSplit);

/// Options of `--reuse layered`.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LayeredOptions {
    /// Largest share of the nodes whose bottom-layer rows are reused.
    ///
    /// With auto, all nodes that two batches of a super-batch request, within a quarter of the free
    /// memory.
    #[arg(long, value_name = "R")]
    pub hot_ratio: Ratio,
    /// Batches per super-batch; 0 uses the fewest that save most work.
    #[arg(long, value_name = "N")]
    pub super_batch: usize,
    /// Hotness of a node: requests, or a metric such as presc:1.
    ///
    /// With requests, the number of batches of the super-batch that request the node's row.
    #[arg(long, alias = "hot-by", value_name = "NAME")]
    #[serde(deserialize_with = "hot_metric")]
    pub hot_metric: String,
    /// Rank of the correction applied to reused rows; 0 disables it.
    ///
    /// Reused rows follow the current parameters in this many directions. In other directions they
    /// are as old as their super-batch.
    #[arg(long, value_name = "K")]
    pub hot_rank: usize,
    /// Gradient of reused rows: auto, projected, kept or none.
    ///
    /// With projected, the weights get gradients in the directions of --hot-rank. With kept, they
    /// get gradients through all aggregates of the rows, without directions. With none, the rows
    /// are constants. With auto, projected if the bottom layer supports it.
    #[arg(long, value_name = "NAME")]
    pub hot_gradient: HotGradient,
    /// Make reused rows during the previous super-batch: auto, on or off.
    ///
    /// With auto, on if the run has devices.
    #[arg(long, alias = "hot-ahead", value_name = "WHEN")]
    pub hot_prefetch: Switch,
    /// Share of the hot nodes whose rows are reused: auto, timed or a number.
    ///
    /// The other nodes, and the memory of their rows, are left to the devices' feature caches. With
    /// auto, the share whose batches move the fewest bytes to devices with a budget, else 1. With
    /// timed, the share also follows the time that devices wait, so results depend on timing.
    #[arg(long, value_name = "R")]
    pub hot_split: HotSplit,
    /// Largest change of weights within a super-batch; 0 for any.
    ///
    /// Rows are not reused once a bottom-layer weight has changed by more than this since they were
    /// made: the rest of the super-batch gets new rows. The next super-batch is shortened if the
    /// largest change of a weight by an update, times twice its updates, exceeds this.
    #[arg(long, value_name = "X")]
    pub max_variation: f64,
}

/// Reads the name of a hotness; the earlier name of [`REQUESTS`] becomes the present one.
fn hot_metric<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    Ok(if name == FORMER_REQUESTS { REQUESTS.into() } else { name })
}

impl Default for LayeredOptions {
    fn default() -> Self {
        Self {
            hot_ratio: Ratio(None),
            super_batch: 0,
            hot_metric: REQUESTS.into(),
            hot_rank: 16,
            hot_gradient: HotGradient::Auto,
            hot_prefetch: Switch::Auto,
            hot_split: HotSplit::Auto,
            max_variation: 0.0,
        }
    }
}

impl OptionSet for LayeredOptions {
    fn check(&self) -> Result<(), Fault> {
        range("max_variation", self.max_variation, 0.0..)?;
        range("super_batch", self.super_batch, ..=MAX_BATCHES)?;
        range("hot_rank", self.hot_rank, ..=MAX_DIRECTIONS)?;
        if self.hot_gradient == HotGradient::Projected && self.hot_rank == 0 {
            let why = "gradients flow through the directions of --hot-rank, and --hot-rank 0 has no \
                       directions; use a rank of 1 or more";
            return Err(Fault::of("hot_gradient", self.hot_gradient, why));
        }
        if self.hot_metric == REQUESTS {
            return Ok(());
        }
        let unknown = |e| Fault { option: Some("hot_metric".into()), message: format!("{e}; or {REQUESTS}") };
        if matches!(cache_kind::kind(&self.hot_metric).map_err(unknown)?, cache_kind::Kind::Pinned) {
            return Ok(());
        }
        let why = "a cache policy does not rank nodes; use requests, or a hotness such as presc:1";
        Err(Fault::of("hot_metric", &self.hot_metric, why))
    }

    fn unused(&self, option: &str) -> Option<String> {
        match (option, self.hot_ratio.0) {
            ("hot_rank", _) if self.hot_gradient == HotGradient::Kept && self.hot_rank > 0 => Some(
                "--hot-gradient kept does not use directions; use projected or none, or leave it out".into(),
            ),
            ("hot_metric", ratio)
                if self.hot_metric != REQUESTS && ratio.is_none_or(|ratio| ratio >= 1.0) =>
            {
                Some(format!(
                    "--hot-ratio {} reuses the rows of every node that can be hot; use a smaller share such \
                     as --hot-ratio 0.3, or leave it out",
                    self.hot_ratio
                ))
            }
            _ => None,
        }
    }
}

/// Resolves `--hot-prefetch auto`.
pub(crate) fn derive_options(config: &mut TrainConfig) {
    let ahead = if *config.devices == Devices::Cpu { Switch::Off } else { Switch::On };
    let options = config.own.get_mut::<LayeredOptions>();
    if options.hot_prefetch == Switch::Auto {
        options.hot_prefetch = ahead;
    }
}

/// Returns the reason and the fix if counts cannot decide whether reuse pays in a run with these
/// options.
pub(crate) fn refuses_to_decide(config: &TrainConfig) -> Option<String> {
    let choose = "use --reuse layered or none";
    if *config.devices != Devices::Cpu {
        return Some(format!(
            "the work of the processor is counted, and --devices {} also gains by what crosses a link; \
             {choose}",
            config.devices
        ));
    }
    sampler::TABLE.get(&config.sampler).is_some_and(|kind| kind.make.draws_subgraphs()).then(|| {
        format!(
            "subgraphs of --sampler {} read all neighbours of their nodes if rows are reused, so the choice \
             would change what is learned; {choose}",
            config.sampler
        )
    })
}

/// Returns the reason and the fix if the other options leave an option of the strategy without
/// effect.
pub(crate) fn unused(config: &TrainConfig, option: &str) -> Option<String> {
    let split = config.own.get::<LayeredOptions>().hot_split;
    if option == "hot_split" && !matches!(split, HotSplit::Share(_)) && *config.devices == Devices::Cpu {
        return Some(
            "auto and timed divide the memory of devices, and --devices cpu has no devices; use a share \
             from 0 to 1, or --devices virtual:N"
                .into(),
        );
    }
    None
}
