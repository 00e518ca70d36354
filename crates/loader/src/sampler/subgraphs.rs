//! Minibatches of subgraphs (GraphSAINT): one square block for all layers, with every node a seed.
//!
//! The nodes come from a [`SubgraphSampler`]. This module clips them, finds, weights and transposes
//! the edges among them, and weights the loss of each node. A subgraph drawn from the whole graph
//! also holds nodes that do not train: they carry messages, and their loss weight is 0.

use clap::{Args, ValueEnum};
use graphmill_core::{
    Block, Graph, NodeId, Result,
    block::Aggregation,
    by_name,
    induced::induced_graph,
    keyed, memory,
    options::{Fault, OptionSet, range},
    symmetry::is_symmetric,
};
use serde::{Deserialize, Serialize};

use super::{
    BatchRequest, MinibatchSampler, SamplerProperties, Source, Workspace, normalize::Normalization,
    workspace::SubgraphBuffers,
};
use crate::{
    BatchKey, Sampled, Seeds,
    subgraph::{SubgraphSampler, SubgraphScratch},
};

/// Multiple to which the number of nodes is clipped, if there are many: a cache line of 32-bit
/// floats (Zeng et al., JPDC 2021, section 6.2).
const LINE: usize = 16;
/// Minimum number of nodes of a subgraph that is clipped.
const MIN_CLIPPED: usize = 64 * LINE;

/// Options of all subgraph samplers: the nodes to draw from, and the normalisation of the draws.
#[derive(Args, Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SubgraphTraining {
    /// Draw subgraphs among the training nodes alone (inductive).
    ///
    /// The model then never sees the features of other nodes during training.
    #[arg(long)]
    pub inductive: bool,
    /// Mean count of each node for the normalisation; 0 disables it.
    ///
    /// The counts of nodes and edges in sampled subgraphs normalise sums and losses. Counting takes
    /// as long as drawing this number of epochs, so lower it for large graphs and raise it for more
    /// exact weights.
    #[arg(long, alias = "coverage", value_name = "N")]
    pub sample_coverage: f64,
    /// Estimator of sums over all neighbours: ratio or unbiased.
    ///
    /// Ratio has a smaller error; unbiased is that of the GraphSAINT paper.
    #[arg(long, value_name = "NAME")]
    pub estimator: Estimator,
}

impl OptionSet for SubgraphTraining {
    fn check(&self) -> Result<(), Fault> {
        range("sample_coverage", self.sample_coverage, 0.0..=1e6)
    }

    fn unused(&self, option: &str) -> Option<String> {
        let why = "--sample-coverage 0 counts no subgraphs for the estimator; use a positive \
                   --sample-coverage, or leave it out";
        (option == "estimator" && self.sample_coverage == 0.0).then(|| why.into())
    }
}

impl SubgraphTraining {
    /// Options that do not change which subgraphs are drawn.
    pub const NORMALIZATION: [&'static str; 2] = ["sample_coverage", "estimator"];
}

impl Default for SubgraphTraining {
    fn default() -> Self {
        Self { inductive: false, sample_coverage: 50.0, estimator: Estimator::default() }
    }
}

/// Estimator of a sum over all neighbours from those in a subgraph, each of which has weight `C_v /
/// C_uv`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Estimator {
    /// Weighted mean of the neighbours in the subgraph, times the degree (Hájek's estimator). Its
    /// bias is of the order of one over their number, and its error is that of a mean: it does not
    /// depend on how many are present by chance.
    #[default]
    Ratio,
    /// Weighted sum (Horvitz and Thompson's estimator), as in the paper and its code. It has no
    /// bias. If few of many neighbours are in a subgraph, their number varies by its square root,
    /// and the sum with it.
    Unbiased,
}

by_name!(Estimator);

/// Minibatches of a subgraph sampler.
pub struct Subgraphs {
    sampler: Box<dyn SubgraphSampler>,
    /// Graph to draw from, if it is not the whole graph.
    training: Option<Graph>,
    trains: Vec<bool>,
    /// Number of training nodes.
    count: usize,
    /// Number of nodes that an epoch holds once.
    num_nodes: usize,
    symmetric: bool,
    normalization: Option<Normalization>,
    estimator: Estimator,
}

