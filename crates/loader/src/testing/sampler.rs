//! Rules that every sampler follows.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use graphmill_core::{
    Block, EdgeOptions, Graph, NodeId, build,
    keyed::{self, Stream},
    options::OwnOptions,
    table::Entry,
};

use crate::{
    BatchKey, Sampled, Seeds, Workspace,
    link::{ExcludedEdges, KnownEdges, LinkSource},
    sampler::{
        BatchRequest, BlockLayout, HopRequest, HopSampler, HopScratch, MinibatchSampler, NeighborAccess,
        SamplerKind, SamplerOptions, Source,
    },
    subgraph::{cluster::ClusterOptions, frontier::FrontierOptions},
};

/// Number of nodes of the graphs.
const NODES: usize = 400;
/// Fanouts to try, from the seeds outward.
const FANOUTS: [&[i64]; 4] = [&[1], &[4, 3], &[-1, 2], &[2, 40, 3]];
/// Identity of the compared draws.
const KEY: BatchKey = BatchKey { seed: 5, epoch: 2, batch: 9 };

/// Checks that a sampler follows the rules of [`HopSampler`] or
/// [`SubgraphSampler`](crate::subgraph::SubgraphSampler), with default options and several fanouts:
///
/// - blocks fit together: destinations are a prefix of sources, ids are in range, and input nodes
///   are distinct;
/// - a node has at most as many neighbours as its fanout;
/// - the draws are a function of seed, epoch and batch: the same on one thread and on several,
///   after other batches in the same workspace, and with the bottom block left global;
/// - a batch of links is that of the graph without the edges that it excludes, so that every node
///   has as many neighbours as if they did not exist; a sampler of subgraphs refuses such a batch;
/// - the declared properties hold.
///
/// # Panics
/// The sampler breaks a rule; the message names it.
///
/// ```
/// use graphmill_loader::{sampler, testing::check_sampler};
///
/// check_sampler(sampler::TABLE.find("neighbor")?);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
pub fn check_sampler(entry: &Entry<SamplerKind>) {
    check_draws(entry, true);
}

/// As [`check_sampler`]; without `bounded` a node may have more neighbours than its fanout, for
/// samplers that draw it on average.
pub(crate) fn check_draws(entry: &Entry<SamplerKind>, bounded: bool) {
    let train: Vec<NodeId> = (0..NODES as NodeId).filter(|v| v % 2 == 0).collect();
    let mut rejected = 0;
    for (which, graph) in [star(), random()].into_iter().enumerate() {
        for fanout in FANOUTS {
            let case = format!("{}, graph {which}, fanout {fanout:?}", entry.name);
            let options = options(fanout);
            let source = Source::new(&graph, &train);
            let Ok(sampler) = entry.make.make(&options, &source) else {
                rejected += 1; // some samplers reject -1
                continue;
            };
            let rules = Rules { sampler: &*sampler, graph: &graph, case: &case };
            rules.check_blocks(&rules.drawn(&seeds(&train), false), fanout.len());
            rules.check_purity(&seeds(&train));
            if entry.make.draws_subgraphs() {
                rules.check_refusal();
            } else {
                rules.check_exclusion(|graph| {
                    let made = entry.make.make(&options, &Source::new(graph, &train));
                    made.unwrap_or_else(|error| panic!("{case}: {error}"))
                });
                let hops = entry.make.hop(&options, &source);
                let hops = hops.unwrap_or_else(|error| panic!("{case}: {error}"));
                for (hop, &fanout) in fanout.iter().enumerate() {
                    check_hop(&*hops, &graph, hop, bounded.then_some(fanout), &case);
                }
            }
        }
    }
    assert!(rejected <= 2, "{}: {rejected} of 8 fanouts are rejected", entry.name);
}

/// Default options with this fanout, and subgraphs that fit a small graph.
fn options(fanout: &[i64]) -> SamplerOptions {
    let own = OwnOptions::default()
        .with(FrontierOptions { frontier_size: 20, ..FrontierOptions::default() })
        .with(ClusterOptions { parts: 8, parts_per_batch: 2, ..ClusterOptions::default() });
    SamplerOptions { fanout: fanout.to_vec().into(), seed: KEY.seed, budget: 60, own, partition: None }
}

