//! Policy and size of a planned cache.

use crate::cache_kind::follows_ids;

/// Bytes of a cache's maps per row of the table, and per cached row. The maximum over all policies.
const MAP_BYTES: [f64; 2] = [8.0, 20.0];
/// The same if the cached rows are the first of the table: only the device of a cached row.
const BOUNDARY_BYTES: [f64; 2] = [0.0, 2.0];

/// Bytes of the maps of a cache by `policy` per row of the table, and per cached row.
pub(crate) fn map_bytes(policy: &str) -> [f64; 2] {
    if follows_ids(policy) { BOUNDARY_BYTES } else { MAP_BYTES }
}

/// Number of rows of `row_bytes` bytes, of `rows` in total, whose cache by `policy` fits in
/// `budget` bytes with its maps.
pub(crate) fn rows_within(policy: &str, rows: usize, row_bytes: u64, budget: u64) -> usize {
    let [of_table, of_row] = map_bytes(policy);
    let free = budget as f64 - of_table * rows as f64;
    ((free.max(0.0) / (row_bytes as f64 + of_row)) as usize).min(rows)
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
    /// Bytes of the cache's maps per row of the table, and per cached row.
    pub(super) fn map_bytes(&self) -> [f64; 2] {
        map_bytes(&self.policy)
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
}
