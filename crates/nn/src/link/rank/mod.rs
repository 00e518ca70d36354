//! Metrics of rankings: each query has scored candidates, some of which are relevant.
//!
//! The rank of a relevant candidate is the mean of its best and its worst rank among ties,
//! `1 + #(larger) + #(equal others) / 2`, so constant scores give chance instead of 1. A score that
//! is NaN ranks last. Other relevant candidates count; for the filtered setting of knowledge
//! graphs, leave them out of the candidates.
//!
//! ```
//! use graphmill_nn::link::rank::{Query, TABLE};
//!
//! // candidate 2 is relevant; candidates 1 and 2 are tied behind candidate 0
//! let query = Query { scores: &[0.9, 0.5, 0.5, 0.1], relevant: &[2] };
//! assert_eq!(query.ranks(), [2.5]);
//! assert_eq!((TABLE.find("mrr")?.make)(&[query], 10), Some(0.4));
//! assert_eq!((TABLE.find("hits")?.make)(&[query], 2), Some(0.0));
//! # Ok::<(), graphmill_core::Error>(())
//! ```

pub mod full;
mod hits;
mod mrr;
mod ndcg;
mod pooled;
mod recall;

use graphmill_core::table::{Entry, Table};
use rayon::prelude::*;

/// Scored candidates of a query.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// Score of each candidate.
    pub scores: &'a [f32],
    /// Positions of the relevant candidates, distinct.
    pub relevant: &'a [u32],
}

impl Query<'_> {
    /// Rank of each relevant candidate, from 1. O(candidates) each.
    ///
    /// # Panics
    /// A position is beyond the candidates: a bug in the caller.
    pub fn ranks(&self) -> Vec<f64> {
        self.relevant.iter().map(|&i| rank(self.scores[i as usize], self.scores)).collect()
    }
}

/// Rank of a candidate with this score among all candidates, itself included.
fn rank(score: f32, all: &[f32]) -> f64 {
    if score.is_nan() {
        return all.len() as f64;
    }
    let larger = all.iter().filter(|&&x| x > score).count();
    let equal = all.iter().filter(|&&x| x == score).count();
    1.0 + larger as f64 + (equal as f64 - 1.0) / 2.0
}

/// A metric with the cutoff `K`, which some ignore; `None` if no query defines it.
pub type RankMetric = fn(&[Query], usize) -> Option<f64>;

/// Table of the metrics.
pub static TABLE: Table<RankMetric> = Table::new(
    "rank metric",
    &[
        Entry {
            name: "mrr",
            summary: "mean reciprocal rank of the first relevant candidate",
            source: "Voorhees, TREC 1999",
            options: &[],
            make: mrr::metric,
        },
        Entry {
            name: "hits",
            summary: "share of queries with a relevant candidate among the first K",
            source: "Bordes et al., NeurIPS 2013",
            options: &[],
            make: hits::metric,
        },
        Entry {
            name: "recall",
            summary: "share of the relevant candidates that are among the first K",
            source: "",
            options: &[],
            make: recall::metric,
        },
        Entry {
            name: "ndcg",
            summary: "discounted gain of the relevant candidates among the first K, relative to the ideal",
            source: "Jarvelin and Kekalainen, TOIS 2002",
            options: &[],
            make: ndcg::metric,
        },
        Entry {
            name: "auc",
            summary: "area under the ROC curve of all candidates together",
            source: "Hanley and McNeil, Radiology 1982",
            options: &[],
            make: pooled::auc,
        },
        Entry {
            name: "average-precision",
            summary: "area under the precision-recall steps of all candidates together",
            source: "scikit-learn's average_precision_score",
            options: &[],
            make: pooled::average_precision,
        },
    ],
);

/// Mean of `of` over the queries with a relevant candidate, added in their order.
fn mean(queries: &[Query], of: impl Fn(&[f64]) -> f64 + Sync) -> Option<f64> {
    let values: Vec<f64> = queries
        .par_iter()
        .filter(|query| !query.relevant.is_empty())
        .map(|query| of(&query.ranks()))
        .collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests;
