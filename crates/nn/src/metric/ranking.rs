//! Metrics of the ranking of rows by a class: area under the ROC curve and average precision.
//!
//! Each class is a binary problem, positives against the rest. For multiple labels, a row's score
//! is the class's logit. For single labels it is the log-odds of the class under the softmax,
//! `x_c - log sum over j != c of e^(x_j)`, which orders the rows as the class's probability does
//! but without ties near 0 and 1. With two classes it is the difference of the logits. Classes are
//! averaged without weights ("macro").

use graphmill_core::table::Entry;
use rayon::prelude::*;

use super::{Input, Label, MIN_TASK_LEN, Metric, Row};

/// Probability that a positive outranks a negative, with ties counted as one half:
/// `(sum of rank - P (P + 1) / 2) / (P N)`, where `rank` are the positives' mid-ranks among all
/// rows (Hanley and McNeil, *The meaning and use of the area under a ROC curve*, Radiology 1982).
/// Mean over the classes with positives and negatives.
pub(super) const ROC_AUC: Entry<Metric> = Entry {
    name: "roc-auc",
    summary: "area under the ROC curve, mean over the classes with positives and negatives",
    source: "Hanley and McNeil, Radiology 1982",
    options: &[],
    make: |input| mean(input, auc),
};

/// `sum over n of (R_n - R_(n-1)) P_n`, with recall and precision at each distinct score, without
/// interpolation (scikit-learn's `average_precision_score`, whose default is the same macro
/// average). Mean over the classes with positives, while scikit-learn counts a class without
/// positives as 0. A single-label problem of two classes is scored by class 1 alone. This
/// definition underlies the published scores of HumLoc (Zhao et al., *Multi-label node
/// classification on graph-structured data*, TMLR 2023).
pub(super) const AVERAGE_PRECISION: Entry<Metric> = Entry {
    name: "average-precision",
    summary: "area under the precision-recall steps, mean over the classes with positives",
    source: "scikit-learn's average_precision_score(average='macro')",
    options: &[],
    make: |input| mean(input, average_precision),
};

/// Rows per chunk of a ranking.
const CHUNK_LEN: usize = 1 << 14;

/// Score of a row for one class, and true if the row is a positive.
pub(crate) type Ranked = (f64, bool);

/// Mean of `metric` over the classes for which it is defined.
fn mean(input: &Input, metric: fn(&[Ranked]) -> Option<f64>) -> Option<f64> {
    let rows = input.rows()?;
    let softmax = matches!(rows[0].label, Label::Class(_));
    let tasks = rows.par_iter().with_min_len(MIN_TASK_LEN);
    let odds: Vec<Odds> = if softmax { tasks.map(Odds::new).collect() } else { Vec::new() };
    let classes = if softmax && input.classes == 2 { 1..2 } else { 0..input.classes };
    let each: Vec<Option<f64>> = classes
        .into_par_iter()
        .map(|c| {
            let score = |(i, row): (usize, &Row)| {
                let score = if softmax { odds[i].of(row, c) } else { f64::from(row.logits[c]) };
                (score, row.is(c))
            };
            let tasks = rows.par_iter().with_min_len(MIN_TASK_LEN).enumerate();
            let mut ranked: Vec<Ranked> = tasks.map(score).collect();
            // rows of equal scores are counted together, so their order does not matter
            ranked.par_sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
            metric(&ranked)
        })
        .collect();
    let (sum, n) = each.iter().flatten().fold((0.0, 0), |(sum, n), x| (sum + x, n + 1));
    (n > 0).then(|| sum / f64::from(n))
}

/// Terms that the log-odds of a row's classes share.
struct Odds {
    /// Class of the largest logit.
    top: usize,
    /// `sum over j != top of e^(x_j - x_top)`.
    others: f64,
}

impl Odds {
    fn new(row: &Row) -> Self {
        let top = row.argmax();
        let largest = f64::from(row.logits[top]);
        let others = row.logits.iter().enumerate();
        let others = others.filter(|&(c, _)| c != top).map(|(_, &x)| (f64::from(x) - largest).exp()).sum();
        Self { top, others }
    }

    /// Log-odds of class `c`. Below the top class, the sum still includes the top's 1, so
    /// subtracting the class's own term (at most 1) loses no significant digits.
    fn of(&self, row: &Row, c: usize) -> f64 {
        let x = f64::from(row.logits[c]) - f64::from(row.logits[self.top]);
        let rest = if c == self.top { self.others } else { 1.0 + (self.others - x.exp()).max(0.0) };
        // adding 0.0 makes -0.0 and 0.0 one tie
        x - rest.ln() + 0.0
    }
}

