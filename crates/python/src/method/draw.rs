//! Draws of a node's edges, one node at a time, by plain loops.
//!
//! Uniform draws without replacement have a faster implementation,
//! [`graphmill_loader::sampler::neighbor::draw_offsets`], which draws the same edges.
//!
//! # Algorithm
//!
//! - Without replacement, uniform: Floyd's algorithm; a row of at most `k` edges is taken whole.
//! - With replacement, uniform: `k` independent draws, even from a shorter row.
//! - With replacement, by weight: `k` binary searches in the running sums of the weights, which are
//!   computed once.
//! - Without replacement, by weight: an exponential variable per edge with the weight as its rate;
//!   the `k` smallest are drawn.
//!
//! An edge of weight 0 is never drawn. A fanout of -1 takes whole rows, also with replacement, as
//! in PyG.
//!
//! # Source
//!
//! Efraimidis and Spirakis, *Weighted random sampling with a reservoir*, Information Processing
//! Letters 2006.
//!
//! # Cost
//!
//! For a row of `d` edges: O(k) uniform, O(k log d) by weight with replacement, O(d log k) by
//! weight without replacement.

use std::{cmp::Ordering, collections::BinaryHeap, sync::Arc};

use graphmill_core::{NodeId, keyed::Stream};
use rustc_hash::FxHashSet;

use crate::topology::Topology;

/// Maximum number of draws whose duplicates are found by a linear scan instead of a hash set.
const MAX_SCAN: usize = 48;

/// Weights of the edges, in the graph's order.
#[derive(Clone, Debug)]
pub struct Weights {
    weights: Arc<[f64]>,
    /// Running sums of each row, `E + 1` entries.
    sums: Arc<[f64]>,
}

impl Weights {
    /// Prepares the weights `of_edges`, given in the order of the user's list.
    ///
    /// # Errors
    /// The number of weights differs from the edges, or a weight or a row's sum is not finite, or a
    /// weight is negative.
    pub fn new(topology: &Topology, of_edges: &[f64]) -> Result<Self, String> {
        let edges = topology.graph().num_edges();
        if of_edges.len() != edges {
            return Err(format!("{} edge weights for {edges} edges", of_edges.len()));
        }
        if let Some(e) = of_edges.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
            return Err(format!("edge {e} weighs {}: weights must be finite and at least 0", of_edges[e]));
        }
        Self::of_rows(topology, topology.arrange(of_edges))
    }

    /// Weights of the rows of a topology, in the order of each row's draws.
    ///
    /// # Errors
    /// A row's sum is not finite.
    pub(super) fn of_rows(topology: &Topology, weights: Vec<f64>) -> Result<Self, String> {
        let mut sums = Vec::with_capacity(weights.len() + 1);
        sums.push(0.0);
        // sums restart in every row, so that the weights of other rows cost no precision
        for ends in topology.graph().indptr().windows(2) {
            let mut sum = 0.0;
            for &weight in &weights[ends[0] as usize..ends[1] as usize] {
                sum += weight;
                sums.push(sum);
            }
            if !sum.is_finite() {
                return Err("the weights of a node's edges have no finite sum; scale them down".into());
            }
        }
        Ok(Self { weights: weights.into(), sums: sums.into() })
    }

    /// Weights of a row that has the edges at these places of the row that starts at `start`.
    fn of_places(&self, start: u64, places: &[u32]) -> Self {
        let weights: Vec<f64> = places.iter().map(|&place| self.at(start + u64::from(place))).collect();
        let mut sums = vec![0.0];
        sums.extend(weights.iter().scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        }));
        Self { weights: weights.into(), sums: sums.into() }
    }

    /// Weight of the edge at a position.
    pub(super) fn at(&self, position: u64) -> f64 {
        self.weights[position as usize]
    }
}

/// Rule by which a node's edges are drawn.
#[derive(Clone, Debug, Default)]
pub struct Draws {
    /// True to draw with replacement.
    pub replace: bool,
    /// Weights of the edges; `None` for uniform draws.
    pub weights: Option<Weights>,
}

/// Buffers reused between draws.
#[derive(Default)]
pub struct Scratch {
    heap: BinaryHeap<Key>,
    taken: FxHashSet<u32>,
}

/// Key of an edge, and its position in the row.
#[derive(PartialEq)]
struct Key(f64, u32);

impl Eq for Key {}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Draws {
    /// Returns true for uniform draws without replacement.
    pub fn is_plain(&self) -> bool {
        !self.replace && self.weights.is_none()
    }

