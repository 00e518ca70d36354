//! Mean reciprocal rank: `mean over queries of 1 / rank`, of the best-ranked relevant candidate.

/// Value of a query.
pub(super) fn value(ranks: &[f64], _: usize) -> f64 {
    1.0 / ranks.iter().copied().fold(f64::INFINITY, f64::min)
}
