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

use super::{Query, mean};

/// The metric.
pub(super) fn metric(queries: &[Query], k: usize) -> Option<f64> {
    let gain = |rank: f64| 1.0 / (rank + 1.0).log2();
    mean(queries, |ranks| {
        let ideal: f64 = (1..=ranks.len().min(k)).map(|rank| gain(rank as f64)).sum();
        let found: f64 = ranks.iter().filter(|&&rank| rank <= k as f64).map(|&rank| gain(rank)).sum();
        if ideal > 0.0 { found / ideal } else { 0.0 }
    })
}