/// In-neighbours: many of node 0, one of node 1, none of node 2, two of each other node.
fn star() -> Graph {
    let others = (3..NODES as NodeId).flat_map(|v| [(v * 7 % 400, v), ((v * 11 + 1) % 400, v)]);
    let (src, dst): (Vec<_>, Vec<_>) = (1..=90).map(|u| (u, 0)).chain([(0, 1)]).chain(others).unzip();
    let graph = build(NODES, &src, &dst, EdgeOptions::DIRECTED).expect("a small graph");
    weighted(graph)
}

/// A graph of six random undirected edges per node.
fn random() -> Graph {
    let mut stream = Stream::new(keyed::key(&[11]));
    let mut draw = || stream.below(NODES as u64) as NodeId;
    let (src, dst): (Vec<_>, Vec<_>) = (0..6 * NODES).map(|_| (draw(), draw())).unzip();
    weighted(build(NODES, &src, &dst, EdgeOptions::UNDIRECTED).expect("a small graph"))
}

/// The graph with edge weights from 1 to 3.
fn weighted(graph: Graph) -> Graph {
    let weights: Vec<f32> = (0..graph.num_edges()).map(|e| (e % 3 + 1) as f32).collect();
    graph.with_edge_weight(weights.into()).expect("each edge has a weight")
}

/// Some training nodes, including the hub.
fn seeds(train: &[NodeId]) -> Vec<NodeId> {
    train.iter().copied().step_by(7).collect()
}

/// A sampler on a graph, with a name for messages.
struct Rules<'a> {
    sampler: &'a dyn MinibatchSampler,
    graph: &'a Graph,
    case: &'a str,
}

