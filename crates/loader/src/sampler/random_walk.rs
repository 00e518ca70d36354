//! PinSAGE's neighbourhoods: the `k` nodes that short random walks from a node visit most.
//!
//! # Algorithm
//!
//! Several walks start at a node, each step to a uniform in-neighbour. After each step a walk ends
//! with the restart probability, and in any case after its last step or at a node without
//! in-neighbours. The node's neighbours are the `k` (the hop's fanout; -1: all) most visited nodes,
//! in that order, ties by ascending id; a walk that returns to its start visits it, as in DGL and
//! GNNLab. A node without in-neighbours has no neighbours.
//!
//! The importance of a neighbour is its share of the visits of all `k`. A layer without a fixed sum
//! over neighbours (PinSAGE's) receives the visits as edge weights, a mean the importances, and a
//! sum `d` times the importances, with the in-degree `d` of the node; the symmetric normalisation
//! multiplies that. With walks of one step, all of these are unbiased estimates of the sums over
//! all in-neighbours if `k` takes all.
//!
//! Walks do not cross the edges that a batch excludes: visits and weights are those of the graph
//! without them. A node may visit the other end of an excluded edge over other edges.
//!
//! # Source
//!
//! Ying et al., *Graph convolutional neural networks for web-scale recommender systems*, KDD 2018,
//! section 3.1.
//!
//! # Cost
//!
//! O(walks x length) reads per node. The walks of a group of nodes take a step together, so that
//! their reads overlap. Excluded edges take a search in the row of their destination per hop.

use std::sync::Arc;

use clap::Args;
use graphmill_core::{
    Block, NodeId, Result,
    block::Aggregation,
    keyed, memory,
    options::{Fault, OptionSet, range},
};
use serde::{Deserialize, Serialize};

use super::{
    HopProperties, HopRequest, HopSampler, HopScratch, SamplerOptions, Source, StepSampler, StepSource,
    runs::{check_size, draw_runs, start},
    scratch::{Run, RunScratch, Walk},
};
use crate::{
    Fanout,
    link::{ExcludedEdges, ExcludedPlaces},
    prefetch::prefetch,
};

/// Approximate number of walks that take their steps together.
const GROUP: usize = 64;

/// Approximate number of walks whose next neighbours are requested together.
const STEP_GROUP: usize = 1 << 16;

/// Default number of steps of a walk, unless `--walk-length` sets it.
pub const LENGTH: usize = 3;
/// Maximum number of steps of all walks of a node.
const MAX_STEPS: usize = 1 << 16;

/// Options of [`RandomWalk`].
#[derive(Args, Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WalkOptions {
    /// Number of walks from each node (random-walk, metapath-walk).
    ///
    /// More walks rank neighbours more exactly and take longer. Walks times steps are at most
    /// 65536; the default of 4 is GNNLab's.
    #[arg(long, alias = "walks", value_name = "N")]
    pub num_walks: usize,
    /// Probability that a walk ends after each step.
    ///
    /// From 0 to 1. A larger value keeps walks closer to their start.
    #[arg(long, alias = "restart", value_name = "P")]
    pub restart_prob: f64,
}

impl Default for WalkOptions {
    fn default() -> Self {
        Self { num_walks: 4, restart_prob: 0.5 }
    }
}

impl OptionSet for WalkOptions {
    fn check(&self) -> Result<(), Fault> {
        range("num_walks", self.num_walks, 1..=MAX_STEPS)?;
        range("restart_prob", self.restart_prob, 0.0..=1.0)
    }
}

/// Options of samplers that walk.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WalkLength {
    /// Steps of a walk; 0 for 2 (saint-rw) or 3 (other walks).
    ///
    /// Longer walks reach nodes farther away. Along a metapath (metapath-walk), the number of times
    /// that a walk follows the whole path.
    #[arg(long, value_name = "N")]
    pub walk_length: usize,
}

impl WalkLength {
    /// Number of steps, or the sampler's `own` default if it is 0.
    pub fn or(self, own: usize) -> usize {
        if self.walk_length == 0 { own } else { self.walk_length }
    }
}

impl OptionSet for WalkLength {}

/// Makes the sampler of a run.
pub(super) fn make(with: &SamplerOptions, _: &Source) -> Result<Arc<dyn HopSampler>, String> {
    let length = with.own.get::<WalkLength>().or(LENGTH);
    Ok(Arc::new(RandomWalk::new(&with.fanout, &with.own.get(), length)?))
}

