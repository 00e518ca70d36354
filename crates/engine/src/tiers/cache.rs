//! Policy and size of a planned cache.

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
    /// Formats the cached percentage of `rows` rows; a range if devices differ.
    pub(super) fn percent(&self, rows: usize) -> String {
        let (min, max) = self.rows_per_device.unwrap_or((self.slots, self.slots));
        let [min, max] = [min, max].map(|held| format!("{:.1}", 100.0 * held as f64 / rows.max(1) as f64));
        if min == max { format!("{max} %") } else { format!("{min} to {max} %") }
    }
}
