//! Speed of minibatch sampling, on an R-MAT graph of 2^20 nodes and 16 million edges.
//!
//! `cargo bench -p graphmill-loader --bench sampling [-- NAME]` prints rates as the best of a few
//! runs: on one thread and on all, with one batch per thread; a single large batch over all
//! threads; and the two relabelling tables against each other. Every run takes at least about ten
//! milliseconds.

use std::{collections::HashMap, hint::black_box, time::Instant};

use graphmill_core::{
    Graph, NodeId,
    keyed::{self, Stream},
    options::OwnOptions,
};
use graphmill_data::generate::{GenerateOptions, generate};
use graphmill_loader::{
    BatchKey, BlockLayout, MiniBatch, MinibatchSampler, Sampled, Seeds, Workspace,
    compact::{dense::Dense, table::Table},
    sampler::{
        BatchRequest, HopStack, SamplerOptions, Source, TABLE, WeightOptions, WeightedOptions,
        labor::{Iterations, LaborDraws, LaborOptions},
        neighbor::Neighbor,
        weighted::{DrawBy, EdgeWeights},
    },
};
use rayon::{ThreadPool, prelude::*};

const FANOUTS: [&[i64]; 2] = [&[15, 10, 5], &[10, 25]];

fn rmat(scale: u32) -> Graph {
    let options = GenerateOptions {
        scale,
        initiator: [[0.57, 0.19], [0.19, 0.05]],
        degree: Some(16.0),
        directed: true,
        dim: 0,
        ..GenerateOptions::default()
    };
    generate("kronecker", &options).expect("a graph").graph.to_huge_pages().expect("memory")
}

/// Reference loop for comparison: Floyd's algorithm, a hash map, and one neighbour at a time.
/// Returns the number of edges.
fn plain(graph: &Graph, fanout: &[i64], seeds: &[NodeId]) -> usize {
    let mut nodes = seeds.to_vec();
    let mut local: HashMap<NodeId, u32> = seeds.iter().copied().zip(0..).collect();
    let mut edges = 0;
    for &k in fanout {
        let mut indices = Vec::new();
        for i in 0..nodes.len() {
            let row = graph.in_neighbors(nodes[i]);
            let mut positions: Vec<u64> = (0..row.len() as u64).collect();
            if row.len() > k as usize {
                positions.clear();
                let mut stream = Stream::new(keyed::key(&[u64::from(nodes[i])]));
                for j in row.len() as u64 - k as u64..row.len() as u64 {
                    let t = stream.below(j + 1);
                    positions.push(if positions.contains(&t) { j } else { t });
                }
            }
            for position in positions {
                let u = row[position as usize];
                indices.push(*local.entry(u).or_insert_with(|| {
                    nodes.push(u);
                    nodes.len() as u32 - 1
                }));
            }
        }
        edges += black_box(indices).len();
    }
    edges
}

/// Draws one batch for each of `slots`, repeatedly over `order`, and returns the number of edges.
fn batches(
    graph: &Graph,
    sampler: &dyn MinibatchSampler,
    form: BlockLayout,
    epoch: u64,
    order: &[NodeId],
    size: usize,
    slots: &mut [(Workspace, MiniBatch)],
) -> usize {
    let alone = slots.len() == 1;
    let mut edges = 0;
    for (number, group) in order.chunks_exact(size * slots.len()).enumerate() {
        let number = number * slots.len();
        let draw = |(i, (workspace, batch)): (usize, &mut (Workspace, MiniBatch))| {
            workspace.set_parallel(alone);
            let number = (number + i) as u64;
            let seeds = group[i * size..][..size].iter().copied();
            let seeds = std::mem::take(batch).recycle().refill(number, seeds);
            let request = BatchRequest::new(graph, BatchKey { seed: 1, epoch, batch: number });
            let drawn = sampler.sample(&request.with_layout(form), workspace, seeds);
            let drawn = drawn.expect("a batch that fits");
            let edges = drawn.num_edges();
            *batch = drawn.into();
            edges
        };
        if alone {
            edges += slots.iter_mut().enumerate().map(draw).sum::<usize>();
        } else {
            edges += slots.par_iter_mut().enumerate().map(draw).sum::<usize>();
        }
    }
    edges
}

/// Draws batch 0 around `seeds`.
fn draw(sampler: &dyn MinibatchSampler, graph: &Graph, form: BlockLayout, seeds: &[NodeId]) -> Sampled {
    let request = BatchRequest::new(graph, BatchKey { seed: 1, epoch: 0, batch: 0 }).with_layout(form);
    let drawn = sampler.sample(&request, &mut Workspace::new(graph.num_nodes()), Seeds::new(0, seeds));
    drawn.expect("a batch that fits")
}

