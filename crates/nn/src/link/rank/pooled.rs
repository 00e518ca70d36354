//! Metrics of the candidates of all queries together: relevant against the others.

use super::Query;
use crate::metric::ranking::{self, Ranked};

/// Scores of all candidates from the highest, and whether they are relevant.
fn pool(queries: &[Query]) -> Vec<Ranked> {
    let mut all = Vec::with_capacity(queries.iter().map(|query| query.scores.len()).sum());
    for Query { scores, relevant } in queries {
        let first = all.len();
        // NaN ranks last, and -0.0 is 0.0
        let scores = scores.iter().map(|&x| if x.is_nan() { f64::NEG_INFINITY } else { f64::from(x) + 0.0 });
        all.extend(scores.map(|x| (x, false)));
        relevant.iter().for_each(|&i| all[first + i as usize].1 = true);
    }
    all.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
    all
}

/// Area under the ROC curve.
pub(super) fn auc(queries: &[Query]) -> Option<f64> {
    ranking::auc(&pool(queries))
}

/// Average precision.
pub(super) fn average_precision(queries: &[Query]) -> Option<f64> {
    ranking::average_precision(&pool(queries))
}
