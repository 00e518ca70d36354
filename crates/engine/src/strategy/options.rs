//! Options that several strategies share.

use clap::{Args, ValueEnum};
use graphmill_core::{by_name, options::OptionSet};
use serde::{Deserialize, Serialize};

use crate::TrainConfig;

/// How Trainers update the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Updates {
    /// All at once, by the gradient of a round of batches.
    Synchronous,
    /// Each by itself, by a gradient whose staleness is bounded.
    Asynchronous,
}

/// How gradients of several NVIDIA devices are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AllReduce {
    /// By NCCL if it is installed and the order cannot matter, else by copies.
    Auto,
    /// By NCCL.
    Nccl,
    /// By copies between devices, in the order of the batches.
    Peer,
}

by_name!(Updates, AllReduce);

/// Options of strategies with several batches under way.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueOptions {
    /// Batches under way at most; 0 for as many as keep all stages busy.
    #[arg(long, value_name = "N")]
    pub queue: usize,
}

impl OptionSet for QueueOptions {
    const FREE: &'static [&'static str] = &["queue"];
}

/// Options of strategies whose devices train side by side.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdateOptions {
    /// Updates of the model: synchronous or asynchronous.
    ///
    /// Synchronous updates are of a round of batches, asynchronous ones of a batch each, whose
    /// gradient may be --staleness updates late.
    #[arg(long, value_name = "HOW")]
    pub updates: Updates,
    /// Updates that an asynchronous gradient may be late.
    #[arg(long, value_name = "N")]
    pub staleness: usize,
}

impl Default for UpdateOptions {
    fn default() -> Self {
        Self { updates: Updates::Synchronous, staleness: 4 }
    }
}

impl OptionSet for UpdateOptions {
    fn unused(&self, option: &str) -> Option<String> {
        let why = "synchronous updates are never late; use --updates asynchronous, or leave it out";
        (option == "staleness" && !self.is_asynchronous()).then(|| why.into())
    }
}

impl UpdateOptions {
    /// Whether each gradient is applied by itself.
    pub fn is_asynchronous(&self) -> bool {
        self.updates == Updates::Asynchronous
    }

    /// Updates that a gradient may be late.
    pub fn bound(&self) -> u64 {
        if self.is_asynchronous() { self.staleness as u64 } else { 0 }
    }
}

/// Options of strategies that update the model by rounds of batches.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundOptions {
    /// Sum of gradients of several NVIDIA devices: auto, nccl or peer.
    ///
    /// Peer copies them in the order of the batches. Auto is nccl if it is installed and rounds are
    /// of two batches, whose sums are the same bits in any order.
    #[arg(long, value_name = "HOW")]
    pub all_reduce: AllReduce,
    /// Batches of a synchronous update; 0 for one of each device.
    ///
    /// The devices are those that train. An update of N batches is as if batches were N times as
    /// large.
    #[arg(long, value_name = "N")]
    pub batches_per_update: usize,
}

impl Default for RoundOptions {
    fn default() -> Self {
        Self { all_reduce: AllReduce::Auto, batches_per_update: 0 }
    }
}

impl OptionSet for RoundOptions {}

/// Why a run with these options reads an option of rounds in vain, and the remedy.
pub(super) fn unused_in_rounds(config: &TrainConfig, option: &str) -> Option<String> {
    let why = match option {
        "all_reduce" if config.cuda_devices().len() < 2 => format!(
            "--devices {} has no gradients of several NVIDIA devices to sum; use --devices cuda:0,1, or leave it out",
            config.devices
        ),
        "batches_per_update" if config.own.get::<UpdateOptions>().is_asynchronous() => {
            "an asynchronous update is of one batch; use --updates synchronous, or leave it out".into()
        }
        _ => return None,
    };
    Some(why)
}