    /// Appends the drawn positions of the row `start..end` of the graph's edges to `out`, relative
    /// to `start`.
    pub fn draw(
        &self,
        (start, end): (u64, u64),
        fanout: Option<usize>,
        mut stream: Stream,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) {
        let degree = end - start;
        let Some(k) = fanout.filter(|&k| self.replace || (k as u64) < degree || self.weights.is_some())
        else {
            // the whole row; of weighted rows the edges with positive weight
            let has_weight = |&e: &u32| {
                self.weights
                    .as_ref()
                    .is_none_or(|w| fanout.is_none() || w.weights[start as usize + e as usize] > 0.0)
            };
            return out.extend((0..degree as u32).filter(has_weight));
        };
        if degree == 0 || k == 0 {
            return;
        }
        match &self.weights {
            None if self.replace => out.extend((0..k).map(|_| stream.below(degree) as u32)),
            None => floyd(degree, k, stream, scratch, out),
            Some(weights) if self.replace => {
                let sums = &weights.sums[start as usize + 1..end as usize + 1];
                let all = sums[sums.len() - 1];
                if all > 0.0 {
                    // rounding may raise the product to the sum itself
                    let last = sums.partition_point(|&sum| sum < all) as u32;
                    let each = |_| {
                        let target = stream.uniform() * all;
                        (sums.partition_point(|&sum| sum <= target) as u32).min(last)
                    };
                    out.extend((0..k).map(each));
                }
            }
            Some(weights) => {
                let heap = &mut scratch.heap;
                heap.clear();
                for (e, &weight) in (0..).zip(&weights.weights[start as usize..end as usize]) {
                    let key = Key(-(1.0 - stream.uniform()).ln() / weight, e);
                    if weight > 0.0 && heap.len() < k {
                        heap.push(key);
                    } else if weight > 0.0
                        && let Some(mut most) = heap.peek_mut()
                        && key < *most
                    {
                        *most = key;
                    }
                }
                let from = out.len();
                out.extend(heap.drain().map(|Key(_, e)| e));
                out[from..].sort_unstable();
            }
        }
    }
}

impl Draws {
    /// Draws as [`Draws::draw`], from the edges at the places `remaining` of the row that starts at
    /// `start`: as from a row that has these edges alone.
    pub fn draw_remaining(
        &self,
        start: u64,
        remaining: &[u32],
        fanout: Option<usize>,
        stream: Stream,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) {
        let weights = self.weights.as_ref().map(|weights| weights.of_places(start, remaining));
        let (row, from) = ((0, remaining.len() as u64), out.len());
        Self { replace: self.replace, weights }.draw(row, fanout, stream, scratch, out);
        out[from..].iter_mut().for_each(|place| *place = remaining[*place as usize]);
    }
}

/// Returns true if the edge from `u` is not one from the sources of `excluded`, which ascend
/// ([`sources_of`](graphmill_loader::link::ExcludedEdges::sources_of)).
pub(crate) fn remains(excluded: &[(NodeId, NodeId)], u: NodeId) -> bool {
    excluded.binary_search_by_key(&u, |&(_, source)| source).is_err()
}