impl Subgraphs {
    /// Bytes of the counts for the normalisation.
    pub(crate) fn bytes(&self) -> u64 {
        let counts = self.normalization.as_ref().map_or(0, |of| of.edge.len() + of.node.len());
        4 * counts as u64
    }

    /// Creates minibatches of subgraphs of the graph of `source` for its training nodes, with the
    /// sampler that `make` returns. Counts for the normalisation, which takes `sample_coverage`
    /// times as long as sampling an epoch.
    ///
    /// # Errors
    /// `make` rejects its options, the coverage is not a number of at least 0, subgraphs cannot be
    /// drawn, or the progress of `source` stops the counting.
    pub fn new(
        source: &Source,
        training: &SubgraphTraining,
        seed: u64,
        make: impl FnOnce(&Graph, &[NodeId]) -> Result<Box<dyn SubgraphSampler>, String>,
    ) -> Result<Self, String> {
        training.check().map_err(|fault| fault.to_string())?;
        let &Source { graph, train, progress, .. } = source;
        let own = match training.inductive {
            true => Some(induced_graph(graph, train).map_err(|e| e.to_string())?),
            false => None,
        };
        let from = own.as_ref().unwrap_or(graph);
        let mut trains = vec![false; graph.num_nodes()];
        train.iter().for_each(|&v| trains[v as usize] = true);
        let sampler = make(from, train)?;
        let mut this = Self {
            sampler,
            symmetric: is_symmetric(from, false),
            trains,
            count: train.len(),
            num_nodes: if own.is_some() { train.len() } else { source.num_nodes },
            normalization: None,
            estimator: training.estimator,
            training: None,
        };
        if training.sample_coverage > 0.0 {
            // at least one subgraph: without any, all loss weights would be 0
            let enough = ((training.sample_coverage * this.num_nodes as f64) as u64).max(1);
            let draw = |key, scratch: &mut SubgraphScratch, nodes: &mut Vec<NodeId>| {
                this.draw(from, key, scratch, nodes)
            };
            let normalization = Normalization::new(from, &draw, seed, enough, progress);
            this.normalization = Some(normalization.map_err(|e| e.to_string())?);
        }
        this.training = own;
        Ok(this)
    }

    /// Graph among the training nodes, if subgraphs are drawn from it.
    pub(super) fn training(&self) -> Option<&Graph> {
        self.training.as_ref()
    }

    /// Graph whose edges are trained on: of a training subgraph, or `whole`.
    fn graph<'g>(&'g self, whole: &'g Graph) -> &'g Graph {
        self.training.as_ref().unwrap_or(whole)
    }

    /// Draws the nodes of a subgraph, ascending and clipped.
    fn draw(
        &self,
        graph: &Graph,
        key: BatchKey,
        scratch: &mut SubgraphScratch,
        nodes: &mut Vec<NodeId>,
    ) -> Result<()> {
        self.sampler.sample(graph, key, scratch, nodes)?;
        if nodes.len() >= MIN_CLIPPED {
            let key = keyed::key(&[key.seed, key.epoch, key.batch, 0x636c_6970]);
            clip(nodes, nodes.len() % LINE, keyed::Stream::new(key));
        }
        Ok(())
    }
}

/// Drops `surplus` random nodes.
fn clip(nodes: &mut Vec<NodeId>, surplus: usize, mut stream: keyed::Stream) {
    for _ in 0..surplus {
        nodes.remove(stream.below(nodes.len() as u64) as usize);
    }
}

impl MinibatchSampler for Subgraphs {
    fn properties(&self) -> SamplerProperties {
        SamplerProperties {
            num_layers: 1,
            is_random: true,
            reads_edge_weights: false,
            subgraphs: Some(self.epoch()),
        }
    }

