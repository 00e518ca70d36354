//! Statistical tests of draws.

use graphmill_core::{Graph, NodeId};

/// The graph whose node `v` has in-neighbours `rows[v]`.
pub(crate) fn graph_of(rows: &[&[NodeId]]) -> Graph {
    let indptr: Vec<u64> =
        (0..=rows.len()).map(|v| rows[..v].iter().map(|row| row.len() as u64).sum()).collect();
    Graph::new(indptr.into(), rows.concat().into()).expect("rows name nodes of the graph")
}

/// Pearson's chi-square test of `counts` against probabilities proportional to `weights`, within
/// five standard deviations of the statistic. Outcomes of weight 0 must have a count of 0.
pub(crate) fn fits(counts: &[u64], weights: &[f64]) {
    let draws = counts.iter().sum::<u64>() as f64;
    let all: f64 = weights.iter().sum();
    let (mut statistic, mut kinds) = (0.0, 0.0);
    for (&count, &weight) in counts.iter().zip(weights) {
        if weight == 0.0 {
            assert_eq!(count, 0, "{counts:?} for {weights:?}");
            continue;
        }
        let expected = draws * weight / all;
        statistic += (count as f64 - expected).powi(2) / expected;
        kinds += 1.0;
    }
    let freedom: f64 = kinds - 1.0;
    assert!(
        statistic <= freedom + 5.0 * (2.0 * freedom).sqrt() + 5.0,
        "chi-square {statistic} at {freedom} degrees of freedom: {counts:?} for {weights:?}"
    );
}

/// Chi-square test that `a` and `b`, of equally many draws, have the same distribution.
pub(crate) fn agree(a: &[u64], b: &[u64]) {
    let (mut statistic, mut kinds) = (0.0, 0.0);
    for (&a, &b) in a.iter().zip(b) {
        // rarer kinds do not follow the statistic's distribution
        if a + b >= 20 {
            statistic += (a as f64 - b as f64).powi(2) / (a + b) as f64;
            kinds += 1.0;
        }
    }
    let freedom: f64 = kinds;
    assert!(
        kinds > 0.0 && statistic <= freedom + 5.0 * (2.0 * freedom).sqrt() + 5.0,
        "chi-square {statistic} at {freedom} degrees of freedom"
    );
}
