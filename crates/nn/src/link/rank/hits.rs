//! Hits@K: the share of queries with a relevant candidate of rank at most `K`.

use super::{Query, mean};

/// The metric.
pub(super) fn metric(queries: &[Query], k: usize) -> Option<f64> {
    mean(queries, |ranks| f64::from(u8::from(ranks.iter().any(|&rank| rank <= k as f64))))
}