impl Rules<'_> {
    fn draw(&self, key: BatchKey, fused: bool, workspace: &mut Workspace, seeds: Seeds) -> Sampled {
        let layout = BlockLayout { fused, ..BlockLayout::default() };
        let request = BatchRequest::new(self.graph, key).with_layout(layout);
        let drawn = self.sampler.sample(&request, workspace, seeds);
        drawn.unwrap_or_else(|error| panic!("{}: {error}", self.case))
    }

    /// Draws a batch in a new workspace.
    fn drawn(&self, seeds: &[NodeId], fused: bool) -> Sampled {
        let seeds = Seeds::new(KEY.batch, seeds);
        self.draw(KEY, fused, &mut Workspace::new(self.graph.num_nodes()), seeds)
    }

    fn check_blocks(&self, batch: &Sampled, hops: usize) {
        let case = self.case;
        let Sampled { seeds: Seeds { nodes: seeds, .. }, blocks, input_nodes, .. } = batch;
        let distinct: HashSet<NodeId> = input_nodes.iter().copied().collect();
        assert_eq!(distinct.len(), input_nodes.len(), "{case}: an input node occurs twice");
        assert!(
            input_nodes.iter().all(|&v| (v as usize) < self.graph.num_nodes()),
            "{case}: an input node is outside the graph"
        );
        assert!(input_nodes.starts_with(seeds), "{case}: input nodes begin with the seeds");
        let subgraphs = self.sampler.properties().subgraphs.is_some();
        assert_eq!(blocks.len(), if subgraphs { 1 } else { hops }, "{case}: number of blocks");
        assert_eq!(blocks[0].num_src, input_nodes.len(), "{case}: the bottom block reads all input nodes");
        assert_eq!(blocks[blocks.len() - 1].num_dst, seeds.len(), "{case}: the top block ends at the seeds");
        for (l, block) in blocks.iter().enumerate() {
            assert!(block.num_dst <= block.num_src, "{case}: block {l} has fewer sources than destinations");
            assert_eq!(
                block.indptr.len(),
                block.num_dst + 1,
                "{case}: block {l} has a run for each destination"
            );
            assert!(
                block.indptr[0] == 0 && block.indptr.is_sorted(),
                "{case}: the runs of block {l} ascend from 0"
            );
            assert_eq!(
                block.indptr[block.num_dst] as usize,
                block.indices.len(),
                "{case}: the runs of block {l} hold all its edges"
            );
            assert!(
                block.indices.iter().all(|&u| (u as usize) < block.num_src),
                "{case}: a source of block {l} is out of range"
            );
            if let Some(above) = blocks.get(l + 1) {
                assert_eq!(
                    block.num_dst,
                    above.num_src,
                    "{case}: block {l} computes the rows that block {} reads",
                    l + 1
                );
            }
        }
    }

    fn check_purity(&self, seeds: &[NodeId]) {
        let case = self.case;
        let expected = self.drawn(seeds, false);
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a few threads");
            let found = pool.install(|| self.drawn(seeds, false));
            assert!(same(&found, &expected), "{case}: draws differ on {threads} threads");
        }
        let mut workspace = Workspace::new(self.graph.num_nodes());
        let reversed = Seeds::default().refill(3, seeds.iter().rev().copied());
        let batch = self.draw(BatchKey { batch: 3, ..KEY }, false, &mut workspace, reversed);
        workspace.set_parallel(false);
        let refilled = batch.recycle().refill(KEY.batch, seeds.iter().copied());
        let batch = self.draw(KEY, false, &mut workspace, refilled);
        assert!(same(&batch, &expected), "{case}: draws differ after another batch");
        if !self.sampler.properties().is_random {
            let seeds = batch.recycle().refill(0, seeds.iter().copied());
            let batch = self.draw(BatchKey { seed: 6, epoch: 0, batch: 0 }, false, &mut workspace, seeds);
            assert!(
                same(&batch, &expected),
                "{case}: the sampler is declared not random, but another key has other draws"
            );
        }
        if self.sampler.properties().subgraphs.is_none() {
            self.check_global(&self.drawn(seeds, true), &expected);
        }
    }

    /// Checks that a sampler with seeds of its own refuses a batch of links.
    fn check_refusal(&self) {
        let known = KnownEdges::new(self.graph.num_nodes(), &[0], &[1]).expect("ids of the graph");
        let links = LinkSource::new([(0, 1)], Arc::new(known), "uniform").expect("a row of the table");
        let seeds = links.fill(KEY, &[0], Seeds::default()).expect("there are other nodes");
        let request = BatchRequest::new(self.graph, KEY);
        let drawn = self.sampler.sample(&request, &mut Workspace::new(self.graph.num_nodes()), seeds);
        assert!(drawn.is_err(), "{}: a batch of links lost its pairs", self.case);
    }

    /// Checks that batches of links are those that the sampler of the graph without their edges and
    /// the reverses of these draws.
    fn check_exclusion(&self, make: impl Fn(&Graph) -> Box<dyn MinibatchSampler>) {
        let case = self.case;
        let nodes = 0..self.graph.num_nodes() as NodeId;
        let edges: Vec<(NodeId, NodeId)> =
            nodes.flat_map(|v| self.graph.in_neighbors(v).iter().map(move |&u| (u, v))).collect();
        let (source, destination): (Vec<_>, Vec<_>) = edges.iter().copied().unzip();
        let known = KnownEdges::new(self.graph.num_nodes(), &source, &destination).expect("ids of the graph");
        let links = LinkSource::new(edges, Arc::new(known), "uniform").expect("a row of the table");
        let numbers: Vec<NodeId> = (0..links.edges.len() as NodeId).step_by(13).collect();
        let seeds = links.fill(KEY, &numbers, Seeds::default()).expect("every edge has a negative");
        let graph = without(self.graph, seeds.excluded().expect("excluded edges"));
        let sampler = make(&graph);
        let reference = Rules { graph: &graph, sampler: &*sampler, case };
        let mut workspace = Workspace::new(self.graph.num_nodes());
        for fused in [false, true] {
            let given = links.fill(KEY, &numbers, Seeds::default()).expect("as before");
            let found = self.draw(KEY, fused, &mut workspace, given);
            let expected = reference.drawn(&seeds.nodes, fused);
            assert!(same(&found, &expected), "{case}: not the draws of the graph without the excluded edges");
        }
    }

    /// Checks that the global bottom block has the same edges.
    fn check_global(&self, global: &Sampled, local: &Sampled) {
        let (found, expected) = (&global.blocks[0], &local.blocks[0]);
        let ids: Vec<NodeId> = expected.indices.iter().map(|&u| local.input_nodes[u as usize]).collect();
        assert!(
            found.indptr == expected.indptr && found.indices == ids,
            "{}: the bottom block has other edges when it is left global",
            self.case
        );
    }
}

