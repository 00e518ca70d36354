//! Neighbours and weights of inference over all neighbours: the mean of training's draws.
//!
//! # Algorithm
//!
//! A model that was trained on draws by weight is evaluated on weighted means, because otherwise it
//! would see neighbourhoods that differ from all that it was trained on. For [`super::weighted`]
//!
//! - with replacement, an edge is drawn in proportion to its weight, so the mean over the draws is
//!   exactly `sum(w x) / sum(w)` on average;
//! - without replacement, `k` of the edges of positive weight are drawn one after the other, and
//!   the probability that an edge is among them has no closed form. As in `reservoir.rs`, its
//!   arrival time is exponential of rate `w`. The `k`-th of many edges arrives at about the time
//!   `t` at which `sum(1 - exp(-w t)) = k`, so an edge is among them with a probability of about `p
//!   = 1 - exp(-w t)`, and the mean over the draws is about `sum(p x) / k`. For small `k` that is
//!   the weighted mean, and if all are taken, the plain mean.
//!
//! A sum, and the symmetric-normalised one, is the in-degree times that mean, to which training
//! scales its draws. Edges of weight 0 are left out. Samplers that draw neighbours uniformly are
//! evaluated on all neighbours with equal weights (see [`super::full`]).
//!
//! For PinSAGE's walks (`random_walk.rs`) the exact visits of all nodes would be products of the
//! whole adjacency matrix, truncated to the most visited. Inference draws the same walks as
//! training under a fixed key instead: a sample, but the same one for the same nodes every time.
//!
//! A service that trades accuracy for time asks for the draws of any other sampler, too, under a
//! key of its own ([`InferenceNeighbors::draws`]). The sampler must draw for each node alone, so
//! that the nodes that are asked for together change no draw.
//!
//! # Source
//!
//! The arrival times are those of Rosén, *Asymptotic theory for successive sampling*, Annals of
//! Mathematical Statistics 43, 1972.
//!
//! # Cost
//!
//! O(edges) per block; without replacement, times the iterations of Newton's method.

use std::sync::Arc;

use graphmill_core::{Block, Graph, NodeId, Result, block::Aggregation, memory};
use rayon::prelude::*;

use super::{
    HopRequest, HopSampler, HopScratch, SamplerOptions, Source, WalkLength, WalkOptions, WeightOptions,
    WeightedOptions,
    full::Full,
    random_walk::{self, RandomWalk},
    weighted::{EdgeWeights, PREFETCH_DISTANCE},
};
use crate::{BatchKey, Fanout, prefetch::prefetch};

/// Neighbours that inference takes instead of the draws of `weighted`.
pub(super) fn of_weighted(with: &SamplerOptions, source: &Source) -> Result<InferenceNeighbors, String> {
    let WeightOptions { edge_weights } = with.own.get();
    InferenceNeighbors::weighted(source.graph, &with.fanout, &with.own.get(), edge_weights)
}

/// Neighbours that inference takes instead of the draws of `random-walk`.
pub(super) fn of_walks(with: &SamplerOptions, _: &Source) -> Result<InferenceNeighbors, String> {
    let length = with.own.get::<WalkLength>().or(random_walk::LENGTH);
    InferenceNeighbors::walks(&with.fanout, &with.own.get(), length)
}

/// Key of inference's walks.
const KEY: BatchKey = BatchKey { seed: 0, epoch: 0, batch: 0 };
/// Minimum number of destinations per task.
const MIN_TASK_LEN: usize = 512;
/// Maximum number of iterations of Newton's method.
const MAX_ITERATIONS: usize = 64;

/// Neighbours and weights of inference. Memory: 4 bytes per node if edges are weighted by degree.
pub struct InferenceNeighbors {
    full: Full,
    kind: Kind,
}

enum Kind {
    /// All neighbours with equal weights.
    Uniform,
    /// All neighbours, weighted by the probability of a draw.
    Weighted {
        /// Number of draws without replacement at each hop; `None` for weighted means.
        distinct: Vec<Option<usize>>,
        of_source: Option<Vec<f32>>,
    },
    /// Draws of a sampler under one key: the nodes that walks visit, or chosen neighbours.
    Drawn { sampler: Arc<dyn HopSampler>, key: BatchKey },
}

impl Default for InferenceNeighbors {
    fn default() -> Self {
        Self::of(Kind::Uniform)
    }
}

impl InferenceNeighbors {
    /// Returns true if all neighbours are aggregated with equal weights.
    pub fn is_uniform(&self) -> bool {
        matches!(self.kind, Kind::Uniform)
    }

    fn of(kind: Kind) -> Self {
        Self { full: Full::new(1).expect("one hop is a valid number of hops"), kind }
    }