/// Runs of equal scores, from the highest: rows and positives of each.
fn ties(ranked: &[Ranked]) -> impl Iterator<Item = (f64, f64)> {
    ranked
        .chunk_by(|a, b| a.0 == b.0)
        .map(|run| (run.len() as f64, run.iter().filter(|row| row.1).count() as f64))
}

/// Sum of `term(rows, hits, rows above, hits above)` over the runs of equal scores, and the number
/// of hits; a hit is a positive. Each chunk has [`CHUNK_LEN`] rows plus the rest of its last run,
/// so the sum depends only on the rows.
fn sum_over_runs(ranked: &[Ranked], term: fn(f64, f64, f64, f64) -> f64) -> (f64, f64) {
    let mut pieces = Vec::new();
    let mut rest = ranked;
    while rest.len() > CHUNK_LEN {
        let last = rest[CHUNK_LEN - 1].0;
        let (chunk, after) =
            rest.split_at(CHUNK_LEN + rest[CHUNK_LEN..].partition_point(|row| row.0 == last));
        pieces.push(chunk);
        rest = after;
    }
    pieces.push(rest);
    let positives = |chunk: &&[Ranked]| chunk.iter().filter(|row| row.1).count();
    let hits: Vec<usize> = pieces.par_iter().map(positives).collect();
    let (mut rows_above, mut hits_above) = (0, 0);
    let above: Vec<(f64, f64)> = pieces
        .iter()
        .zip(&hits)
        .map(|(chunk, hits)| {
            let above = (rows_above as f64, hits_above as f64);
            rows_above += chunk.len();
            hits_above += hits;
            above
        })
        .collect();
    let sum = |(chunk, &(mut rows_above, mut hits_above)): (&&[Ranked], &(f64, f64))| {
        let mut sum = 0.0;
        for (rows, hits) in ties(chunk) {
            sum += term(rows, hits, rows_above, hits_above);
            rows_above += rows;
            hits_above += hits;
        }
        sum
    };
    let sums: Vec<f64> = pieces.par_iter().zip(&above).map(sum).collect();
    (sums.iter().sum(), hits_above as f64)
}

pub(crate) fn auc(ranked: &[Ranked]) -> Option<f64> {
    // correctly ordered pairs (positive, negative): each negative counts the positives above it and
    // half of those tied with it
    let (pairs, positives) =
        sum_over_runs(ranked, |rows, hits, _, hits_above| (rows - hits) * (hits_above + 0.5 * hits));
    let negatives = ranked.len() as f64 - positives;
    (positives > 0.0 && negatives > 0.0).then(|| pairs / (positives * negatives))
}

pub(crate) fn average_precision(ranked: &[Ranked]) -> Option<f64> {
    // every hit of a run counts the precision at the end of the run
    let (sum, positives) = sum_over_runs(ranked, |rows, hits, rows_above, hits_above| {
        hits * (hits_above + hits) / (rows_above + rows)
    });
    (positives > 0.0).then(|| sum / positives)
}

#[cfg(test)]
mod tests {
    use super::super::Truth;
    use super::*;

    const AUC: Metric = ROC_AUC.make;
    const AP: Metric = AVERAGE_PRECISION.make;

    /// Scores of a multi-label problem with one class, ranked by the logits themselves.
    fn one(logits: &[f32], truth: &[u8]) -> (Option<f64>, Option<f64>) {
        let input = Input::new(logits, 1, Truth::Multi(truth));
        (AUC(&input), AP(&input))
    }

    fn close(got: Option<f64>, expected: f64) {
        assert!((got.unwrap() - expected).abs() < 1e-12, "{got:?} instead of {expected}");
    }

    #[test]
    fn scores_match_scikit_learn() {
        // scikit-learn's example of both: 0.75 and 0.8333
        let (auc, ap) = one(&[0.1, 0.4, 0.35, 0.8], &[0, 0, 1, 1]);
        close(auc, 0.75);
        close(ap, 0.5 * 1.0 + 0.5 * 2.0 / 3.0);
    }