/// Samples the nodes that random walks visit most (PinSAGE).
#[derive(Clone, Debug)]
pub struct RandomWalk {
    /// Number of neighbours per hop, from the seeds outward; `usize::MAX` takes all.
    fanout: Vec<usize>,
    num_walks: usize,
    length: usize,
    restart: f64,
}

impl RandomWalk {
    /// Creates a sampler with `fanout` as in [`super::neighbor::Neighbor::new`].
    ///
    /// # Errors
    /// The fanout is invalid, there are no walks or steps or more than 2^16 steps in total, or the
    /// restart probability is outside 0 to 1.
    pub fn new(fanout: impl Into<Fanout>, options: &WalkOptions, length: usize) -> Result<Self, String> {
        let &WalkOptions { num_walks: walks, restart_prob: restart } = options;
        let visits = walks.saturating_mul(length);
        if visits == 0 || visits > MAX_STEPS {
            return Err(format!(
                "--num-walks {walks} of --walk-length {length} are not 1 to 65536 steps in total; use fewer \
                 walks or steps"
            ));
        }
        if !(0.0..=1.0).contains(&restart) {
            return Err(format!("--restart-prob {restart} is not a probability; use a number from 0 to 1"));
        }
        Ok(Self { fanout: fanout.into().bounds()?, num_walks: walks, length, restart })
    }
}

impl RandomWalk {
    /// Number of neighbours of hop `hop`.
    pub(super) fn fanout(&self, hop: usize) -> usize {
        self.fanout[hop]
    }

    /// Largest number of steps of a walk.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Probability that a walk ends after a step.
    pub(super) fn restart(&self) -> f64 {
        self.restart
    }

    /// Number of nodes whose walks take their steps together.
    pub(super) fn group(&self) -> usize {
        GROUP.div_ceil(self.num_walks)
    }

    /// Number of nodes whose next neighbours are requested together.
    pub(super) fn step_group(&self) -> usize {
        STEP_GROUP.div_ceil(self.num_walks)
    }

    /// Overwrites `scratch.walks` with the walks that start at the nodes of `group`, and clears the
    /// visits.
    pub(super) fn begin(&self, group: &[NodeId], request: &HopRequest, scratch: &mut RunScratch) {
        let RunScratch { walks, visits, .. } = scratch;
        walks.clear();
        visits.clear();
        memory::demand(walks, group.len() * self.num_walks);
        let key = request.hop_key();
        for (from, v) in (0..).zip(group.iter().map(|&v| request.name(v))) {
            let node = keyed::mix(key ^ u64::from(v).wrapping_mul(keyed::GOLDEN));
            let walk = |number: usize| Walk {
                stream: keyed::Stream::new(keyed::mix(node ^ number as u64)),
                at: v.into(),
                from,
                is_alive: true,
            };
            walks.extend((0..self.num_walks).map(walk));
        }
    }
}

/// Walks of one hop.
struct Walks<'a> {
    sampler: &'a RandomWalk,
    request: &'a HopRequest<'a>,
    excluded: Option<ExcludedPlaces<'a>>,
}

impl Walks<'_> {
    /// Appends the neighbours of `dst` and their visits or weights.
    fn draw(&self, dst: &[NodeId], scratch: &mut RunScratch, block: &mut Block) {
        let &HopRequest { hop, aggregation, .. } = self.request;
        let fanout = self.sampler.fanout[hop];
        for group in dst.chunks(self.sampler.group()) {
            self.walk(group, scratch);
            rank(group, |v| self.degree(v), (fanout, aggregation), scratch, block);
        }
    }

    /// Number of edges into `v` that walks can take.
    #[inline(always)]
    fn degree(&self, v: NodeId) -> u64 {
        let degree = self.request.graph.in_degree(v) as u64;
        self.excluded.as_ref().map_or(degree, |excluded| excluded.left(v, degree))
    }

    /// Overwrites `scratch.visits` with pairs, in any order: the number of a walk's start within
    /// `group`, and a node that it visited.
    fn walk(&self, group: &[NodeId], scratch: &mut RunScratch) {
        let graph = self.request.graph;
        let &RandomWalk { length, restart, .. } = self.sampler;
        let (rows, neighbors) = (graph.indptr(), graph.indices());
        group.iter().for_each(|&v| prefetch(rows, v as usize));
        self.sampler.begin(group, self.request, scratch);
        let RunScratch { walks, visits, .. } = scratch;
        for _ in 0..length {
            memory::demand(visits, walks.len());
            for walk in walks.iter_mut() {
                let (v, start) = (walk.at as NodeId, rows[walk.at as usize]);
                let degree = self.degree(v);
                walk.is_alive = degree > 0;
                let number = walk.stream.below(degree);
                walk.at = start + self.excluded.as_ref().map_or(number, |out| out.place(v, number));
                prefetch(neighbors, walk.at as usize);
            }
            walks.retain_mut(|walk| {
                if walk.is_alive {
                    let to = neighbors[walk.at as usize];
                    visits.push(u64::from(walk.from) << 32 | u64::from(to));
                    walk.at = to.into();
                    walk.is_alive = walk.stream.uniform() >= restart;
                    prefetch(rows, to as usize);
                }
                walk.is_alive
            });
        }
    }
}

