//! Hops without excluded edges, against the graph that was built without them.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use graphmill_core::{WholeDegrees, block::Aggregation, keyed::Stream, options::OwnOptions};
use proptest::prelude::*;

use super::{
    super::{
        BatchRequest, BlockLayout, EdgeNeighbors, HopProperties, HopStack, MinibatchSampler, SamplerOptions,
        Source, TABLE, WeightOptions, WeightedOptions, Workspace,
        labor::{Iterations, LaborDraws, LaborOptions},
        neighbor::Neighbor,
        reservoir::tests::sets,
        weighted::{DrawBy, EdgeWeights, Weighted},
    },
    *,
};
use crate::{
    BatchKey, Seeds,
    link::LinkBatch,
    subgraph::testing::{fits, graph_of},
    testing::without,
};

const KEY: BatchKey = BatchKey { seed: 1, epoch: 0, batch: 0 };

/// The last in-neighbour of each node, with its place as the weight. A table has the number of
/// edges of its graph.
struct Last {
    access: NeighborAccess,
    table: usize,
}

impl HopSampler for Last {
    fn num_layers(&self) -> usize {
        1
    }

    fn properties(&self) -> HopProperties {
        HopProperties { access: self.access, ..HopProperties::default() }
    }

    fn sample_hop(&self, request: &HopRequest, _: &mut HopScratch, block: &mut Block) -> Result<()> {
        assert_eq!(self.table, request.graph.num_edges());
        assert!(request.excluded.is_none() && block.edge_weight.is_empty());
        start(block);
        for &v in request.dst {
            let row = request.graph.in_neighbors(v);
            block.indices.extend(row.last());
            block.edge_weight.extend(row.last().map(|_| row.len() as f32));
            block.indptr.push(block.indices.len() as u32);
        }
        Ok(())
    }

    fn with_tables_of(&self, graph: &Graph) -> Result<Option<Arc<dyn HopSampler>>> {
        Ok(Some(Arc::new(Self { access: self.access, table: graph.num_edges() })))
    }
}

/// Excluded edges, and the ends of rows, sources and weights of a hop without them.
type Case = (&'static [(NodeId, NodeId)], &'static [u32], &'static [NodeId], &'static [f32]);

#[test]
fn samplers_with_tables_draw_from_lists_without_the_excluded_edges() {
    let graph = graph_of(&[&[1, 2, 3], &[3], &[0, 1], &[]]);
    let cases: [Case; 4] = [
        (&[], &[0, 1, 2, 3], &[3, 1, 3], &[3.0, 2.0, 1.0]),
        (&[(3, 0), (0, 3)], &[0, 1, 2, 3], &[2, 1, 3], &[2.0, 2.0, 1.0]),
        (&[(1, 0), (3, 1), (2, 1)], &[0, 1, 2, 2], &[3, 1], &[2.0, 2.0]),
        (&[(1, 0), (2, 0), (3, 0), (3, 1), (0, 2), (1, 2)], &[0, 0, 0, 0], &[], &[]),
    ];
    for access in [NeighborAccess::OwnList, NeighborAccess::Lists, NeighborAccess::Graph] {
        for (edges, ends, sources, weights) in cases {
            let mut excluded = ExcludedEdges::default();
            excluded.refill(edges.iter().copied());
            let excluded = Some(&excluded).filter(|_| !edges.is_empty());
            let request = HopRequest { excluded, ..HopRequest::new(&graph, 0, &[0, 2, 1], KEY) };
            let (mut block, mut scratch) = (Block::default(), HopScratch::default());
            let sampler = Last { access, table: 6 };
            for _ in 0..2 {
                block.edge_weight.clear();
                sample_remaining(&sampler, &request, &mut scratch, &mut block).unwrap();
                assert_eq!((&block.indptr[..], &block.indices[..]), (ends, sources), "{access:?}");
                assert_eq!(block.edge_weight, weights, "{access:?}");
            }
        }
    }
}

#[test]
fn edges_are_named_by_samplers_that_leave_them_out_themselves() {
    let graph = graph_of(&[&[1, 2], &[], &[]]);
    let sampler = Last { access: NeighborAccess::OwnList, table: 2 };
    let request = HopRequest::new(&graph, 0, &[0], KEY);
    let (mut block, mut positions) = (Block::default(), Vec::new());
    let scratch = &mut HopScratch::default();
    let error = sample_remaining_edges(&sampler, &request, scratch, &mut block, &mut positions);
    assert!(error.unwrap_err().to_string().contains("use neighbor or full"));
}

