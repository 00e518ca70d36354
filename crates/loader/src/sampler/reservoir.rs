//! Weighted draws without replacement from a row of edges, in one pass.
//!
//! # Algorithm
//!
//! Drawing one edge after the other, each among the rest in proportion to its weight, is equivalent
//! to giving every edge an exponential arrival time whose rate is its weight, and taking the first
//! `k`. Given the first `k` among the edges so far, the weight that passes until the next edge
//! arrives before the last of them is exponential too, so it is drawn, and the edges below it are
//! only added up.
//!
//! # Source
//!
//! Efraimidis and Spirakis, *Weighted random sampling with a reservoir*, Information Processing
//! Letters 97(5), 2006, algorithm A-ExpJ. The times are minus the logarithms of its keys.
//!
//! # Cost
//!
//! O(d + k log(d / k) log k), of which the `d` are additions.

use std::collections::BinaryHeap;

use graphmill_core::keyed::Stream;

use super::scratch::Candidate;

/// Draws an exponential number of rate 1.
fn exponential(stream: &mut Stream) -> f64 {
    -(-stream.uniform()).ln_1p()
}

/// Overwrites `ahead` with the first `k` (at least 1) arrivals of `edges`, which are positions with
/// weights (finite, at least 0), or with all edges of positive weight if there are fewer.
pub(super) fn reservoir(
    k: usize,
    edges: impl Iterator<Item = (u64, f64)>,
    stream: &mut Stream,
    ahead: &mut BinaryHeap<Candidate>,
) {
    ahead.clear();
    let (mut last, mut left) = (f64::INFINITY, 0.0);
    for (position, weight) in edges {
        if weight == 0.0 {
            continue;
        }
        let time = if ahead.len() < k {
            exponential(stream) / weight
        } else {
            left -= weight;
            if left > 0.0 {
                continue;
            }
            // conditional on arriving before the last of those ahead
            let arrives = -(-last * weight).exp_m1();
            ahead.pop();
            (-(-arrives * stream.uniform()).ln_1p() / weight).min(last)
        };
        ahead.push(Candidate { time, position });
        if ahead.len() == k {
            last = ahead.peek().map_or(last, |candidate| candidate.time);
            left = exponential(stream) / last;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::subgraph::testing::fits;

    /// Probability of each set of `k` of `weights` drawn one after the other, indexed by the bits
    /// of the set.
    pub(in crate::sampler) fn sets(k: usize, weights: &[f64]) -> Vec<f64> {
        let mut of_set = vec![0.0; 1 << weights.len()];
        of_set[0] = 1.0;
        for _ in 0..k {
            let mut next = vec![0.0; of_set.len()];
            for (set, p) in of_set.iter().enumerate().filter(|(_, p)| **p > 0.0) {
                let rest = |i: usize| if set >> i & 1 == 1 { 0.0 } else { weights[i] };
                let all: f64 = (0..weights.len()).map(rest).sum();
                (0..weights.len()).for_each(|i| next[set | 1 << i] += p * rest(i) / all);
            }
            of_set = next;
        }
        of_set
    }

    #[test]
    fn sets_have_the_probabilities_of_successive_draws() {
        let weights = [1.0, 0.0, 5.0, 0.01, 2.0, 40.0, 1.0, 3e-30];
        let mut stream = Stream::new(4);
        let mut ahead = BinaryHeap::new();
        for k in [1, 2, 4] {
            let mut counts = vec![0; 1 << weights.len()];
            for _ in 0..100_000 {
                reservoir(k, (0..).zip(weights), &mut stream, &mut ahead);
                assert_eq!(ahead.len(), k);
                counts[ahead.iter().map(|c| 1 << c.position).sum::<usize>()] += 1;
            }
            let mut expected = sets(k, &weights);
            // outcomes rarer than once in all draws do not follow the statistic's distribution
            let rare = |p: f64| p < 1e-5;
            let seen: u64 = (0..counts.len())
                .filter(|&i| rare(expected[i]))
                .map(|i| std::mem::take(&mut counts[i]))
                .sum();
            assert!(seen < 20);
            expected.iter_mut().filter(|p| rare(**p)).for_each(|p| *p = 0.0);
            fits(&counts, &expected);
        }
        reservoir(9, (0..).zip(weights), &mut stream, &mut ahead);
        assert_eq!(ahead.len(), 7, "all edges of positive weight");
        reservoir(2, std::iter::empty(), &mut stream, &mut ahead);
        assert!(ahead.is_empty());
    }
}