/// Appends the most visited nodes of each destination in `group`, by descending visits and then by
/// ascending id, with their weights.
pub(super) fn rank(
    group: &[NodeId],
    degree: impl Fn(NodeId) -> u64,
    (fanout, aggregation): (usize, Aggregation),
    scratch: &mut RunScratch,
    block: &mut Block,
) {
    scratch.visits.sort_unstable();
    let mut rest = &scratch.visits[..];
    for (i, &v) in (0..).zip(group) {
        let of_node = rest.partition_point(|&visit| visit >> 32 == i);
        let visits;
        (visits, rest) = rest.split_at(of_node);
        let ranked = &mut scratch.positions;
        ranked.clear();
        memory::demand(ranked, visits.len());
        // by descending visits, then by ascending id
        let rank = |run: &[u64]| !(run.len() as u64) << 32 | run[0] & u64::from(u32::MAX);
        ranked.extend(visits.chunk_by(|a, b| a == b).map(rank));
        if ranked.len() > fanout {
            ranked.select_nth_unstable(fanout);
            ranked.truncate(fanout);
        }
        ranked.sort_unstable();
        let count = |rank: u64| (u32::MAX - (rank >> 32) as u32) as f32;
        let sum: f32 = ranked.iter().map(|&rank| count(rank)).sum();
        let factor = match aggregation {
            Aggregation::Other => 1.0,
            Aggregation::Mean => 1.0 / sum,
            Aggregation::Sum | Aggregation::Symmetric => degree(v) as f32 / sum,
        };
        memory::demand(&mut block.indices, ranked.len());
        memory::demand(&mut block.edge_weight, ranked.len());
        block.indices.extend(ranked.iter().map(|&rank| rank as NodeId));
        block.edge_weight.extend(ranked.iter().map(|&rank| count(rank) * factor));
        block.indptr.push(block.indices.len() as u32);
    }
}

impl StepSampler for RandomWalk {
    fn sample_hop_by_steps(
        &self,
        request: &HopRequest,
        source: &dyn StepSource,
        scratch: &mut HopScratch,
        block: &mut Block,
    ) -> Result<()> {
        let &HopRequest { hop, dst, aggregation, .. } = request;
        start(block);
        memory::demand(&mut block.indptr, dst.len());
        if scratch.runs.is_empty() {
            scratch.runs.push(Run::default());
        }
        let scratch = &mut scratch.runs[0].scratch;
        let mut at: Vec<(NodeId, u32)> = Vec::new();
        let lists = |excluded: &ExcludedEdges| source.lists(&memory::demand_collect(excluded.destinations()));
        let lists = request.excluded.map(lists).transpose()?;
        let places = request
            .excluded
            .zip(lists.as_ref())
            .map(|(excluded, lists)| ExcludedPlaces::new(excluded, lists, |i, _| i as NodeId));
        let degree_of = |v: NodeId| {
            let degree = source.degree(v);
            places.as_ref().map_or(degree, |places| places.left(v, degree))
        };
        for group in dst.chunks(self.step_group()) {
            self.begin(group, request, scratch);
            for _ in 0..self.length {
                let RunScratch { walks, visits, .. } = scratch;
                at.clear();
                memory::demand(&mut at, walks.len());
                memory::demand(visits, walks.len());
                walks.retain_mut(|walk| {
                    let from = walk.at as NodeId;
                    let degree = degree_of(from);
                    let number = walk.stream.below(degree);
                    let number = places.as_ref().map_or(number, |places| places.place(from, number));
                    if degree > 0 {
                        at.push((from, number as u32));
                    }
                    degree > 0
                });
                if walks.is_empty() {
                    break;
                }
                source.step(&mut at)?;
                let mut to = at.iter();
                walks.retain_mut(|walk| {
                    let Some(&(_, to)) = to.next() else { return false };
                    visits.push(u64::from(walk.from) << 32 | u64::from(to));
                    walk.at = to.into();
                    walk.stream.uniform() >= self.restart
                });
            }
            rank(group, degree_of, (self.fanout[hop], aggregation), scratch, block);
            check_size(block)?;
        }
        Ok(())
    }
}

