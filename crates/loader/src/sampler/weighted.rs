//! k-hop neighbour sampling by edge weight (FGNN's weighted sampling, section 2).
//!
//! **With replacement** a node draws `k` in-neighbours, each in proportion to its edge's weight, however few it has; the mean over the draws
//! estimates the weighted mean over all. **Without** it draws one after the other among the rest, `k` distinct ones, or all that weigh
//! something. Edges that weigh 0 are never drawn, and a node whose edges all weigh 0 gets none. A fanout of -1 takes every
//! in-neighbour that can be drawn, once. Where all weigh the same, drawing without replacement is [`Neighbor`]'s.
//!
//! The block gets no weights: what a layer makes of the draws, a mean say, is of the neighbours as they are weighed here. (GNNLab also draws
//! with replacement, but drops repetitions and takes short rows whole, which biases that mean.)
//!
//! Weights are those of the graph or a function of the source's degree. They are drawn by
//!
//! - alias tables ([`RowAlias`]), 8 bytes an edge made beforehand (of stored weights once, and kept beside the graph), O(1) a draw. Without replacement a draw that came up before is
//!   drawn again. That is exact and takes little more than `k` draws, but not where few edges have nearly all the weight: after some
//!   tries the rest is drawn by one pass over the row's rest (`reservoir.rs`). The tries are a number fixed beforehand, and draws do not depend on how often
//!   others were repeated before them, so the distribution stays. Rows of up to `5 k / 4` edges are drawn by
//!   a pass from the beginning: towards the end most tries would be repetitions. (Measured: with `2 k` for the limit about a fifth fewer draws a second, beside neighbour sampling in the same run.)
//! - or prefix sums, no table: the weights of a row are added up when it is drawn from. With replacement the sums are searched, `O(d + k log d)`;
//!   without, it is one pass.

use graphmill_graph::{
    Block, Graph, NodeId, Result,
    alias::{RowAlias, Rows},
    block::Aggregation,
    keyed,
};
use rayon::prelude::*;

use super::{
    BatchKey, Sampler, Scratch,
    neighbor::{Neighbor, fanouts},
    reservoir::reservoir,
    runs::{Room, draw_runs},
};
use crate::prefetch::prefetch;

/// Nodes whose reads are in flight together.
const GROUP: usize = 16;
/// Edges ahead of a pass over a row for which the sources' weights are asked for.
pub(super) const AHEAD: usize = 16;

/// What an edge weighs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EdgeWeights {
    /// What the graph says; where it says nothing, all weigh the same.
    #[default]
    Stored,
    /// How many in-neighbours the source has, at least 1.
    InDegree,
    /// How many out-neighbours the source has.
    OutDegree,
    /// 1 / [`EdgeWeights::InDegree`].
    InverseInDegree,
    /// 1 / [`EdgeWeights::OutDegree`].
    InverseOutDegree,
}

impl EdgeWeights {
    /// All, by name.
    pub const ALL: [(&'static str, Self); 5] = [
        ("stored", Self::Stored),
        ("in-degree", Self::InDegree),
        ("out-degree", Self::OutDegree),
        ("inverse-in-degree", Self::InverseInDegree),
        ("inverse-out-degree", Self::InverseOutDegree),
    ];

    /// What each node's out-going edges weigh (`V`), where that is a function of the node. O(V), or O(E) for out-degrees.
    pub(super) fn of_nodes(self, graph: &Graph) -> Option<Vec<f32>> {
        let mut degrees = vec![0u32; graph.num_nodes()];
        match self {
            Self::Stored => return None,
            Self::InDegree | Self::InverseInDegree => {
                let degree = |(v, degree): (usize, &mut u32)| *degree = graph.in_degree(v as NodeId) as u32;
                degrees.par_iter_mut().enumerate().for_each(degree);
            }
            Self::OutDegree | Self::InverseOutDegree => {
                graph.indices().iter().for_each(|&u| degrees[u as usize] += 1);
            }
        }
        let inverse = matches!(self, Self::InverseInDegree | Self::InverseOutDegree);
        let weight = |degree: u32| if inverse { 1.0 / degree.max(1) as f32 } else { degree.max(1) as f32 };
        Some(degrees.into_par_iter().map(weight).collect())
    }
}

/// How neighbours are drawn by weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrawBy {
    /// Alias tables.
    #[default]
    Alias,
    /// Prefix sums.
    PrefixSums,
}