    /// Creates the neighbours for draws by weight over `graph`. If all edges have the same weight,
    /// neighbours have equal weights.
    ///
    /// # Errors
    /// The fanout is invalid.
    pub fn weighted(
        graph: &Graph,
        fanout: impl Into<Fanout>,
        options: &WeightedOptions,
        weights: EdgeWeights,
    ) -> Result<Self, String> {
        // -1 takes each neighbour once; a single draw is by weight with or without replacement
        let distinct = |k: usize| (k == usize::MAX || (!options.replace && k > 1)).then_some(k);
        let distinct = fanout.into().bounds()?.into_iter().map(distinct).collect();
        Ok(Self::with_weights(graph, distinct, weights))
    }

    /// Creates the neighbours for a sampler of `hops` hops whose draws estimate weighted means
    /// (`labor.rs`).
    pub fn weighted_means(graph: &Graph, hops: usize, weights: EdgeWeights) -> Self {
        Self::with_weights(graph, vec![None; hops], weights)
    }

    fn with_weights(graph: &Graph, distinct: Vec<Option<usize>>, weights: EdgeWeights) -> Self {
        if weights == EdgeWeights::Stored && graph.edge_weight().is_none() {
            return Self::default();
        }
        Self::of(Kind::Weighted { distinct, of_source: weights.of_nodes(graph) })
    }

    /// Creates the neighbours for walks.
    ///
    /// # Errors
    /// As [`RandomWalk::new`].
    pub fn walks(fanout: impl Into<Fanout>, options: &WalkOptions, length: usize) -> Result<Self, String> {
        let sampler = Arc::new(RandomWalk::new(fanout, options, length)?);
        Ok(Self::of(Kind::Drawn { sampler, key: KEY }))
    }

    /// Creates the neighbours that `sampler` draws under `seed`. The draws of a node are a function
    /// of the seed, the hop and the node.
    ///
    /// # Errors
    /// The draws of a node depend on the nodes that are drawn with it.
    pub fn draws(sampler: Arc<dyn HopSampler>, seed: u64) -> Result<Self, String> {
        if !sampler.properties().is_per_node {
            return Err("its draws depend on the other nodes of a batch".into());
        }
        Ok(Self::of(Kind::Drawn { sampler, key: BatchKey { seed, ..KEY } }))
    }

    /// The same neighbours with the walks' sampler replaced by that of `wrap`, which draws the same
    /// walks elsewhere.
    ///
    /// # Errors
    /// Those of `wrap`.
    pub fn with_walks<E>(
        self,
        wrap: impl FnOnce(Arc<dyn HopSampler>) -> Result<Arc<dyn HopSampler>, E>,
    ) -> Result<Self, E> {
        let kind = match self.kind {
            Kind::Drawn { sampler, key } => Kind::Drawn { sampler: wrap(sampler)?, key },
            kind => kind,
        };
        Ok(Self { kind, ..self })
    }

    /// Returns true if a node's neighbours are not all of its in-neighbours;
    /// [`InferenceNeighbors::rows`] then returns them.
    pub fn reaches_further(&self) -> bool {
        matches!(self.kind, Kind::Drawn { .. })
    }

    /// Overwrites `block` with the neighbours of `dst` (global ids) at `hop` from the seeds, for a
    /// layer that computes `aggregation`, with weights unless they are equal. O(edges), parallel.
    ///
    /// # Errors
    /// The block would have more edges than its 32-bit positions can number.
    pub fn rows(
        &self,
        graph: &Graph,
        hop: usize,
        dst: &[NodeId],
        aggregation: Aggregation,
        scratch: &mut HopScratch,
        block: &mut Block,
    ) -> Result<()> {
        block.edge_weight.clear();
        let request = |hop| HopRequest { aggregation, ..HopRequest::new(graph, hop, dst, KEY) };
        match &self.kind {
            Kind::Drawn { sampler, key } => {
                sampler.sample_hop(&HopRequest { key: *key, ..request(hop) }, scratch, block)
            }
            Kind::Uniform => self.full.sample_hop(&request(0), scratch, block),
            Kind::Weighted { distinct, of_source } => {
                self.full.sample_hop(&request(0), scratch, block)?;
                let rule = RowWeights {
                    distinct: distinct[hop],
                    scaled: matches!(aggregation, Aggregation::Sum | Aggregation::Symmetric),
                };
                match of_source {
                    Some(weights) => weigh_by_source(weights, block),
                    None => copy_stored(graph, dst, block),
                }
                normalize(rule, block);
                Ok(())
            }
        }
    }
}

/// Normalisation of a row's weights.
#[derive(Clone, Copy)]
struct RowWeights {
    /// Number of draws without replacement.
    distinct: Option<usize>,
    /// True to multiply by the in-degree.
    scaled: bool,
}

