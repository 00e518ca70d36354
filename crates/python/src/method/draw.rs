//! Which places of a node's row are drawn: one node at a time, by plain loops. (Uniform draws
//! without replacement have a faster way, [`graphmill_loader::sampler::neighbor::draw_offsets`];
//! where both apply they draw alike.)
//!
//! - Without replacement and weights: Floyd's algorithm; a row of at most `k` edges is taken whole.
//! - With replacement: `k` independent draws, however short the row.
//! - By weight with replacement: a search in the running sums of the weights, made once.
//! - By weight without replacement: of each edge an exponential variable of its weight's rate, the
//!   `k` smallest (Efraimidis and Spirakis, IPL 2006). O(d log k).
//!
//! An edge that weighs 0 is never drawn. A fanout of -1 takes whole rows, with replacement too, as
//! in PyG.

use std::{cmp::Ordering, collections::BinaryHeap, sync::Arc};

use graphmill_core::keyed::Stream;
use rustc_hash::FxHashSet;

use crate::topology::Topology;

/// Up to this many draws equal ones are found by a scan.
const SCAN: usize = 48;

/// What edges weigh, in the graph's order.
#[derive(Clone, Debug)]
pub struct Weights {
    weights: Arc<[f64]>,
    /// Running sums over all edges, `E + 1`.
    sums: Arc<[f64]>,
}

impl Weights {
    /// `of_edges`: in the order of the user's list.
    ///
    /// # Errors
    /// Not a weight per edge, or one that is negative or not finite, or their sum is not finite.
    pub fn new(topology: &Topology, of_edges: &[f64]) -> Result<Self, String> {
        let edges = topology.graph().num_edges();
        if of_edges.len() != edges {
            return Err(format!("{} edge weights for {edges} edges", of_edges.len()));
        }
        if let Some(e) = of_edges.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
            return Err(format!("edge {e} weighs {}: weights are finite and at least 0", of_edges[e]));
        }
        let weights = topology.arrange(of_edges);
        let mut sums = Vec::with_capacity(edges + 1);
        sums.push(0.0);
        // every row's sums begin anew: what other rows weigh does not cost it digits
        for ends in topology.graph().indptr().windows(2) {
            let mut sum = 0.0;
            for &weight in &weights[ends[0] as usize..ends[1] as usize] {
                sum += weight;
                sums.push(sum);
            }
            if !sum.is_finite() {
                return Err("the weights of a node's edges have no finite sum: scale them down".into());
            }
        }
        Ok(Self { weights: weights.into(), sums: sums.into() })
    }
}

/// How a node's edges are drawn.
#[derive(Clone, Debug, Default)]
pub struct Draws {
    /// Whether an edge may be drawn again.
    pub replace: bool,
    /// What edges weigh; `None`: all the same.
    pub weights: Option<Weights>,
}

/// Memory that is used again.
#[derive(Default)]
pub struct Room {
    heap: BinaryHeap<Key>,
    taken: FxHashSet<u32>,
}

/// An edge's key, and where it is in the row.
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
    /// Whether all edges weigh the same and are drawn once at most.
    pub fn is_plain(&self) -> bool {
        !self.replace && self.weights.is_none()
    }

    /// Appends the drawn places of the row `start..end` of the graph's edges to `out`, counted from
    /// `start`.
    pub fn draw(
        &self,
        (start, end): (u64, u64),
        fanout: Option<usize>,
        mut stream: Stream,
        room: &mut Room,
        out: &mut Vec<u32>,
    ) {
        let degree = end - start;
        let Some(k) = fanout.filter(|&k| self.replace || (k as u64) < degree || self.weights.is_some())
        else {
            // whole; of weighted rows what weighs something
            let weighs = |&e: &u32| {
                self.weights
                    .as_ref()
                    .is_none_or(|w| fanout.is_none() || w.weights[start as usize + e as usize] > 0.0)
            };
            return out.extend((0..degree as u32).filter(weighs));
        };
        if degree == 0 || k == 0 {
            return;
        }
        match &self.weights {
            None if self.replace => out.extend((0..k).map(|_| stream.below(degree) as u32)),
            None => floyd(degree, k, stream, room, out),
            Some(weights) if self.replace => {
                let sums = &weights.sums[start as usize + 1..end as usize + 1];
                let all = sums[sums.len() - 1];
                if all > 0.0 {
                    // rounding may bring the product up to the sum itself
                    let last = sums.partition_point(|&sum| sum < all) as u32;
                    let each = |_| {
                        let aim = stream.uniform() * all;
                        (sums.partition_point(|&sum| sum <= aim) as u32).min(last)
                    };
                    out.extend((0..k).map(each));
                }
            }
            Some(weights) => {
                let heap = &mut room.heap;
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

/// `k < degree` distinct numbers below `degree`, as [`graphmill_loader::sampler::neighbor`] draws
/// them.
fn floyd(degree: u64, k: usize, mut stream: Stream, room: &mut Room, out: &mut Vec<u32>) {
    let from = out.len();
    room.taken.clear();
    for j in degree - k as u64..degree {
        let t = stream.below(j + 1) as u32;
        let taken = if k <= SCAN { out[from..].contains(&t) } else { !room.taken.insert(t) };
        let t = if taken { j as u32 } else { t };
        if taken && k > SCAN {
            room.taken.insert(t);
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

    /// How often each place is drawn in `times` draws of `k`, and the fewest and most a time.
    fn counts(draws: &Draws, degree: usize, k: Option<usize>, times: u64) -> (Vec<u32>, usize, usize) {
        let (mut counts, mut room, mut out) = (vec![0; degree], Room::default(), Vec::new());
        let (mut fewest, mut most) = (usize::MAX, 0);
        for key in 0..times {
            out.clear();
            draws.draw((0, degree as u64), k, Stream::new(key), &mut room, &mut out);
            (fewest, most) = (fewest.min(out.len()), most.max(out.len()));
            if !draws.replace {
                let mut sorted = out.clone();
                sorted.sort();
                sorted.dedup();
                assert_eq!(sorted.len(), out.len(), "drawn twice");
            }
            out.iter().for_each(|&e| counts[e as usize] += 1);
        }
        (counts, fewest, most)
    }

    #[test]
    fn draws_are_of_the_right_number_and_distribution() {
        let weights = [0.0, 1.0, 2.0, 4.0, 0.0, 1.0];
        let weighted =
            |replace| Draws { replace, weights: Some(Weights::new(&topology(6), &weights).unwrap()) };
        let plain = |replace| Draws { replace, weights: None };
        let times = 40_000;
        let near = |counts: &[u32], expected: &[f64]| {
            for (&count, &expected) in counts.iter().zip(expected) {
                let expected = expected * times as f64;
                // six sigma of a binomial
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
        // the first of two without replacement is by weight, the second by the weights of the rest
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
    fn weights_that_are_none_are_refused() {
        let said = |weights: &[f64]| Weights::new(&topology(3), weights).unwrap_err();
        assert!(said(&[1.0]).contains("1 edge weights for 3 edges"));
        assert!(said(&[1.0, -1.0, 0.0]).contains("edge 1 weighs -1"));
        assert!(said(&[1.0, 1.0, f64::NAN]).contains("edge 2 weighs NaN"));
        assert!(said(&[f64::MAX; 3]).contains("finite sum"));
    }
}