    #[test]
    fn ties_count_one_half() {
        // from the top: one positive; a tie of two positives and a negative; a negative
        let (auc, ap) = one(&[3.0, 2.0, 2.0, 2.0, 1.0], &[1, 1, 0, 1, 0]);
        // pairs: 1 + 2 * 0.5 for the tied negative and 3 for the last, of 3 * 2
        close(auc, 5.0 / 6.0);
        // recall 1/3 at precision 1, then 2/3 more at 3/4
        close(ap, 1.0 / 3.0 + 2.0 / 3.0 * 0.75);
        let (auc, ap) = one(&[0.0, -0.0, 0.0], &[1, 0, 0]);
        close(auc, 0.5);
        close(ap, 1.0 / 3.0);
    }

    #[test]
    fn chunked_rankings_match_a_serial_loop() {
        use graphmill_core::keyed::Stream;
        // few distinct scores make runs longer than a chunk, many make runs of one row
        for kinds in [1, 3, 1000, 1 << 23] {
            let mut stream = Stream::new(kinds);
            let n = 3 * CHUNK_LEN + 5;
            let logits: Vec<f32> = (0..n).map(|_| stream.below(kinds) as f32).collect();
            let truth: Vec<u8> = (0..n).map(|_| stream.below(3) as u8 / 2).collect();
            let mut ranked: Vec<Ranked> =
                logits.iter().zip(&truth).map(|(&x, &t)| (f64::from(x), t > 0)).collect();
            ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
            let (mut rows, mut hits, mut pairs, mut precision) = (0.0, 0.0, 0.0, 0.0);
            for (run, run_hits) in ties(&ranked) {
                pairs += (run - run_hits) * (hits + 0.5 * run_hits);
                rows += run;
                hits += run_hits;
                precision += run_hits * hits / rows;
            }
            let with = |threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| one(&logits, &truth))
            };
            let (auc, ap) = with(1);
            assert_eq!((auc, ap), with(3));
            // pairs are multiples of one half, so their sums are exact in any order
            assert_eq!(auc, Some(pairs / (hits * (rows - hits))));
            close(ap, precision / hits);
        }
    }

    #[test]
    fn rankings_need_positives_and_negatives() {
        assert_eq!(one(&[1.0, 2.0], &[0, 0]), (None, None));
        assert_eq!(one(&[1.0, 2.0], &[1, 1]), (None, Some(1.0)));
    }

    #[test]
    fn classes_without_positives_are_excluded_from_the_mean() {
        // class 0 is ranked correctly, class 1 has no positives, class 2 is ranked in reverse
        let logits = [2.0, 0.0, 1.0, 1.0, 0.0, 2.0];
        let input = Input::new(&logits, 3, Truth::Multi(&[1, 0, 1, 0, 0, 0]));
        close(AUC(&input), 0.5);
        close(AP(&input), (1.0 + 0.5) / 2.0);
    }

    #[test]
    fn two_classes_rank_by_the_difference_of_logits() {
        // differences -1, 0, 1, 9 although the logits of class 1 alone fall
        let logits = [6.0, 5.0, 4.0, 4.0, 2.0, 3.0, -7.0, 2.0];
        let input = Input::new(&logits, 2, Truth::Single(&[0, 1, 0, 1]));
        close(AUC(&input), 0.75);
        close(AP(&input), 0.5 + 0.5 * 2.0 / 3.0);
    }

    #[test]
    fn log_odds_do_not_saturate() {
        // probabilities of class 1 above f64's last digit before 1, still in order
        let input = Input::new(&[0.0, 60.0, 0.0, 80.0, 0.0, 70.0], 2, Truth::Single(&[0, 1, 1]));
        close(AUC(&input), 1.0);
    }

    #[test]
    fn several_classes_rank_one_against_the_rest() {
        let logits = [0.0f32, 0.5, 1.0, 1.5, 0.0, -1.0, 0.3, 0.2, 0.1, -2.0, 1.0, 3.0];
        let class = [2, 0, 1, 1];
        let input = Input::new(&logits, 3, Truth::Single(&class));
        // the plain definition: probabilities, then all pairs
        let p: Vec<f64> = logits
            .chunks(3)
            .flat_map(|row| {
                let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
                row.iter().map(move |&x| f64::from(x).exp() / sum).collect::<Vec<_>>()
            })
            .collect();
        let mut expected = 0.0;
        for c in 0..3 {
            let (mut right, mut pairs) = (0.0, 0.0);
            for i in (0..4).filter(|&i| class[i] as usize == c) {
                for j in (0..4).filter(|&j| class[j] as usize != c) {
                    right += f64::from(u8::from(p[i * 3 + c] > p[j * 3 + c]));
                    pairs += 1.0;
                }
            }
            expected += right / pairs / 3.0;
        }
        close(AUC(&input), expected);
    }
}
