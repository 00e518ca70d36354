//! NDCG@K.
//!
//! # Algorithm
//!
//! `sum over relevant candidates of rank at most K of 1 / log2(rank + 1)`, with binary gains,
//! divided by its largest value and averaged over the queries.
//!
//! # Source
//!
//! Jarvelin and Kekalainen, *Cumulated gain-based evaluation of IR techniques*, TOIS 2002.
//!
//! # Cost
//!
//! O(candidates) per relevant candidate.

/// Value of a query.
pub(super) fn value(ranks: &[f64], k: usize) -> f64 {
    let gain = |rank: f64| 1.0 / (rank + 1.0).log2();
    let ideal: f64 = (1..=ranks.len().min(k)).map(|rank| gain(rank as f64)).sum();
    let found: f64 = ranks.iter().filter(|&&rank| rank <= k as f64).map(|&rank| gain(rank)).sum();
    if ideal > 0.0 { found / ideal } else { 0.0 }
}