impl HopSampler for RandomWalk {
    fn num_layers(&self) -> usize {
        self.fanout.len()
    }

    fn properties(&self) -> HopProperties {
        HopProperties { is_per_node: true, leaves_out: true, ..HopProperties::default() }
    }

    fn sample_hop(&self, request: &HopRequest, scratch: &mut HopScratch, block: &mut Block) -> Result<()> {
        let places = |excluded| ExcludedPlaces::new(excluded, request.graph, |_, v| v);
        let excluded = request.excluded.map(places);
        let walks = Walks { sampler: self, request, excluded };
        draw_runs(request.dst, scratch, block, |dst, scratch, block| walks.draw(dst, scratch, block))
    }

    fn by_steps(&self) -> Option<&dyn StepSampler> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::Graph;

    use super::*;
    use crate::{
        BatchKey, BlockLayout, MinibatchSampler, Seeds, Workspace,
        sampler::{BatchRequest, HopStack},
        subgraph::testing::{fits, graph_of},
        weights::SymmetricWeights,
    };

    /// Passes the rows of nodes 0, 1, .. in turn to `see`: neighbours and weights.
    fn draws(
        (options, length): (WalkOptions, usize),
        fanout: i64,
        graph: &Graph,
        form: BlockLayout,
        batches: u64,
        mut see: impl FnMut(usize, &[NodeId], &[f32]),
    ) {
        let sampler = HopStack::new(RandomWalk::new([fanout], &options, length).unwrap());
        let mut workspace = Workspace::new(graph.num_nodes());
        let mut memory = Seeds::default();
        for number in 0..batches {
            let request = BatchRequest::new(graph, BatchKey { seed: 3, epoch: 0, batch: number })
                .with_layout(BlockLayout { fused: true, ..form });
            let seeds = memory.refill(number, 0..graph.num_nodes() as NodeId);
            let batch = sampler.sample(&request, &mut workspace, seeds).unwrap();
            let block = &batch.blocks[0];
            (0..block.num_dst)
                .for_each(|v| see(v, &block.indices[block.edges(v)], &block.edge_weight[block.edges(v)]));
            memory = batch.recycle();
        }
    }

    /// Node 4 has no in-neighbours, and node 5 has no edges.
    fn graph() -> Graph {
        graph_of(&[&[1, 2, 3, 4], &[0, 2], &[0, 1, 3], &[0, 2], &[], &[]])
    }

    #[test]
    fn single_walks_visit_nodes_with_the_exact_probabilities() {
        let graph = graph();
        let options = (WalkOptions { num_walks: 1, restart_prob: 0.3 }, 3);
        // counts of outcomes, coded by the number of visits of each node
        let mut counts = [vec![0; 4096], vec![0; 4096]];
        let code = |visits: &[u64; 6]| visits.iter().fold(0, |code, &c| code * 4 + c as usize);
        draws(options, -1, &graph, BlockLayout::default(), 60_000, |v, row, weight| {
            let mut visits = [0; 6];
            row.iter().zip(weight).for_each(|(&u, &w)| visits[u as usize] = w as u64);
            assert_eq!(row.is_empty(), v > 3);
            if v < 2 {
                counts[v][code(&visits)] += 1;
            }
        });
        for (v, counts) in counts.iter().enumerate() {
            let mut expected = vec![0.0; 4096];
            let mut walks = vec![(v, 1.0, [0; 6])];
            for step in 1..=3 {
                let mut next = Vec::new();
                for (at, p, visits) in walks {
                    let row = graph.in_neighbors(at as u32);
                    if row.is_empty() {
                        expected[code(&visits)] += p;
                    }
                    for &u in row {
                        let (p, mut visits) = (p / row.len() as f64, visits);
                        visits[u as usize] += 1;
                        let ends = if step == 3 { 1.0 } else { 0.3 };
                        expected[code(&visits)] += p * ends;
                        next.push((u as usize, p * (1.0 - ends), visits));
                    }
                }
                walks = next;
            }
            fits(counts, &expected);
        }
    }

