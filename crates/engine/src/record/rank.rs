//! The part of a rank in an epoch.

use serde::{Deserialize, Serialize};

/// Work of a rank in an epoch; of one that was resumed in its middle, behind that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RankRecord {
    /// Its number.
    pub rank: usize,
    /// Seeds of its shares.
    pub seeds: u64,
    /// Edges in its blocks.
    pub sampled_edges: u64,
    /// Rows of features that it read of its own, or of what it keeps of others'.
    pub near_rows: u64,
    /// Rows that it asked others for.
    pub remote_rows: u64,
    /// Bytes that it sent to draw neighbours: asks and answers, headers included.
    pub sample_bytes: u64,
    /// Bytes that it sent for rows of features.
    pub feature_bytes: u64,
    /// Bytes that it sent to sum gradients, and to agree.
    pub sum_bytes: u64,
}
