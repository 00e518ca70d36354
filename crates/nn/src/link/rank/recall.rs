//! Recall@K: the share of a query's relevant candidates of rank at most `K`, averaged over the
//! queries.

use super::{Query, mean};

/// The metric.
pub(super) fn metric(queries: &[Query], k: usize) -> Option<f64> {
    mean(queries, |ranks| ranks.iter().filter(|&&rank| rank <= k as f64).count() as f64 / ranks.len() as f64)
}