/// Seconds of the fastest of several runs after a warm-up, and the result of the last run.
fn best<T: Send>(pool: &ThreadPool, mut run: impl FnMut(u64) -> T + Send) -> (f64, T) {
    pool.install(|| {
        let mut result = run(0);
        let mut least = f64::INFINITY;
        for epoch in 1..8 {
            let clock = Instant::now();
            result = run(epoch);
            least = least.min(clock.elapsed().as_secs_f64());
        }
        (least, result)
    })
}

/// Every random sampler that goes from seeds, with its variants, by name. `plain` is the graph
/// without its weights.
fn by_hops(
    graph: &Graph,
    plain: &Graph,
    fanout: &[i64],
    filter: &str,
) -> Vec<(String, Box<dyn MinibatchSampler>)> {
    let mut all = Vec::new();
    let mut add = |name: &str, variant: &str, own: OwnOptions, graph: &Graph| {
        if filter.strip_prefix("samplers ").is_some_and(|wanted| !name.contains(wanted)) {
            return;
        }
        let entry = TABLE.get(name).expect("a sampler");
        let options = SamplerOptions { fanout: fanout.into(), own, ..SamplerOptions::default() };
        let clock = Instant::now();
        let sampler = entry.make.make(&options, &Source::new(graph, &[])).expect("a sampler");
        let name = format!("{name}{variant}");
        if clock.elapsed().as_millis() > 10 {
            println!("{name:<32}made in {:.2} s", clock.elapsed().as_secs_f64());
        }
        all.push((name, sampler));
    };
    let own = OwnOptions::default;
    let weighted = |replace, weighted_index| own().with(WeightedOptions { replace, weighted_index });
    let labor = |iterations| {
        let labor_iterations = Iterations(iterations);
        own().with(LaborOptions { labor_iterations, ..LaborOptions::default() })
    };
    let ranges = LaborOptions { labor_draws: LaborDraws::Ranges, ..LaborOptions::default() };
    add("neighbor", "", own(), graph);
    add("weighted", "", own(), graph);
    add("weighted", " again", weighted(true, DrawBy::Alias), graph);
    let sums = weighted(false, DrawBy::PrefixSums);
    add("weighted", " sums", sums.clone(), graph);
    add("weighted", " sums again", weighted(true, DrawBy::PrefixSums), graph);
    add("weighted", " sums degree", sums.with(WeightOptions { edge_weights: EdgeWeights::InDegree }), graph);
    add("labor", "", own(), plain);
    add("labor", " ranges", own().with(ranges), plain);
    add("labor", " 1", labor(1), plain);
    add("labor", " *", labor(usize::MAX), plain);
    add("labor", " by weight", own(), graph);
    add("random-walk", "", own(), graph);
    all
}

