//! Negatives by degree: a node replaces an end in proportion to its number of edges to the power of
//! 0.75.
//!
//! # Algorithm
//!
//! An alias table proposes candidates, and a known edge is drawn again. After 64 such draws the end
//! is drawn uniformly among the candidates without a known edge. If candidates with a known edge
//! have the share `s` of the weight, a candidate `u` without one has the probability
//!
//! ```text
//! w[u] / W (1 + s + ... + s^63) + s^64 / F
//! ```
//!
//! with `W` the sum of all weights and `F` the number of candidates without a known edge.
//!
//! # Source
//!
//! Mikolov, Sutskever, Chen, Corrado and Dean, *Distributed representations of words and phrases
//! and their compositionality*, NeurIPS 2013, section 2.2.
//!
//! # Cost
//!
//! O(1) per draw, unless most of the weight has edges. Probabilities take O(d + K) for a positive
//! whose fixed end has `d` edges.
//!
//! # Memory
//!
//! 12 bytes a candidate.

use graphmill_core::{End, Error, NodeId, Result, alias::Alias};
use rayon::prelude::*;

use super::{MAX_TRIES, NegativeRequest, NegativeSampler, NegativeSource};

/// Power of the number of edges.
const POWER: f64 = 0.75;

/// Draws by the number of edges.
pub(super) struct ByDegree {
    /// Table over the candidates.
    table: Alias,
    /// Weight of each candidate.
    weights: Vec<f32>,
    /// Sum of the weights.
    sum: f64,
    first: NodeId,
}

impl ByDegree {
    pub(super) fn new(source: &NegativeSource) -> Result<Self> {
        // a candidate's edges as this end are those in which the other end is looked up
        let other = source.end.other();
        let degree = |u: NodeId| (source.known.ends_of(other, u).len() as f64).powf(POWER);
        let weights: Vec<f64> = source.candidates.clone().into_par_iter().map(degree).collect();
        if weights.iter().all(|&weight| weight == 0.0) {
            return Err(Error::invalid("negatives by degree: no candidate has an edge; draw them uniformly"));
        }
        Ok(Self {
            table: Alias::new(&weights)?,
            sum: weights.iter().sum(),
            weights: weights.into_iter().map(|weight| weight as f32).collect(),
            first: source.candidates.start,
        })
    }

    /// Share of a candidate in the sum of all weights.
    fn share(&self, u: NodeId) -> f64 {
        f64::from(self.weights[(u - self.first) as usize]) / self.sum
    }
}

impl NegativeSampler for ByDegree {
    fn draw(&self, request: &NegativeRequest, out: &mut [NodeId]) -> Result<()> {
        request.fill(out, |_, stream| self.first + self.table.draw(stream), MAX_TRIES)
    }