    fn sample(&self, request: &BatchRequest, workspace: &mut Workspace, seeds: Seeds) -> Result<Sampled> {
        seeds.refuse_links()?;
        let &BatchRequest { graph, key, layout } = request;
        let mut batch = seeds.into_sampled(1);
        let graph = self.graph(graph);
        let block = &mut batch.blocks[0];
        let to = (&mut batch.input_nodes, &mut *block);
        let stands_for = self.induced(graph, key, &mut workspace.subgraphs, to, |_| {})?;
        let nodes = &batch.input_nodes;
        self.weigh_edges(graph, nodes, layout.aggregation, stands_for, block);
        if layout.transposed != 0 {
            if self.symmetric { block.transpose_symmetric() } else { block.transpose() }
        }
        memory::demand_copy(&mut batch.seeds.nodes, nodes);
        self.weigh_losses(&batch.seeds.nodes, &mut batch.loss_weight);
        Ok(batch)
    }
}

/// Source of node sets, whose nodes [`Surrounded`](super::Surrounded) joins with their neighbours.
///
/// ```
/// use graphmill_core::{NodeId, Result};
/// use graphmill_loader::{
///     Workspace,
///     sampler::{BatchRequest, NodeSets},
/// };
///
/// /// Runs of ten consecutive nodes.
/// struct Runs {
///     nodes: NodeId,
/// }
///
/// impl NodeSets for Runs {
///     fn epoch(&self) -> u64 {
///         u64::from(self.nodes.div_ceil(10))
///     }
///
///     fn draw_nodes(
///         &self,
///         request: &BatchRequest,
///         _: &mut Workspace,
///         nodes: &mut Vec<NodeId>,
///         loss_weight: &mut Vec<f32>,
///     ) -> Result<()> {
///         let first = 10 * request.key.batch as NodeId;
///         nodes.clear();
///         nodes.extend(first..(first + 10).min(self.nodes));
///         loss_weight.clear();
///         Ok(())
///     }
/// }
///
/// assert_eq!(Runs { nodes: 25 }.epoch(), 3);
/// ```
pub trait NodeSets: Send + Sync {
    /// Number of sets of an epoch.
    fn epoch(&self) -> u64;

    /// Draws the nodes of the set of this request, ascending, and their loss weights (empty if all
    /// are equal). Both vectors are overwritten.
    ///
    /// # Errors
    /// The graph of the request is another one than the sets are made for, or a rank that draws
    /// them failed.
    fn draw_nodes(
        &self,
        request: &BatchRequest,
        workspace: &mut Workspace,
        nodes: &mut Vec<NodeId>,
        loss_weight: &mut Vec<f32>,
    ) -> Result<()>;
}

impl NodeSets for Subgraphs {
    fn epoch(&self) -> u64 {
        self.sampler.epoch(self.num_nodes).max(1) as u64
    }

    fn draw_nodes(
        &self,
        request: &BatchRequest,
        workspace: &mut Workspace,
        nodes: &mut Vec<NodeId>,
        loss_weight: &mut Vec<f32>,
    ) -> Result<()> {
        self.draw(self.graph(request.graph), request.key, &mut workspace.subgraphs.scratch, nodes)?;
        loss_weight.clear();
        self.weigh_losses(nodes, loss_weight);
        Ok(())
    }
}

