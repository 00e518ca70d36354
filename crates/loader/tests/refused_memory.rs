//! A minibatch whose memory is refused is an error, and the next one with the same buffers is
//! right: of every sampler, of graphs of one type and several, with times and without, and with
//! dense rows and sparse ones.

mod allocator;

use std::sync::Arc;

use allocator::{alone, check};
use graphmill_core::{
    Block, EdgeOptions, Features, Graph, Matrix, NodeId, SparseRows,
    block::Aggregation,
    build, keyed,
    matrix::TableType,
    options::OwnOptions,
    typed::{NodeType, Relation, Schema, TypedBlock, TypedGraph, bipartite_weighted},
};
use graphmill_loader::{
    BatchKey, BlockLayout, Feature, Seeds, Workspace,
    feature::{
        Host,
        cached::{CacheLayout, Dynamic, Level, Pinned, Placement, RowFormat},
    },
    link::{ExcludedEdges, KnownEdges, LinkBatch, LinkSource},
    order::{SeedOrder, random::Random, sequential::Sequential},
    policy,
    sampler::{
        self, BatchRequest, EdgeNeighbors, HopStack, MinibatchSampler, SamplerOptions, Source,
        SubgraphTraining,
        labor::{Iterations, LaborDraws, LaborOptions},
        neighbor::Neighbor,
    },
    subgraph::cluster::ClusterOptions,
    time::{TimeCarry, TimeDraw, TimeOptions, TimeRequest, TimeSeeds, TimeWorkspace, TimedGraph},
    typed::{self, TypedOptions, TypedRequest, TypedSeeds, TypedWorkspace, with_added},
};

const NODES: usize = 20_000;
const DIM: usize = 8;
const KEY: BatchKey = BatchKey { seed: 1, epoch: 0, batch: 0 };

/// Runs `work` on two threads, so that draws are divided among them.
fn on_two_threads(work: impl FnOnce() + Send) {
    rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap().install(work);
}

/// Nodes of which batches are drawn.
fn chosen() -> Vec<NodeId> {
    (0..600).map(|i| 33 * i).collect()
}

/// Random ends of `count` edges, from `from` nodes to `to` nodes.
fn ends(count: u64, salt: u64, [from, to]: [usize; 2]) -> (Vec<NodeId>, Vec<NodeId>) {
    let end = |e: u64, side: u64, nodes: usize| (keyed::key(&[e, side, salt]) % nodes as u64) as NodeId;
    (0..count).map(|e| (end(e, 0, from), end(e, 1, to))).unzip()
}

fn weights(edges: usize) -> Vec<f32> {
    (0..edges).map(|e| 0.5 + (e % 7) as f32).collect()
}

fn graph() -> Graph {
    let (src, dst) = ends(6 * NODES as u64, 0, [NODES; 2]);
    build(NODES, &src, &dst, EdgeOptions::UNDIRECTED).unwrap()
}

/// The first edge into each of the chosen nodes.
fn first_edges(graph: &Graph) -> ExcludedEdges {
    let mut excluded = ExcludedEdges::default();
    let first = |v: NodeId| graph.in_neighbors(v).first().map(|&u| (u, v));
    excluded.refill(chosen().into_iter().filter_map(first));
    excluded
}

/// A batch of links without pairs, which leaves out the edges `excluded`.
fn leaving_out(excluded: ExcludedEdges) -> Box<LinkBatch> {
    let mut links = Box::<LinkBatch>::default();
    links.excluded = excluded;
    links
}

/// Ends, sources and weights of a block.
type Edges = (Vec<u32>, Vec<NodeId>, Vec<u32>);

fn edges(block: &Block) -> Edges {
    let weights = block.edge_weight.iter().chain(&block.self_weight).map(|weight| weight.to_bits());
    (block.indptr.clone(), block.indices.clone(), weights.collect())
}

fn typed_edges(block: &TypedBlock) -> (Vec<Edges>, Vec<Vec<u64>>) {
    (block.relations.iter().map(edges).collect(), block.positions.clone())
}

