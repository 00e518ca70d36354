//! Layer-neighbour sampling (LABOR): the destinations of a layer share their neighbours.
//!
//! # Algorithm
//!
//! Every source `u` has one uniform random number `r_u` per hop, and a destination `v` of degree
//! `d_v` takes its in-neighbours with `r_u <= min(1, k / d_v)`. Each neighbour is taken with the
//! same probability as in neighbour sampling and, given `v`, independently of the others, so `v`
//! has `k` neighbours on average, not always (none with a probability of about `e^-k`). But because
//! destinations share the numbers, they tend to take the same neighbours: a layer has fewer
//! distinct nodes, and fewer rows are read.
//!
//! That is LABOR-0. LABOR-i shares more: `i` iterations (`*`: until convergence) raise the
//! probability of sources that many destinations can take and lower that of others, at the same
//! variance for each destination (`labor/importance.rs`). If edges have weights (stored ones, or by
//! degree), they are taken in proportion to their weights, up to probability 1.
//!
//! As in the paper, a mean is Hajek's estimator: the mean over the neighbours taken, each weighted
//! by its edge's weight over its probability. The symmetric-normalised sum is scaled in the same
//! way, to `d` in total. A sum is Horvitz and Thompson's estimator, with a weight of 1 over the
//! probability (if edges have weights, its mean is `d` times the weighted mean, as in inference;
//! see [`super::inference`]).
//!
//! Draws are a function of (seed, epoch, batch, hop, source), or with iterations of (.., hop,
//! destinations).
//!
//! If rows are kept in the order of a hash, the draws of LABOR-0 are ranges of them
//! (`labor/ranges.rs`): the same distribution of a hop, but found without reading whole rows.
//!
//! # Source
//!
//! Balin and Catalyurek, *Layer-neighbor sampling: defusing neighborhood explosion in GNNs*,
//! NeurIPS 2023, section 3.
//!
//! # Cost
//!
//! O(d) per destination, because every in-neighbour's number is computed, instead of `k` draws. It
//! is slower than neighbour sampling for high degrees, and pays off if reading rows costs more than
//! drawing them. Iterations and weights take a multiple of LABOR-0's time. Ranges take O(k) per
//! destination.
//!
//! # Memory
//!
//! Iterations and weights take memory for the edges of all destinations in each call, and ranges 4
//! bytes per edge of the graph.

mod importance;
mod ranges;

use std::{fmt, str::FromStr, sync::Arc};

use clap::{Args, ValueEnum};
use graphmill_core::{
    Block, Graph, NodeId, Result, block::Aggregation, by_name, by_word, keyed, memory, options::OptionSet,
};
use serde::{Deserialize, Serialize, Serializer};

use self::{importance::Importance, ranges::HashOrder};
use super::{
    HopProperties, HopRequest, HopSampler, HopScratch, NeighborAccess, SamplerOptions, Source, WeightOptions,
    inference::InferenceNeighbors,
    runs::{check_size, draw_runs, start},
    weighted::EdgeWeights,
};
use crate::{Fanout, prefetch::prefetch};

/// Number of destinations between a prefetch of their neighbours and the draw.
const PREFETCH_DISTANCE: usize = 8;
/// Number of neighbours whose random numbers are compared together.
const CHUNK: usize = 64;

/// Number of importance-sampling iterations; `*`, which is [`usize::MAX`], runs until convergence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Iterations(pub usize);

impl FromStr for Iterations {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let count = if word == "*" { Some(usize::MAX) } else { word.parse().ok() };
        count.map(Self).ok_or_else(|| {
            format!("'{word}': not a number of iterations; use a number, or * until convergence")
        })
    }
}

impl fmt::Display for Iterations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == usize::MAX { f.write_str("*") } else { self.0.fmt(f) }
    }
}

impl Serialize for Iterations {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

by_word!(Iterations);

/// Method by which LABOR-0 draws.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LaborDraws {
    /// Numbers of each hop that are independent of other hops, computed for whole rows.
    #[default]
    Independent,
    /// Ranges of rows that are kept in the order of a hash.
    Ranges,
}

by_name!(LaborDraws);

