//! Record of a rank's work in an epoch.

use serde::{Deserialize, Serialize};

/// Returns true if the record omits the field.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
fn is_zero(rows: &u64) -> bool {
    *rows == 0
}

/// Work of a rank in an epoch. If the epoch was resumed, counts from the resumption.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RankRecord {
    /// Number of the rank.
    pub rank: usize,
    /// Seeds that the rank trained on.
    pub seeds: u64,
    /// Edges in the rank's blocks.
    pub sampled_edges: u64,
    /// Feature rows read from the rank's own memory and files: its devices, the rows of its parts,
    /// and its caches.
    pub near_rows: u64,
    /// Rows among them that came from memory of the rank's devices.
    #[serde(skip_serializing_if = "is_zero")]
    pub device_rows: u64,
    /// Rows among them that came from files.
    #[serde(skip_serializing_if = "is_zero")]
    pub disk_rows: u64,
    /// Feature rows requested from other ranks.
    pub remote_rows: u64,
    /// Bytes sent for sampling: requests and responses, including headers.
    pub sample_bytes: u64,
    /// Bytes sent for feature rows.
    pub feature_bytes: u64,
    /// Bytes sent to sum gradients and to synchronise.
    pub sum_bytes: u64,
    /// Seconds of the rank on each stage of a batch.
    pub stages: RankStages,
}

/// Seconds of a rank on the eight stages into which BGL divides a batch (Liu et al., NSDI 2023,
/// Asynchronous Pipeline Stages), summed over its threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RankStages {
    /// Drawing of neighbours for other ranks.
    pub requests: f64,
    /// Writing of the drawn neighbours into replies to other ranks.
    pub subgraphs: f64,
    /// Waiting for replies of other ranks, with neighbours or with rows.
    pub network: f64,
    /// Sampling without the waiting: own draws, merging of replies and renumbering.
    pub process: f64,
    /// Copies of blocks and parameters over the links of devices that work independently.
    pub structure: f64,
    /// Reading of rows from memory of devices and of the host, with the look-ups of caches.
    pub cache: f64,
    /// Copies of rows over the links of devices that work independently.
    pub features: f64,
    /// Forward and backward passes and updates, with the sums over ranks.
    pub compute: f64,
}

impl RankStages {
    /// Names of the stages, in their order.
    pub const NAMES: [&str; 8] =
        ["requests", "subgraphs", "network", "process", "structure", "cache", "features", "compute"];

    /// Seconds of the stages, in the order of [`RankStages::NAMES`].
    pub fn seconds(&self) -> [f64; 8] {
        let Self { requests, subgraphs, network, process, structure, cache, features, compute } = *self;
        [requests, subgraphs, network, process, structure, cache, features, compute]
    }
}

impl From<[f64; 8]> for RankStages {
    fn from(seconds: [f64; 8]) -> Self {
        let [requests, subgraphs, network, process, structure, cache, features, compute] = seconds;
        Self { requests, subgraphs, network, process, structure, cache, features, compute }
    }
}