impl Subgraphs {
    /// Draws the nodes of the subgraph `key` of `graph`, ascending and clipped, and overwrites the
    /// block with the edges among them, whose positions are passed to `each`. Returns the number of
    /// neighbours that each edge represents, or nothing if they are not counted.
    ///
    /// # Errors
    /// Those of the sampler, or 2^32 edges.
    pub(crate) fn induced<'b>(
        &self,
        graph: &Graph,
        key: BatchKey,
        buffers: &'b mut SubgraphBuffers,
        (nodes, block): (&mut Vec<NodeId>, &mut Block),
        mut each: impl FnMut(u64),
    ) -> Result<&'b [f32]> {
        let SubgraphBuffers { induce, scratch, stands_for } = buffers;
        self.draw(graph, key, scratch, nodes)?;
        stands_for.clear();
        match &self.normalization {
            None => induce.block(graph, nodes, block, each)?,
            Some(n) => induce.block(graph, nodes, block, |e| {
                each(e);
                memory::demand_push(stands_for, n.edge[e as usize]);
            })?,
        }
        Ok(stands_for)
    }

    /// Fills the weights of the edges of a subgraph for the layer's sum over the neighbours in
    /// `graph`. Destination `i` is node `nodes[i]`; `stands_for` is as [`Subgraphs::induced`]
    /// returns it.
    pub(crate) fn weigh_edges(
        &self,
        graph: &Graph,
        nodes: &[NodeId],
        aggregation: Aggregation,
        stands_for: &[f32],
        block: &mut Block,
    ) {
        weigh(graph, nodes, aggregation, self.estimator, stands_for, block);
    }

    /// Fills the loss weights. The loss is a mean over all nodes of the subgraph, so weights are
    /// scaled by their number.
    pub(crate) fn weigh_losses(&self, seeds: &[NodeId], loss_weight: &mut Vec<f32>) {
        let rows = seeds.len() as f64;
        let trains = |v: NodeId| self.trains[v as usize];
        match &self.normalization {
            Some(n) => {
                let all = (rows / self.count.max(1) as f64) as f32;
                let weight = |&v: &NodeId| if trains(v) { all * n.node[v as usize] } else { 0.0 };
                memory::demand_extend(loss_weight, seeds.iter().map(weight));
            }
            None => {
                let some = seeds.iter().filter(|&&v| trains(v)).count();
                if some < seeds.len() {
                    let all = (rows / some.max(1) as f64) as f32;
                    let weight = |&v: &NodeId| if trains(v) { all } else { 0.0 };
                    memory::demand_extend(loss_weight, seeds.iter().map(weight));
                }
            }
        }
    }
}

