//! Ranks together sample and read the same as a single process.

use std::{sync::Arc, thread};

use graphmill_core::{Features, Graph, Matrix, NodeId, WholeDegrees, block::Aggregation, keyed};
use graphmill_data::partition::PartitionBook;
use graphmill_distributed::{
    Collective, Messenger, MessengerOptions, NodeOwnership, local,
    rows::{OwnedAndRemoteRows, ROWS, Remote, RowService, Table, bytes_of_rows},
    sampler::{Distributed, SAMPLE, bytes_of_a_hop},
};
use graphmill_loader::{
    BatchKey, BlockLayout, Feature, HopSampler, MinibatchSampler, Seeds, Workspace,
    feature::{Host, OutputRows},
    sampler::{
        BatchRequest, HopStack, WalkOptions,
        full::Full,
        labor::{Iterations, Labor, LaborOptions},
        neighbor::Neighbor,
        random_walk::RandomWalk,
        weighted::{EdgeWeights, Weighted, WeightedOptions},
    },
};

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
fn rows_match_the_whole_table() {
    let dim = 5;
    let table: Vec<f32> = (0..NODES * dim).map(|i| i as f32 * 0.37 - 40.0).collect();
    on_ranks(4, |post, book| {
        let rows: Vec<f32> = book.own().flat_map(|v| table[v as usize * dim..][..dim].to_vec()).collect();
        let own: Arc<dyn Feature> = Arc::new(Host::new(&Features::f32(dim, rows)));
        let own = Table::Constant(own);
        post.serve(ROWS, Arc::new(RowService::new(book.clone(), own.clone())));
        let all = Collective::new(post.clone());
        all.barrier(1).unwrap();
        let remote = Arc::new(Remote::new(post.clone(), book.clone(), ROWS, dim));
        let feature = OwnedAndRemoteRows::new(book.clone(), own, remote);
        let ids: Vec<NodeId> = (0..300).map(|i| (i * 131 + 7 * post.rank() as u32) % NODES as u32).collect();
        let mut out = Matrix::default();
        let traffic = feature.gather(&ids, &mut out).unwrap();
        let expected: Vec<f32> =
            ids.iter().flat_map(|&v| table[v as usize * dim..][..dim].to_vec()).collect();
        assert_eq!(out.view().host(), expected);
        let others = ids.iter().filter(|&&v| !book.is_own(v)).count() as u64;
        assert_eq!((traffic.remote.rows, traffic.host.rows), (others, ids.len() as u64 - others));
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
            .map(|rows| bytes_of_rows(rows, dim).iter().sum::<u64>())
            .sum();
        all.barrier(2).unwrap();
        let gathered = all.gather(3, &[2 * asked as u32, post.sent(ROWS).bytes as u32]).unwrap();
        let sums: Vec<u32> = (0..2).map(|i| gathered.iter().map(|words| words[i]).sum()).collect();
        assert_eq!(sums[0], sums[1]);
        let bad = post.ask((post.rank() + 1) % 4, ROWS, |words| words.push(NODES as u32)).wait();
        assert!(bad.unwrap_err().to_string().contains("different partitions"));
    });
}
