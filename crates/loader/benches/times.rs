//! Speed of sampling with times beside that without, on a random graph of 200,000 nodes and degrees
//! from 5 to 65.
//!
//! `cargo bench -p graphmill-loader --bench times` prints, for each draw, the edges per second with
//! times divided by those of the plain sampler: the best of 15 runs each, which alternate.

use std::{hint::black_box, time::Instant};

use graphmill_core::{Graph, NodeId, keyed::Stream};
use graphmill_loader::{
    BatchKey, MinibatchSampler, Seeds, Workspace,
    sampler::{BatchRequest, HopStack, neighbor::Neighbor},
    time::{TimeDraw, TimeOptions, TimeRequest, TimeSampler, TimeSeeds, TimeWorkspace, TimedGraph},
};

const NODES: u64 = 200_000;
const SEEDS: usize = 1024;
const RUNS: u64 = 15;
/// Time above those of all edges.
const LATEST: i64 = 1000;

fn graph(stream: &mut Stream) -> Graph {
    let (mut indptr, mut indices) = (vec![0u64], Vec::new());
    for _ in 0..NODES {
        let most = 1 + stream.below(60);
        let degree = 5 + stream.below(most);
        let mut row: Vec<NodeId> = (0..degree).map(|_| stream.below(NODES) as NodeId).collect();
        row.sort_unstable();
        indices.extend(row);
        indptr.push(indices.len() as u64);
    }
    Graph::new(indptr.into(), indices.into()).expect("rows of nodes")
}

/// Runs `work`, which returns a number of edges; returns the edges per second.
fn rate(work: impl FnOnce() -> usize) -> f64 {
    let start = Instant::now();
    let edges = black_box(work());
    edges as f64 / start.elapsed().as_secs_f64()
}

fn main() {
    let mut stream = Stream::new(7);
    let graph = graph(&mut stream);
    let times: Vec<i64> = (0..graph.num_edges()).map(|_| stream.below(LATEST as u64) as i64).collect();
    let timed =
        TimedGraph::of_one_type(graph.clone(), Some(times.into()), None).expect("a time for each edge");
    let seeds: Vec<NodeId> = (0..SEEDS).map(|i| (i * 193) as NodeId).collect();
    let plain = HopStack::new(Neighbor::new([10, 10]).expect("two hops"));
    let mut workspace = Workspace::new(NODES as usize);
    let same = vec![LATEST; SEEDS];
    let apart: Vec<i64> = (0..SEEDS as i64).map(|i| LATEST + i).collect();
    println!("edges per second with times, as a fraction of those without");
    for (name, times) in [("one time", same), ("a time for each seed", apart)] {
        for time_draw in [TimeDraw::Uniform, TimeDraw::Last, TimeDraw::Recency] {
            let options = TimeOptions { time_draw, time_half_life: 100.0, ..TimeOptions::default() };
            let fanout = "10,10".parse().expect("two hops");
            let sampler = TimeSampler::new(timed.schema(), &fanout, options).expect("valid options");
            let mut of_times = TimeWorkspace::new(timed.schema());
            let mut best = [0.0f64; 2];
            for batch in 0..RUNS {
                let key = BatchKey { seed: 3, epoch: 0, batch };
                let without = rate(|| {
                    let request = BatchRequest::new(&graph, key);
                    let sampled = plain.sample(&request, &mut workspace, Seeds::new(0, &seeds[..]));
                    sampled.expect("valid seeds").num_edges()
                });
                let with = rate(|| {
                    let of = TimeSeeds::of_nodes(0, seeds.clone(), times.clone());
                    let sampled = sampler.sample(&TimeRequest::new(&timed, key), &mut of_times, of);
                    sampled.expect("valid seeds").sampled.num_edges()
                });
                best = [best[0].max(without), best[1].max(with)];
            }
            println!("{name:>22}  {time_draw:>8}  {:.2}", best[1] / best[0]);
        }
    }
}