impl DrawBy {
    /// Both, by name.
    pub const ALL: [(&'static str, Self); 2] = [("alias", Self::Alias), ("prefix-sums", Self::PrefixSums)];
}

/// By what neighbours are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WeightedOptions {
    /// Whether a neighbour may be drawn again.
    pub replace: bool,
    /// What an edge weighs.
    pub weights: EdgeWeights,
    /// How it is drawn.
    pub draw_by: DrawBy,
}

/// See the module's text. Memory: 4 bytes a node where edges weigh by degree, or some weigh 0, and the alias tables.
#[derive(Clone, Debug)]
pub struct Weighted {
    /// Per hop from the seeds outward; `usize::MAX` takes all.
    fanout: Vec<usize>,
    replace: bool,
    weights: Weights,
    alias: Option<RowAlias>,
    /// How many in-neighbours each node can draw (`V`), where that is not all.
    can: Option<Vec<u32>>,
}

/// Where weights are read.
#[derive(Clone, Debug)]
enum Weights {
    Equal(Neighbor),
    Stored,
    /// By the source, `V`.
    OfSource(Vec<f32>),
}

impl Weighted {
    /// For `graph`, `fanout` as in [`Neighbor::new`]. O(V + E), parallel.
    ///
    /// # Errors
    /// An impossible fanout; an edge's weight is negative or not finite; a node has more in-neighbours than an alias table can number.
    pub fn new(graph: &Graph, fanout: &[i64], options: &WeightedOptions) -> Result<Self, String> {
        let &WeightedOptions { replace, weights, draw_by } = options;
        let of_nodes = weights.of_nodes(graph);
        let mut this = Self {
            fanout: fanouts(fanout)?,
            replace,
            weights: Weights::Equal(Neighbor::new(fanout)?),
            alias: None,
            can: None,
        };
        let by_alias = draw_by == DrawBy::Alias;
        if let Some(of_nodes) = of_nodes {
            if by_alias {
                let of_edges: Vec<f32> = graph.indices().par_iter().map(|&u| of_nodes[u as usize]).collect();
                this.alias = Some(RowAlias::new(graph, &of_edges).map_err(|e| e.to_string())?);
            }
            this.weights = Weights::OfSource(of_nodes);
        } else if let Some(stored) = graph.edge_weight() {
            if by_alias {
                this.alias = Some(RowAlias::of_stored_weights(graph).map_err(|e| e.to_string())?);
            }
            this.weights = Weights::Stored;
            if stored.par_iter().any(|&w| w == 0.0) {
                let can = |ends: &[u64]| {
                    let row = &stored[ends[0] as usize..ends[1] as usize];
                    row.iter().filter(|&&w| w > 0.0).count() as u32
                };
                this.can = Some(graph.indptr().par_windows(2).map(can).collect());
            }
        }
        Ok(this)
    }

    /// How it draws, for who draws the same elsewhere.
    pub fn draws(&self) -> WeightedDraws<'_> {
        match (&self.weights, &self.alias) {
            (Weights::Equal(_), _) if self.replace => WeightedDraws::Again,
            (Weights::Equal(_), _) => WeightedDraws::Distinct,
            (_, Some(alias)) if self.replace => WeightedDraws::AgainByAlias(alias),
            _ => WeightedDraws::Others,
        }
    }

    /// Whether every in-neighbour can be drawn: none weighs 0.
    pub fn draws_all(&self) -> bool {
        self.can.is_none()
    }
}

/// How a [`Weighted`] draws where the fanout is not -1.
#[derive(Clone, Copy, Debug)]
pub enum WeightedDraws<'a> {
    /// All neighbours weigh the same and are drawn once: what [`Neighbor`] draws.
    Distinct,
    /// All weigh the same, and each draw is of the whole row.
    Again,
    /// Each draw is of the whole row, from these tables.
    AgainByAlias(&'a RowAlias),
    /// Another way.
    Others,
}