/// Options of [`Labor`].
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LaborOptions {
    /// Importance-sampling iterations; * runs until convergence.
    ///
    /// Each iteration raises the probability of sources that many destinations share, so that fewer
    /// feature rows are read, and makes drawing slower. Applies to --sampler labor.
    #[arg(long, value_name = "N")]
    pub labor_iterations: Iterations,
    /// Draws of LABOR: independent or ranges.
    ///
    /// With ranges, a draw reads a range of a row that is kept in the order of a hash, instead of
    /// the whole row: much faster for high degrees, for 4 more bytes of memory per edge. Each hop
    /// has the same distribution, but neighbours with close hashes are drawn together all through a
    /// run. Needs edges of equal weight and no iterations.
    #[arg(long, value_name = "NAME")]
    pub labor_draws: LaborDraws,
}

impl OptionSet for LaborOptions {}

/// Makes the sampler of a run.
pub(super) fn make(with: &SamplerOptions, source: &Source) -> Result<Arc<dyn HopSampler>, String> {
    let WeightOptions { edge_weights } = with.own.get();
    let labor = Labor::with_options(source.graph, &with.fanout, &with.own.get(), edge_weights, with.seed)?;
    Ok(Arc::new(labor))
}

/// Makes the neighbours that inference takes instead of the sampler's draws.
pub(super) fn inference(with: &SamplerOptions, source: &Source) -> Result<InferenceNeighbors, String> {
    let WeightOptions { edge_weights } = with.own.get();
    Ok(InferenceNeighbors::weighted_means(source.graph, with.fanout.len(), edge_weights))
}

/// Weights of the edges.
#[derive(Clone, Debug)]
enum Weights {
    Equal,
    Stored,
    /// Weight of each source (`V`).
    OfSource(Vec<f32>),
}

/// Samples neighbours that the destinations of a layer share (LABOR).
#[derive(Clone, Debug)]
pub struct Labor {
    /// Mean number of neighbours per hop, from the seeds outward; `usize::MAX` takes all.
    fanout: Vec<usize>,
    iterations: usize,
    weights: Weights,
    /// Rows in hash order, if draws are ranges of them.
    ranges: Option<Arc<HashOrder>>,
}

impl Labor {
    /// Draws `fanout[h]` neighbours per node on average at hop `h` from the seeds; -1 takes all.
    ///
    /// # Errors
    /// As [`super::neighbor::Neighbor::new`].
    pub fn new(fanout: impl Into<Fanout>) -> Result<Self, String> {
        let fanout = fanout.into().bounds()?;
        Ok(Self { fanout, iterations: 0, weights: Weights::Equal, ranges: None })
    }

    /// Creates a sampler for `graph` with options and edge weights. `seed` chooses the order of
    /// [`LaborDraws::Ranges`], which takes O(E log d), parallel.
    ///
    /// # Errors
    /// As [`Labor::new`], or the draws cannot be ranges.
    pub fn with_options(
        graph: &Graph,
        fanout: impl Into<Fanout>,
        options: &LaborOptions,
        weights: EdgeWeights,
        seed: u64,
    ) -> Result<Self, String> {
        let weights = match weights.of_nodes(graph) {
            Some(of_nodes) => Weights::OfSource(of_nodes),
            None if graph.edge_weight().is_some() => Weights::Stored,
            None => Weights::Equal,
        };
        let iterations = options.labor_iterations.0;
        let mut this = Self { iterations, weights, ..Self::new(fanout)? };
        if options.labor_draws == LaborDraws::Ranges {
            this.check_ranges(options)?;
            this.ranges = Some(Arc::new(HashOrder::new(graph, seed)));
        }
        Ok(this)
    }

    /// Checks that draws can be ranges, and that they make a difference.
    fn check_ranges(&self, options: &LaborOptions) -> Result<(), String> {
        let reason = if !matches!(self.weights, Weights::Equal) {
            "edges have weights, so that a threshold of its own bounds each neighbour".to_string()
        } else if self.iterations > 0 {
            let iterations = options.labor_iterations;
            format!("--labor-iterations {iterations} gives each neighbour a threshold of its own")
        } else if self.fanout.iter().all(|&k| k == usize::MAX) {
            "--fanout -1 takes all neighbours without a draw".to_string()
        } else {
            return Ok(());
        };
        Err(format!("--labor-draws ranges: {reason}; use --labor-draws independent"))
    }

