//! Ranks together sample and read the same as a single process.

use std::{sync::Arc, thread};

use graphmill_core::{
    Block, Features, Graph, Matrix, NodeId, WholeDegrees,
    block::Aggregation,
    keyed,
    matrix::TableType,
    options::OwnOptions,
    typed::{NodeType, Relation, Schema, TypedGraph},
};
use graphmill_data::partition::PartitionBook;
use graphmill_distributed::{
    Collective, Messenger, MessengerOptions, NodeOwnership,
    edges::{EDGE_ROWS, EdgeOwnership, EdgeRows},
    local,
    messenger::service_of_type,
    neighbors::STEP,
    rows::{OwnedAndRemoteRows, ROWS, Remote, RowService, Table, bytes_of_rows},
    sampler::{Distributed, SAMPLE, bytes_of_a_hop},
    times::TimesOverRanks,
    walks::StepsOverRanks,
};
use graphmill_loader::{
    BatchKey, BlockLayout, Feature, HopSampler, MinibatchSampler, Seeds, Workspace,
    feature::{Host, OutputRows},
    link::ExcludedEdges,
    sampler::{
        BatchRequest, HopRequest, HopScratch, HopStack, PathSource, WalkLength, WalkOptions,
        full::Full,
        labor::{Iterations, Labor, LaborOptions},
        neighbor::Neighbor,
        random_walk::RandomWalk,
        sample_remaining, sample_remaining_edges,
        weighted::{DrawBy, EdgeWeights, Weighted, WeightedOptions},
    },
    time::{
        TimeBatch, TimeBound, TimeCarry, TimeDraw, TimeOptions, TimeRequest, TimeSampler, TimeSeeds,
        TimeWorkspace, TimedGraph,
    },
    typed::{
        MetapathOptions, MetapathWalk, TypedOptions, TypedRequest, TypedSampler, TypedSeeds, TypedWorkspace,
        with_added,
    },
};

#[path = "as_one/left_out.rs"]
mod left_out;

const NODES: usize = 700;

/// Weighted graph of uneven degrees.
fn graph() -> Graph {
    let degree = |v: usize| if v % 60 == 1 { 150 } else { v * 7 % 13 };
    let mut indptr = vec![0u64];
    let (mut indices, mut weights) = (Vec::new(), Vec::new());
    for v in 0..NODES {
        for e in 0..degree(v) {
            let draw = keyed::key(&[v as u64, e as u64]);
            indices.push((draw % NODES as u64) as NodeId);
            weights.push((draw >> 40) as f32 % 9.0 + 0.5);
        }
        indptr.push(indices.len() as u64);
    }
    Graph::new(indptr.into(), indices.into()).unwrap().with_edge_weight(weights.into()).unwrap()
}

/// The same graph with only the edges of the nodes that the map's rank owns.
fn part(graph: &Graph, book: &NodeOwnership) -> Graph {
    let mut indptr = vec![0u64];
    let (mut indices, mut weights) = (Vec::new(), Vec::new());
    for v in 0..NODES as NodeId {
        if book.is_own(v) {
            let row = graph.indptr()[v as usize] as usize..graph.indptr()[v as usize + 1] as usize;
            indices.extend_from_slice(&graph.indices()[row.clone()]);
            weights.extend_from_slice(&graph.edge_weight().unwrap()[row]);
        }
        indptr.push(indices.len() as u64);
    }
    Graph::new(indptr.into(), indices.into()).unwrap().with_edge_weight(weights.into()).unwrap()
}

/// Positions in the whole graph of the edges into the nodes of a rank.
fn positions(graph: &Graph, book: &NodeOwnership) -> Vec<u64> {
    let row = |v: NodeId| graph.indptr()[v as usize]..graph.indptr()[v as usize + 1];
    book.own().flat_map(row).collect()
}