/// Samplers of hops with the options that change their tables or their access to lists.
fn variants() -> Vec<(&'static str, OwnOptions)> {
    let of_table = TABLE.iter().filter(|entry| !entry.make.draws_subgraphs());
    let mut variants: Vec<_> = of_table.map(|entry| (entry.name, OwnOptions::default())).collect();
    for (iterations, labor_draws) in [(2, LaborDraws::Independent), (0, LaborDraws::Ranges)] {
        let options = LaborOptions { labor_iterations: Iterations(iterations), labor_draws };
        variants.push(("labor", OwnOptions::default().with(options)));
    }
    for edge_weights in [EdgeWeights::Stored, EdgeWeights::InDegree, EdgeWeights::InverseOutDegree] {
        let own = OwnOptions::default().with(WeightOptions { edge_weights });
        variants.push(("labor", own.clone()));
        for replace in [false, true] {
            for weighted_index in [DrawBy::Alias, DrawBy::PrefixSums] {
                let options = WeightedOptions { replace, weighted_index };
                variants.push(("weighted", own.clone().with(options)));
            }
        }
    }
    variants
}

/// A graph with parallel edges and rows of many lengths, ascending or in any order, with some
/// weights of 0, and the degrees of all nodes.
fn random_graph(nodes: u32, edges: usize, seed: u64, ascending: bool, weighted: bool) -> Graph {
    let mut stream = Stream::new(graphmill_core::keyed::key(&[seed]));
    let mut rows: Vec<Vec<NodeId>> = vec![Vec::new(); nodes as usize];
    for _ in 0..edges {
        // nodes of small ids have long rows
        let v = stream.below(1 + stream.clone().below(nodes.into()));
        rows[v as usize].push(stream.below(nodes.into()) as NodeId);
    }
    if ascending {
        rows.iter_mut().for_each(|row| row.sort_unstable());
    }
    let graph = graph_of(&rows.iter().map(|row| &row[..]).collect::<Vec<_>>());
    if !weighted {
        return graph;
    }
    let weights: Vec<f32> = (0..edges).map(|_| stream.below(4) as f32).collect();
    graph.with_edge_weight(weights.into()).unwrap()
}

/// Every `each`-th edge, all edges into some nodes, and edges that the graph does not have.
fn some_edges(graph: &Graph, each: usize) -> ExcludedEdges {
    let nodes = graph.num_nodes() as NodeId;
    let edges = (0..nodes).flat_map(|v| graph.in_neighbors(v).iter().map(move |&u| (u, v)));
    let mut excluded = ExcludedEdges::default();
    let some = edges.enumerate().filter(|&(e, (_, v))| e % each == 0 || v % 11 == 5);
    excluded.refill(some.map(|(_, edge)| edge).chain((0..nodes).step_by(3).map(|v| (nodes - 1 - v, v))));
    excluded
}

/// Rows of a hop with the bits of their weights.
fn rows(block: &Block) -> Vec<(Vec<NodeId>, Vec<u32>)> {
    let runs = block.indptr.windows(2).map(|ends| ends[0] as usize..ends[1] as usize);
    let bits = |run: Range<usize>| -> Vec<u32> {
        block.edge_weight.get(run).unwrap_or_default().iter().map(|w| w.to_bits()).collect()
    };
    runs.map(|run| (block.indices[run.clone()].to_vec(), bits(run))).collect()
}