    /// Draws a hop whose probabilities are computed edge by edge.
    fn draw_by_importance(
        &self,
        graph: &Graph,
        fanout: usize,
        key: u64,
        aggregation: Aggregation,
        dst: &[NodeId],
        block: &mut Block,
    ) -> Result<()> {
        start(block);
        memory::demand(&mut block.indptr, dst.len());
        let stored = graph.edge_weight().unwrap_or_default();
        let by_edge = |_: NodeId, e: u64| stored[e as usize];
        let of_source = if let Weights::OfSource(weights) = &self.weights { &weights[..] } else { &[] };
        let by_source = |u: NodeId, _: u64| of_source[u as usize];
        let weight: Option<&(dyn Fn(NodeId, u64) -> f32 + Sync)> = match &self.weights {
            Weights::Equal => None,
            Weights::Stored => Some(&by_edge),
            Weights::OfSource(_) => Some(&by_source),
        };
        let importance = Importance::new(graph, dst, fanout, self.iterations, weight);
        let numbers = Numbers::new(key);
        for (s, &v) in dst.iter().enumerate() {
            let first = block.indices.len();
            let row = graph.in_neighbors(v);
            let (mut all, mut taken) = (0.0, 0.0);
            for (&u, e) in row.iter().zip(importance.edges(s)) {
                let p = importance.threshold(s, e).min(1.0);
                all += importance.weight(e);
                if f64::from(numbers.of(u)) < p * 4_294_967_296.0 {
                    let weight = importance.weight(e) / p;
                    taken += weight;
                    memory::demand_push(&mut block.indices, u);
                    memory::demand_push(&mut block.edge_weight, weight as f32);
                }
            }
            let scale = match aggregation {
                Aggregation::Mean => 1.0 / taken,
                Aggregation::Symmetric => row.len() as f64 / taken,
                Aggregation::Sum => row.len() as f64 / all,
                Aggregation::Other => 1.0,
            };
            block.edge_weight[first..].iter_mut().for_each(|w| *w = (f64::from(*w) * scale) as f32);
            block.indptr.push(block.indices.len() as u32);
            check_size(block)?;
        }
        Ok(())
    }
}

impl HopSampler for Labor {
    fn num_layers(&self) -> usize {
        self.fanout.len()
    }

    fn properties(&self) -> HopProperties {
        HopProperties {
            is_random: self.fanout.iter().any(|&k| k != usize::MAX),
            is_per_node: self.iterations == 0,
            access: match self.iterations {
                0 => NeighborAccess::OwnList,
                _ => NeighborAccess::Lists,
            },
            reads_edge_weights: matches!(self.weights, Weights::Stored),
            leaves_out: false,
        }
    }

    fn sample_hop(&self, request: &HopRequest, scratch: &mut HopScratch, block: &mut Block) -> Result<()> {
        let &HopRequest { graph, hop, dst, aggregation, .. } = request;
        let fanout = self.fanout[hop];
        let key = request.hop_key();
        let equal = matches!(self.weights, Weights::Equal);
        if !equal || (self.iterations > 0 && fanout != usize::MAX) {
            return self.draw_by_importance(graph, fanout, key, aggregation, dst, block);
        }
        let is_weighted = aggregation == Aggregation::Sum && fanout != usize::MAX;
        let draws = HopDraws { graph, fanout, key, is_weighted };
        if let Some(ranges) = &self.ranges {
            ranges.check(graph)?;
        }
        draw_runs(dst, scratch, block, |dst, _, block| match &self.ranges {
            Some(ranges) => ranges.draw(&draws, dst, block),
            None => draw(&draws, dst, block),
        })
    }

    fn with_tables_of(&self, graph: &Graph) -> Result<Option<Arc<dyn HopSampler>>> {
        let of_rows = |ranges: &Arc<HashOrder>| -> Arc<dyn HopSampler> {
            Arc::new(Self { ranges: Some(Arc::new(ranges.of_rows(graph))), ..self.clone() })
        };
        Ok(self.ranges.as_ref().map(of_rows))
    }
}

