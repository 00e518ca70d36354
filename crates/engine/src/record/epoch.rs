//! Record of an epoch: a line of `metrics.jsonl`.

use serde::{Deserialize, Serialize};

use super::{
    dataset::{TypeCount, TypeTraffic},
    memory::MemorySample,
    rank::RankRecord,
    reuse::ReuseRecord,
    timeline::Stage,
    workers::WorkerRecord,
};
use graphmill_loader::{Traffic, feature::LinkTraffic};

/// Seconds per stage, summed over an epoch's batches. The sum over concurrent stages may exceed the
/// duration of the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stages {
    /// Computing the order of the seeds.
    pub order: f64,
    /// Drawing blocks.
    pub sample: f64,
    /// Gathering feature rows.
    pub extract: f64,
    /// Forward, loss, backward, update.
    pub train: f64,
}

impl Stages {
    /// Names and seconds of the stages, in their order.
    pub fn parts(&self) -> [(&'static str, f64); 4] {
        [("order", self.order), ("sample", self.sample), ("extract", self.extract), ("train", self.train)]
    }
}

/// Work of a device in an epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceRecord {
    /// Name of the device.
    pub device: String,
    /// Role: sampler, trainer, or both.
    pub role: String,
    /// Number of batches that the device trained on.
    pub batches: u64,
    /// Number of rows in the device's cache.
    pub cache_rows: usize,
    /// Fraction of the rows read that the device's cache, or the pool that it belongs to, served.
    pub hit_rate: Option<f64>,
    /// Bytes transferred over the device's link.
    pub link_bytes: u64,
    /// Seconds that the link was busy, if it is simulated.
    pub link_seconds: f64,
    /// Bytes read from the caches of other devices, and of rows that a simulated device wrote to
    /// them.
    pub peer_link_bytes: u64,
    /// Seconds that the device's link to the others was busy, if it is simulated.
    pub peer_link_seconds: f64,
}

impl DeviceRecord {
    /// Sum over the links of these devices to the host.
    pub(crate) fn links(devices: &[Self]) -> LinkTraffic {
        LinkTraffic {
            transfers: 0,
            bytes: devices.iter().map(|device| device.link_bytes).sum(),
            seconds: devices.iter().fold(0.0, |sum, device| sum + device.link_seconds),
        }
    }
}

/// Record of an epoch: a line of `metrics.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EpochRecord {
    /// Number of the epoch, from 1.
    pub epoch: usize,
    /// Mean training loss over the seeds.
    pub loss: f64,
    /// Score on the training nodes, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train_score: Option<f64>,
    /// Score on the validation nodes, if the epoch was scored.
    pub valid_score: Option<f64>,
    /// Mean loss on the validation nodes, if the epoch was scored.
    pub valid_loss: Option<f64>,
    /// Learning rate at the end of the epoch.
    pub lr: f64,
    /// Seconds from the order to the last update, without evaluation.
    pub seconds: f64,
    /// Seconds of evaluation.
    pub eval_seconds: f64,
    /// Seconds by stage.
    pub stages: Stages,
    /// Number of seeds trained on.
    pub seeds: u64,
    /// Number of edges in all blocks.
    pub sampled_edges: u64,
    /// Number of edges in the bottom blocks, which the first layer aggregates. Reused rows count no
    /// edges here, but in [`ReuseRecord::made_edges`].
    pub bottom_edges: u64,
    /// `seeds / seconds`.
    pub seeds_per_second: f64,
    /// Feature rows and bytes read.
    pub traffic: Traffic,
    /// Fraction of the rows read that the nearest tier served.
    pub hit_rate: Option<f64>,
    /// Largest norm of the gradient before clipping, if clipping is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grad_norm: Option<f64>,
    /// Work of each device, if devices work independently.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceRecord>,
    /// Work of each rank, if there are several. The other counts are sums over ranks; times and
    /// workers are those of rank 0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankRecord>,
    /// Reuse of bottom-layer rows, if enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reuse: Option<ReuseRecord>,
    /// Nodes of each type whose rows batches read, if there are several types.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_types: Vec<TypeCount>,
    /// Rows and bytes read of each node type with features, if there are several types.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub type_traffic: Vec<TypeTraffic>,
    /// Sampled edges of each type, if there are several types.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edge_types: Vec<TypeCount>,
    /// Work of each worker. If the epoch was resumed, counts from the resumption.
    pub workers: Vec<WorkerRecord>,
    /// Stage with the busiest workers ([`bottleneck`](super::bottleneck)).
    pub bottleneck: Option<Stage>,
    /// Resident bytes after scoring, if the system reports them.
    pub memory_bytes: Option<u64>,
    /// Samples of the resident bytes during the epoch.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<MemorySample>,
}