fn remaining_rows(sampler: &dyn HopSampler, request: &HopRequest) -> Vec<(Vec<NodeId>, Vec<u32>)> {
    let mut block = Block::default();
    sample_remaining(sampler, request, &mut HopScratch::default(), &mut block).unwrap();
    rows(&block)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn hops_without_edges_are_those_of_the_graph_without_them(
        nodes in 1u32..60, edges in 0usize..900, seed in 0u64..1000, each in 1usize..9,
        fanout in prop_oneof![Just(-1i64), 1i64..30], ascending: bool, weighted: bool,
    ) {
        let graph = random_graph(nodes, edges, seed, ascending, weighted);
        let degrees = |of: &Graph| (0..nodes).map(|v| of.in_degree(v) as u32).collect::<Vec<u32>>();
        let whole = WholeDegrees { of_in: degrees(&graph).into(), of_out: Some(degrees(&graph)) };
        let graph = graph.with_whole_degrees(whole.clone());
        let excluded = some_edges(&graph, each);
        let cut = without(&graph, &excluded).with_whole_degrees(whole);
        let dst: Vec<NodeId> = (0..nodes).rev().filter(|v| v % 5 != 1).collect();
        for (name, own) in variants() {
            let options = SamplerOptions { fanout: vec![fanout].into(), own, ..SamplerOptions::default() };
            let make = |graph: &Graph| TABLE.find(name).unwrap().make.hop(&options, &Source::new(graph, &[]));
            // some options need weights, and others must not have them
            let Ok(sampler) = make(&graph) else { continue };
            let (reference, properties) = (make(&cut).unwrap(), sampler.properties());
            for aggregation in
                [Aggregation::Other, Aggregation::Mean, Aggregation::Sum, Aggregation::Symmetric]
            {
                let plain = HopRequest { aggregation, ..HopRequest::new(&graph, 0, &dst, KEY) };
                let request = HopRequest { excluded: Some(&excluded), ..plain };
                let found = remaining_rows(&*sampler, &request);
                let of_cut = HopRequest { graph: &cut, ..plain };
                prop_assert_eq!(&found, &remaining_rows(&*reference, &of_cut), "{}", name);
                if properties.access == NeighborAccess::Graph {
                    continue;
                }
                let before = remaining_rows(&*sampler, &plain);
                for ((&v, row), before) in dst.iter().zip(&found).zip(&before) {
                    let own: BTreeSet<NodeId> = cut.in_neighbors(v).iter().copied().collect();
                    prop_assert!(row.0.iter().all(|u| own.contains(u)), "{}: node {}", name, v);
                    if properties.is_per_node && graph.in_degree(v) == cut.in_degree(v) {
                        prop_assert_eq!(row, before, "{}: a row without excluded edges changed", name);
                    }
                }
            }
        }
    }

    #[test]
    fn as_many_neighbours_are_drawn_as_remain_up_to_the_fanout_and_edges_are_named(
        nodes in 1u32..60, edges in 0usize..900, seed in 0u64..1000, each in 1usize..9,
        fanout in 1usize..30, ascending: bool,
    ) {
        let graph = random_graph(nodes, edges, seed, ascending, false);
        let excluded = some_edges(&graph, each);
        let cut = without(&graph, &excluded);
        let dst: Vec<NodeId> = (0..nodes).collect();
        let sampler = Neighbor::new([fanout as i64]).unwrap();
        let request = HopRequest { excluded: Some(&excluded), ..HopRequest::new(&graph, 0, &dst, KEY) };
        let (mut block, mut positions, mut scratch) = (Block::default(), vec![7], HopScratch::default());
        sample_remaining_edges(&sampler, &request, &mut scratch, &mut block, &mut positions).unwrap();
        prop_assert_eq!(&rows(&block), &remaining_rows(&sampler, &request));
        let sources: Vec<NodeId> = positions.iter().map(|&e| graph.indices()[e as usize]).collect();
        prop_assert_eq!(&sources, &block.indices);
        for (&v, ends) in dst.iter().zip(block.indptr.windows(2)) {
            let own = &positions[ends[0] as usize..ends[1] as usize];
            prop_assert_eq!(own.len(), cut.in_degree(v).min(fanout));
            let row = graph.indptr()[v as usize]..graph.indptr()[v as usize + 1];
            prop_assert!(own.iter().all(|e| row.contains(e)));
            prop_assert_eq!(own.iter().collect::<BTreeSet<_>>().len(), own.len());
        }
    }
}

/// Counts the sets of neighbours of node 0, of which each is 1 to 7, by the bits of the set.
fn count_sets(sampler: &dyn HopSampler, graph: &Graph, excluded: &ExcludedEdges) -> Vec<u64> {
    let mut counts = vec![0; 1 << 7];
    let (mut block, mut scratch) = (Block::default(), HopScratch::default());
    for batch in 0..8_000 {
        let key = BatchKey { batch, ..KEY };
        let request = HopRequest { excluded: Some(excluded), ..HopRequest::new(graph, 0, &[0], key) };
        sample_remaining(sampler, &request, &mut scratch, &mut block).unwrap();
        counts[block.indices.iter().map(|&u| 1 << (u - 1)).sum::<usize>()] += 1;
    }
    counts
}

