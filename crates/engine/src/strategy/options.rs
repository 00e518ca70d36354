//! Options that several strategies share.

use clap::{Args, ValueEnum};
use graphmill_core::{by_name, options::OptionSet};
use graphmill_loader::sampler;
use serde::{Deserialize, Serialize};

use crate::TrainConfig;

/// Order of the Trainers' updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Updates {
    /// One update per round of batches, by their mean gradient.
    Synchronous,
    /// One update per batch, by a gradient of a fixed staleness.
    Asynchronous,
}

/// Method that sums the gradients of several NVIDIA devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AllReduce {
    /// NCCL if it is installed and the order cannot matter, else copies.
    Auto,
    /// NCCL.
    Nccl,
    /// Copies between devices, in the order of the batches.
    Peer,
}

by_name!(Updates, AllReduce);

/// Options of strategies with several batches under way.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueOptions {
    /// Largest number of batches under way; 0 keeps all stages busy.
    #[arg(long, alias = "queue", value_name = "N")]
    pub queue_depth: usize,
}

impl OptionSet for QueueOptions {
    const FREE: &'static [&'static str] = &["queue_depth"];
}

/// Options of strategies whose devices train concurrently.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdateOptions {
    /// Updates of the model: synchronous or asynchronous.
    ///
    /// A synchronous update uses the gradients of a round of batches. An asynchronous update uses
    /// the gradient of one batch, which is --staleness updates stale.
    #[arg(long, value_name = "HOW")]
    pub updates: Updates,
    /// Staleness of an asynchronous gradient, in updates.
    ///
    /// Batch K of an epoch waits for K - N updates of the epoch and reads the parameters that
    /// exactly these have made. If N is the number of devices that train, all of them have work; a
    /// larger N helps if their speeds vary, and makes all gradients staler.
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
        let why = "synchronous gradients are never stale; use --updates asynchronous, or leave it out";
        (option == "staleness" && !self.is_asynchronous()).then(|| why.into())
    }
}

impl UpdateOptions {
    /// Returns true if each gradient makes an update.
    pub fn is_asynchronous(&self) -> bool {
        self.updates == Updates::Asynchronous
    }

    /// Staleness of a gradient, in updates; less in the first batches of an epoch.
    pub fn bound(&self) -> u64 {
        if self.is_asynchronous() { self.staleness as u64 } else { 0 }
    }
}

/// Options of strategies that update the model by rounds of batches.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RoundOptions {
    /// Sum of gradients over NVIDIA devices: auto, nccl or peer.
    ///
    /// With peer, gradients are copied between devices and added in the order of the batches. With
    /// auto, nccl if it is installed and a round has two batches, whose sum has the same bits in
    /// any order.
    #[arg(long, value_name = "HOW")]
    pub all_reduce: AllReduce,
    /// Batches per synchronous update; 0 uses one per training device.
    ///
    /// An update by N batches equals an update by a batch that is N times as large.
    #[arg(long, value_name = "N")]
    pub batches_per_update: usize,
}

impl Default for RoundOptions {
    fn default() -> Self {
        Self { all_reduce: AllReduce::Auto, batches_per_update: 0 }
    }
}

impl OptionSet for RoundOptions {}

/// Returns the reason and the fix if an option has no effect on batches that are drawn in parts.
pub(super) fn unused_in_parts(config: &TrainConfig, option: &str) -> Option<String> {
    let kind = sampler::TABLE.get(&config.sampler)?.make;
    (option == "estimator" && kind.draws_subgraphs()).then(|| {
        "subgraphs of a run that reuses rows read all neighbours of their nodes, so no sum is estimated; use \
         another strategy with --reuse none, or leave it out"
            .into()
    })
}

/// Returns the reason and the fix if the other options leave an option of rounds without effect.
pub(super) fn unused_in_rounds(config: &TrainConfig, option: &str) -> Option<String> {
    let why = match option {
        "all_reduce" if config.cuda_devices().len() < 2 => format!(
            "--devices {} has no gradients of several NVIDIA devices to sum; use --devices cuda:0,1, or \
             leave it out",
            config.devices
        ),
        "batches_per_update" if config.own.get::<UpdateOptions>().is_asynchronous() => {
            "an asynchronous update uses one batch; use --updates synchronous, or leave it out".into()
        }
        _ => return None,
    };
    Some(why)
}
