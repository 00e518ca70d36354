//! Policy and size of a planned cache.

use crate::{
    Result,
    cache_kind::{Kind, follows_ids, kind},
};

/// Bytes of a cache's maps per row of the table, and per cached row. The maximum over all policies.
const MAP_BYTES: [f64; 2] = [8.0, 20.0];
/// The same if the cached rows are the first of the table: only the device of a cached row.
const BOUNDARY_BYTES: [f64; 2] = [0.0, 2.0];

/// Bytes of the maps of a cache by `policy` in host memory or on a simulated device, per row of the
/// table, and per cached row.
pub(crate) fn map_bytes(policy: &str) -> [f64; 2] {
    if follows_ids(policy) { BOUNDARY_BYTES } else { MAP_BYTES }
}

/// The same of a cache whose maps are on an NVIDIA device, at most.
///
/// # Errors
/// The policy is unknown.
pub(crate) fn nvidia_map_bytes(policy: &str) -> Result<[f64; 2]> {
    Ok(match kind(policy)? {
        // a boundary locates the first rows
        _ if follows_ids(policy) => [0.0, 0.0],
        Kind::Pinned => [4.0, 0.0],
        // the holder of each row and a mark of its use
        Kind::Dynamic(_) => [4.0, 8.0],
    })
}

/// Memory of a cache: its rows and maps. Runs size caches by it, and plans predict them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheBytes {
    /// Bytes of the maps over all rows of the table, whatever the cache holds.
    pub of_table: f64,
    /// Bytes of a cached row with its part of the maps.
    pub of_row: f64,
}

impl CacheBytes {
    /// Memory of a cache by `policy` of rows of `row_bytes` bytes, in front of a table of `rows`
    /// rows, in host memory or on a simulated device.
    pub fn new(policy: &str, rows: usize, row_bytes: u64) -> Self {
        Self::with_maps(map_bytes(policy), rows, row_bytes)
    }

    /// The same on an NVIDIA device that holds the maps.
    ///
    /// # Errors
    /// The policy is unknown.
    pub fn on_nvidia(policy: &str, rows: usize, row_bytes: u64) -> Result<Self> {
        Ok(Self::with_maps(nvidia_map_bytes(policy)?, rows, row_bytes))
    }

    /// Memory of a cache whose maps take these bytes per row of the table, and per cached row.
    pub(crate) fn with_maps([of_table, of_row]: [f64; 2], rows: usize, row_bytes: u64) -> Self {
        Self { of_table: of_table * rows as f64, of_row: row_bytes as f64 + of_row }
    }

    /// Bytes of `rows` cached rows with the maps.
    pub fn bytes(&self, rows: f64) -> f64 {
        self.of_table + rows * self.of_row
    }

    /// Number of rows, not rounded, that `budget` bytes hold with the maps; `None` if not even the
    /// maps over the table fit.
    pub fn rows_within(&self, budget: f64) -> Option<f64> {
        let free = budget - self.of_table;
        (free >= 0.0).then(|| free / self.of_row)
    }
}

/// Number of rows of `row_bytes` bytes, of `rows` in total, whose cache by `policy` fits in
/// `budget` bytes with its maps.
pub(crate) fn rows_within(policy: &str, rows: usize, row_bytes: u64, budget: u64) -> usize {
    let fitting = CacheBytes::new(policy, rows, row_bytes).rows_within(budget as f64);
    (fitting.unwrap_or(0.0) as usize).min(rows)
}

/// A planned cache.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cache {
    /// Name of the hotness or policy.
    pub(super) policy: String,
    /// Maximum number of rows, of each device.
    pub(super) slots: usize,
    /// Minimum and maximum number of rows on a device, once the cache is built. They differ if
    /// several devices share rows.
    pub(super) rows_per_device: Option<(usize, usize)>,
}

impl Cache {
    /// Memory of the cache, in front of a table of `rows` rows of `row_bytes` bytes.
    pub(super) fn memory(&self, rows: usize, row_bytes: u64) -> CacheBytes {
        CacheBytes::new(&self.policy, rows, row_bytes)
    }

    /// Formats the cached percentage of `rows` rows; a range if devices differ.
    pub(super) fn percent(&self, rows: usize) -> String {
        let (min, max) = self.rows_per_device.unwrap_or((self.slots, self.slots));
        let [min, max] = [min, max].map(|held| format!("{:.1}", 100.0 * held as f64 / rows.max(1) as f64));
        if min == max { format!("{max} %") } else { format!("{min} to {max} %") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TrainConfig, tiers::Plan};
    use graphmill_data::generate::{GenerateOptions, generate};

    #[test]
    fn a_cache_of_the_first_rows_has_the_memory_of_the_map_for_rows() {
        let options = GenerateOptions { nodes: 1000, dim: 20, ..GenerateOptions::default() };
        let data = generate("sbm", &options).unwrap();
        let rows = |policy: &str| {
            let config = TrainConfig {
                devices: "virtual:1".parse().unwrap(),
                cache: policy.into(),
                ..TrainConfig::default()
            };
            let plan = Plan::new(&config, &data).unwrap().unwrap();
            plan.capacity(plan.device.as_ref().unwrap(), 0, 28_000)
        };
        // rows of 80 bytes: 8 bytes of maps a node and 20 a row, or 2 a row
        assert_eq!(rows("degree"), Some((28_000 - 8_000) / 100));
        assert_eq!(rows("stored-order"), Some(28_000 / 82));
    }

    #[test]
    fn rows_within_a_budget_take_at_most_its_bytes() {
        for policy in ["degree", "lru", "stored-order"] {
            let memory = CacheBytes::new(policy, 1000, 80);
            let nvidia = CacheBytes::on_nvidia(policy, 1000, 80).unwrap();
            assert!(nvidia.bytes(500.0) < memory.bytes(500.0), "{policy}");
            for budget in [8_000u64, 9_999, 50_000, 1 << 40] {
                let rows = rows_within(policy, 1000, 80, budget);
                assert!(rows == 0 || memory.bytes(rows as f64) <= budget as f64, "{policy} {budget}");
                assert!(rows == 1000 || memory.bytes((rows + 1) as f64) > budget as f64, "{policy} {budget}");
            }
        }
        assert_eq!(CacheBytes::new("lru", 1000, 80).rows_within(7_999.0), None);
        assert_eq!(rows_within("lru", 1000, 80, 7_999), 0);
        assert!(CacheBytes::on_nvidia("newest", 1000, 80).is_err());
    }
}
