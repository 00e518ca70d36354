//! The record of an epoch: a line of `metrics.jsonl`.

use serde::{Deserialize, Serialize};

use super::{
    memory::MemorySample, rank::RankRecord, reuse::ReuseRecord, timeline::Stage, workers::WorkerRecord,
};
use graphmill_loader::Traffic;

/// Seconds per stage, summed over an epoch's batches. Stages that run side by side add up to
/// more than the epoch took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stages {
    /// Choosing the order of the seeds.
    pub order: f64,
    /// Drawing blocks.
    pub sample: f64,
    /// Gathering feature rows.
    pub extract: f64,
    /// Forward, loss, backward, update.
    pub train: f64,
}

impl Stages {
    /// The stages with their names, in their order.
    pub fn parts(&self) -> [(&'static str, f64); 4] {
        [("order", self.order), ("sample", self.sample), ("extract", self.extract), ("train", self.train)]
    }
}

/// Work of a device in an epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceRecord {
    /// Its name.
    pub device: String,
    /// Its role: sampler, trainer, or both.
    pub role: String,
    /// Batches it trained on.
    pub batches: u64,
    /// Rows that its cache holds.
    pub cache_rows: usize,
    /// Rows served by its cache out of all rows it read.
    pub hit_rate: Option<f64>,
    /// Bytes that went over its link.
    pub link_bytes: u64,
    /// Seconds that its link was taken, where it is simulated.
    pub link_seconds: f64,
}

/// An epoch: a line of `metrics.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EpochRecord {
    /// From 1.
    pub epoch: usize,
    /// Mean training loss over the seeds.
    pub loss: f64,
    /// Score on the training nodes, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train_score: Option<f64>,
    /// Score on the validation nodes, where they were scored.
    pub valid_score: Option<f64>,
    /// Mean loss on the validation nodes, where they were scored.
    pub valid_loss: Option<f64>,
    /// Learning rate at the end.
    pub lr: f64,
    /// From the order to the last update; evaluation is apart.
    pub seconds: f64,
    /// Evaluation.
    pub eval_seconds: f64,
    /// Seconds by stage.
    pub stages: Stages,
    /// Seeds trained on.
    pub seeds: u64,
    /// Edges in all blocks.
    pub sampled_edges: u64,
    /// Those of them in the bottom blocks, which the first layer aggregates over. Of reused rows
    /// none; what making them took is in [`ReuseRecord::made_edges`].
    pub bottom_edges: u64,
    /// Seeds per second of `seconds`.
    pub seeds_per_second: f64,
    /// Feature rows and bytes read.
    pub traffic: Traffic,
    /// Rows served by the nearest tier out of all rows read.
    pub hit_rate: Option<f64>,
    /// Largest norm of the gradient before clipping, where clipping is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grad_norm: Option<f64>,
    /// What each device did, where they work for themselves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceRecord>,
    /// What each rank did, where there are several. What else is here is of all of them; times and
    /// workers are rank 0's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankRecord>,
    /// What reusing bottom-layer rows saved, where that is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reuse: Option<ReuseRecord>,
    /// What each worker did. Of an epoch that was resumed in its middle, the part behind it.
    pub workers: Vec<WorkerRecord>,
    /// The stage whose workers are busiest ([`bottleneck`](super::bottleneck)).
    pub bottleneck: Option<Stage>,
    /// Bytes resident at the epoch's end, scoring included, where the system tells it.
    pub memory_bytes: Option<u64>,
    /// The same in between, where the epoch is long enough.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<MemorySample>,
}
