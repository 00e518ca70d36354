//! Record of a rank's work in an epoch.

use serde::{Deserialize, Serialize};

/// Returns true if the record omits the field.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
fn is_zero(rows: &u64) -> bool {
    *rows == 0
}

/// Work of a rank in an epoch. If the epoch was resumed, counts from the resumption.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
}