#[test]
fn minibatches_of_every_sampler_without_memory_are_errors_and_the_next_ones_are_right() {
    let _turn = alone();
    let plain = graph();
    let weighted = plain.clone().with_edge_weight(weights(plain.num_edges()).into()).unwrap();
    let own = OwnOptions::default()
        .with(ClusterOptions { parts: 8, parts_per_batch: 4, ..ClusterOptions::default() })
        .with(SubgraphTraining { sample_coverage: 1.0, ..SubgraphTraining::default() });
    let labor = |iterations, labor_draws| {
        own.clone().with(LaborOptions { labor_iterations: Iterations(iterations), labor_draws })
    };
    let mut cases: Vec<(&str, OwnOptions)> =
        sampler::TABLE.iter().map(|entry| (entry.name, own.clone())).collect();
    cases.push(("labor", labor(0, LaborDraws::Ranges)));
    cases.push(("labor", labor(2, LaborDraws::Independent)));
    let train: Vec<NodeId> = (0..NODES as NodeId).filter(|v| v % 2 == 0).collect();
    on_two_threads(|| {
        for (name, own) in cases {
            let graph = if name == "weighted" { &weighted } else { &plain };
            let options = SamplerOptions { fanout: [6, 6].into(), seed: 1, own, ..SamplerOptions::default() };
            let kind = &sampler::TABLE.find(name).unwrap().make;
            let sampler = kind.make(&options, &Source::new(graph, &train)).unwrap();
            let layout =
                BlockLayout { aggregation: Aggregation::Sum, transposed: 3, ..BlockLayout::default() };
            let request = BatchRequest::new(graph, KEY).with_layout(layout);
            for excludes in [false, true] {
                if excludes && kind.draws_subgraphs() {
                    continue;
                }
                let seeds = || {
                    let mut seeds = Seeds::new(0, chosen());
                    seeds.links = excludes.then(|| leaving_out(first_edges(graph)));
                    seeds
                };
                check(
                    &format!("{name}, excludes: {excludes}"),
                    (|| Workspace::new(NODES), seeds),
                    |workspace, seeds| sampler.sample(&request, workspace, seeds),
                    |batch| {
                        let blocks: Vec<Edges> = batch.blocks.iter().map(edges).collect();
                        let weights: Vec<u32> = batch.loss_weight.iter().map(|x| x.to_bits()).collect();
                        (batch.input_nodes.clone(), blocks, weights)
                    },
                );
            }
        }
    });
}