/// Draws of one hop of LABOR-0.
struct HopDraws<'a> {
    graph: &'a Graph,
    fanout: usize,
    key: u64,
    /// True if edges have the weights of a sum.
    is_weighted: bool,
}

impl HopDraws<'_> {
    /// Ends the row of `v`, whose neighbours have been appended.
    #[inline(always)]
    fn finish(&self, v: NodeId, block: &mut Block) {
        if self.is_weighted {
            let weight = (self.graph.in_degree(v) as f32 / self.fanout as f32).max(1.0);
            memory::demand_len(&mut block.edge_weight, block.indices.len(), weight);
        }
        block.indptr.push(block.indices.len() as u32);
    }
}

/// Bound of the numbers that a row of `degree` takes, higher than `fanout`.
#[inline(always)]
fn threshold(fanout: usize, degree: usize) -> u32 {
    (((fanout as u64) << 32) / degree as u64) as u32
}

/// Appends the neighbours of `dst`, and the weights of a sum.
fn draw(hop: &HopDraws, dst: &[NodeId], block: &mut Block) {
    let &HopDraws { graph, fanout, key, .. } = hop;
    let (rows, neighbors, numbers) = (graph.indptr(), graph.indices(), Numbers::new(key));
    for (i, &v) in dst.iter().enumerate() {
        if let Some(&ahead) = dst.get(i + 2 * PREFETCH_DISTANCE) {
            prefetch(rows, ahead as usize);
        }
        if let Some(&ahead) = dst.get(i + PREFETCH_DISTANCE) {
            // the hardware prefetches the rest of a long row
            prefetch(neighbors, rows[ahead as usize] as usize);
        }
        let row = graph.in_neighbors(v);
        if row.len() <= fanout {
            memory::demand_append(&mut block.indices, row);
        } else {
            take(numbers, threshold(fanout, row.len()), row, &mut block.indices);
        }
        hop.finish(v, block);
    }
}

/// Random numbers of a hop's sources, 32 bits each, distinct within a hop.
///
/// They are products of 32 bits, because a vector unit computes eight or sixteen of these together
/// and has no products of 64 bits.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    factor: u32,
    term: u32,
}

impl Numbers {
    /// Factors of the finaliser.
    const FIRST: u32 = 0x7feb_352d;
    const SECOND: u32 = 0x846c_a68b;

    fn new(key: u64) -> Self {
        let key = keyed::mix(key);
        Self { factor: key as u32 | 1, term: (key >> 32) as u32 }
    }

    /// Random number of `u`: an affine map given by the key, and then the finaliser `lowbias32`
    /// (Wellons, "Prospecting for hash functions", 2018).
    #[inline(always)]
    fn of(self, u: NodeId) -> u32 {
        let mut z = u.wrapping_mul(self.factor).wrapping_add(self.term);
        z = (z ^ (z >> 16)).wrapping_mul(Self::FIRST);
        z = (z ^ (z >> 15)).wrapping_mul(Self::SECOND);
        z ^ (z >> 16)
    }
}

/// Appends the nodes of `row` whose numbers are below `below`.
#[allow(unsafe_code, reason = "vector instructions")]
fn take(numbers: Numbers, below: u32, row: &[NodeId], out: &mut Vec<NodeId>) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the feature that the function requires, as just checked.
        return unsafe { take_avx2(numbers, below, row, out) };
    }
    take_any(numbers, below, row, out);
}

/// As [`take_any`], compiled for eight numbers at a time.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn take_avx2(numbers: Numbers, below: u32, row: &[NodeId], out: &mut Vec<NodeId>) {
    take_any(numbers, below, row, out);
}

