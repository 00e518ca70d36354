//! Mean reciprocal rank: `mean over queries of 1 / rank`, of the best-ranked relevant candidate.

use super::{Query, mean};

/// The metric.
pub(super) fn metric(queries: &[Query], _: usize) -> Option<f64> {
    mean(queries, |ranks| 1.0 / ranks.iter().copied().fold(f64::INFINITY, f64::min))
}