impl Sampler for Weighted {
    fn num_layers(&self) -> usize {
        self.fanout.len()
    }

    fn is_random(&self) -> bool {
        self.fanout.iter().any(|&k| k != usize::MAX)
    }

    fn draws_by_node(&self) -> bool {
        true
    }

    fn reads_edge_weights(&self) -> bool {
        matches!(self.weights, Weights::Stored)
    }

    fn sample_layer(
        &self,
        graph: &Graph,
        hop: usize,
        dst: &[NodeId],
        key: BatchKey,
        aggregation: Aggregation,
        scratch: &mut Scratch,
        block: &mut Block,
    ) -> Result<()> {
        let fanout = self.fanout[hop];
        if let Weights::Equal(neighbor) = &self.weights
            && (!self.replace || fanout == usize::MAX)
        {
            return neighbor.sample_layer(graph, hop, dst, key, aggregation, scratch, block);
        }
        let key = key.of_hop(hop);
        let draws = Draws { sampler: self, graph, fanout, key };
        draw_runs(dst, scratch, block, |dst, room, block| draws.draw(dst, room, block))
    }
}

/// One hop's draws.
struct Draws<'a> {
    sampler: &'a Weighted,
    graph: &'a Graph,
    fanout: usize,
    key: u64,
}

impl Draws<'_> {
    /// Appends what `dst` draw. A group of destinations says where it reads in the tables, then looks there and says where it reads
    /// among the edges, then reads.
    fn draw(&self, dst: &[NodeId], room: &mut Room, block: &mut Block) {
        let (rows, neighbors) = (self.graph.indptr(), self.graph.indices());
        let tables = self.sampler.alias.as_ref().map(RowAlias::rows);
        for first in (0..dst.len()).step_by(GROUP) {
            let next = dst[first..].iter().skip(GROUP).take(GROUP);
            next.for_each(|&v| prefetch(rows, v as usize));
            let group = &dst[first..(first + GROUP).min(dst.len())];
            room.positions.clear();
            match (tables, self.sampler.replace || self.fanout == usize::MAX) {
                (Some(alias), true) if self.fanout < usize::MAX => self.again(alias, group, room, block),
                (Some(alias), false) => self.distinct(alias, group, room, block),
                _ => group.iter().for_each(|&v| self.without_table(v, room, block)),
            }
            let positions = &room.positions;
            positions.iter().for_each(|&e| prefetch(neighbors, e as usize));
            block.indices.extend(positions.iter().map(|&e| neighbors[e as usize]));
        }
    }

    /// The positions of the edges of `v`, how many of them can be drawn, and its random numbers.
    #[inline(always)]
    fn row(&self, v: NodeId) -> (u64, u64, usize, keyed::Stream) {
        let rows = self.graph.indptr();
        let (start, end) = (rows[v as usize], rows[v as usize + 1]);
        let can = self.sampler.can.as_ref().map_or((end - start) as usize, |can| can[v as usize] as usize);
        let stream = keyed::Stream::new(keyed::mix(self.key ^ u64::from(v).wrapping_mul(keyed::GOLDEN)));
        (start, end, can, stream)
    }

    /// What the edges at these positions weigh.
    fn weights(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, f64)> {
        let neighbors = self.graph.indices();
        let stored = self.graph.edge_weight().unwrap_or_default();
        (start..end).map(move |e| {
            let weight = match &self.sampler.weights {
                Weights::Equal(_) => 1.0,
                Weights::Stored => stored[e as usize],
                Weights::OfSource(weights) => {
                    if let Some(&ahead) = neighbors.get(e as usize + AHEAD) {
                        prefetch(weights, ahead as usize);
                    }
                    weights[neighbors[e as usize] as usize]
                }
            };
            (e, f64::from(weight))
        })
    }

    /// With replacement, by alias tables.
    fn again(&self, alias: Rows, group: &[NodeId], room: &mut Room, block: &mut Block) {
        room.aims.clear();
        for &v in group {
            let (start, end, can, mut stream) = self.row(v);
            let draws = if can == 0 { 0 } else { self.fanout };
            room.aims.extend((0..draws).map(|_| alias.aim(start, end, stream.next_u64())));
            end_row(block, draws);
        }
        room.positions.extend(room.aims.iter().map(|&aim| alias.settle(aim)));
    }

    /// Without replacement, by alias tables.
    fn distinct(&self, alias: Rows, group: &[NodeId], room: &mut Room, block: &mut Block) {
        let k = self.fanout;
        let by_tries = |can: usize| can > k + k / 4;
        room.aims.clear();
        for &v in group {
            let (start, end, can, mut stream) = self.row(v);
            if by_tries(can) {
                room.aims.extend((0..k).map(|_| alias.aim(start, end, stream.next_u64())));
            }
        }
        let mut aims = 0;
        for &v in group {
            let (start, end, can, mut stream) = self.row(v);
            if !by_tries(can) {
                self.pass(k, can, (start, end), &mut stream, room);
                end_row(block, k.min(can));
                continue;
            }
            let first = room.positions.len();
            let most = 4 * k + can / 64;
            let words = (end - start).div_ceil(64) as usize;
            if room.bits.len() < words {
                room.bits.resize(words, 0);
            }
            for tries in 0..most {
                let word = stream.next_u64();
                let aim = if tries < k { room.aims[aims + tries] } else { alias.aim(start, end, word) };
                let e = alias.settle(aim);
                let (word, bit) = (&mut room.bits[(e - start) as usize / 64], 1 << ((e - start) % 64));
                if *word & bit == 0 {
                    *word |= bit;
                    room.positions.push(e);
                    if room.positions.len() == first + k {
                        break;
                    }
                }
            }
            aims += k;
            let missing = first + k - room.positions.len();
            if missing > 0 {
                let bits = &room.bits;
                let is_left =
                    |&(e, _): &(u64, f64)| bits[(e - start) as usize / 64] >> ((e - start) % 64) & 1 == 0;
                let rest = self.weights(start, end).filter(is_left);
                reservoir(missing, rest, &mut stream, &mut room.ahead);
            }
            for &e in &room.positions[first..] {
                room.bits[(e - start) as usize / 64] = 0;
            }
            if missing > 0 {
                room.positions.extend(room.ahead.drain().map(|candidate| candidate.position));
            }
            end_row(block, k);
        }
    }

    /// Without tables, or all there are.
    fn without_table(&self, v: NodeId, room: &mut Room, block: &mut Block) {
        let (start, end, can, mut stream) = self.row(v);
        let k = self.fanout;
        if !self.sampler.replace || k == usize::MAX {
            self.pass(k, can, (start, end), &mut stream, room);
            return end_row(block, k.min(can));
        }
        let draws = if can == 0 { 0 } else { k };
        if let Weights::Equal(_) = self.sampler.weights {
            room.positions.extend((0..draws).map(|_| start + stream.below(end - start)));
        } else if draws > 0 {
            let mut sum = 0.0;
            room.sums.clear();
            room.sums.extend(self.weights(start, end).map(|(_, weight)| {
                sum += weight;
                sum
            }));
            // below the sum: the first that is larger then stands at an edge that weighs something
            let most = sum.next_down();
            room.positions.extend((0..draws).map(|_| {
                let at = (stream.uniform() * sum).min(most);
                start + room.sums.partition_point(|&sum| sum <= at) as u64
            }));
        }
        end_row(block, draws);
    }

    /// At most `k` of the `can` of a row that can be drawn, without replacement, in one pass.
    fn pass(
        &self,
        k: usize,
        can: usize,
        (start, end): (u64, u64),
        stream: &mut keyed::Stream,
        room: &mut Room,
    ) {
        if can <= k {
            let all = can as u64 == end - start;
            let edges = self.weights(start, end).filter(|&(_, weight)| weight > 0.0).map(|(e, _)| e);
            if all {
                room.positions.extend(start..end)
            } else {
                room.positions.extend(edges)
            }
            return;
        }
        reservoir(k, self.weights(start, end), stream, &mut room.ahead);
        room.positions.extend(room.ahead.drain().map(|candidate| candidate.position));
    }
}