/// Fills the weights of a block's sources.
fn weigh_by_source(weights: &[f32], block: &mut Block) {
    let Block { indices, edge_weight, .. } = block;
    memory::demand_len(edge_weight, indices.len(), 0.0);
    let runs = edge_weight.par_chunks_mut(1 << 14).zip(indices.par_chunks(1 << 14));
    runs.for_each(|(weight, indices)| {
        for (e, (weight, &u)) in weight.iter_mut().zip(indices).enumerate() {
            if let Some(&ahead) = indices.get(e + PREFETCH_DISTANCE) {
                prefetch(weights, ahead as usize);
            }
            *weight = weights[u as usize];
        }
    });
}

/// Copies the stored weights of the rows of `dst`.
fn copy_stored(graph: &Graph, dst: &[NodeId], block: &mut Block) {
    let stored = graph.edge_weight().unwrap_or_default();
    memory::demand(&mut block.edge_weight, block.indices.len());
    for &v in dst {
        let row = graph.indptr()[v as usize] as usize..graph.indptr()[v as usize + 1] as usize;
        block.edge_weight.extend_from_slice(&stored[row]);
    }
}

/// Turns weights into shares of a mean or a sum, and drops edges of weight 0.
fn normalize(rule: RowWeights, block: &mut Block) {
    let Block { indptr, indices, edge_weight, .. } = block;
    let mut rows = Vec::new();
    memory::demand(&mut rows, indptr.len() - 1);
    let mut rest = &mut edge_weight[..];
    for ends in indptr.windows(2) {
        let (row, after) = rest.split_at_mut((ends[1] - ends[0]) as usize);
        rows.push(row);
        rest = after;
    }
    rows.into_par_iter().with_min_len(MIN_TASK_LEN).for_each(|row| shares(rule, row));
    if edge_weight.iter().all(|&weight| weight > 0.0) {
        return;
    }
    let (mut kept, mut first) = (0, 0);
    for end in &mut indptr[1..] {
        for e in first..*end as usize {
            if edge_weight[e] > 0.0 {
                (indices[kept], edge_weight[kept]) = (indices[e], edge_weight[e]);
                kept += 1;
            }
        }
        first = std::mem::replace(end, kept as u32) as usize;
    }
    indices.truncate(kept);
    edge_weight.truncate(kept);
}

/// Overwrites the weights of a row with shares that sum to 1, or to the in-degree.
fn shares(rule: RowWeights, row: &mut [f32]) {
    let sum: f64 = row.iter().map(|&w| f64::from(w)).sum();
    if sum == 0.0 {
        return;
    }
    let scale = if rule.scaled { row.len() as f64 } else { 1.0 };
    let positive = row.iter().filter(|&&w| w > 0.0).count();
    match rule.distinct {
        None => row.iter_mut().for_each(|w| *w = (f64::from(*w) / sum * scale) as f32),
        Some(k) if k >= positive => {
            let share = (scale / positive as f64) as f32;
            row.iter_mut().filter(|w| **w > 0.0).for_each(|w| *w = share);
        }
        Some(k) => {
            let time = arrival(row, sum, k as f64);
            let share = |w: f32| -f64::exp_m1(-f64::from(w) * time) / k as f64 * scale;
            row.iter_mut().for_each(|w| *w = share(*w) as f32);
        }
    }
}