/// The graph without the excluded edges, by a plain loop over all edges.
pub(crate) fn without(graph: &Graph, excluded: &ExcludedEdges) -> Graph {
    let (mut ends, mut left, mut weights) = (vec![0], Vec::new(), Vec::new());
    for v in 0..graph.num_nodes() as NodeId {
        for (e, &u) in (graph.indptr()[v as usize] as usize..).zip(graph.in_neighbors(v)) {
            if !excluded.contains(u, v) {
                left.push(u);
                weights.extend(graph.edge_weight().map(|weights| weights[e]));
            }
        }
        ends.push(left.len() as u64);
    }
    let weights = graph.edge_weight().map(|_| weights.into());
    Graph::of_sound_edges(ends.into(), left.into(), weights).expect("rows of the graph")
}

/// Returns true if two batches have the same draws.
fn same(a: &Sampled, b: &Sampled) -> bool {
    let parts = |block: &Block| {
        let weights: Vec<u32> = block.edge_weight.iter().map(|w| w.to_bits()).collect();
        (block.num_dst, block.num_src, block.indptr.clone(), block.indices.clone(), weights)
    };
    a.seeds.nodes == b.seeds.nodes
        && a.input_nodes == b.input_nodes
        && a.blocks.len() == b.blocks.len()
        && a.blocks.iter().map(parts).eq(b.blocks.iter().map(parts))
}

/// Checks one hop: the number of neighbours, their ids, and that a node's draws are independent of
/// other destinations if that is declared.
fn check_hop(sampler: &dyn HopSampler, graph: &Graph, hop: usize, fanout: Option<i64>, case: &str) {
    let drawn = |dst: &[NodeId]| -> Vec<(NodeId, Vec<NodeId>)> {
        let request = HopRequest::new(graph, hop, dst, KEY);
        let mut block = Block::default();
        let result = sampler.sample_hop(&request, &mut HopScratch::default(), &mut block);
        result.unwrap_or_else(|error| panic!("{case}: hop {hop}: {error}"));
        let runs = block.indptr.windows(2).map(|run| run[0] as usize..run[1] as usize);
        dst.iter().copied().zip(runs.map(|run| block.indices[run].to_vec())).collect()
    };
    let all: Vec<NodeId> = (0..graph.num_nodes() as NodeId).collect();
    let properties = sampler.properties();
    let whole = drawn(&all);
    for (v, from) in &whole {
        if let Some(fanout) = fanout.and_then(|fanout| usize::try_from(fanout).ok()) {
            let count = from.len();
            assert!(
                count <= fanout,
                "{case}: hop {hop}: node {v} has {count} neighbours, more than its fanout"
            );
        }
        if properties.access != NeighborAccess::Graph {
            let row: BTreeSet<NodeId> = graph.in_neighbors(*v).iter().copied().collect();
            let stranger = from.iter().find(|u| !row.contains(u));
            assert!(stranger.is_none(), "{case}: hop {hop}: {stranger:?} is not an in-neighbour of node {v}");
        }
    }
    if properties.is_per_node {
        let some: Vec<NodeId> = all.iter().copied().rev().step_by(3).collect();
        for (v, from) in drawn(&some) {
            assert_eq!(
                from, whole[v as usize].1,
                "{case}: hop {hop}: the draws of node {v} depend on other destinations"
            );
        }
    }
}