/// Fills the weights of a subgraph's edges for the layer's sum. `stands_for` has the number of
/// neighbours that each edge represents; if it is empty, all edges represent the same number.
fn weigh(
    graph: &Graph,
    nodes: &[NodeId],
    aggregation: Aggregation,
    estimator: Estimator,
    stands_for: &[f32],
    block: &mut Block,
) {
    let Block { indptr, indices, edge_weight, self_weight, .. } = block;
    let known = !stands_for.is_empty();
    if aggregation == Aggregation::Other || (aggregation != Aggregation::Symmetric && !known) {
        return;
    }
    let degree = |v: NodeId| graph.in_degree(v) as f32;
    memory::demand_len(edge_weight, indices.len(), 0.0);
    if aggregation == Aggregation::Symmetric {
        memory::demand_extend(self_weight, nodes.iter().map(|&v| 1.0 / (degree(v) + 1.0)));
    }
    for (i, ends) in indptr.windows(2).enumerate() {
        let run = ends[0] as usize..ends[1] as usize;
        let all = degree(nodes[i]);
        // without counts, too, the present neighbours represent all
        let there = match (known, estimator) {
            (true, Estimator::Unbiased) => all,
            (true, Estimator::Ratio) => stands_for[run.clone()].iter().sum(),
            (false, _) => run.len() as f32,
        };
        // without edges there is nothing to weight
        let share = if run.is_empty() { 1.0 } else { all / there };
        let factor = match aggregation {
            Aggregation::Mean => share / all,
            Aggregation::Symmetric => share * self_weight[i].sqrt(),
            Aggregation::Sum | Aggregation::Other => share,
        };
        for e in run {
            let other = if aggregation == Aggregation::Symmetric {
                self_weight[indices[e] as usize].sqrt()
            } else {
                1.0
            };
            edge_weight[e] = factor * other * if known { stands_for[e] } else { 1.0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    };

    use graphmill_core::{
        EdgeOptions, build,
        options::OwnOptions,
        progress::{Progress, Quiet, Unit},
    };

    use super::*;
    use crate::{
        BlockLayout, MiniBatch,
        sampler::find_subgraphs,
        subgraph::{SubgraphContext, edge::Edge, frontier::FrontierOptions},
    };

    /// Draws every node independently, with a probability that grows with its id: unlike walks, so
    /// that only the normalisation can correct for it.
    struct Biased;

    impl SubgraphSampler for Biased {
        fn budget(&self) -> usize {
            20
        }

        fn sample(
            &self,
            graph: &Graph,
            key: BatchKey,
            _: &mut SubgraphScratch,
            nodes: &mut Vec<NodeId>,
        ) -> Result<()> {
            let mut stream = keyed::Stream::new(keyed::key(&[key.seed, key.epoch, key.batch]));
            nodes.clear();
            nodes.extend((0..graph.num_nodes() as NodeId).filter(|&v| stream.below(80) < 20 + u64::from(v)));
            Ok(())
        }
    }

    /// 40 nodes on a ring, each with four neighbours, and node 0 with all.
    fn graph() -> Graph {
        static GRAPH: LazyLock<Graph> = LazyLock::new(ring);
        GRAPH.clone()
    }

    fn ring() -> Graph {
        let ring = (0..40u32).flat_map(|v| [(v, (v + 1) % 40), (v, (v + 2) % 40), (v, 0)]);
        let (src, dst): (Vec<u32>, Vec<u32>) = ring.filter(|(u, v)| u != v).unzip();
        build(40, &src, &dst, EdgeOptions { undirected: true, ..EdgeOptions::DIRECTED }).unwrap()
    }

    /// A rank's graph has all nodes, and edges between its own.
    #[test]
    fn edges_of_a_rank_bring_no_node_of_another_and_their_weights_are_unbiased() {
        let ring = ring();
        let (mut src, mut dst) = (Vec::new(), Vec::new());
        for v in 0..40 {
            src.extend_from_slice(ring.in_neighbors(v));
            dst.resize(src.len(), v);
        }
        let graph = build(80, &src, &dst, EdgeOptions::DIRECTED).unwrap();
        // own training nodes, one of them without edges, and nodes of another rank
        let train: Vec<NodeId> = (0..30).chain([50]).collect();
        let training = SubgraphTraining {
            sample_coverage: 500.0,
            estimator: Estimator::Unbiased,
            ..SubgraphTraining::default()
        };
        let make = |graph: &Graph, roots: &[NodeId]| {
            Ok(Box::new(Edge::new(graph, roots, 16)?) as Box<dyn SubgraphSampler>)
        };
        /// Total of the last stage.
        struct Total(AtomicU64);
        impl Progress for Total {
            fn stage(&self, _: &str, total: Option<u64>, _: Unit) {
                self.0.store(total.unwrap(), Relaxed);
            }
        }
        let total = Total(AtomicU64::new(0));
        let source = Source { num_nodes: 41, progress: &total, ..Source::new(&graph, &train) };
        let subgraphs = Subgraphs::new(&source, &training, 3, make).unwrap();
        // an epoch and the counts are over own nodes
        assert_eq!(subgraphs.epoch(), 41_usize.div_ceil(subgraphs.sampler.budget()) as u64);
        assert_eq!(total.0.load(Relaxed), 500 * 41);
        let (mut losses, mut sums, mut counts) = (vec![0.0; 80], vec![0.0; 80], vec![0u32; 80]);
        let mut workspace = Workspace::new(80);
        let draws = 4000;
        for batch in 0..draws {
            let layout = BlockLayout { aggregation: Aggregation::Mean, ..BlockLayout::default() };
            let request =
                BatchRequest::new(&graph, BatchKey { seed: 1, epoch: 0, batch }).with_layout(layout);
            let drawn = subgraphs.sample(&request, &mut workspace, Seeds::default()).unwrap();
            let (block, rows) = (&drawn.blocks[0], drawn.input_nodes.len() as f64);
            for (i, &v) in drawn.input_nodes.iter().enumerate() {
                losses[v as usize] += f64::from(drawn.loss_weight[i]) / rows;
                sums[v as usize] += block.edge_weight[block.edges(i)].iter().sum::<f32>();
                counts[v as usize] += 1;
            }
        }
        for (v, ((loss, sum), count)) in (0..).zip(losses.iter().zip(&sums).zip(&counts)) {
            let (is_own, trains) = (v < 40 || v == 50, train.contains(&v));
            assert_eq!(*count > 0, is_own, "node {v}");
            let loss = loss * train.len() as f64 / draws as f64;
            assert!((loss - if trains { 1.0 } else { 0.0 }).abs() < 0.2, "node {v}: {loss}");
            let sum = sum / (*count).max(1) as f32;
            assert!((sum - if v < 40 { 1.0 } else { 0.0 }).abs() < 0.2, "node {v}: {sum}");
        }
    }

    fn biased(train: &[NodeId], training: SubgraphTraining) -> Subgraphs {
        Subgraphs::new(&Source::new(&graph(), train), &training, 3, |_, _| Ok(Box::new(Biased))).unwrap()
    }

    fn sample(sampler: &Subgraphs, aggregation: Aggregation, number: u64) -> Sampled {
        let layout = BlockLayout { transposed: 0b10, aggregation, ..BlockLayout::default() };
        draw(sampler, layout, &mut Workspace::new(40), Seeds::new(number, []))
    }

    fn draw(sampler: &Subgraphs, layout: BlockLayout, workspace: &mut Workspace, seeds: Seeds) -> Sampled {
        let (graph, key) = (graph(), BatchKey { seed: 7, epoch: 0, batch: seeds.number });
        sampler.sample(&BatchRequest::new(&graph, key).with_layout(layout), workspace, seeds).unwrap()
    }

    /// Sum over the rows `x` of a subgraph's nodes at each of its nodes, with the stored weights or
    /// as the mean.
    fn sums(batch: &Sampled, x: impl Fn(NodeId) -> f64) -> Vec<f64> {
        let block = &batch.blocks[0];
        let row = |i: usize| {
            let own = block.self_weight.get(i).map_or(0.0, |&w| f64::from(w) * x(batch.seeds.nodes[i]));
            let edges = block.edges(i);
            let each = |e: usize| {
                let w = block.edge_weight.get(e).map_or(1.0 / edges.len() as f64, |&w| f64::from(w));
                w * x(batch.seeds.nodes[block.indices[e] as usize])
            };
            own + edges.clone().map(each).sum::<f64>()
        };
        (0..block.num_dst).map(row).collect()
    }

    #[test]
    fn normalised_sums_and_losses_are_unbiased() {
        let graph = graph();
        let train: Vec<u32> = (0..40).filter(|v| v % 3 > 0).collect();
        let x = |v: NodeId| f64::from(v * v % 17) + 1.0;
        let loss = |v: NodeId| f64::from(v);
        let d = |v: NodeId| graph.in_degree(v) as f64;
        let exact = |aggregation: Aggregation, v: NodeId| -> f64 {
            let each = |&u: &NodeId| match aggregation {
                Aggregation::Mean => x(u) / d(v),
                Aggregation::Symmetric => x(u) / ((d(u) + 1.0) * (d(v) + 1.0)).sqrt(),
                _ => x(u),
            };
            let own = if aggregation == Aggregation::Symmetric { x(v) / (d(v) + 1.0) } else { 0.0 };
            own + graph.in_neighbors(v).iter().map(each).sum::<f64>()
        };
        let estimator = Estimator::Unbiased;
        let training =
            SubgraphTraining { sample_coverage: 20_000.0, estimator, ..SubgraphTraining::default() };
        let sampler = biased(&train, training);
        for aggregation in [Aggregation::Mean, Aggregation::Sum, Aggregation::Symmetric] {
            let (mut times, mut sum, mut losses) = ([0.0; 40], [0.0; 40], 0.0);
            let runs = 30_000;
            for number in 0..runs {
                let batch = sample(&sampler, aggregation, number);
                for (&v, row) in batch.seeds.nodes.iter().zip(sums(&batch, x)) {
                    times[v as usize] += 1.0;
                    sum[v as usize] += row;
                }
                let weighed =
                    batch.seeds.nodes.iter().zip(&batch.loss_weight).map(|(&v, &w)| f64::from(w) * loss(v));
                losses += weighed.sum::<f64>() / batch.seeds.nodes.len() as f64 / runs as f64;
            }
            for v in 0..40 {
                let (found, expected) = (sum[v] / times[v], exact(aggregation, v as u32));
                assert!(
                    (found / expected - 1.0).abs() < 0.05,
                    "{aggregation:?} of {v}: {found}, not {expected}"
                );
            }
            let expected = train.iter().map(|&v| loss(v)).sum::<f64>() / train.len() as f64;
            assert!((losses / expected - 1.0).abs() < 0.02, "{losses}, not {expected}");
        }
    }

    #[test]
    fn ratio_weights_sum_to_the_degree() {
        let all: Vec<u32> = (0..40).collect();
        let at =
            |estimator| SubgraphTraining { sample_coverage: 200.0, estimator, ..SubgraphTraining::default() };
        let (ratio, plain) = (biased(&all, at(Estimator::Ratio)), biased(&all, at(Estimator::Unbiased)));
        for aggregation in [Aggregation::Mean, Aggregation::Sum] {
            let (a, b) = (sample(&ratio, aggregation, 1), sample(&plain, aggregation, 1));
            let (a, b) = (&a.blocks[0], &b.blocks[0]);
            assert_eq!(a.indices, b.indices);
            for v in (0..a.num_dst).filter(|&v| !a.edges(v).is_empty()) {
                let (a, b) = (&a.edge_weight[a.edges(v)], &b.edge_weight[b.edges(v)]);
                let (whole, other) = (a.iter().sum::<f32>(), b.iter().sum::<f32>());
                // the weights keep their proportions and sum to the number of neighbours
                assert!(a.iter().zip(b).all(|(a, b)| (a / whole - b / other).abs() < 1e-5));
                let expected = match aggregation {
                    Aggregation::Mean => 1.0,
                    _ => graph().in_degree(sample(&ratio, aggregation, 1).seeds.nodes[v]) as f32,
                };
                assert!((whole / expected - 1.0).abs() < 1e-5, "{whole}, not {expected}");
            }
        }
    }

    #[test]
    fn without_counts_the_present_neighbours_represent_all() {
        let all: Vec<u32> = (0..40).collect();
        let training = SubgraphTraining { sample_coverage: 0.0, ..SubgraphTraining::default() };
        let sampler = biased(&all, training);
        let batch = sample(&sampler, Aggregation::Mean, 0);
        assert!(batch.blocks[0].edge_weight.is_empty() && batch.loss_weight.is_empty());
        assert_eq!(batch.num_seeds(), batch.seeds.nodes.len());
        let batch = sample(&sampler, Aggregation::Symmetric, 0);
        let block = &batch.blocks[0];
        for i in 0..block.num_dst {
            let d = graph().in_degree(batch.seeds.nodes[i]) as f32 + 1.0;
            assert!((block.self_weight[i] - 1.0 / d).abs() < 1e-6);
        }
        // half of the nodes train: their mean is scaled to the mean over all
        let sampler = biased(&all[..20], training);
        let batch = sample(&sampler, Aggregation::Other, 0);
        let rows = batch.seeds.nodes.len() as f32;
        assert!((batch.loss_weight.iter().sum::<f32>() - rows).abs() < 1e-3);
        assert_eq!(batch.num_seeds(), batch.seeds.nodes.iter().filter(|&&v| v < 20).count());
    }

    #[test]
    fn inductive_subgraphs_have_only_training_nodes_and_their_degrees() {
        let train: Vec<u32> = (0..40).filter(|v| v % 2 == 0).collect();
        let training =
            SubgraphTraining { inductive: true, sample_coverage: 0.0, ..SubgraphTraining::default() };
        let make = |graph: &Graph, roots: &[NodeId]| {
            let own = OwnOptions::default().with(FrontierOptions { frontier_size: 4, ..Default::default() });
            find_subgraphs("frontier").unwrap()(
                graph,
                roots,
                &SubgraphContext { budget: 16, own: &own, partition: None, progress: &Quiet },
            )
        };
        let sampler = Subgraphs::new(&Source::new(&graph(), &train), &training, 3, make).unwrap();
        assert_eq!(sampler.properties().subgraphs, Some(2));
        let batch = sample(&sampler, Aggregation::Symmetric, 1);
        assert!(!batch.seeds.nodes.is_empty() && batch.seeds.nodes.iter().all(|v| v % 2 == 0));
        let i = batch.seeds.nodes.iter().position(|&v| v != 0).unwrap();
        // of an even node's four neighbours on the ring two are even, and so is node 0
        let near = batch.seeds.nodes[i] == 2 || batch.seeds.nodes[i] == 38;
        let degree = if near { 2.0 } else { 3.0 };
        assert!((batch.blocks[0].self_weight[i] - 1.0 / (degree + 1.0)).abs() < 1e-6);
    }

    #[test]
    fn a_subgraph_is_a_function_of_its_key_and_its_block_is_square() {
        let all: Vec<u32> = (0..40).collect();
        let sampler = biased(&all, SubgraphTraining::default());
        let mut workspace = Workspace::new(40);
        let form = BlockLayout { transposed: 1, aggregation: Aggregation::Mean, ..BlockLayout::default() };
        let mut batch = MiniBatch::default();
        for number in [3, 1, 3] {
            batch = draw(&sampler, form, &mut workspace, batch.recycle().refill(number, [])).into();
        }
        let MiniBatch::Sampled(batch) = batch else { panic!("three batches were drawn") };
        let alone = sample(&sampler, Aggregation::Mean, 3);
        assert_eq!(batch.seeds.nodes, alone.seeds.nodes);
        assert_eq!(batch.input_nodes, alone.seeds.nodes);
        let (a, b) = (&batch.blocks[0], &alone.blocks[0]);
        assert_eq!((&a.indptr, &a.indices, &a.edge_weight), (&b.indptr, &b.indices, &b.edge_weight));
        assert!(batch.blocks.len() == 1 && a.num_src == a.num_dst && a.is_transposed());
        // the same counts for any number of threads
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let other = pool.install(|| biased(&all, SubgraphTraining::default()));
        assert_eq!(other.normalization.unwrap().edge, sampler.normalization.unwrap().edge);
    }

    #[test]
    fn large_subgraphs_are_clipped_to_whole_cache_lines() {
        let mut nodes: Vec<u32> = (0..1043).collect();
        clip(&mut nodes, 1043 % LINE, keyed::Stream::new(1));
        assert_eq!(nodes.len() % LINE, 0);
        assert!(nodes.is_sorted() && nodes.len() == 1040);
    }

    #[test]
    fn invalid_coverage_and_empty_subgraphs_are_errors() {
        let make = |coverage| {
            let training = SubgraphTraining { sample_coverage: coverage, ..SubgraphTraining::default() };
            Subgraphs::new(&Source::new(&graph(), &[1]), &training, 3, |_, _| Ok(Box::new(Biased))).err()
        };
        assert!(make(f64::NAN).unwrap().starts_with("sample_coverage: 'NaN'"));
        assert!(make(-1.0).is_some() && make(1.0).is_none());
        let least = SubgraphTraining { sample_coverage: 1e-9, ..SubgraphTraining::default() };
        assert!(sample(&biased(&[1, 39], least), Aggregation::Mean, 0).loss_weight.iter().any(|&w| w > 0.0));
        struct Nothing;
        impl SubgraphSampler for Nothing {
            fn budget(&self) -> usize {
                1
            }
            fn sample(
                &self,
                _: &Graph,
                _: BatchKey,
                _: &mut SubgraphScratch,
                nodes: &mut Vec<NodeId>,
            ) -> Result<()> {
                nodes.clear();
                Ok(())
            }
        }
        let make = |_: &Graph, _: &[NodeId]| Ok(Box::new(Nothing) as Box<dyn SubgraphSampler>);
        let made = Subgraphs::new(&Source::new(&graph(), &[1]), &SubgraphTraining::default(), 3, make);
        assert!(made.err().unwrap().contains("no nodes at all"));
    }

    #[test]
    fn a_stop_ends_the_counting_after_a_round() {
        /// Stops as soon as some nodes are counted.
        struct Stops(AtomicU64);
        impl Progress for Stops {
            fn done(&self, amount: u64) {
                self.0.store(amount, Relaxed);
            }
            fn is_stopped(&self) -> bool {
                self.0.load(Relaxed) > 0
            }
        }
        let (stops, training) = (Stops(AtomicU64::new(0)), SubgraphTraining::default());
        let training = SubgraphTraining { sample_coverage: 1e6, ..training };
        let make = |_: &Graph, _: &[NodeId]| Ok(Box::new(Biased) as Box<dyn SubgraphSampler>);
        let graph = graph();
        let source = Source { progress: &stops, ..Source::new(&graph, &[1]) };
        let error = Subgraphs::new(&source, &training, 3, make).err().unwrap();
        assert_eq!(error, graphmill_core::Error::Stopped.to_string());
        assert!(stops.0.load(Relaxed) < 64 * 40, "more than a round was counted");
    }
}
