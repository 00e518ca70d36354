//! A minibatch over ranks whose memory is refused is an error, and the next one with the same
//! buffers is right. Messages are shorter than a frame, so no driver has to join frames.

use std::{sync::Arc, thread};

use graphmill_core::{
    Block, Features, Graph, Matrix, NodeId, SparseRows, WholeDegrees,
    block::Aggregation,
    keyed,
    matrix::TableType,
    typed::{NodeType, Relation, Schema, TypedGraph},
};
use graphmill_data::partition::PartitionBook;
use graphmill_distributed::{
    Collective, Messenger, MessengerOptions, NodeOwnership,
    edges::EdgeOwnership,
    local,
    rows::{OwnedAndRemoteRows, ROWS, Remote, RowService, Table},
    sampler::Distributed,
    sparse::{SparseRankRows, SparseRowService},
    times::TimesOverRanks,
};
use graphmill_loader::{
    BatchKey, BlockLayout, Feature, HopSampler, MinibatchSampler, Seeds, Workspace,
    feature::Host,
    link::{ExcludedEdges, LinkBatch},
    sampler::{
        BatchRequest, HopStack,
        labor::{Iterations, Labor, LaborOptions},
        neighbor::Neighbor,
        random_walk::{RandomWalk, WalkOptions},
        weighted::EdgeWeights,
    },
    time::{
        TimeBound, TimeCarry, TimeDraw, TimeOptions, TimeRequest, TimeSampler, TimeSeeds, TimeWorkspace,
        TimedGraph,
    },
};

#[path = "../../loader/tests/allocator/mod.rs"]
mod allocator;

use allocator::{alone, check};

const NODES: usize = 20_000;
const DIM: usize = 8;
const KEY: BatchKey = BatchKey { seed: 9, epoch: 2, batch: 5 };

/// Twelve random in-neighbours, with weights, of each node for which `has` is true.
fn graph_of(has: impl Fn(NodeId) -> bool, is_weighted: bool) -> Graph {
    let (mut indptr, mut indices) = (vec![0u64], Vec::new());
    for v in 0..NODES as NodeId {
        if has(v) {
            let draw = |e: u64| (keyed::key(&[v.into(), e]) % NODES as u64) as NodeId;
            indices.extend((0..12).map(draw));
        }
        indptr.push(indices.len() as u64);
    }
    let weights: Vec<f32> = indices.iter().map(|u| 0.5 + (u % 7) as f32).collect();
    let graph = Graph::new(indptr.into(), indices.into()).unwrap();
    if is_weighted { graph.with_edge_weight(weights.into()).unwrap() } else { graph }
}

/// Runs `run` on two ranks that are threads.
fn on_ranks(run: impl Fn(&Arc<Messenger>, &Arc<NodeOwnership>) + Sync) {
    let parts: Vec<u16> = (0..NODES as u64).map(|v| (keyed::key(&[v]) % 2) as u16).collect();
    let (run, parts) = (&run, &parts);
    thread::scope(|scope| {
        for end in local(2) {
            scope.spawn(move || {
                let post = Messenger::start(MessengerOptions::default(), move || Ok(end)).unwrap();
                let parts = PartitionBook::new(2, parts.clone()).unwrap();
                let book = Arc::new(NodeOwnership::new(parts, post.rank(), post.size()).unwrap());
                let all = Collective::new(post.clone());
                run(&post, &book);
                all.barrier(u64::MAX).unwrap();
                post.close().unwrap();
            });
        }
    });
}

fn chosen(count: NodeId) -> Vec<NodeId> {
    (0..count).map(|i| 33 * i).collect()
}

/// Ends, sources and weights of a block.
fn edges(block: &Block) -> (Vec<u32>, Vec<NodeId>, Vec<u32>) {
    let weights = block.edge_weight.iter().map(|weight| weight.to_bits());
    (block.indptr.clone(), block.indices.clone(), weights.collect())
}

