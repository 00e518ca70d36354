//! Times of edges, and draws among those that exist at the time of a seed.
//!
//! # Source
//!
//! Temporal sampling of PyTorch Geometric: an edge exists from its own time on, or from that of its
//! source, and a seed's time bounds all hops. With both times, which PyTorch Geometric refuses, an
//! edge exists from the later one on.

use graphmill_core::{Buffer, NodeId, keyed::Stream};
use graphmill_loader::time::TimeIndex;

use super::draw::{Draws, Scratch, Weights, remains};
use crate::topology::Topology;

/// Times that a caller passes.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimeColumns<'t> {
    /// A time per edge, in the order of the user's list.
    pub edges: Option<&'t [i64]>,
    /// A time per source node, whose edges exist from then on.
    pub sources: Option<&'t [i64]>,
    /// Number of source nodes.
    pub num_sources: usize,
}

/// Edges of each row in the order of their times.
#[derive(Clone, Debug)]
pub struct Times {
    index: TimeIndex,
    /// True to draw the last edges instead of random ones.
    is_last: bool,
}

impl Times {
    /// Sorts the edges of a topology by their times.
    ///
    /// # Errors
    /// There are fewer or more times than nodes or edges.
    pub fn new(topology: &Topology, given: TimeColumns<'_>, is_last: bool) -> Result<Self, String> {
        let graph = topology.graph();
        let counts = [(given.edges, graph.num_edges(), "edges"), (given.sources, given.num_sources, "nodes")];
        for (times, expected, what) in counts {
            if let Some(times) = times.filter(|times| times.len() != expected) {
                return Err(format!("{} times for {expected} {what}; pass one for each", times.len()));
            }
        }
        let of_edges = given.edges.map(|times| Buffer::from(topology.arrange(times)));
        let index = TimeIndex::new(graph, of_edges.as_ref(), given.sources).map_err(|e| e.to_string())?;
        Ok(Self { index, is_last })
    }

    /// The weights of a topology's edges in the order of their times, so that those of the edges up
    /// to a time are the first of a row, with their running sums. O(E).
    ///
    /// # Errors
    /// A row's sum is not finite in this order.
    pub fn order(&self, topology: &Topology, weights: &Weights) -> Result<Weights, String> {
        let rows = topology.graph().indptr().windows(2);
        let of_row = |ends: &[u64]| {
            let start = ends[0];
            (0..(ends[1] - start) as u32).map(move |place| weights.at(self.index.position(start, place)))
        };
        Weights::of_rows(topology, rows.flat_map(of_row).collect())
    }