/// Time by which `k` of a row's edges, fewer than all, have arrived on average. The number of
/// arrivals is concave in the time and below `k` at the first guess, so Newton's method converges
/// from the left.
fn arrival(row: &[f32], sum: f64, k: f64) -> f64 {
    let mut time = k / sum;
    for _ in 0..MAX_ITERATIONS {
        let (mut arrived, mut rate) = (0.0, 0.0);
        for w in row.iter().map(|&w| f64::from(w)) {
            let absent = (-w * time).exp();
            arrived += 1.0 - absent;
            rate += w * absent;
        }
        let step = (k - arrived) / rate;
        if !step.is_finite() || step <= 1e-9 * time {
            break;
        }
        time += step;
    }
    time
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        BlockLayout, MinibatchSampler, Seeds, Workspace,
        sampler::{
            BatchRequest, HopStack,
            weighted::{DrawBy, Weighted},
        },
        subgraph::testing::graph_of,
        weights::SymmetricWeights,
    };

    /// In-neighbours: 1 to 12 of node 0, 2 to 4 of node 1, and of node 2 node 3 by an edge of
    /// weight 0 and node 4.
    fn graph() -> Graph {
        let rows: Vec<Vec<NodeId>> = vec![(1..13).collect(), vec![2, 3, 4], vec![3, 4]];
        let mut rows: Vec<&[NodeId]> = rows.iter().map(|row| &row[..]).collect();
        rows.resize(13, &[]);
        let weights: Vec<f32> = (0..17).map(|e| [0.5, 3.0, 1.0, 0.25][e % 4]).collect();
        let weights = weights.into_iter().enumerate().map(|(e, w)| if e == 15 { 0.0 } else { w });
        graph_of(&rows).with_edge_weight(weights.collect::<Vec<_>>().into()).unwrap()
    }

    fn x(u: NodeId) -> f64 {
        f64::from(u * u % 7) + 1.0
    }

    /// Sum over the row of `v` as a layer computes it.
    fn value(block: &Block, v: usize) -> f64 {
        let edges = block.edges(v);
        let mean = 1.0 / edges.len().max(1) as f64;
        let weight = |e: usize| block.edge_weight.get(e).map_or(mean, |&w| f64::from(w));
        edges.map(|e| weight(e) * x(block.indices[e])).sum()
    }

    #[test]
    fn draws_by_weight_average_to_the_neighbours_of_inference() {
        let graph = graph();
        let symmetric = SymmetricWeights::new(&graph);
        for (weights, replace, fanout, error) in [
            (EdgeWeights::Stored, true, 4, 0.005),
            (EdgeWeights::InDegree, true, 4, 0.005),
            (EdgeWeights::Stored, true, -1, 1e-6),
            (EdgeWeights::Stored, false, 1, 0.005),
            // the arrival time of the k-th of 12, or of 3, varies
            (EdgeWeights::Stored, false, 2, 0.03),
            (EdgeWeights::Stored, false, 4, 0.03),
            (EdgeWeights::Stored, false, 9, 0.03),
            (EdgeWeights::Stored, false, 12, 1e-6),
        ] {
            for aggregation in [Aggregation::Mean, Aggregation::Symmetric] {
                let options = WeightedOptions { replace, weighted_index: DrawBy::Alias };
                let sampler = HopStack::new(Weighted::new(&graph, [fanout], &options, weights).unwrap());
                let wants = (aggregation == Aggregation::Symmetric).then_some(&symmetric);
                let form =
                    BlockLayout { aggregation, symmetric: wants, fused: true, ..BlockLayout::default() };
                let mut memory = Seeds::default();
                let mut workspace = Workspace::new(graph.num_nodes());
                let (mut sums, runs) = ([0.0; 3], 40_000);
                for number in 0..runs {
                    let key = BatchKey { seed: 5, epoch: 0, batch: number };
                    let request = BatchRequest::new(&graph, key).with_layout(form);
                    let seeds = memory.refill(number, [0, 1, 2]);
                    let batch = sampler.sample(&request, &mut workspace, seeds).unwrap();
                    (0..3).for_each(|v| sums[v] += value(&batch.blocks[0], v) / runs as f64);
                    memory = batch.recycle();
                }
                let exact = InferenceNeighbors::weighted(&graph, [fanout], &options, weights).unwrap();
                let mut block = Block { num_dst: 3, ..Block::default() };
                exact
                    .rows(&graph, 0, &[0, 1, 2], aggregation, &mut HopScratch::default(), &mut block)
                    .unwrap();
                if weights == EdgeWeights::Stored {
                    assert_eq!(block.indices[block.edges(2)], [4], "an edge of weight 0 is left out");
                }
                if let Some(symmetric) = wants {
                    symmetric.fill(&graph, &[0, 1, 2], None, &mut block);
                }
                for (v, found) in sums.into_iter().enumerate() {
                    let expected = value(&block, v);
                    assert!(
                        (found - expected).abs() < error * expected + 1e-6,
                        "{options:?} {fanout} {aggregation:?} of {v}: mean {found}, inference {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn uniform_draws_have_equal_weights_and_walks_never_change() {
        let graph = graph();
        let rows = |exact: &InferenceNeighbors| {
            let mut block = Block { num_dst: 3, ..Block::default() };
            exact
                .rows(&graph, 0, &[0, 1, 2], Aggregation::Mean, &mut HopScratch::default(), &mut block)
                .unwrap();
            (block.indptr, block.indices, block.edge_weight)
        };
        let alike = rows(&InferenceNeighbors::default());
        assert_eq!((alike.0, alike.2.len()), (vec![0, 12, 15, 17], 0));
        let plain = graph_of(&[&[1], &[0]]);
        let (drawn, stored) = (WeightedOptions::default(), EdgeWeights::Stored);
        let same = InferenceNeighbors::weighted(&plain, [2], &drawn, stored).unwrap();
        assert!(matches!(same.kind, Kind::Uniform) && !same.reaches_further());
        let walks = InferenceNeighbors::walks([3], &WalkOptions::default(), 3).unwrap();
        assert!(walks.reaches_further());
        let (first, again) = (rows(&walks), rows(&walks));
        assert_eq!(first, again);
        assert!(first.2.iter().sum::<f32>() > 0.0);
        assert!(InferenceNeighbors::walks([0], &WalkOptions::default(), 3).is_err());
    }
}
