//! The size of a cache in words.

/// A cache to be.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cache {
    pub(super) policy: String,
    /// Rows that there is memory for; of each device.
    pub(super) slots: usize,
    /// The fewest and the most rows that one of the devices holds, once the cache is made: several
    /// devices share rows.
    pub(super) held: Option<(usize, usize)>,
}

impl Cache {
    /// The part of `rows` rows that is held, in percent.
    pub(super) fn percent(&self, rows: usize) -> String {
        let (fewest, most) = self.held.unwrap_or((self.slots, self.slots));
        let [fewest, most] =
            [fewest, most].map(|held| format!("{:.1}", 100.0 * held as f64 / rows.max(1) as f64));
        if fewest == most { format!("{most} %") } else { format!("{fewest} to {most} %") }
    }
}
