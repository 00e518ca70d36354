//! Times of edges, and draws among those that exist at the time of a seed.
//!
//! # Source
//!
//! Temporal sampling of PyTorch Geometric: an edge exists from its own time on, or from that of its
//! source, and a seed's time bounds all hops. With both times, which PyTorch Geometric refuses, an
//! edge exists from the later one on.
//!
//! Windows and draws by recency are those of the loader's [`time`](graphmill_loader::time).

use graphmill_core::{Buffer, NodeId, keyed::Stream};
use graphmill_loader::time::{RecencyDraws, TimeBound, TimeDraw, TimeIndex, TimeOptions};

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

/// Rule of draws among the edges up to a seed's time: by `time_draw`, without those that are older
/// by `time_window` or more if that is not 0, and with the half life of draws by recency.
pub fn rule(time_draw: TimeDraw, time_window: i64, time_half_life: f64) -> TimeOptions {
    // PyTorch Geometric admits edges of the seed's own time, and bounds all hops by it
    let time_bound = TimeBound::Inclusive;
    TimeOptions { time_bound, time_draw, time_window, time_half_life, ..TimeOptions::default() }
}

/// Edges of each row in the order of their times.
#[derive(Clone, Debug)]
pub struct Times {
    index: TimeIndex,
    rule: TimeOptions,
    /// Draws by recency, if the rule asks for them.
    recency: Option<RecencyDraws>,
}