/// Ends the row of a destination with so many edges.
fn end_row(block: &mut Block, edges: usize) {
    let end = block.indptr[block.indptr.len() - 1].wrapping_add(edges as u32);
    block.indptr.push(end);
}

#[cfg(test)]
mod tests {
    use super::{super::reservoir::tests::sets, *};
    use crate::{Form, MiniBatch, Workspace, subgraph::testing::fits};

    /// Node 0 hears from `1..=d`, with these weights; nobody else from anyone.
    fn star(weights: &[f32]) -> Graph {
        let d = weights.len();
        let indptr: Vec<u64> = (0..d + 2).map(|v| if v == 0 { 0 } else { d as u64 }).collect();
        let graph = Graph::new(indptr.into(), (1..=d as NodeId).collect::<Vec<_>>().into()).unwrap();
        graph.with_edge_weight(weights.to_vec().into()).unwrap()
    }

    /// What node 0 draws, batch after batch.
    fn draws(sampler: &Weighted, graph: &Graph, batches: u64, mut see: impl FnMut(&[NodeId])) {
        let mut workspace = Workspace::new(graph.num_nodes());
        let mut batch = MiniBatch { seeds: vec![0], ..MiniBatch::default() };
        for number in 0..batches {
            batch.number = number;
            let form = Form { fused: true, ..Form::default() };
            sampler.sample(graph, 3, 0, form, &mut workspace, &mut batch).unwrap();
            assert!(batch.blocks[0].edge_weight.is_empty());
            see(&batch.blocks[0].indices);
        }
    }