    #[test]
    fn walks_are_independent_and_neighbours_are_ranked_by_visits() {
        let graph = graph();
        // Two walks of one step from node 1, to 0 or 2: one node twice, or both once, ranked by id.
        let options = (WalkOptions { num_walks: 2, restart_prob: 0.5 }, 1);
        let mut counts = vec![0; 3];
        draws(options, 1, &graph, BlockLayout::default(), 20_000, |v, row, weight| {
            if v == 1 {
                counts[match (row, weight) {
                    ([0], [1.0]) => 0,
                    ([0], [2.0]) => 1,
                    ([2], [2.0]) => 2,
                    _ => panic!("{row:?} {weight:?}"),
                }] += 1;
            }
        });
        fits(&counts, &[2.0, 1.0, 1.0]);
        let options = (WalkOptions { num_walks: 50, restart_prob: 0.2 }, 3);
        draws(options, 3, &graph, BlockLayout::default(), 50, |v, row, weight| {
            assert_eq!(row.len(), if v < 4 { 3 } else { 0 });
            let order: Vec<(f32, NodeId)> = weight.iter().map(|w| -w).zip(row.iter().copied()).collect();
            assert!(order.is_sorted_by(|a, b| a.partial_cmp(b).unwrap().is_lt()), "{order:?}");
        });
    }

    #[test]
    fn restart_1_takes_one_step_and_restart_0_all() {
        let ring = graph_of(&[&[1], &[2], &[3], &[0]]);
        for (restart, visited) in [(1.0, 1), (0.0, 3)] {
            let options = (WalkOptions { num_walks: 4, restart_prob: restart }, 3);
            draws(options, -1, &ring, BlockLayout::default(), 100, |v, row, weight| {
                assert_eq!(row.len(), visited);
                let reach: Vec<NodeId> = (1..=visited).map(|step| (v + step) as NodeId % 4).collect();
                assert!(row.iter().all(|u| reach.contains(u)) && weight.iter().all(|&w| w == 4.0));
            });
        }
    }

    #[test]
    fn sums_over_walks_of_one_step_are_unbiased() {
        let graph = graph();
        let symmetric = SymmetricWeights::new(&graph);
        let x = |u: NodeId| f64::from(u) + 1.0;
        let d = |v: NodeId| graph.in_degree(v) as f64;
        for aggregation in [Aggregation::Mean, Aggregation::Sum, Aggregation::Symmetric] {
            let wants = (aggregation == Aggregation::Symmetric).then_some(&symmetric);
            let form = BlockLayout { aggregation, symmetric: wants, ..BlockLayout::default() };
            let mut sums = [0.0; 6];
            let (options, batches) = ((WalkOptions { num_walks: 3, restart_prob: 0.5 }, 1), 20_000);
            draws(options, -1, &graph, form, batches, |v, row, weight| {
                let sum: f64 = row.iter().zip(weight).map(|(&u, &w)| f64::from(w) * x(u)).sum();
                sums[v] += sum / batches as f64;
            });
            for v in 0..6 {
                let each = |&u: &NodeId| match aggregation {
                    Aggregation::Mean => x(u) / d(v),
                    Aggregation::Symmetric => x(u) / ((d(u) + 1.0) * (d(v) + 1.0)).sqrt(),
                    _ => x(u),
                };
                let exact: f64 = graph.in_neighbors(v).iter().map(each).sum();
                // a mean of three draws varies by less than its own size: six sigma of 20,000
                assert!(
                    (sums[v as usize] - exact).abs() <= 0.03 * exact,
                    "{aggregation:?} {v}: {sums:?}, not {exact}"
                );
            }
        }
    }

    #[test]
    fn invalid_walks_are_rejected() {
        let bad = |options: WalkOptions, length| RandomWalk::new([5], &options, length).unwrap_err();
        let with = WalkOptions::default();
        assert!(bad(WalkOptions { num_walks: 0, ..with }, LENGTH).contains("--num-walks 0"));
        assert!(bad(with, usize::MAX).contains("--walk-length"));
        assert!(bad(WalkOptions { restart_prob: 1.5, ..with }, LENGTH).contains("--restart-prob 1.5"));
        assert!(bad(WalkOptions { restart_prob: f64::NAN, ..with }, LENGTH).contains("--restart-prob NaN"));
    }
}