    fn log_ratios(&self, request: &NegativeRequest, drawn: &[NodeId], out: &mut [f32]) {
        let each = (out.len() / request.positives.len().max(1)).max(1);
        let rows = out.par_chunks_exact_mut(each).zip(drawn.par_chunks_exact(each));
        rows.zip(request.positives).for_each(|((out, drawn), edge)| {
            let fixed = if request.end == End::Source { edge.1 } else { edge.0 };
            let candidates = request.candidates;
            let linked = request.known.ends_of(request.end, fixed);
            let start = linked.partition_point(|&u| u < candidates.start);
            let end = linked.partition_point(|&u| u < candidates.end);
            let linked = &linked[start..end];
            let itself = candidates.contains(&fixed) && linked.binary_search(&fixed).is_err();
            let taken = linked.iter().copied().chain(itself.then_some(fixed));
            let free = (candidates.len() - linked.len() - usize::from(itself)) as f64;
            let missed = taken.map(|u| self.share(u)).sum::<f64>().min(1.0);
            // sum and last of the powers of `missed`, by doubling
            let (mut tries, mut power) = (1.0, missed);
            for _ in 0..MAX_TRIES.ilog2() {
                tries *= 1.0 + power;
                power *= power;
            }
            for (out, &u) in out.iter_mut().zip(drawn) {
                *out = (self.share(u) * tries * free + power).ln() as f32;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::keyed::{Stream, key};
    use proptest::prelude::*;

    use super::*;
    use crate::link::{Known, KnownEdges};

    /// Probability of every candidate, draw by draw.
    fn probabilities(known: &KnownEdges, end: End, edge: (u32, u32), candidates: &[u32]) -> Vec<f64> {
        let degree = |u: u32| {
            (0..known.num_nodes() as u32).filter(move |&v| match end {
                End::Source => known.contains(u, v),
                End::Destination => known.contains(v, u),
            })
        };
        let weights: Vec<f64> = candidates.iter().map(|&u| (degree(u).count() as f64).powf(0.75)).collect();
        let sum: f64 = weights.iter().sum();
        let fits: Vec<bool> = candidates.iter().map(|&u| known.is_negative(end, edge, u)).collect();
        let free = fits.iter().filter(|fits| **fits).count() as f64;
        let (mut found, mut left) = (vec![0.0; candidates.len()], 1.0);
        for _ in 0..64 {
            let before = left;
            for i in 0..candidates.len() {
                if fits[i] {
                    found[i] += before * weights[i] / sum;
                    left -= before * weights[i] / sum;
                }
            }
        }
        (0..candidates.len()).filter(|&i| fits[i]).for_each(|i| found[i] += left / free);
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn ratios_are_those_of_a_plain_sum_over_draws(
            edges in prop::collection::btree_set((0u32..12, 0u32..12), 1..90),
            bounds in (0u32..12, 1u32..13),
            end in prop::sample::select(vec![End::Source, End::Destination]),
            threads in 1usize..4,
        ) {
            let edges: Vec<(u32, u32)> = edges.into_iter().collect();
            let (source, destination): (Vec<_>, Vec<_>) = edges.iter().copied().unzip();
            let known = KnownEdges::new(12, &source, &destination).unwrap();
            let candidates = bounds.0.min(bounds.1 - 1)..bounds.1;
            let made =
                NegativeSource { known: &known, end, candidates: &candidates, node_time: None, lists: None };
            let Ok(sampler) = ByDegree::new(&made) else { return Ok(()) };
            let all: Vec<u32> = candidates.clone().collect();
            let each = all.len();
            let drawn: Vec<u32> = edges.iter().flat_map(|_| all.clone()).collect();
            let (candidates, positives, known, key) = (&candidates, &edges[..], &known, 0);
            let request =
                NegativeRequest { known, relation: 0, end, candidates, positives, latest: &[], key };
            let mut ratios = vec![0.0f32; drawn.len()];
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| sampler.log_ratios(&request, &drawn, &mut ratios));
            for (ratios, &edge) in ratios.chunks(each).zip(&edges) {
                let expected = probabilities(known, end, edge, &all);
                let free = all.iter().filter(|&&u| known.is_negative(end, edge, u)).count();
                for (i, &u) in all.iter().enumerate() {
                    if known.is_negative(end, edge, u) {
                        let found = f64::from(ratios[i]).exp() / free as f64;
                        prop_assert!((found - expected[i]).abs() < 1e-5 * expected[i] + 1e-30);
                    }
                }
                let sum: f64 = expected.iter().sum();
                prop_assert!(free == 0 || (sum - 1.0).abs() < 1e-9, "{}", sum);
            }
        }
    }

    #[test]
    fn ratios_are_those_of_draws() {
        // node 0 has edges to the node of most of the weight, so that many draws are repeated
        let mut edges: Vec<(u32, u32)> = (1..40).map(|u| (u, 40)).collect();
        edges.extend([(0, 40), (1, 41), (2, 42), (3, 42), (4, 43)]);
        let (source, destination): (Vec<_>, Vec<_>) = edges.iter().copied().unzip();
        let known = KnownEdges::new(44, &source, &destination).unwrap();
        let (end, candidates) = (End::Destination, 40..44);
        let made =
            NegativeSource { known: &known, end, candidates: &candidates, node_time: None, lists: None };
        let sampler = ByDegree::new(&made).unwrap();
        let request = NegativeRequest {
            known: &known,
            relation: 0,
            end,
            candidates: &candidates,
            positives: &[(0, 40)],
            latest: &[],
            key: key(&[3]),
        };
        let mut drawn = vec![0; 60_000];
        sampler.draw(&request, &mut drawn).unwrap();
        let mut ratios = [0.0; 3];
        sampler.log_ratios(&request, &[41, 42, 43], &mut ratios);
        for (u, ratio) in (41..44).zip(ratios) {
            let share = drawn.iter().filter(|&&v| v == u).count() as f64 / drawn.len() as f64;
            assert!((share - f64::from(ratio).exp() / 3.0).abs() < 0.01, "{u}: {share} {ratio}");
        }
        // 2^0.75 = 1.682 times as likely as the others
        assert!((f64::from(ratios[1] - ratios[0]) - 0.75 * 2f64.ln()).abs() < 1e-6);
        let mut stream = Stream::new(1);
        assert!(known.draw(end, (0, 40), &candidates, &mut stream).is_some());
    }

    #[test]
    fn negatives_by_degree_prefer_nodes_with_edges() {
        // node 1 has nine edges as a destination, nodes 2 to 10 have one
        let source: Vec<u32> = (11..20).chain(20..29).collect();
        let destination: Vec<u32> = [1; 9].into_iter().chain(2..11).collect();
        let known = KnownEdges::new(40, &source, &destination).unwrap();
        let (end, candidates) = (End::Destination, 0..40);
        let made =
            NegativeSource { known: &known, end, candidates: &candidates, node_time: None, lists: None };
        let positives = vec![(30, 2); 4000];
        let request = NegativeRequest {
            known: &known,
            relation: 0,
            end,
            candidates: &candidates,
            positives: &positives,
            latest: &[],
            key: 5,
        };
        let mut found = vec![0; 12_000];
        ByDegree::new(&made).unwrap().draw(&request, &mut found).unwrap();
        let ones = found.iter().filter(|&&v| v == 1).count() as f64 / found.len() as f64;
        // 9^0.75 = 5.196 of 14.196
        assert!((ones - 0.366).abs() < 0.02, "{ones}");
        assert!(found.iter().all(|&v| (1..11).contains(&v)));
    }
}