#[inline(always)]
fn take_any(numbers: Numbers, below: u32, row: &[NodeId], out: &mut Vec<NodeId>) {
    for chunk in row.chunks(CHUNK) {
        let mut of = [u32::MAX; CHUNK];
        of.iter_mut().zip(chunk).for_each(|(number, &u)| *number = numbers.of(u));
        // most chunks of a hub have no neighbour to take
        if row.len() > 2 * CHUNK && of.iter().fold(u32::MAX, |least, &number| least.min(number)) >= below {
            continue;
        }
        // without a branch per neighbour, which would be unpredictable
        let (mut taken, mut count) = ([0; CHUNK], 0);
        for (&u, &number) in chunk.iter().zip(&of) {
            taken[count % CHUNK] = u;
            count += usize::from(number < below);
        }
        memory::demand_append(out, &taken[..count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        BatchKey, BlockLayout, MinibatchSampler, Sampled, Seeds, Workspace,
        sampler::{BatchRequest, HopStack, neighbor::Neighbor},
        weights::SymmetricWeights,
    };

    /// In-neighbours: 3 to 42 of node 0, 3 to 14 of node 1, 3 to 6 of node 2.
    fn graph() -> Graph {
        let mut indptr = vec![0, 40, 52, 56];
        indptr.resize(44, 56);
        let indices: Vec<NodeId> = (3..43).chain(3..15).chain(3..7).collect();
        Graph::new(indptr.into(), indices.into()).unwrap()
    }

    fn sample(
        sampler: &HopStack,
        graph: &Graph,
        seeds: Vec<NodeId>,
        number: u64,
        form: BlockLayout,
    ) -> Sampled {
        let request =
            BatchRequest::new(graph, BatchKey { seed: 11, epoch: 0, batch: number }).with_layout(form);
        let mut workspace = Workspace::new(graph.num_nodes());
        sampler.sample(&request, &mut workspace, Seeds::new(number, seeds)).unwrap()
    }

    #[test]
    fn neighbours_are_drawn_with_their_probability_and_shared() {
        let (graph, sampler) = (graph(), HopStack::new(Labor::new([5]).unwrap()));
        let runs = 20_000u32;
        let (mut counts, mut pairs) = ([[0u32; 43]; 3], [0u32; 43]);
        for number in 0..runs {
            let form = BlockLayout { fused: true, ..BlockLayout::default() };
            let batch = sample(&sampler, &graph, vec![0, 1, 2], number.into(), form);
            let block = &batch.blocks[0];
            let row = |v: usize| &block.indices[block.edges(v)];
            (0..3).for_each(|v| row(v).iter().for_each(|&u| counts[v][u as usize] += 1));
            // a source that the higher degree takes is taken by the lower degree too
            assert!(row(0).iter().filter(|&&u| u < 15).all(|u| row(1).contains(u)));
            if row(0).contains(&3) {
                row(0).iter().for_each(|&u| pairs[u as usize] += 1);
            }
        }
        let chi = |counts: &[u32], n: f64, p: f64| -> f64 {
            let each = |&c: &u32| (f64::from(c) - n * p).powi(2) / (n * p * (1.0 - p));
            counts.iter().map(each).sum()
        };
        // chi-square with 40, 12 and 39 degrees of freedom: exceeded with probability 1e-5
        assert!(chi(&counts[0][3..], runs.into(), 5.0 / 40.0) < 89.0);
        assert!(chi(&counts[1][3..15], runs.into(), 5.0 / 12.0) < 46.0);
        assert!(counts[2][3..7].iter().all(|&c| c == runs));
        // neighbours are independent of one another
        assert!(chi(&pairs[4..], pairs[3].into(), 5.0 / 40.0) < 87.0);
    }

    #[test]
    fn sums_are_unbiased_and_means_nearly_so() {
        let (graph, sampler) = (graph(), HopStack::new(Labor::new([5]).unwrap()));
        let symmetric = SymmetricWeights::new(&graph);
        let x = |u: NodeId| f64::from(u * u % 23) + 1.0;
        for aggregation in [Aggregation::Sum, Aggregation::Mean, Aggregation::Symmetric] {
            let wants = (aggregation == Aggregation::Symmetric).then_some(&symmetric);
            let form = BlockLayout { aggregation, symmetric: wants, fused: true, ..BlockLayout::default() };
            let (mut sum, mut squares) = ([0.0; 3], [0.0; 3]);
            let runs = 20_000;
            for number in 0..runs {
                let batch = sample(&sampler, &graph, vec![0, 1, 2], number, form);
                let block = &batch.blocks[0];
                assert_eq!(block.edge_weight.is_empty(), aggregation == Aggregation::Mean);
                for v in 0..3 {
                    let weight = |e: usize| {
                        block.edge_weight.get(e).map_or(1.0 / block.edges(v).len() as f64, |&w| f64::from(w))
                    };
                    let row: f64 = block.edges(v).map(|e| weight(e) * x(block.indices[e])).sum();
                    sum[v] += row;
                    squares[v] += row * row;
                }
            }
            for v in 0..3 {
                let all = graph.in_neighbors(v as u32);
                let d = all.len() as f64;
                let total: f64 = all.iter().map(|&u| x(u)).sum();
                let exact = match aggregation {
                    Aggregation::Mean => total / d,
                    Aggregation::Symmetric => total / (d + 1.0).sqrt(),
                    _ => total,
                };
                let mean = sum[v] / runs as f64;
                let sigma = ((squares[v] / runs as f64 - mean * mean).max(0.0) / runs as f64).sqrt();
                // a ratio without neighbours is 0
                let none = if d > 5.0 { (1.0 - 5.0 / d).powf(d) } else { 0.0 };
                let expected = if aggregation == Aggregation::Sum { exact } else { exact * (1.0 - none) };
                assert!(
                    (mean - expected).abs() < 5.0 * sigma + 1e-5 * exact,
                    "{aggregation:?} of {v}: {mean}, not {expected}"
                );
            }
        }
    }

    /// 200 destinations among `n` nodes, with 20 to 119 in-neighbours each, mostly of small ids.
    fn crowded(n: u32) -> Graph {
        let mut stream = keyed::Stream::new(9);
        let (mut indptr, mut indices) = (vec![0u64], Vec::new());
        for v in 0..u64::from(n) {
            let degree = if v < 200 { 20 + v / 2 } else { 0 };
            indices.extend((0..degree).map(|_| {
                let share = stream.uniform();
                (share * share * share * f64::from(n)) as NodeId
            }));
            indptr.push(indices.len() as u64);
        }
        Graph::new(indptr.into(), indices.into()).unwrap()
    }

    #[test]
    fn iterations_share_more_nodes_and_keep_the_degrees() {
        let graph = crowded(3000);
        let dst: Vec<NodeId> = (0..200).collect();
        let weights: Vec<f32> = (0..graph.num_edges()).map(|e| (e % 5) as f32).collect();
        let by_edge = |_: NodeId, e: u64| weights[e as usize];
        for weight in [None, Some(&by_edge as &(dyn Fn(NodeId, u64) -> f32 + Sync))] {
            let made = |iterations| Importance::new(&graph, &dst, 10, iterations, weight);
            let [zero, one, three, many] = [0, 1, 3, usize::MAX].map(made);
            let nodes = [&zero, &one, &three, &many].map(|i| i.expected_nodes(graph.indices()));
            assert!(nodes.is_sorted_by(|a, b| a >= b) && nodes[3] < 0.9 * nodes[0], "{nodes:?}");
            for s in 0..200 {
                if weight.is_none() {
                    assert!((zero.expected_degree(s) - 10.0).abs() < 1e-6);
                    for i in [&one, &three, &many] {
                        assert!(i.expected_degree(s) > 10.0 - 1e-6, "{s}: {}", i.expected_degree(s));
                    }
                }
                // all estimators have the same variance
                for i in [&zero, &one, &three, &many] {
                    let edges = || i.edges(s).filter(|&e| i.weight(e) > 0.0);
                    let sum: f64 = edges().map(|e| i.weight(e)).sum();
                    let variance: f64 =
                        edges().map(|e| i.weight(e).powi(2) / i.threshold(s, e).min(1.0)).sum();
                    assert!((variance / (sum * sum) * 10.0 - 1.0).abs() < 1e-6, "{s}: {variance}");
                }
            }
            for threads in [1, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let again = pool.install(|| made(3));
                assert!(
                    (0..200).all(|s| again.edges(s).all(|e| again.threshold(s, e) == three.threshold(s, e)))
                );
            }
        }
    }

    #[test]
    fn iterations_and_weights_keep_sums_unbiased() {
        let graph = crowded(500);
        let weights: Vec<f32> = (0..graph.num_edges()).map(|e| [1.0, 0.0, 4.0, 0.5][e % 4]).collect();
        let weighted = graph.clone().with_edge_weight(weights.into()).unwrap();
        let x = |u: NodeId| f64::from(u * u % 23) + 1.0;
        for (graph, iterations) in [(&graph, 1), (&graph, usize::MAX), (&weighted, 0), (&weighted, 2)] {
            let options =
                LaborOptions { labor_iterations: Iterations(iterations), ..LaborOptions::default() };
            let sampler =
                HopStack::new(Labor::with_options(graph, [8], &options, EdgeWeights::Stored, 1).unwrap());
            assert_eq!(sampler.properties().reads_edge_weights, graph.edge_weight().is_some());
            let form = BlockLayout { aggregation: Aggregation::Sum, fused: true, ..BlockLayout::default() };
            let seeds: Vec<NodeId> = vec![0, 50, 199, 300];
            let (mut sums, runs) = ([0.0; 4], 3000);
            for number in 0..runs {
                let batch = sample(&sampler, graph, seeds.clone(), number, form);
                let block = &batch.blocks[0];
                for (v, sum) in sums.iter_mut().enumerate() {
                    let row = block.edges(v).map(|e| f64::from(block.edge_weight[e]) * x(block.indices[e]));
                    *sum += row.sum::<f64>() / runs as f64;
                }
            }
            for (&v, found) in seeds.iter().zip(sums) {
                let first = graph.indptr()[v as usize] as usize;
                let weight = |i: usize| graph.edge_weight().map_or(1.0, |w| f64::from(w[first + i]));
                let row = graph.in_neighbors(v);
                let all: f64 = (0..row.len()).map(weight).sum();
                let sum: f64 = row.iter().enumerate().map(|(i, &u)| weight(i) * x(u)).sum();
                let expected = if row.is_empty() { 0.0 } else { sum / all * row.len() as f64 };
                assert!(
                    (found - expected).abs() <= 0.03 * expected,
                    "{options:?} of {v}: {found} on average, not {expected}"
                );
            }
            // weights of a mean are shares
            let form = BlockLayout { aggregation: Aggregation::Mean, fused: true, ..BlockLayout::default() };
            let block = &sample(&sampler, graph, seeds, 0, form).blocks[0];
            let share: f32 = block.edge_weight[block.edges(2)].iter().sum();
            assert!((share - 1.0).abs() < 1e-5);
        }
    }

    #[test]
    fn more_iterations_read_fewer_nodes() {
        let graph = crowded(3000);
        let inputs = |iterations| {
            let options =
                LaborOptions { labor_iterations: Iterations(iterations), ..LaborOptions::default() };
            let sampler =
                HopStack::new(Labor::with_options(&graph, [10], &options, EdgeWeights::Stored, 1).unwrap());
            let read = |number| {
                sample(&sampler, &graph, (0..200).collect(), number, BlockLayout::default()).input_nodes.len()
            };
            (0..20).map(read).sum::<usize>()
        };
        let (zero, one, many) = (inputs(0), inputs(1), inputs(usize::MAX));
        assert!(one < zero && many < zero, "{zero} {one} {many}");
    }

    #[test]
    fn dense_graphs_need_fewer_input_nodes_than_neighbour_sampling() {
        let n = 2000u32;
        let mut stream = keyed::Stream::new(5);
        let indptr: Vec<u64> = (0..=u64::from(n)).map(|v| v * 100).collect();
        let indices: Vec<NodeId> = (0..100 * n).map(|_| stream.below(n.into()) as NodeId).collect();
        let graph = Graph::new(indptr.into(), indices.into()).unwrap();
        let inputs = |sampler: &HopStack| {
            let batch = sample(sampler, &graph, (0..200).collect(), 0, BlockLayout::default());
            (batch.input_nodes.len(), batch.num_edges())
        };
        let (labor, neighbor) = (Labor::new([10]).unwrap(), Neighbor::new([10]).unwrap());
        let (labor, neighbor) = (inputs(&HopStack::new(labor)), inputs(&HopStack::new(neighbor)));
        // 2000 edges each: a tenth of all nodes are below the threshold, against independent draws
        assert!((labor.1 as f64 / neighbor.1 as f64 - 1.0).abs() < 0.1, "{labor:?} {neighbor:?}");
        assert!(labor.0 < neighbor.0 / 2, "{labor:?} {neighbor:?}");
    }
}