/// Draws `k < degree` distinct numbers below `degree`, the same as
/// [`graphmill_loader::sampler::neighbor`].
fn floyd(degree: u64, k: usize, mut stream: Stream, scratch: &mut Scratch, out: &mut Vec<u32>) {
    let from = out.len();
    scratch.taken.clear();
    for j in degree - k as u64..degree {
        let t = stream.below(j + 1) as u32;
        let taken = if k <= MAX_SCAN { out[from..].contains(&t) } else { !scratch.taken.insert(t) };
        let t = if taken { j as u32 } else { t };
        if taken && k > MAX_SCAN {
            scratch.taken.insert(t);
        }
        out.push(t);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology(degree: usize) -> Topology {
        let src: Vec<i64> = (0..degree as i64).collect();
        Topology::from_edges(degree, &src, &vec![0i64; degree]).unwrap()
    }

    /// Number of times that each position is drawn in `times` draws of `k`, and the fewest and most
    /// positions of a draw.
    fn counts(draws: &Draws, degree: usize, k: Option<usize>, times: u64) -> (Vec<u32>, usize, usize) {
        let (mut counts, mut scratch, mut out) = (vec![0; degree], Scratch::default(), Vec::new());
        let (mut fewest, mut most) = (usize::MAX, 0);
        for key in 0..times {
            out.clear();
            draws.draw((0, degree as u64), k, Stream::new(key), &mut scratch, &mut out);
            (fewest, most) = (fewest.min(out.len()), most.max(out.len()));
            if !draws.replace {
                let mut sorted = out.clone();
                sorted.sort();
                sorted.dedup();
                assert_eq!(sorted.len(), out.len(), "a position was drawn twice");
            }
            out.iter().for_each(|&e| counts[e as usize] += 1);
        }
        (counts, fewest, most)
    }

    #[test]
    fn draws_have_the_right_number_and_distribution() {
        let weights = [0.0, 1.0, 2.0, 4.0, 0.0, 1.0];
        let weighted =
            |replace| Draws { replace, weights: Some(Weights::new(&topology(6), &weights).unwrap()) };
        let plain = |replace| Draws { replace, weights: None };
        let times = 40_000;
        let near = |counts: &[u32], expected: &[f64]| {
            for (&count, &expected) in counts.iter().zip(expected) {
                let expected = expected * times as f64;
                // six standard deviations of a binomial
                assert!(
                    (f64::from(count) - expected).abs() <= 6.0 * expected.sqrt(),
                    "{counts:?}, not {expected}"
                );
            }
        };
        for k in [2, 5, 60] {
            let (counts, fewest, most) = counts(&plain(false), 100, Some(k), times);
            assert_eq!((fewest, most), (k, k));
            near(&counts, &vec![k as f64 / 100.0; 100]);
        }
        let (of, fewest, most) = counts(&plain(true), 3, Some(5), times);
        assert_eq!((fewest, most), (5, 5));
        near(&of, &[5.0 / 3.0; 3]);
        let (of, fewest, most) = counts(&weighted(true), 6, Some(3), times);
        assert_eq!((fewest, most), (3, 3));
        near(&of, &weights.map(|w| 3.0 * w / 8.0));
        // without replacement, the first is drawn by weight, the second by the remaining weights
        let (of, fewest, most) = counts(&weighted(false), 6, Some(2), times);
        assert_eq!((fewest, most), (2, 2));
        let second = |v: usize| -> f64 {
            let by = |u: usize| if u == v { 0.0 } else { weights[u] / 8.0 * weights[v] / (8.0 - weights[u]) };
            (0..6).map(by).sum()
        };
        near(&of, &[0, 1, 2, 3, 4, 5].map(|v| weights[v] / 8.0 + second(v)));
        assert_eq!(counts(&weighted(false), 6, Some(9), 1).0, [0, 1, 1, 1, 0, 1]);
        assert_eq!(counts(&weighted(true), 6, None, 1).0, [1; 6]);
        assert_eq!(counts(&plain(true), 4, None, 1).0, [1; 4]);
        assert_eq!(counts(&plain(false), 4, Some(4), 1).0, [1; 4]);
        assert_eq!(counts(&plain(false), 4, Some(0), 1).0, [0; 4]);
        let none = Draws { replace: true, weights: Some(Weights::new(&topology(2), &[0.0, 0.0]).unwrap()) };
        assert_eq!(counts(&none, 2, Some(3), 5).0, [0; 2]);
    }

    #[test]
    fn draws_of_remaining_edges_are_those_of_a_row_of_these() {
        let (weights, remaining) = ([0.0, 1.0, 2.0, 4.0, 0.5, 1.0], [0, 2, 3, 5]);
        // the row begins at the second of three nodes
        let src: Vec<i64> = (0..7).collect();
        let whole = Topology::from_edges(7, &src, &[0, 1, 1, 1, 1, 1, 1]).unwrap();
        let of_edges: Vec<f64> = [3.0].into_iter().chain(weights).collect();
        let of_whole = Weights::new(&whole, &of_edges).unwrap();
        let of_cut = Weights::new(&topology(4), &remaining.map(|e| weights[e as usize])).unwrap();
        let mut scratch = Scratch::default();
        for (replace, weighted) in [(false, false), (false, true), (true, false), (true, true)] {
            let draws = |weights: &Weights| Draws { replace, weights: weighted.then(|| weights.clone()) };
            for (key, fanout) in (0..50).flat_map(|key| [Some(2), Some(4), Some(9), None].map(|k| (key, k))) {
                let (mut found, mut expected) = (vec![], vec![]);
                let stream = || Stream::new(key);
                draws(&of_whole).draw_remaining(1, &remaining, fanout, stream(), &mut scratch, &mut found);
                draws(&of_cut).draw((0, 4), fanout, stream(), &mut scratch, &mut expected);
                let expected: Vec<u32> = expected.iter().map(|&e| remaining[e as usize]).collect();
                assert_eq!(found, expected, "{replace}, {weighted}, fanout {fanout:?}");
            }
        }
    }

    #[test]
    fn invalid_weights_are_refused() {
        let error = |weights: &[f64]| Weights::new(&topology(3), weights).unwrap_err();
        assert!(error(&[1.0]).contains("1 edge weights for 3 edges"));
        assert!(error(&[1.0, -1.0, 0.0]).contains("edge 1 weighs -1"));
        assert!(error(&[1.0, 1.0, f64::NAN]).contains("edge 2 weighs NaN"));
        assert!(error(&[f64::MAX; 3]).contains("finite sum"));
    }
}
