//! Metrics against brute force.

use proptest::prelude::*;

use super::*;

/// Mean of the best and the worst rank, by sorting.
fn brute_rank(scores: &[f32], i: usize) -> f64 {
    let best = scores.iter().filter(|&&x| x > scores[i]).count() + 1;
    let worst = scores.iter().filter(|&&x| x >= scores[i]).count();
    (best + worst) as f64 / 2.0
}

fn run(name: &str, queries: &[Query], k: usize) -> Option<f64> {
    TABLE.find(name).unwrap().make.score(queries, k)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn metrics_agree_with_brute_force(
        lists in prop::collection::vec(prop::collection::vec((0i8..6, any::<bool>()), 1..12), 1..6),
        k in 1usize..8,
    ) {
        let scores_of = |list: &Vec<(i8, bool)>| list.iter().map(|x| f32::from(x.0)).collect();
        let scores: Vec<Vec<f32>> = lists.iter().map(scores_of).collect();
        let relevant: Vec<Vec<u32>> = lists
            .iter()
            .map(|list| (0..).zip(list).filter(|(_, x)| x.1).map(|(i, _)| i).collect())
            .collect();
        let queries: Vec<Query> =
            scores.iter().zip(&relevant).map(|(scores, relevant)| Query { scores, relevant }).collect();
        let (mut sums, mut count) = ([0.0; 5], 0.0);
        for Query { scores, relevant } in queries.iter().filter(|query| !query.relevant.is_empty()) {
            let ranks: Vec<f64> = relevant.iter().map(|&i| brute_rank(scores, i as usize)).collect();
            let top: Vec<f64> = ranks.iter().copied().filter(|&rank| rank <= k as f64).collect();
            let mut sorted = ranks.clone();
            sorted.sort_by(f64::total_cmp);
            sums[0] += 1.0 / sorted[0];
            sums[1] += if top.is_empty() { 0.0 } else { 1.0 };
            sums[2] += top.len() as f64 / ranks.len() as f64;
            let ideal: f64 = (0..ranks.len().min(k)).map(|i| 1.0 / (i as f64 + 2.0).log2()).sum();
            sums[3] += top.iter().map(|rank| 1.0 / (rank + 1.0).log2()).sum::<f64>() / ideal;
            sums[4] += top.len() as f64 / k as f64;
            count += 1.0;
        }
        for (name, sum) in ["mrr", "hits", "recall", "ndcg", "precision"].into_iter().zip(sums) {
            match run(name, &queries, k) {
                Some(value) => prop_assert!((value - sum / count).abs() < 1e-12, "{name}"),
                None => prop_assert_eq!(count, 0.0),
            }
        }
        // pairs of a relevant candidate and another one
        let all: Vec<(i8, bool)> = lists.concat();
        let (mut ordered, mut pairs) = (0.0, 0.0);
        for a in all.iter().filter(|x| x.1) {
            for b in all.iter().filter(|x| !x.1) {
                ordered += if a.0 > b.0 { 1.0 } else if a.0 == b.0 { 0.5 } else { 0.0 };
                pairs += 1.0;
            }
        }
        match run("auc", &queries, k) {
            Some(auc) => prop_assert!((auc - ordered / pairs).abs() < 1e-12),
            None => prop_assert_eq!(pairs, 0.0),
        }
    }
}

#[test]
fn constant_scores_give_chance_and_nan_ranks_last() {
    let query = Query { scores: &[1.0; 9], relevant: &[3] };
    assert_eq!(query.ranks(), [5.0]);
    assert_eq!(run("hits", &[query], 4), Some(0.0));
    assert_eq!(run("auc", &[query], 1), Some(0.5));
    let wrong = Query { scores: &[f32::NAN, 1.0, 0.0], relevant: &[0] };
    assert_eq!((wrong.ranks(), run("auc", &[wrong], 1)), (vec![3.0], Some(0.0)));
    assert_eq!(run("mrr", &[Query { scores: &[1.0], relevant: &[] }], 1), None);
    let all_ones = run("average-precision", &[Query { scores: &[0.9, 0.1], relevant: &[0] }], 1);
    assert_eq!(all_ones, Some(1.0));
}

#[test]
fn average_precision_of_a_list_follows_its_definition() {
    let map = TABLE.find("map").unwrap().make;
    // relevant candidates of the ranks 1, 3 and 6: precisions 1, 2/3 and 3/6
    let ranks: &[f64] = &[3.0, 1.0, 6.0];
    let expected = [(10, (1.0 + 2.0 / 3.0 + 0.5) / 3.0), (5, (1.0 + 2.0 / 3.0) / 3.0), (1, 1.0)];
    for (k, expected) in expected {
        assert!((map.of_ranks(&[ranks], k).unwrap() - expected).abs() < 1e-12, "{k}");
    }
    // two that are tied at the top have rank 1.5 each
    assert_eq!(map.of_ranks(&[&[1.5, 1.5]], 2), Some((1.0 / 1.5 + 1.0) / 2.0));
    assert_eq!(map.of_ranks(&[&[], &[1.0]], 2), Some(1.0));
}