/// Owners of the edges, and the position in the whole graph of each edge by its number over all
/// ranks.
fn numbered(graph: &Graph, book: &NodeOwnership) -> (EdgeOwnership, Vec<u64>) {
    let of_rank = |rank| NodeOwnership::new(book.parts().clone(), rank, book.size()).unwrap();
    let all: Vec<Vec<u64>> = (0..book.size()).map(|rank| positions(graph, &of_rank(rank))).collect();
    let counts: Vec<usize> = all.iter().map(Vec::len).collect();
    (EdgeOwnership::new(&counts, book.rank()).unwrap(), all.concat())
}

fn on_ranks<T: Send>(size: usize, run: impl Fn(Arc<Messenger>, Arc<NodeOwnership>) -> T + Sync) -> Vec<T> {
    let parts: Vec<u16> = (0..NODES as u64).map(|v| (keyed::key(&[v]) % 5) as u16).collect();
    let (run, parts) = (&run, &parts);
    thread::scope(|scope| {
        let start = |end| {
            scope.spawn(move || {
                let post = Messenger::start(MessengerOptions::default(), move || Ok(end)).unwrap();
                let book = NodeOwnership::new(
                    PartitionBook::new(5, parts.clone()).unwrap(),
                    post.rank(),
                    post.size(),
                )
                .unwrap();
                let all = Collective::new(post.clone());
                let out = run(post.clone(), Arc::new(book));
                all.barrier(u64::MAX).unwrap();
                post.close().unwrap();
                out
            })
        };
        let ranks: Vec<_> = local(size).into_iter().map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn blocks_match_a_single_process_and_traffic_matches_the_prediction() {
    let graph = graph();
    type Make = fn(&Graph) -> Arc<dyn HopSampler>;
    let makes: [Make; 3] = [
        |_| Arc::new(Neighbor::new([5, 3, -1]).unwrap()),
        |_| Arc::new(Full::new(2).unwrap()),
        |graph| {
            Arc::new(Weighted::new(graph, [6, 4], &WeightedOptions::default(), EdgeWeights::Stored).unwrap())
        },
    ];
    for (make, size) in makes.iter().zip([3, 2, 4]) {
        let sampler = HopStack::from(make(&graph));
        let form = BlockLayout { aggregation: Aggregation::Sum, ..BlockLayout::default() };
        let sample = |sampler: &HopStack, graph: &Graph, number: u64| {
            let seeds: Vec<NodeId> = (0..40).map(|i| (i * 17 + number as u32 * 3) % NODES as u32).collect();
            let request = BatchRequest::new(graph, BatchKey { seed: 9, epoch: 2, batch: number });
            let seeds = Seeds::new(number, seeds);
            sampler.sample(&request.with_layout(form), &mut Workspace::new(NODES), seeds).unwrap()
        };
        on_ranks(size, |post, book| {
            let own = part(&graph, &book);
            let distributed = Distributed::new(make(&own), post.clone(), book.clone()).unwrap();
            distributed.serve(&own);
            let stacked = HopStack::new(distributed);
            let all = Collective::new(post.clone());
            all.barrier(1).unwrap();
            let (mut asks, mut answers) = (0, 0);
            for number in 0..4 {
                let (one, together) = (sample(&sampler, &graph, number), sample(&stacked, &own, number));
                assert_eq!(one.input_nodes, together.input_nodes);
                for (a, b) in one.blocks.iter().zip(&together.blocks) {
                    assert_eq!((&a.indptr, &a.indices), (&b.indptr, &b.indices));
                    assert_eq!(a.edge_weight, b.edge_weight);
                }
                for block in &one.blocks {
                    for owner in post.others() {
                        let mine = |i: &usize| book.owner(one.input_nodes[*i]) == owner;
                        let nodes: Vec<usize> = (0..block.num_dst).filter(mine).collect();
                        let edges = nodes.iter().map(|&i| (block.indptr[i + 1] - block.indptr[i]) as usize);
                        if !nodes.is_empty() {
                            let weighted = !block.edge_weight.is_empty();
                            let [ask, answer] = bytes_of_a_hop(nodes.len(), edges.sum(), weighted);
                            asks += ask;
                            answers += answer;
                        }
                    }
                }
            }
            all.barrier(2).unwrap();
            // All ranks send the same requests here, so in total the replies match the requests.
            let said = [asks + answers, post.sent(SAMPLE).bytes].map(|bytes| bytes as u32);
            let gathered = all.gather(3, &said).unwrap();
            let sums: Vec<u32> = (0..2).map(|i| gathered.iter().map(|words| words[i]).sum()).collect();
            assert_eq!(sums[0], sums[1]);
        });
    }
}

#[test]
fn samplers_of_several_lists_draw_the_blocks_of_a_single_process() {
    let graph = graph();
    let degrees: Vec<u32> = (0..NODES as NodeId).map(|v| graph.in_degree(v) as u32).collect();
    let walks = WalkOptions { num_walks: 6, restart_prob: 0.2 };
    let (by_degree, iterations) = (
        EdgeWeights::InverseInDegree,
        LaborOptions { labor_iterations: Iterations(2), ..LaborOptions::default() },
    );
    type Make<'m> = Box<dyn Fn(&Graph) -> Arc<dyn HopSampler> + Sync + 'm>;
    let makes: [Make; 4] = [
        Box::new(|_| Arc::new(RandomWalk::new([5, 3], &walks, 3).unwrap())),
        Box::new(|graph| {
            Arc::new(Labor::with_options(graph, [6, 4], &iterations, EdgeWeights::Stored, 0).unwrap())
        }),
        Box::new(|graph| Arc::new(Labor::with_options(graph, [6, -1], &iterations, by_degree, 0).unwrap())),
        Box::new(|graph| {
            Arc::new(Weighted::new(graph, [6, 4], &WeightedOptions::default(), by_degree).unwrap())
        }),
    ];
    for make in &makes {
        let sampler = HopStack::from(make(&graph));
        let form = BlockLayout { aggregation: Aggregation::Sum, ..BlockLayout::default() };
        let sample = |sampler: &HopStack, graph: &Graph, number: u64| {
            let seeds: Vec<NodeId> = (0..50).map(|i| (i * 13 + number as u32 * 3) % NODES as u32).collect();
            let request = BatchRequest::new(graph, BatchKey { seed: 9, epoch: 2, batch: number });
            let seeds = Seeds::new(number, seeds);
            sampler.sample(&request.with_layout(form), &mut Workspace::new(NODES), seeds).unwrap()
        };
        on_ranks(3, |post, book| {
            let whole = WholeDegrees { of_in: degrees.clone().into(), of_out: None };
            let own = part(&graph, &book).with_whole_degrees(whole);
            let distributed = Distributed::new(make(&own), post.clone(), book).unwrap();
            let distributed = distributed.with_degrees(degrees.clone().into());
            distributed.serve(&own);
            let stacked = HopStack::new(distributed);
            Collective::new(post).barrier(1).unwrap();
            for number in 0..3 {
                let (one, together) = (sample(&sampler, &graph, number), sample(&stacked, &own, number));
                assert_eq!(one.input_nodes, together.input_nodes);
                for (a, b) in one.blocks.iter().zip(&together.blocks) {
                    assert_eq!((&a.indptr, &a.indices), (&b.indptr, &b.indices));
                    assert_eq!(a.edge_weight, b.edge_weight);
                }
            }
        });
    }
}

#[test]
fn rows_match_the_whole_table_and_have_the_bytes_of_its_type() {
    let dim = 5;
    let values: Vec<f32> = (0..NODES * dim).map(|i| i as f32 * 0.37 - 40.0).collect();
    for (_, kind) in TableType::ALL {
        let whole = Host::resident(&Features::f32(dim, values.clone()), kind).unwrap();
        let mut table = vec![0.0; NODES * dim];
        whole.read(&(0..NODES as NodeId).collect::<Vec<_>>(), &mut table).unwrap();
        rows_match(dim, &table, kind);
    }
}

/// Asserts that ranks read the rows of `table`, which they store in values of type `kind`.
fn rows_match(dim: usize, table: &[f32], kind: TableType) {
    on_ranks(4, |post, book| {
        let rows: Vec<f32> = book.own().flat_map(|v| table[v as usize * dim..][..dim].to_vec()).collect();
        let own: Arc<dyn Feature> = Arc::new(Host::resident(&Features::f32(dim, rows), kind).unwrap());
        let own = Table::Constant(own);
        post.serve(ROWS, Arc::new(RowService::new(book.clone(), own.clone())));
        let all = Collective::new(post.clone());
        all.barrier(1).unwrap();
        let remote = Remote::new(post.clone(), book.clone(), ROWS, dim).stored_in(kind);
        assert_eq!(remote.row_bytes(), (dim * kind.width()) as u64);
        let remote = Arc::new(remote);
        let feature = OwnedAndRemoteRows::new(book.clone(), own, remote);
        let ids: Vec<NodeId> = (0..300).map(|i| (i * 131 + 7 * post.rank() as u32) % NODES as u32).collect();
        let mut out = Matrix::default();
        let traffic = feature.gather(&ids, &mut out).unwrap();
        let expected: Vec<f32> =
            ids.iter().flat_map(|&v| table[v as usize * dim..][..dim].to_vec()).collect();
        assert_eq!(out.view().host(), expected);
        let others = ids.iter().filter(|&&v| !book.is_own(v)).count() as u64;
        assert_eq!((traffic.remote.rows, traffic.host.rows), (others, ids.len() as u64 - others));
        assert_eq!(traffic.remote.bytes, others * (dim * kind.width()) as u64);
        let mut sparse = vec![-1.0; 2 * ids.len() * dim];
        let at: Vec<u32> = (0..ids.len() as u32).map(|i| 2 * i + 1).collect();
        feature.read_to(&ids, OutputRows::At(&at), &mut sparse).unwrap();
        for (i, rows) in sparse.chunks(2 * dim).enumerate() {
            assert_eq!(rows[..dim], [-1.0; 5]);
            assert_eq!(rows[dim..], expected[i * dim..][..dim]);
        }
        let asked: u64 = post
            .others()
            .map(|to| ids.iter().filter(|&&v| book.owner(v) == to).count())
            .map(|rows| bytes_of_rows(rows, dim, kind).iter().sum::<u64>())
            .sum();
        all.barrier(2).unwrap();
        let gathered = all.gather(3, &[2 * asked as u32, post.sent(ROWS).bytes as u32]).unwrap();
        let sums: Vec<u32> = (0..2).map(|i| gathered.iter().map(|words| words[i]).sum()).collect();
        assert_eq!(sums[0], sums[1]);
        let bad = post.ask((post.rank() + 1) % 4, ROWS, |words| words.push(NODES as u32)).wait();
        assert!(bad.unwrap_err().to_string().contains("different partitions"));
    });
}

#[test]
fn edges_of_blocks_are_named_over_ranks_and_their_rows_are_those_of_the_whole_table() {
    let graph = graph();
    let row = |edge: u64| [edge as f32, -0.5 * edge as f32];
    type Make = fn() -> Arc<dyn HopSampler>;
    let makes: [Make; 2] = [|| Arc::new(Neighbor::new([5, 3]).unwrap()), || Arc::new(Full::new(2).unwrap())];
    for (make, size) in makes.into_iter().zip([3, 2]) {
        on_ranks(size, |post, book| {
            let own = part(&graph, &book);
            let (owners, position_of) = numbered(&graph, &book);
            let rows: Vec<f32> = positions(&graph, &book).into_iter().flat_map(row).collect();
            let rows = Arc::new(Host::new(&Features::f32(2, rows)));
            let distributed = Distributed::new(make(), post.clone(), book.clone()).unwrap();
            assert!(distributed.by_edges().is_none());
            let distributed = distributed.naming_edges(owners.first());
            distributed.serve(&own);
            let rows = EdgeRows::serve(post.clone(), Arc::new(owners), EDGE_ROWS, rows);
            Collective::new(post).barrier(1).unwrap();
            let dst: Vec<NodeId> = (0..60).map(|i| i * 11 % NODES as NodeId).collect();
            let key = BatchKey { seed: 9, epoch: 2, batch: 4 };
            let draw = |sampler: &dyn HopSampler, graph: &Graph, excluded: Option<&ExcludedEdges>| {
                let request = HopRequest { excluded, ..HopRequest::new(graph, 1, &dst, key) };
                let (mut scratch, mut block, mut named) =
                    (HopScratch::default(), Block::default(), Vec::new());
                sample_remaining_edges(sampler, &request, &mut scratch, &mut block, &mut named).unwrap();
                (block.indptr, block.indices, named)
            };
            let excluded = left_out::some_edges(&graph, &dst);
            for excluded in [Some(&excluded), None] {
                let (one, together) = (draw(&*make(), &graph, excluded), draw(&distributed, &own, excluded));
                assert_eq!((&one.0, &one.1), (&together.0, &together.1));
                let found: Vec<u64> = together.2.iter().map(|&number| position_of[number as usize]).collect();
                assert_eq!(one.2, found);
            }
            let together = draw(&distributed, &own, None);
            let found: Vec<u64> = together.2.iter().map(|&number| position_of[number as usize]).collect();
            let ids: Vec<NodeId> = together.2.iter().map(|&number| number as NodeId).collect();
            let mut out = Matrix::default();
            rows.gather(&ids, &mut out).unwrap();
            assert_eq!(out.view().host(), found.into_iter().flat_map(row).collect::<Vec<f32>>());
            assert!(rows.gather(&[rows.num_rows() as NodeId], &mut out).is_err());
        });
    }
}

const ITEMS: usize = 90;

/// Graph of users and items whose edges, and items, have times; some exist always.
fn timed(keep: impl Fn(usize, NodeId) -> bool) -> TimedGraph {
    let types = vec![NodeType::new("user", NODES), NodeType::new("item", ITEMS)];
    let ends = [(0, 1), (1, 0), (0, 0)];
    let relations = ends.iter().map(|&(src, dst)| Relation::new(src, format!("{src}-{dst}"), dst));
    let schema = Schema::new(types, relations.collect()).unwrap();
    let count = |t: usize| schema.types()[t].count;
    let time = |draw: u64| if draw.is_multiple_of(9) { i64::MIN } else { (draw >> 20) as i64 % 50 - 20 };
    let (mut graphs, mut times) = (Vec::new(), Vec::new());
    for (r, &(src, dst)) in ends.iter().enumerate() {
        let (mut indptr, mut indices, mut of_edges) = (vec![0u64], Vec::new(), Vec::new());
        for v in 0..count(dst) {
            let degree = if keep(dst, v as NodeId) { (v * 7 + r) % 23 } else { 0 };
            for e in 0..degree {
                let draw = keyed::key(&[r as u64, v as u64, e as u64]);
                indices.push((draw % count(src) as u64) as NodeId);
                of_edges.push(time(draw));
            }
            indptr.push(indices.len() as u64);
        }
        graphs.push(Graph::of_sound_edges(indptr.into(), indices.into(), None).unwrap());
        times.push((r != 2).then(|| of_edges.into()));
    }
    let of_items: Vec<i64> = (0..ITEMS as u64).map(|v| time(keyed::key(&[3, v]))).collect();
    let graph = TypedGraph::new(schema, graphs).unwrap();
    TimedGraph::new(graph, &times, vec![None, Some(of_items.into())]).unwrap()
}

/// Owners of the users, of which `book` is the map, and of the items.
fn with_items(book: Arc<NodeOwnership>) -> Vec<Arc<NodeOwnership>> {
    let parts: Vec<u16> = (0..ITEMS as u16).map(|v| v % 5).collect();
    let of_items = NodeOwnership::new(PartitionBook::new(5, parts).unwrap(), book.rank(), book.size());
    vec![book, Arc::new(of_items.unwrap())]
}

/// Asserts that the edges of a batch exist at `time`, by their positions in the whole graph.
fn assert_none_is_newer(batch: &TimeBatch, whole: &TimedGraph, bound: TimeBound, time: i64) {
    for (block, edges) in batch.sampled.blocks.iter().zip(&batch.edges) {
        for (r, relation) in whole.schema().relations().iter().enumerate() {
            let (slice, index) = (&block.relations[r], whole.time_index(r));
            for v in 0..slice.num_dst {
                let node = batch.sampled.input_nodes[relation.dst][v] as usize;
                let start = whole.graph().relation(r).indptr()[node];
                let end = whole.graph().relation(r).indptr()[node + 1];
                for &edge in &edges[r][slice.edges(v)] {
                    let place = (0..(end - start) as u32).find(|&i| index.position(start, i) == edge);
                    let visible = index.time(start, place.unwrap());
                    assert!(bound.admits(visible, time), "{visible} {time}");
                }
            }
        }
    }
}

#[test]
fn blocks_of_times_match_a_single_process_and_no_edge_is_newer_than_its_seed() {
    let whole = timed(|_, _| true);
    let schema = whole.schema();
    for (size, draw, bound, carry, window) in [
        (2, TimeDraw::Uniform, TimeBound::Strict, TimeCarry::Seed, 0),
        (3, TimeDraw::Last, TimeBound::Inclusive, TimeCarry::Seed, 0),
        (4, TimeDraw::Recency, TimeBound::Inclusive, TimeCarry::Edge, 0),
        (3, TimeDraw::Uniform, TimeBound::Strict, TimeCarry::Seed, 15),
        (1, TimeDraw::Uniform, TimeBound::Strict, TimeCarry::Edge, 0),
    ] {
        let options = TimeOptions {
            time_draw: draw,
            time_bound: bound,
            time_carry: carry,
            time_window: window,
            time_half_life: 5.0,
        };
        let sampler = TimeSampler::new(schema, &"4,3,-1".parse().unwrap(), options).unwrap();
        on_ranks(size, |post, book| {
            let owners = with_items(book);
            let own = Arc::new(timed(|t, v| owners[t].is_own(v)));
            let of_relation =
                |r: usize| numbered(whole.graph().relation(r), &owners[schema.relations()[r].dst]);
            let (edges, position_of): (Vec<_>, Vec<_>) = (0..3).map(of_relation).unzip();
            let first = edges.iter().map(EdgeOwnership::first).collect();
            let rows = TimesOverRanks::serve(post.clone(), owners, (own.clone(), options), first);
            Collective::new(post).barrier(1).unwrap();
            let mut workspace = TimeWorkspace::new(schema);
            // batches of several times, and of one
            for (number, spread) in [(0u64, 7), (1, 30), (2, 1)] {
                let key = BatchKey { seed: 5, epoch: 1, batch: number };
                let users: Vec<NodeId> = (0..40).map(|i| i * 17 % NODES as NodeId).collect();
                let times: Vec<i64> = users.iter().map(|v| 10 + i64::from(v % spread)).collect();
                let seeds =
                    || TimeSeeds::new(number, vec![users.clone(), vec![]], vec![times.clone(), vec![]]);
                let of = TimeRequest::new(&whole, key).transposed();
                let one = sampler.sample(&of, &mut workspace, seeds()).unwrap();
                let of = TimeRequest::new(&own, key).transposed();
                let mut together = sampler.sample_from(&rows, &of, &mut workspace, seeds()).unwrap();
                for of_block in &mut together.edges {
                    for (numbers, position_of) in of_block.iter_mut().zip(&position_of) {
                        numbers.iter_mut().for_each(|number| *number = position_of[*number as usize]);
                    }
                }
                assert_eq!(one.sampled.input_nodes, together.sampled.input_nodes);
                assert_eq!((&one.row_times, &one.edges), (&together.row_times, &together.edges));
                for (a, b) in one.sampled.blocks.iter().zip(&together.sampled.blocks) {
                    for (a, b) in a.relations.iter().zip(&b.relations) {
                        assert_eq!((&a.indptr, &a.indices), (&b.indptr, &b.indices));
                    }
                }
                let unnamed = TimeRequest { positions: false, ..of };
                let unnamed = sampler.sample_from(&rows, &unnamed, &mut workspace, seeds()).unwrap();
                assert_eq!(unnamed.sampled.input_nodes, one.sampled.input_nodes);
                if spread == 1 {
                    assert_none_is_newer(&together, &whole, bound, 10);
                }
            }
        });
    }
}

#[test]
fn walks_along_metapaths_match_a_single_process() {
    for (size, metapath, fanout, types) in [
        (3, "1-0,0-1", "5,3", &[0][..]),
        (4, "0-0,1-0,0-1;0-1,1-0", "4,-1", &[0, 1]),
        (1, "1-0,0-1", "3", &[0]),
    ] {
        let own = OwnOptions::default()
            .with(MetapathOptions { metapath: metapath.into() })
            .with(WalkOptions { num_walks: 6, restart_prob: 0.2 })
            .with(WalkLength { walk_length: 2 });
        let with = TypedOptions { fanout: fanout.parse().unwrap(), own, ..TypedOptions::default() };
        let added =
            |graph: &TimedGraph| with_added("metapath-walk", &with, graph.graph().clone(), types).unwrap();
        let whole = added(&timed(|_, _| true));
        let sampler = MetapathWalk::new(&with, whole.schema()).unwrap();
        on_ranks(size, |post, book| {
            let owners = with_items(book);
            let own = added(&timed(|t, v| owners[t].is_own(v)));
            let steps = StepsOverRanks::serve(post.clone(), owners, own.clone());
            let together = sampler.by_steps(&(Arc::new(steps) as Arc<dyn PathSource>)).unwrap();
            Collective::new(post.clone()).barrier(1).unwrap();
            let mut workspace = TypedWorkspace::new(whole.schema());
            for number in 0..3u64 {
                let mut sample = |sampler: &dyn TypedSampler, graph: &TypedGraph| {
                    let nodes = |step: u32, count: usize| {
                        (0..20).map(|i| (i * step + number as u32) % count as u32).collect::<Vec<NodeId>>()
                    };
                    let mut seeds = vec![nodes(17, NODES), Vec::new()];
                    if types.contains(&1) {
                        seeds[1] = nodes(7, ITEMS);
                    }
                    let key = BatchKey { seed: 5, epoch: 1, batch: number };
                    let request =
                        TypedRequest { aggregation: Aggregation::Mean, ..TypedRequest::new(graph, key) };
                    sampler.sample(&request, &mut workspace, TypedSeeds::new(number, seeds)).unwrap()
                };
                let (a, b) = (sample(&sampler, &whole), sample(&*together, &own));
                assert_eq!(a.input_nodes, b.input_nodes);
                assert!(a.num_edges() > 30);
                for (a, b) in a.blocks.iter().zip(&b.blocks) {
                    for (a, b) in a.relations.iter().zip(&b.relations) {
                        assert_eq!((&a.indptr, &a.indices), (&b.indptr, &b.indices));
                        assert_eq!(a.edge_weight, b.edge_weight);
                    }
                }
            }
            if size > 1 {
                let other = (post.rank() + 1) % size;
                let asked =
                    post.ask(other, service_of_type(STEP, 0), |words| words.extend([ITEMS as u32, 0, 0]));
                assert!(asked.wait().unwrap_err().to_string().contains("different partitions"));
            }
        });
    }
}
