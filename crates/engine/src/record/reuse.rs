//! Record of reused bottom-layer rows in an epoch.

use serde::{Deserialize, Serialize};

/// Reuse in the super-batches of an epoch. If the epoch was resumed, counts from the resumption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReuseRecord {
    /// Mean number of batches of a super-batch.
    pub super_batch: f64,
    /// Mean number of nodes whose rows a super-batch reuses.
    pub hot_nodes: f64,
    /// Bottom-layer rows that batches requested, except rows that the next layer reads as
    /// destinations' own rows.
    pub asked_rows: u64,
    /// Requested rows that were reused.
    pub reused_rows: u64,
    /// Rows that were computed for reuse.
    pub made_rows: u64,
    /// Edges that were sampled and aggregated to compute them.
    pub made_edges: u64,
    /// Largest change of a bottom-layer weight by an update, times twice the number of updates of a
    /// super-batch (NeutronOrch, section 4.3).
    pub variation: f64,
    /// Seconds that training waited for rows.
    pub waited_seconds: f64,
    /// Fraction of the hot nodes whose rows were computed; feature caches serve the others.
    pub split: f64,
}