    const BOTH: [DrawBy; 2] = [DrawBy::Alias, DrawBy::PrefixSums];

    #[test]
    fn with_replacement_draws_are_independent_and_by_weight() {
        let weights = [1.0, 0.0, 5.0, 0.5, 2.0, 0.0];
        let graph = star(&weights);
        for draw_by in BOTH {
            let options = WeightedOptions { replace: true, draw_by, ..WeightedOptions::default() };
            let sampler = Weighted::new(&graph, &[2], &options).unwrap();
            let mut counts = vec![0; 36];
            draws(&sampler, &graph, 100_000, |row| {
                assert_eq!(row.len(), 2);
                counts[(row[0] as usize - 1) * 6 + row[1] as usize - 1] += 1;
            });
            let pair = |i: usize| f64::from(weights[i / 6]) * f64::from(weights[i % 6]);
            fits(&counts, &(0..36).map(pair).collect::<Vec<_>>());
        }
    }

    #[test]
    fn without_replacement_sets_are_those_of_one_draw_after_the_other() {
        // a heavy edge: at k = 2 and 3 repetitions, and now and then so many that a pass has to end it
        for (k, weights) in [
            (1, vec![1.0, 0.0, 5.0, 0.5, 2.0]),
            (2, vec![1.0, 900.0, 3.0, 0.0, 1.0, 2.0, 9000.0]),
            (3, vec![1.0, 900.0, 3.0, 1.0, 0.2, 2.0, 40.0, 2.0]),
            (3, vec![1.0, 9.0, 3.0, 0.0, 4.0]),
            // so few that there is a pass alone
            (4, vec![1.0, 9.0, 3.0, 0.5, 0.0, 4.0]),
        ] {
            let graph = star(&weights);
            let weights: Vec<f64> = weights.iter().map(|&w| f64::from(w)).collect();
            for draw_by in BOTH {
                let options = WeightedOptions { draw_by, ..WeightedOptions::default() };
                let sampler = Weighted::new(&graph, &[k], &options).unwrap();
                let mut counts = vec![0; 1 << weights.len()];
                draws(&sampler, &graph, 100_000, |row| {
                    assert_eq!(row.len(), k as usize);
                    counts[row.iter().map(|&u| 1 << (u - 1)).sum::<usize>()] += 1;
                });
                let mut expected = sets(k as usize, &weights);
                let rare = |p: f64| p < 5e-5;
                (0..counts.len())
                    .filter(|&i| rare(expected[i]) && expected[i] > 0.0)
                    .for_each(|i| counts[i] = 0);
                expected.iter_mut().filter(|p| rare(**p)).for_each(|p| *p = 0.0);
                fits(&counts, &expected);
            }
        }
    }

