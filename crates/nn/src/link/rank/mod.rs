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
//! assert_eq!(TABLE.find("mrr")?.make.score(&[query], 10), Some(0.4));
//! assert_eq!(TABLE.find("hits")?.make.score(&[query], 2), Some(0.0));
//! // from ranks that were counted elsewhere
//! assert_eq!(TABLE.find("hits")?.make.of_ranks(&[&[1.0], &[7.0]], 3), Some(0.5));
//! # Ok::<(), graphmill_core::Error>(())
//! ```

mod blocks;
pub mod full;
mod hits;
mod map;
mod mrr;
mod ndcg;
mod pooled;
mod precision;
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

/// A metric of rankings.
#[derive(Clone, Copy, Debug)]
pub enum RankMetric {
    /// Mean over the queries with a relevant candidate.
    OfRanks {
        /// Value of a query, from the ranks of its relevant candidates and the cutoff `K`.
        value: fn(&[f64], usize) -> f64,
        /// True if the value depends on `K`.
        has_cutoff: bool,
        /// True if the value judges the list of all relevant candidates of a query, as in
        /// recommendation. The others judge one candidate, so a task makes a query of each edge.
        is_of_lists: bool,
    },
    /// Value of the candidates of all queries together.
    Pooled(fn(&[Query]) -> Option<f64>),
}

impl RankMetric {
    const fn of_edges(value: fn(&[f64], usize) -> f64, has_cutoff: bool) -> Self {
        Self::OfRanks { value, has_cutoff, is_of_lists: false }
    }

    const fn of_lists(value: fn(&[f64], usize) -> f64) -> Self {
        Self::OfRanks { value, has_cutoff: true, is_of_lists: true }
    }

    /// Returns true if the value depends on the cutoff.
    pub fn has_cutoff(&self) -> bool {
        matches!(self, Self::OfRanks { has_cutoff: true, .. })
    }

    /// Value with the cutoff `k`, which some metrics ignore; `None` if no query defines it.
    pub fn score(&self, queries: &[Query], k: usize) -> Option<f64> {
        match self {
            Self::OfRanks { .. } => {
                let ranks: Vec<Vec<f64>> = queries.par_iter().map(Query::ranks).collect();
                self.of_ranks(&ranks.iter().map(Vec::as_slice).collect::<Vec<_>>(), k)
            }
            Self::Pooled(value) => value(queries),
        }
    }

    /// Value from the ranks of the relevant candidates of each query; `None` if no query has one,
    /// or if the metric needs the scores of all candidates.
    pub fn of_ranks(&self, queries: &[&[f64]], k: usize) -> Option<f64> {
        let Self::OfRanks { value, .. } = self else { return None };
        let defined = || queries.iter().filter(|ranks| !ranks.is_empty());
        let count = defined().count();
        // added in the order of the queries
        (count > 0).then(|| defined().map(|ranks| value(ranks, k)).sum::<f64>() / count as f64)
    }
}

/// Table of the metrics.
pub static TABLE: Table<RankMetric> = Table::new(
    "rank metric",
    &[
        Entry {
            name: "mrr",
            summary: "mean reciprocal rank of the first relevant candidate",
            source: "Voorhees, TREC 1999",
            options: &[],
            make: RankMetric::of_edges(mrr::value, false),
        },
        Entry {
            name: "hits",
            summary: "share of queries with a relevant candidate among the first K",
            source: "Bordes et al., NeurIPS 2013",
            options: &[],
            make: RankMetric::of_edges(hits::value, true),
        },
        Entry {
            name: "recall",
            summary: "share of the relevant candidates that are among the first K",
            source: "",
            options: &[],
            make: RankMetric::of_lists(recall::value),
        },
        Entry {
            name: "precision",
            summary: "share of the first K candidates that are relevant",
            source: "",
            options: &[],
            make: RankMetric::of_lists(precision::value),
        },
        Entry {
            name: "map",
            summary: "mean of the precisions at the relevant candidates among the first K",
            source: "Manning, Raghavan and Schuetze, 2008, section 8.4",
            options: &[],
            make: RankMetric::of_lists(map::value),
        },
        Entry {
            name: "ndcg",
            summary: "discounted gain of the relevant candidates among the first K, relative to the ideal",
            source: "Jarvelin and Kekalainen, TOIS 2002",
            options: &[],
            make: RankMetric::of_lists(ndcg::value),
        },
        Entry {
            name: "auc",
            summary: "area under the ROC curve of all candidates together",
            source: "Hanley and McNeil, Radiology 1982",
            options: &[],
            make: RankMetric::Pooled(pooled::auc),
        },
        Entry {
            name: "average-precision",
            summary: "area under the precision-recall steps of all candidates together",
            source: "scikit-learn's average_precision_score",
            options: &[],
            make: RankMetric::Pooled(pooled::average_precision),
        },
    ],
);

#[cfg(test)]
mod tests;
