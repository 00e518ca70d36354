//! Mean average precision at `K`.
//!
//! # Algorithm
//!
//! The precision at the rank of each relevant candidate of rank at most `K`: the number of relevant
//! candidates up to it, divided by its rank. Their sum is divided by the number of relevant
//! candidates, at most `K`, and averaged over the queries.
//!
//! # Source
//!
//! Manning, Raghavan and Schuetze, *Introduction to Information Retrieval*, 2008, section 8.4.
//!
//! # Cost
//!
//! O(R log R) for `R` relevant candidates.

/// Value of a query.
pub(super) fn value(ranks: &[f64], k: usize) -> f64 {
    let mut top: Vec<f64> = ranks.iter().copied().filter(|&rank| rank <= k as f64).collect();
    top.sort_unstable_by(f64::total_cmp);
    let precisions = top.iter().enumerate().map(|(i, rank)| (i + 1) as f64 / rank);
    // a tie of relevant candidates has a mean rank below their number
    precisions.map(|precision| precision.min(1.0)).sum::<f64>() / ranks.len().min(k).max(1) as f64
}