    #[test]
    fn a_few_heavy_edges_of_a_long_row_do_not_hold_up_the_others() {
        let weights: Vec<f32> = (0..5000).map(|i| if i % 1000 == 7 { 1e30 } else { 1.0 }).collect();
        let graph = star(&weights);
        let sampler = Weighted::new(&graph, &[20], &WeightedOptions::default()).unwrap();
        let mut counts = vec![0u64; 5];
        draws(&sampler, &graph, 2000, |row| {
            let mut row: Vec<u32> = row.iter().map(|u| u - 1).collect();
            row.sort_unstable();
            row.dedup();
            assert_eq!((row.len(), row.iter().filter(|&u| u % 1000 == 7).count()), (20, 5));
            row.iter().filter(|&u| u % 1000 != 7).for_each(|u| counts[*u as usize / 1000] += 1);
        });
        fits(&counts, &[1.0; 5]);
    }

    #[test]
    fn degrees_weigh_as_their_names_say() {
        // 0 hears from 1, 2, 3; 1 from nobody; 2 from 0 and 1; 3 from 0, 1, 2 and itself
        let indptr = vec![0, 3, 3, 5, 9];
        let graph = Graph::new(indptr.into(), vec![1, 2, 3, 0, 1, 0, 1, 2, 3].into()).unwrap();
        for ((_, weights), expected) in EdgeWeights::ALL.into_iter().zip([
            [1.0, 1.0, 1.0],
            [1.0, 2.0, 4.0],
            [3.0, 2.0, 2.0],
            [1.0, 0.5, 0.25],
            [1.0 / 3.0, 0.5, 0.5],
        ]) {
            for (draw_by, replace) in [(BOTH[0], true), (BOTH[1], true), (BOTH[0], false), (BOTH[1], false)] {
                let options = WeightedOptions { replace, weights, draw_by };
                let sampler = Weighted::new(&graph, &[1], &options).unwrap();
                assert!(!sampler.reads_edge_weights());
                let mut counts = vec![0; 3];
                draws(&sampler, &graph, 20_000, |row| counts[row[0] as usize - 1] += 1);
                fits(&counts, &expected);
            }
        }
    }

    #[test]
    fn what_weighs_nothing_is_never_there_and_all_is_all_that_weighs_something() {
        let graph = star(&[0.0, 2.0, 0.0, 1.0, 1.0]);
        let nothing = star(&[0.0; 40]);
        for draw_by in BOTH {
            for replace in [false, true] {
                let options = WeightedOptions { replace, draw_by, ..WeightedOptions::default() };
                for (fanout, most) in [(-1, usize::MAX), (3, 3), (9, if replace { 9 } else { 3 })] {
                    let sampler = Weighted::new(&graph, &[fanout], &options).unwrap();
                    assert!(sampler.reads_edge_weights());
                    draws(&sampler, &graph, 20, |row| {
                        assert!(
                            row.iter().all(|&u| u % 2 == 0 || u == 5)
                                && !row.contains(&1)
                                && !row.contains(&3)
                        );
                        assert_eq!(row.len(), most.min(if replace && fanout > 0 { 9 } else { 3 }));
                        assert!(fanout > 0 || row == [2, 4, 5]);
                    });
                    let sampler = Weighted::new(&nothing, &[fanout], &options).unwrap();
                    draws(&sampler, &nothing, 3, |row| assert!(row.is_empty()));
                }
            }
        }
    }

    #[test]
    fn weights_that_are_none_are_refused_where_they_stand() {
        let graph = |weight: f32| star(&[1.0; 3]).with_edge_weight(vec![1.0, weight, 2.0].into());
        for weight in [-1.0, f32::NAN, f32::INFINITY] {
            let error = graph(weight).unwrap_err().to_string();
            assert!(error.contains(&format!("edge weight 1 is {weight}")), "{error}");
        }
        assert!(Weighted::new(&star(&[1.0]), &[0], &WeightedOptions::default()).is_err());
    }
}