    /// Appends the drawn positions of the edges of `v` that exist at `latest` to `out`, relative to
    /// the start of its row; those from the sources of `excluded`
    /// ([`sources_of`](graphmill_loader::link::ExcludedEdges::sources_of)) do not exist. Draws by
    /// `draws`, whose weights are in the [order](Times::order) of the times.
    pub(crate) fn draw(
        &self,
        (topology, draws): (&Topology, &Draws),
        (v, latest, excluded): (NodeId, i64, &[(NodeId, NodeId)]),
        fanout: Option<usize>,
        stream: Stream,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) {
        let graph = topology.graph();
        let start = graph.indptr()[v as usize];
        let admitted = self.index.admitted(graph, v, None, latest);
        let from = out.len();
        if !excluded.is_empty() {
            let source = |place: u32| graph.indices()[self.index.position(start, place) as usize];
            let remaining: Vec<u32> = admitted.filter(|&place| remains(excluded, source(place))).collect();
            if self.is_last {
                let count = fanout.unwrap_or(usize::MAX).min(remaining.len());
                out.extend_from_slice(&remaining[remaining.len() - count..]);
            } else {
                draws.draw_remaining(start, &remaining, fanout, stream, scratch, out);
            }
        } else if self.is_last {
            let count = fanout.unwrap_or(usize::MAX).min(admitted.len());
            out.extend(admitted.end - count as u32..admitted.end);
        } else {
            // without a window the edges that exist are the first ones
            draws.draw((start, start + admitted.len() as u64), fanout, stream, scratch, out);
        }
        for place in &mut out[from..] {
            *place = (self.index.position(start, *place) - start) as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excluded_edges_are_drawn_as_if_they_did_not_exist() {
        let times = [5, 1, 4, 1, 9, 3, 4];
        let of = |src: &[i64], times: &[i64], is_last| {
            let topology = Topology::from_edges(8, src, &vec![0; src.len()]).unwrap();
            let columns = TimeColumns { edges: Some(times), ..TimeColumns::default() };
            let sorted = Times::new(&topology, columns, is_last).unwrap();
            (topology, sorted)
        };
        let (src, excluded) = ([1, 2, 3, 4, 2, 6, 7], [(0, 2), (0, 7)]);
        let kept = [0, 2, 3, 5];
        for is_last in [false, true] {
            let (topology, sorted) = of(&src, &times, is_last);
            let (cut, cut_sorted) = of(&kept.map(|e| src[e]), &kept.map(|e| times[e]), is_last);
            for replace in [false, true] {
                let draws = Draws { replace, weights: None };
                for (latest, fanout) in (0..10).flat_map(|t| [Some(1), Some(2), None].map(|k| (t, k))) {
                    let (mut scratch, mut found, mut expected) = (Scratch::default(), vec![], vec![]);
                    let stream = || Stream::new(latest as u64);
                    let row = (0, latest, &excluded[..]);
                    sorted.draw((&topology, &draws), row, fanout, stream(), &mut scratch, &mut found);
                    let row = (0, latest, &[][..]);
                    cut_sorted.draw((&cut, &draws), row, fanout, stream(), &mut scratch, &mut expected);
                    let expected: Vec<u32> = expected.iter().map(|&e| kept[e as usize] as u32).collect();
                    assert_eq!(found, expected, "{is_last}, {replace}, at {latest}, fanout {fanout:?}");
                }
            }
        }
    }

    #[test]
    fn weighted_draws_are_those_of_the_edges_that_exist() {
        let (times, weights) = ([5, 1, 4, 1, 9, 3, 4], [1.0, 0.5, 0.0, 2.0, 8.0, 1.5, 3.0]);
        let into_zero = |src: &[i64]| Topology::from_edges(8, src, &vec![0; src.len()]).unwrap();
        let topology = into_zero(&[1, 2, 3, 4, 5, 6, 7]);
        let columns = TimeColumns { edges: Some(&times), ..TimeColumns::default() };
        let sorted = Times::new(&topology, columns, false).unwrap();
        let ordered = sorted.order(&topology, &Weights::new(&topology, &weights).unwrap()).unwrap();
        for replace in [true, false] {
            let draws = Draws { replace, weights: Some(ordered.clone()) };
            for latest in 0..10 {
                let mut seen: Vec<usize> = (0..7).filter(|&e| times[e] <= latest).collect();
                seen.sort_by_key(|&e| (times[e], e));
                let cut = into_zero(&seen.iter().map(|&e| e as i64 + 1).collect::<Vec<_>>());
                let of_seen: Vec<f64> = seen.iter().map(|&e| weights[e]).collect();
                let plain = Draws { replace, weights: Some(Weights::new(&cut, &of_seen).unwrap()) };
                for (fanout, key) in [(Some(2), 1), (Some(3), 2), (Some(9), 3), (None, 4)] {
                    let (mut scratch, mut found, mut expected) = (Scratch::default(), vec![], vec![]);
                    let stream = || Stream::new(key);
                    let of = (&topology, &draws);
                    sorted.draw(of, (0, latest, &[]), fanout, stream(), &mut scratch, &mut found);
                    let row = (0, seen.len() as u64);
                    plain.draw(row, fanout, stream(), &mut scratch, &mut expected);
                    let expected: Vec<u32> = expected.iter().map(|&e| seen[e as usize] as u32).collect();
                    assert_eq!(found, expected, "{replace}, at {latest}, fanout {fanout:?}");
                }
            }
        }
    }
}