fn main() {
    // cargo passes `--bench`
    let filter = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    let wanted = |name: &str| name.contains(&filter);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let pool = |n| rayon::ThreadPoolBuilder::new().num_threads(n).build().expect("threads");
    let pools = [pool(1), pool(threads)];
    let graph = rmat(20);
    // W1's training nodes: a random part of the nodes with in-neighbours
    let mut order: Vec<NodeId> =
        (0..graph.num_nodes() as NodeId).filter(|&v| graph.in_degree(v) > 0).collect();
    Stream::new(1).shuffle(&mut order);
    let slots = |n: usize| -> Vec<(Workspace, MiniBatch)> {
        (0..n).map(|_| (Workspace::new(graph.num_nodes()), MiniBatch::default())).collect()
    };
    println!("{} nodes, {} edges; 1 thread, then {threads}", graph.num_nodes(), graph.num_edges());

    for (size, seeds) in [(1024, 65_536), (8000, 128_000)] {
        for fanout in FANOUTS {
            let sampler = HopStack::new(Neighbor::new(fanout).expect("a fanout"));
            for fused in [false, true] {
                let name = format!("{fanout:?} x {size}{}", if fused { " fused" } else { "" });
                if !wanted(&name) {
                    continue;
                }
                print!("{name:<32}");
                for pool in &pools {
                    let mut slots = slots(pool.current_num_threads());
                    let form = BlockLayout { fused, ..BlockLayout::default() };
                    let seeds = seeds / (size * slots.len()) * size * slots.len();
                    let (seconds, edges) = best(pool, |epoch| {
                        batches(&graph, &sampler, form, epoch, &order[..seeds], size, &mut slots)
                    });
                    let (seeds, edges) = (seeds as f64 / seconds / 1e3, edges as f64 / seconds / 1e6);
                    print!("{seeds:8.0} k seeds/s {edges:6.1} M edges/s");
                }
                println!();
            }
        }
    }

    // `samplers labor` measures the samplers of that name alone
    if wanted("samplers") || filter.starts_with("samplers ") {
        // weights of 1 to 10, as GNNLab's
        let weights: Vec<f32> =
            (0..graph.num_edges() as u64).map(|e| (keyed::mix(e) % 10 + 1) as f32).collect();
        let weighted = graph.clone().with_edge_weight(weights.into()).expect("weights");
        let fanout = FANOUTS[0];
        for (name, sampler) in pools[1].install(|| by_hops(&weighted, &graph, fanout, &filter)) {
            let name = format!("samplers {fanout:?} {name}");
            print!("{name:<40}");
            for pool in &pools {
                let mut slots = slots(pool.current_num_threads());
                let (size, form) = (1024, BlockLayout { fused: true, ..BlockLayout::default() });
                let (seconds, edges) = best(pool, |epoch| {
                    batches(&weighted, &*sampler, form, epoch, &order[..16_384], size, &mut slots)
                });
                let (seeds, edges) = (16.384 / seconds, edges as f64 / seconds / 1e6);
                print!("{seeds:8.0} k seeds/s {edges:6.1} M edges/s");
            }
            // the size of a batch's input
            let batch = draw(&*sampler, &weighted, BlockLayout::default(), &order[..1024]);
            println!(" {:8} nodes {:8} edges a batch", batch.input_nodes.len(), batch.num_edges());
        }
    }

    for fanout in FANOUTS {
        let name = format!("{fanout:?} plain loop");
        if wanted(&name) {
            let (seconds, edges) = best(&pools[0], |_| plain(&graph, fanout, &order[..1024]));
            println!(
                "{name:<32}{:8.0} k seeds/s {:6.1} M edges/s",
                1.024 / seconds,
                edges as f64 / seconds / 1e6
            );
        }
    }

    for fanout in FANOUTS {
        let name = format!("{fanout:?} x 100000, one batch");
        if !wanted(&name) {
            continue;
        }
        let sampler = HopStack::new(Neighbor::new(fanout).expect("a fanout"));
        print!("{name:<32}");
        for pool in &pools {
            let (mut slots, order) = (slots(1), &order[..100_000]);
            let (seconds, edges) = best(pool, |epoch| {
                batches(&graph, &sampler, BlockLayout::default(), epoch, order, order.len(), &mut slots)
            });
            print!(
                "{:8.0} k seeds/s {:6.1} M edges/s",
                order.len() as f64 / seconds / 1e3,
                edges as f64 / seconds / 1e6
            );
        }
        println!();
    }

    for (name, size) in [("small", 1024), ("large", 100_000)] {
        let sampler = HopStack::new(Neighbor::new([15, 10, 5]).expect("a fanout"));
        let fused = BlockLayout { fused: true, ..BlockLayout::default() };
        let global = draw(&sampler, &graph, fused, &order[..size]);
        let mut batch = draw(&sampler, &graph, BlockLayout::default(), &order[..size]);
        // the last hop: its destinations and its edges, global and local
        let (known, ids) = (&global.input_nodes, &global.blocks[0].indices);
        let mut dense = Dense::new(graph.num_nodes());
        let mut table = Table::default();
        let (mut nodes, mut found) = (Vec::new(), Vec::new());
        let mut rate =
            |name: &str, pool: &ThreadPool, run: &mut (dyn FnMut(&mut Vec<u32>, &mut Vec<u32>) + Send)| {
                if !wanted(name) {
                    return;
                }
                let (seconds, ()) = best(pool, |_| {
                    nodes.clear();
                    nodes.extend_from_slice(known);
                    found.clear();
                    found.extend_from_slice(ids);
                    run(&mut found, &mut nodes);
                });
                println!("{name:<32}{:8.1} M ids/s", ids.len() as f64 / seconds / 1e6);
            };
        rate(&format!("relabel {name}, dense"), &pools[0], &mut |ids, nodes| {
            dense.start(nodes);
            dense.relabel(ids, nodes);
        });
        rate(&format!("relabel {name}, table"), &pools[0], &mut |ids, nodes| {
            table.start(nodes);
            table.relabel(ids, nodes);
        });
        let block = &mut batch.blocks[0];
        for (how, pool) in [("alone", &pools[0]), ("spread", &pools[1])] {
            let name = format!("transpose {name}, {how}");
            if wanted(&name) {
                let (seconds, ()) =
                    best(pool, |_| if how == "alone" { block.transpose() } else { block.par_transpose() });
                println!("{name:<32}{:8.1} M edges/s", block.num_edges() as f64 / seconds / 1e6);
            }
        }
    }
}