#[test]
fn seeds_without_memory_are_errors_and_the_next_ones_are_right() {
    let _turn = alone();
    let train: Vec<NodeId> = (0..50_000).collect();
    let orders: [(&str, Box<dyn SeedOrder + '_>); 3] = [
        ("sequential", Box::new(Sequential::new(&train))),
        ("random", Box::new(Random::new(&train, 1))),
        ("few of random", Box::new(Random::new(&train, 1))),
    ];
    let (from, to) = ends(6000, 0, [NODES; 2]);
    let known = Arc::new(KnownEdges::new(NODES, &from, &to).unwrap());
    let pairs: Vec<(NodeId, NodeId)> = from.iter().copied().zip(to.iter().copied()).collect();
    let mut links = LinkSource::new(pairs, known, "uniform").unwrap();
    links.relations = vec![0; 6000].into();
    let numbers: Vec<NodeId> = (0..6000).collect();
    on_two_threads(|| {
        for (name, order) in &orders {
            check(
                name,
                (Vec::new, || ()),
                |out, ()| {
                    match *name {
                        "few of random" => order.first(0, 6000, out),
                        _ => order.order(0, out),
                    }
                    Ok(std::mem::take(out))
                },
                Vec::clone,
            );
        }
        check(
            "links",
            (|| (), Seeds::default),
            |(), seeds| links.fill(KEY, &numbers, seeds),
            |seeds| {
                let links = seeds.links.as_ref().unwrap();
                let ends = (links.source.clone(), links.destination.clone(), links.relation.clone());
                (seeds.nodes.clone(), ends, links.excluded.clone())
            },
        );
    });
}

#[test]
fn edges_with_positions_without_memory_are_errors_and_the_next_ones_are_right() {
    let _turn = alone();
    let graph = graph();
    let sampler = EdgeNeighbors::new([6, 6]).unwrap();
    on_two_threads(|| {
        check(
            "edges",
            (|| Workspace::new(NODES), || Seeds::new(0, chosen())),
            |workspace, seeds| sampler.sample(&BatchRequest::new(&graph, KEY), workspace, seeds),
            |batch| (batch.sampled.blocks.iter().map(edges).collect::<Vec<_>>(), batch.edges.clone()),
        );
    });
}

/// Three sparse values in each row.
fn sparse() -> Features {
    let indptr: Vec<u64> = (0..=NODES as u64).map(|v| 3 * v).collect();
    let columns: Vec<u32> = (0..NODES as u32).flat_map(|v| [v % 5, 5 + v % 7, 12 + v % 3]).collect();
    let values: Vec<f32> = (0..3 * NODES).map(|e| e as f32 + 0.5).collect();
    Features::csr(SparseRows::new(15, indptr.into(), columns.into(), values.into()).unwrap())
}

/// Bits of rows.
fn bits(rows: &Matrix) -> Vec<u32> {
    let Some(sparse) = rows.view().sparse() else {
        return rows.view().host().iter().map(|x| x.to_bits()).collect();
    };
    let (ends, values) = (sparse.indptr.iter().copied(), sparse.values.iter().map(|x| x.to_bits()));
    ends.chain(sparse.indices.iter().copied()).chain(values).collect()
}

#[test]
fn rows_without_memory_are_errors_and_the_next_ones_are_right() {
    let _turn = alone();
    let graph = graph();
    let dense = Features::f32(DIM, (0..NODES * DIM).map(|x| x as f32).collect::<Vec<f32>>());
    let sampler = HopStack::new(Neighbor::new([6, 6]).unwrap());
    let mut tiers: Vec<(String, Arc<dyn Feature>)> = Vec::new();
    for (form, features, format) in
        [("dense", dense, RowFormat::Dense(TableType::F32)), ("sparse", sparse(), RowFormat::Sparse)]
    {
        let host = || Arc::new(Host::new(&features));
        let level = Level::Device { devices: 2, reader: 0 };
        let ranking: Vec<NodeId> = (0..NODES as NodeId).collect();
        let layout = CacheLayout::new(&ranking, 4_000, 2, Placement::Interleave);
        let lru = policy::TABLE.find("lru").unwrap().make;
        tiers.push((format!("{form}, host"), host()));
        let pinned = Pinned::new(layout, format, host(), level).unwrap();
        tiers.push((format!("{form}, static"), Arc::new(pinned)));
        // several shards, and one whose lock must not stay poisoned
        for slots in [4_000, 400] {
            let dynamic = Dynamic::new(lru, slots, format, host(), level).unwrap();
            tiers.push((format!("{form}, lru of {slots}"), Arc::new(dynamic)));
        }
    }
    on_two_threads(|| {
        for (name, rows) in &tiers {
            check(
                name,
                (|| Workspace::new(NODES), || Seeds::new(0, chosen())),
                |workspace, seeds| {
                    let request = BatchRequest::new(&graph, KEY);
                    sampler.sample(&request, workspace, seeds)?.extract(&**rows)
                },
                |batch| (batch.sampled.input_nodes.clone(), bits(&batch.features)),
            );
        }
    });
}

/// Two node types, and relations with weights between them, back, and among those of the first.
fn typed_graph() -> TypedGraph {
    let types = vec![NodeType::new("a", NODES), NodeType::new("b", NODES / 2)];
    let relations = vec![Relation::new(0, "to", 1), Relation::new(1, "back", 0), Relation::new(0, "same", 0)];
    let graphs = relations.iter().zip(1..).map(|(relation, salt)| {
        let counts = [relation.src, relation.dst].map(|t| types[t].count);
        let (src, dst) = ends(6 * NODES as u64, salt, counts);
        bipartite_weighted(counts[0], counts[1], &src, &dst, &weights(src.len())).unwrap()
    });
    let graphs = graphs.collect();
    TypedGraph::new(Schema::new(types, relations).unwrap(), graphs).unwrap()
}

fn typed_options(name: &str) -> TypedOptions {
    let training = SubgraphTraining { sample_coverage: 1.0, ..SubgraphTraining::default() };
    TypedOptions {
        fanout: if name == "hgt" { "6000,6000" } else { "6,6" }.parse().unwrap(),
        own: OwnOptions::default().with(training),
        train: (0, (0..NODES as NodeId).collect()),
        budget: 12_000,
        ..TypedOptions::default()
    }
}

#[test]
fn typed_minibatches_without_memory_are_errors_and_the_next_ones_are_right() {
    let _turn = alone();
    on_two_threads(|| {
        for entry in typed::TABLE.iter() {
            let (name, with) = (entry.name, typed_options(entry.name));
            let graph = with_added(name, &with, typed_graph(), &[0]).unwrap();
            let sampler = (entry.make.make)(&with, &graph).unwrap();
            let schema = graph.schema();
            for excludes in [false, true] {
                if excludes && entry.make.draws_subgraphs {
                    continue;
                }
                let seeds = || {
                    let mut seeds = TypedSeeds::of_type(schema, 0, 0, chosen());
                    if excludes {
                        seeds.excluded = vec![ExcludedEdges::default(); schema.num_relations()];
                        seeds.excluded[1] = first_edges(graph.relation(1));
                        seeds.excluded[2] = first_edges(graph.relation(2));
                    }
                    seeds
                };
                let request = TypedRequest {
                    aggregation: Aggregation::Sum,
                    positions: entry.make.names_edges,
                    ..TypedRequest::new(&graph, KEY).transposed()
                };
                check(
                    &format!("{name}, excludes: {excludes}"),
                    (|| TypedWorkspace::new(schema), seeds),
                    |workspace, seeds| sampler.sample(&request, workspace, seeds),
                    |batch| {
                        let blocks: Vec<_> = batch.blocks.iter().map(typed_edges).collect();
                        (batch.input_nodes.clone(), blocks)
                    },
                );
            }
        }
    });
}

#[test]
fn minibatches_with_times_without_memory_are_errors_and_the_next_ones_are_right() {
    let _turn = alone();
    let graph = typed_graph();
    let times = |relation: &Graph| {
        let time = |e: u64| (keyed::key(&[e]) % 1000) as i64;
        Some((0..relation.num_edges() as u64).map(time).collect::<Vec<i64>>().into())
    };
    let columns: Vec<_> = graph.relations().iter().map(times).collect();
    let timed = TimedGraph::new(graph.clone(), &columns, vec![None; 2]).unwrap();
    let rows = typed::TABLE.iter().filter(|entry| entry.make.at_times.is_some());
    let mut cases: Vec<(&str, TimeOptions)> =
        rows.map(|entry| (entry.name, TimeOptions::default())).collect();
    let neighbor = TimeOptions::default();
    cases.push(("neighbor", TimeOptions { time_draw: TimeDraw::Recency, time_half_life: 50.0, ..neighbor }));
    cases.push(("neighbor", TimeOptions { time_carry: TimeCarry::Edge, ..neighbor }));
    on_two_threads(|| {
        for (name, options) in cases {
            let mut with = typed_options(name);
            with.own = with.own.with(options);
            let graph = with_added(name, &with, graph.clone(), &[0]).unwrap();
            let timed = timed.clone().with_relations(graph).unwrap();
            let row = &typed::TABLE.find(name).unwrap().make;
            let sampler = (row.at_times.unwrap().make)(&with, &timed).unwrap();
            let request = TimeRequest {
                positions: row.at_times.unwrap().reads_draw,
                aggregation: Aggregation::Sum,
                ..TimeRequest::new(&timed, KEY).transposed()
            };
            let seeds = || {
                let times = (0..chosen().len() as i64).map(|i| 700 + i % 200).collect();
                TimeSeeds::new(0, vec![chosen(), Vec::new()], vec![times, Vec::new()])
            };
            check(
                &format!("{name} at times, {options:?}"),
                (|| TimeWorkspace::new(timed.schema()), seeds),
                |workspace, seeds| sampler.sample(&request, workspace, seeds),
                |batch| {
                    let blocks: Vec<_> = batch.sampled.blocks.iter().map(typed_edges).collect();
                    (batch.sampled.input_nodes.clone(), batch.row_times.clone(), blocks, batch.edges.clone())
                },
            );
        }
    });
}