impl Times {
    /// Sorts the edges of a topology by their times, to draw among them by a [`rule`].
    ///
    /// # Errors
    /// There are fewer or more times than nodes or edges.
    pub fn new(topology: &Topology, given: TimeColumns<'_>, rule: TimeOptions) -> Result<Self, String> {
        let graph = topology.graph();
        let counts = [(given.edges, graph.num_edges(), "edges"), (given.sources, given.num_sources, "nodes")];
        for (times, expected, what) in counts {
            if let Some(times) = times.filter(|times| times.len() != expected) {
                return Err(format!("{} times for {expected} {what}; pass one for each", times.len()));
            }
        }
        let of_edges = given.edges.map(|times| Buffer::from(topology.arrange(times)));
        let index = TimeIndex::new(graph, of_edges.as_ref(), given.sources).map_err(|e| e.to_string())?;
        let by_recency = rule.time_draw == TimeDraw::Recency;
        let recency = by_recency.then(|| RecencyDraws::new(&index, graph, rule.time_half_life)).transpose();
        let recency = recency.map_err(|e| e.to_string())?;
        Ok(Self { index, rule, recency })
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

    /// Appends the drawn positions of the edges of `v` that a seed of time `latest` sees to `out`,
    /// relative to the start of its row; those from the sources of `excluded`
    /// ([`sources_of`](graphmill_loader::link::ExcludedEdges::sources_of)) do not exist. Uniform
    /// draws are those of `draws`, whose weights are in the [order](Times::order) of the times.
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
        let (oldest, latest) = self.rule.admitted(latest);
        let admitted = self.index.admitted(graph, v, oldest, latest);
        let source = |place: u32| graph.indices()[self.index.position(start, place) as usize];
        let exists = |place: &u32| remains(excluded, source(*place));
        let (from, count) = (out.len(), fanout.unwrap_or(usize::MAX));
        // the sums of weights begin with the row, which a window cuts
        let is_range = excluded.is_empty() && (admitted.start == 0 || draws.weights.is_none());
        match (&self.recency, self.rule.time_draw) {
            (Some(recency), _) if excluded.is_empty() => {
                out.resize(from + count.min(admitted.len()), 0);
                recency.draw((graph, &self.index), (v, admitted), stream, &mut out[from..]);
            }
            (Some(recency), _) => {
                // the row without the excluded edges, of which later ones matter to the draws too
                let end = (graph.indptr()[v as usize + 1] - start) as u32;
                let row: Vec<u32> = (0..end).filter(exists).collect();
                let times: Vec<i64> = row.iter().map(|&place| self.index.time(start, place)).collect();
                let [low, high] = [admitted.start, admitted.end]
                    .map(|end| row.partition_point(|&place| place < end) as u32);
                out.resize(from + count.min((high - low) as usize), 0);
                recency.draw_of_times(&times, low..high, stream, &mut out[from..]);
                out[from..].iter_mut().for_each(|place| *place = row[*place as usize]);
            }
            (None, TimeDraw::Last) if excluded.is_empty() => {
                out.extend(admitted.end - count.min(admitted.len()) as u32..admitted.end);
            }
            (None, TimeDraw::Last) => {
                let remaining: Vec<u32> = admitted.filter(exists).collect();
                out.extend_from_slice(&remaining[remaining.len() - count.min(remaining.len())..]);
            }
            _ if is_range => {
                let first = start + u64::from(admitted.start);
                draws.draw((first, first + admitted.len() as u64), fanout, stream, scratch, out);
                out[from..].iter_mut().for_each(|place| *place += admitted.start);
            }
            _ => {
                let remaining: Vec<u32> = admitted.filter(exists).collect();
                draws.draw_remaining(start, &remaining, fanout, stream, scratch, out);
            }
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
        let of = |src: &[i64], times: &[i64], rule| {
            let topology = Topology::from_edges(8, src, &vec![0; src.len()]).unwrap();
            let columns = TimeColumns { edges: Some(times), ..TimeColumns::default() };
            let sorted = Times::new(&topology, columns, rule).unwrap();
            (topology, sorted)
        };
        let (src, excluded) = ([1, 2, 3, 4, 2, 6, 7], [(0, 2), (0, 7)]);
        let kept = [0, 2, 3, 5];
        let draws = [TimeDraw::Uniform, TimeDraw::Last, TimeDraw::Recency];
        for (draw, window) in draws.into_iter().flat_map(|draw| [(draw, 0), (draw, 4)]) {
            let rule = rule(draw, window, 2.0);
            let (topology, sorted) = of(&src, &times, rule);
            let (cut, cut_sorted) = of(&kept.map(|e| src[e]), &kept.map(|e| times[e]), rule);
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
                    assert_eq!(found, expected, "{rule:?}, {replace}, at {latest}, fanout {fanout:?}");
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
        for (replace, window) in [(true, 0), (false, 0), (true, 4), (false, 4)] {
            let sorted = Times::new(&topology, columns, rule(TimeDraw::Uniform, window, 1.0)).unwrap();
            let ordered = sorted.order(&topology, &Weights::new(&topology, &weights).unwrap()).unwrap();
            let draws = Draws { replace, weights: Some(ordered.clone()) };
            for latest in 0..10 {
                let is_seen = |time: i64| time <= latest && (window == 0 || time > latest - window);
                let mut seen: Vec<usize> = (0..7).filter(|&e| is_seen(times[e])).collect();
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
                    assert_eq!(found, expected, "{replace}, {window}, at {latest}, fanout {fanout:?}");
                }
            }
        }
    }

    #[test]
    fn windows_and_recency_change_which_edges_are_drawn() {
        let times: Vec<i64> = (0..100).collect();
        let topology = Topology::from_edges(100, &times, &vec![0; 100]).unwrap();
        let columns = TimeColumns { edges: Some(&times), ..TimeColumns::default() };
        let drawn = |rule, fanout| {
            let sorted = Times::new(&topology, columns, rule).unwrap();
            let (draws, mut scratch) = (Draws::default(), Scratch::default());
            let of_seed = |seed| {
                let (of, mut out) = ((&topology, &draws), Vec::new());
                sorted.draw(of, (0, 79, &[]), fanout, Stream::new(seed), &mut scratch, &mut out);
                out
            };
            (0..200).flat_map(of_seed).collect::<Vec<u32>>()
        };
        assert!(drawn(rule(TimeDraw::Uniform, 10, 1.0), Some(3)).iter().all(|e| (70..80).contains(e)));
        let all = drawn(rule(TimeDraw::Recency, 10, 1.0), None);
        assert_eq!(all[..10], (70..80).collect::<Vec<u32>>()[..]);
        let recent = drawn(rule(TimeDraw::Recency, 0, 5.0), Some(4));
        let near = recent.iter().filter(|&&e| e > 69).count();
        assert!(recent.iter().all(|&e| e < 80) && near * 10 > recent.len() * 6, "{near} of {}", recent.len());
        let uniform = drawn(rule(TimeDraw::Uniform, 0, 5.0), Some(4));
        assert!(uniform.iter().filter(|&&e| e > 69).count() * 10 < uniform.len() * 3);
    }
}
