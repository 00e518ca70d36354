//! Totals of the rows that an epoch requests, reuses and makes. A checkpoint holds them.

use serde::{Deserialize, Serialize};

use crate::record::ReuseRecord;

/// Totals of the super-batches of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReuseTotals {
    /// Number of super-batches.
    pub super_batches: u64,
    /// Number of their batches.
    pub batches: u64,
    /// Rows that batches requested and could reuse.
    pub requested: u64,
    /// Requested rows that were reused.
    pub reused: u64,
    /// Rows made for reuse.
    pub made: u64,
    /// Edges drawn to make them.
    pub edges: u64,
    /// Seconds that training waited for rows.
    pub waited: f64,
}

impl ReuseTotals {
    /// Record of these totals, of which the share `split` of the hot nodes' rows was made; `None`
    /// without super-batches.
    pub fn record(self, split: f64, variation: f64) -> Option<ReuseRecord> {
        let Self { super_batches, batches, requested, reused, made, edges, waited } = self;
        let each = |sum: u64| sum as f64 / super_batches.max(1) as f64;
        (super_batches > 0).then(|| ReuseRecord {
            super_batch: each(batches),
            hot_nodes: each(made),
            asked_rows: requested,
            reused_rows: reused,
            made_rows: made,
            made_edges: edges,
            waited_seconds: waited,
            split,
            variation,
        })
    }
}

impl std::ops::AddAssign for ReuseTotals {
    fn add_assign(&mut self, other: Self) {
        self.super_batches += other.super_batches;
        self.batches += other.batches;
        self.requested += other.requested;
        self.reused += other.reused;
        self.made += other.made;
        self.edges += other.edges;
        self.waited += other.waited;
    }
}