#[test]
fn minibatches_over_ranks_without_memory_are_errors_and_the_next_ones_are_right() {
    let _turn = alone();
    type Make = fn(&Graph) -> Arc<dyn HopSampler>;
    let makes: [(&str, bool, Make); 4] = [
        ("neighbor", false, |_| Arc::new(Neighbor::new([6, 5]).unwrap())),
        ("labor", true, |graph| {
            let options = LaborOptions::default();
            Arc::new(Labor::with_options(graph, [6, 5], &options, EdgeWeights::Stored, 0).unwrap())
        }),
        ("labor with iterations", false, |graph| {
            let iterations = LaborOptions { labor_iterations: Iterations(2), ..LaborOptions::default() };
            Arc::new(Labor::with_options(graph, [6, 5], &iterations, EdgeWeights::Stored, 0).unwrap())
        }),
        ("random-walk", false, |_| {
            let walks = WalkOptions { num_walks: 4, restart_prob: 0.2 };
            Arc::new(RandomWalk::new([6, 5], &walks, 3).unwrap())
        }),
    ];
    let degrees: Vec<u32> = vec![12; NODES];
    for (name, is_weighted, make) in makes {
        on_ranks(|post, book| {
            let whole = WholeDegrees { of_in: degrees.clone().into(), of_out: None };
            let own = graph_of(|v| book.is_own(v), is_weighted).with_whole_degrees(whole);
            let sampler = Distributed::new(make(&own), post.clone(), book.clone()).unwrap();
            let sampler = sampler.with_degrees(degrees.clone().into());
            sampler.serve(&own);
            let sampler = HopStack::new(sampler);
            Collective::new(post.clone()).barrier(1).unwrap();
            if post.rank() > 0 {
                return;
            }
            let layout = BlockLayout { aggregation: Aggregation::Sum, ..BlockLayout::default() };
            let request = BatchRequest::new(&own, KEY).with_layout(layout);
            let all = graph_of(|v| v % 33 == 0, false);
            for excludes in [false, true] {
                let seeds = || {
                    let mut seeds = Seeds::new(0, chosen(250));
                    let mut excluded = ExcludedEdges::default();
                    excluded.refill(chosen(250).into_iter().map(|v| (all.in_neighbors(v)[0], v)));
                    let mut links = Box::<LinkBatch>::default();
                    links.excluded = excluded;
                    seeds.links = excludes.then_some(links);
                    seeds
                };
                check(
                    &format!("{name}, excludes: {excludes}"),
                    (|| Workspace::new(NODES), seeds),
                    |workspace, seeds| sampler.sample(&request, workspace, seeds),
                    |batch| (batch.input_nodes.clone(), batch.blocks.iter().map(edges).collect::<Vec<_>>()),
                );
            }
        });
    }
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
fn rows_of_ranks_without_memory_are_errors_and_the_next_ones_are_right() {
    let _turn = alone();
    on_ranks(|post, book| {
        let nodes: Vec<NodeId> = book.own().collect();
        let values = |&v: &NodeId| (0..DIM as u32).map(move |i| (v % 100 * 10 + i) as f32);
        let dense = Features::f32(DIM, nodes.iter().flat_map(values).collect::<Vec<f32>>());
        let table = Table::Constant(Arc::new(Host::resident(&dense, TableType::F16).unwrap()));
        post.serve(ROWS, Arc::new(RowService::new(book.clone(), table.clone())));
        let remote = Remote::new(post.clone(), book.clone(), ROWS, DIM).stored_in(TableType::F16);
        let dense = OwnedAndRemoteRows::new(book.clone(), table, Arc::new(remote));
        // two values in each row
        let ends: Vec<u64> = (0..=nodes.len() as u64).map(|i| 2 * i).collect();
        let columns: Vec<u32> = nodes.iter().flat_map(|v| [v % 5, 5 + v % 7]).collect();
        let values: Vec<f32> = nodes.iter().flat_map(|&v| [v as f32, 0.5]).collect();
        let sparse = SparseRows::new(12, ends.into(), columns.into(), values.into()).unwrap();
        let own: Arc<dyn Feature> = Arc::new(Host::new(&Features::csr(sparse)));
        post.serve(ROWS + 1, Arc::new(SparseRowService::new(book.clone(), own.clone())));
        let sparse = SparseRankRows::new(post.clone(), book.clone(), ROWS + 1, own, 2);
        Collective::new(post.clone()).barrier(1).unwrap();
        if post.rank() > 0 {
            return;
        }
        // more rows than their ids and values need for large requests
        let ids: Vec<NodeId> = (0..5200).map(|i| 3 * i).collect();
        let tiers: [(&str, &dyn Feature, usize); 2] = [("dense", &dense, 3000), ("sparse", &sparse, 5200)];
        for (name, rows, count) in tiers {
            check(
                name,
                (Matrix::default, || &ids[..count]),
                |out, ids| rows.gather(ids, out).map(|_| std::mem::take(out)),
                bits,
            );
        }
    });
}

#[test]
fn minibatches_with_times_over_ranks_without_memory_are_errors_and_the_next_ones_are_right() {
    let _turn = alone();
    let schema = Schema::new(vec![NodeType::new("a", NODES)], vec![Relation::new(0, "to", 0)]).unwrap();
    for (time_draw, time_carry) in
        [(TimeDraw::Uniform, TimeCarry::Seed), (TimeDraw::Recency, TimeCarry::Edge)]
    {
        let options = TimeOptions {
            time_draw,
            time_carry,
            time_bound: TimeBound::Strict,
            time_half_life: 50.0,
            ..TimeOptions::default()
        };
        let sampler = TimeSampler::new(&schema, &"6,5".parse().unwrap(), options).unwrap();
        on_ranks(|post, book| {
            let graph = graph_of(|v| book.is_own(v), false);
            let times: Vec<i64> = graph.indices().iter().map(|&u| i64::from(u % 1000)).collect();
            let counts: Vec<usize> = (0..2)
                .map(|rank| {
                    let parts = book.parts().clone();
                    12 * NodeOwnership::new(parts, rank, 2).unwrap().num_own()
                })
                .collect();
            let first = EdgeOwnership::new(&counts, post.rank()).unwrap().first();
            let graph = TypedGraph::new(schema.clone(), vec![graph]).unwrap();
            let own = Arc::new(TimedGraph::new(graph, &[Some(times.into())], vec![None]).unwrap());
            let rows =
                TimesOverRanks::serve(post.clone(), vec![book.clone()], (own.clone(), options), vec![first]);
            Collective::new(post.clone()).barrier(1).unwrap();
            if post.rank() > 0 {
                return;
            }
            let request = TimeRequest::new(&own, KEY).transposed();
            let seeds = || TimeSeeds::of_nodes(0, chosen(150), (0..150).map(|i| 700 + i % 200).collect());
            check(
                &format!("{options:?}"),
                (|| TimeWorkspace::new(&schema), seeds),
                |workspace, seeds| sampler.sample_from(&rows, &request, workspace, seeds),
                |batch| {
                    let blocks: Vec<_> =
                        batch.sampled.blocks.iter().map(|block| edges(&block.relations[0])).collect();
                    (batch.sampled.input_nodes.clone(), batch.row_times.clone(), blocks, batch.edges.clone())
                },
            );
        });
    }
}
