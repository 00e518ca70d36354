//! Recall@K: the share of a query's relevant candidates of rank at most `K`, averaged over the
//! queries.

/// Value of a query.
pub(super) fn value(ranks: &[f64], k: usize) -> f64 {
    ranks.iter().filter(|&&rank| rank <= k as f64).count() as f64 / ranks.len() as f64
}
