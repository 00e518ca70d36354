//! Work that reuse saves and adds, and the constants that weigh it ([`super::counts`] counts it).

use std::{fmt, iter::Sum};

use graphmill_core::units::decimal_bytes;
use serde::{Deserialize, Serialize};

/// Ratio of the saved to the added work above which reuse pays. With 64 features the ratio is 1.7
/// and epochs were 0.94 times as fast, with 100 it is 2.3 and they were 1.04 times as fast
/// (book/src/results/strategies.md, "When reuse pays").
const MARGIN: f64 = 2.0;
/// Bytes that aggregation moves while an edge is drawn: 70 GB/s beside 429 M edges/s
/// (book/src/results/performance.md).
pub(super) const DRAW_BYTES: f64 = 160.0;
/// Bytes of the lines of memory that a requested row touches: its count, and its slot twice.
pub(super) const REQUEST_BYTES: f64 = 3.0 * 64.0;
/// Bytes moved per node of the graph: its count is cleared, compared and added.
pub(super) const NODE_BYTES: f64 = 6.0;

/// Work of a batch, in bytes moved; over all ranks, if there are several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReuseWork {
    /// Work of its bottom layer without reuse.
    pub bottom: u64,
    /// Part of it that reuse saves.
    pub saved: u64,
    /// Work that reuse adds.
    pub added: u64,
}

impl ReuseWork {
    /// Returns true if reuse saves enough.
    pub fn pays(self) -> bool {
        self.saved as f64 > MARGIN * self.added as f64
    }
}

impl Sum for ReuseWork {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |sum, part| Self {
            bottom: sum.bottom.saturating_add(part.bottom),
            saved: sum.saved.saturating_add(part.saved),
            added: sum.added.saturating_add(part.added),
        })
    }
}

impl fmt::Display for ReuseWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bottom, saved, added } = *self;
        let [bottom, saved, added] = [bottom, saved, added].map(decimal_bytes);
        write!(f, "reuse would save {saved} of {bottom} of work of the bottom layer a batch and add {added}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reuse_pays_if_it_saves_more_than_a_margin() {
        let work = |saved, added| ReuseWork { bottom: 100, saved, added };
        assert!(work(41, 20).pays() && work(1, 0).pays());
        assert!(!work(40, 20).pays() && !work(0, 0).pays());
        let text = ReuseWork { bottom: 5_600_000_000, saved: 4_100_000_000, added: 900_000_000 }.to_string();
        let expected =
            "reuse would save 4.1 GB of 5.6 GB of work of the bottom layer a batch and add 900.0 MB";
        assert_eq!(text, expected);
    }
}
