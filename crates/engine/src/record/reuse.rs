//! What reusing bottom-layer rows saved in an epoch.

use serde::{Deserialize, Serialize};

/// Of the super-batches of an epoch (of one that was resumed in its middle, of those behind it).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReuseRecord {
    /// Batches of a super-batch, on average.
    pub super_batch: f64,
    /// Nodes whose rows a super-batch reuses, on average.
    pub hot_nodes: f64,
    /// Bottom-layer rows that batches asked for; those of the nodes that the next layer reads as
    /// its own are not counted.
    pub asked_rows: u64,
    /// Those of them that were reused.
    pub reused_rows: u64,
    /// Rows that were made for that.
    pub made_rows: u64,
    /// Edges that were drawn, and aggregated over, to make them.
    pub made_edges: u64,
    /// The largest change of a bottom-layer weight by an update, times twice the updates of a
    /// super-batch (NeutronOrch, section 4.3).
    pub variation: f64,
    /// Seconds that training waited for rows.
    pub waited_seconds: f64,
    /// The part of the hot nodes whose rows were made; the others were left to caches of features.
    pub split: f64,
}
