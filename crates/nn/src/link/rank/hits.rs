//! Hits@K: the share of queries with a relevant candidate of rank at most `K`.

/// Value of a query.
pub(super) fn value(ranks: &[f64], k: usize) -> f64 {
    f64::from(u8::from(ranks.iter().any(|&rank| rank <= k as f64)))
}