#[test]
fn sets_of_remaining_neighbours_have_the_probabilities_of_successive_draws() {
    let mut all: Vec<&[NodeId]> = vec![&[1, 2, 3, 4, 5, 6, 7]];
    all.resize(8, &[]);
    let weights = [1.0, 2.0, 4.0, 8.0, 1.0, 3.0, 2.0];
    let graph = graph_of(&all);
    let weighted = graph.clone().with_edge_weight(weights.map(|w| w as f32).to_vec().into()).unwrap();
    let mut excluded = ExcludedEdges::default();
    excluded.refill([(2, 0), (4, 0)]);
    let left = |weights: [f64; 7]| {
        let mut left = weights;
        (left[1], left[3]) = (0.0, 0.0);
        left
    };
    for k in [1, 2, 4] {
        let counts = count_sets(&Neighbor::new([k as i64]).unwrap(), &graph, &excluded);
        fits(&counts, &sets(k, &left([1.0; 7])));
        for weighted_index in [DrawBy::Alias, DrawBy::PrefixSums] {
            let options = WeightedOptions { replace: false, weighted_index };
            let sampler = Weighted::new(&weighted, [k as i64], &options, EdgeWeights::Stored).unwrap();
            fits(&count_sets(&sampler, &weighted, &excluded), &sets(k, &left(weights)));
        }
    }
}

/// Seeds of a batch that excludes these edges.
fn seeds_without(nodes: &[NodeId], excluded: &ExcludedEdges) -> Seeds {
    let mut seeds = Seeds::new(0, nodes.to_vec());
    let links = seeds.links.insert(Box::<LinkBatch>::default());
    links.excluded = excluded.clone();
    seeds
}

#[test]
fn hops_drawn_in_parts_by_several_threads_leave_out_the_same_edges() {
    const NODES: u32 = 40_000;
    let indptr: Vec<u64> = (0..=u64::from(NODES)).map(|v| 5 * v).collect();
    let indices: Vec<NodeId> = (0..5 * NODES).map(|e| (e / 5 + e % 5 * 77 + 1) % NODES).collect();
    let graph = Graph::new(indptr.into(), indices.into()).unwrap();
    let excluded = some_edges(&graph, 29);
    let cut = without(&graph, &excluded);
    let nodes: Vec<NodeId> = (0..NODES).filter(|v| v % 16 != 3).collect();
    let sampler = HopStack::new(Neighbor::new([3, 2]).unwrap());
    let draw = |graph: &Graph, seeds: Seeds, threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let mut workspace = Workspace::new(NODES as usize);
        let request = BatchRequest::new(graph, KEY);
        let batch = pool.install(|| sampler.sample(&request, &mut workspace, seeds)).unwrap();
        let blocks: Vec<_> = batch.blocks.iter().map(|b| (b.indptr.clone(), b.indices.clone())).collect();
        (batch.input_nodes.clone(), blocks)
    };
    let expected = draw(&cut, Seeds::new(0, nodes.clone()), 1);
    for threads in [1, 3] {
        assert!(draw(&graph, seeds_without(&nodes, &excluded), threads) == expected, "{threads} threads");
    }
}

#[test]
fn batches_with_named_edges_leave_out_edges() {
    let graph = random_graph(50, 700, 3, false, false);
    let excluded = some_edges(&graph, 3);
    let nodes: Vec<NodeId> = (0..50).step_by(4).collect();
    let request = BatchRequest::new(&graph, KEY).with_layout(BlockLayout::default());
    let seeds = || seeds_without(&nodes, &excluded);
    let named = EdgeNeighbors::new([4, 3]).unwrap();
    let found = named.sample(&request, &mut Workspace::new(50), seeds()).unwrap();
    let plain = HopStack::new(Neighbor::new([4, 3]).unwrap());
    let plain = plain.sample(&request, &mut Workspace::new(50), seeds()).unwrap();
    assert_eq!(found.sampled.input_nodes, plain.input_nodes);
    for ((a, b), edges) in found.sampled.blocks.iter().zip(&plain.blocks).zip(&found.edges) {
        assert_eq!((&a.indptr, &a.indices), (&b.indptr, &b.indices));
        let sources = a.indices.iter().map(|&u| plain.input_nodes[u as usize]);
        assert!(sources.eq(edges.iter().map(|&e| graph.indices()[e as usize])));
    }
}
