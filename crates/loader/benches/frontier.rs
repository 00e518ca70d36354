//! Speed of subgraph sampling: the Dashboard and the tree of sums against the plain frontier,
//! vectors against one number at a time, every sampler on one thread and on all, the time per
//! subgraph against the size of the graph, and the search for the edges among its nodes.
//!
//! `cargo bench -p graphmill-loader --bench frontier [-- NAME]` (`dashboard`, `samplers`,
//! `flatness`, `edges`). Times are the best of many, in microseconds per subgraph; frontiers have m
//! = 1000 nodes and subgraphs n = 8000 (`edges`: milliseconds, and printed sizes).

use std::{hint::black_box, time::Instant};

use graphmill_core::{
    Block, Graph, NodeId,
    block::Induce,
    keyed::{self, Stream},
    options::OwnOptions,
    progress::Quiet,
};
use graphmill_data::generate::{GenerateOptions, generate};
use graphmill_loader::{
    sampler::of_subgraphs,
    subgraph::{
        BatchKey, SubgraphContext, SubgraphSampler, SubgraphScratch,
        cluster::ClusterOptions,
        frontier::{Frontier, FrontierOptions, Level, PopBy},
    },
};
use rayon::prelude::*;

#[path = "../src/subgraph/frontier/reference.rs"]
mod reference;
use reference::Choice;

const FRONTIER: usize = 1000;
const BUDGET: usize = 8000;
/// Initiators: uniform edges, and those of Graph500.
const UNIFORM: [[f64; 2]; 2] = [[0.25, 0.25], [0.25, 0.25]];
const RMAT: [[f64; 2]; 2] = [[0.57, 0.19], [0.19, 0.05]];

/// A graph of `2^scale` nodes, and its nodes with neighbours.
fn graph(scale: u32, degree: f64, initiator: [[f64; 2]; 2]) -> (Graph, Vec<NodeId>) {
    let options =
        GenerateOptions { scale, initiator, degree: Some(degree), dim: 0, ..GenerateOptions::default() };
    let graph = generate("kronecker", &options).expect("a graph").graph.to_huge_pages().expect("memory");
    let roots = (0..graph.num_nodes() as NodeId).filter(|&v| graph.in_degree(v) > 0).collect();
    (graph, roots)
}

/// Microseconds per subgraph: the best of `groups` groups of `size` subgraphs, after one warm-up.
fn best(groups: u64, size: u64, mut draw: impl FnMut(u64)) -> f64 {
    draw(0);
    let mut least = f64::INFINITY;
    for group in 0..groups {
        let clock = Instant::now();
        (0..size).for_each(|i| draw(group * size + i));
        least = least.min(clock.elapsed().as_secs_f64());
    }
    least / size as f64 * 1e6
}

fn time(sampler: &dyn SubgraphSampler, graph: &Graph) -> f64 {
    let (mut scratch, mut nodes) = (SubgraphScratch::default(), Vec::new());
    best(100, 5, |batch| {
        sampler
            .sample(graph, BatchKey { seed: 1, epoch: 0, batch }, &mut scratch, &mut nodes)
            .expect("a subgraph");
    })
}

/// Times the dashboard and our tree of sums at each level.
fn dashboard() {
    println!(
        "\nfrontier, us per subgraph: interval partition in f64 (the paper's text), running sums in u64; \
         then the paper's Dashboard and our tree of sums"
    );
    for (name, scale, degree, initiator) in [
        ("uniform", 16, 25.0, UNIFORM),
        ("uniform", 16, 50.0, UNIFORM),
        ("uniform", 20, 25.0, UNIFORM),
        ("R-MAT", 16, 30.0, RMAT),
        ("R-MAT", 20, 30.0, RMAT),
    ] {
        let (graph, roots) = graph(scale, degree, initiator);
        let degree = graph.num_edges() as f64 / graph.num_nodes() as f64;
        for cap in [30, 100, 3000] {
            if initiator == UNIFORM && cap == 100 {
                continue;
            }
            let [intervals, sums] = [Choice::Intervals, Choice::RunningSums].map(|choice| {
                best(40, 1, |run| {
                    let stream = Stream::new(keyed::key(&[run]));
                    black_box(reference::walk(&graph, &roots, (FRONTIER, BUDGET, cap), choice, stream));
                })
            });
            let published = best(100, 1, |run| {
                let (stream, walk) = (Stream::new(keyed::key(&[run])), (FRONTIER, BUDGET, cap));
                black_box(reference::Dashboard::walk(&graph, &roots, walk, 2.0, stream));
            });
            println!(
                "{name} 2^{scale}, degree {degree:.1}, cap {cap}: intervals {intervals:.0}, sums {sums:.0}, \
                 published Dashboard {published:.0}"
            );
            for (name, frontier_index) in [("sums", PopBy::Sums), ("dashboard", PopBy::Dashboard)] {
                let options =
                    FrontierOptions { degree_cap: cap as usize, frontier_index, ..frontier_options() };
                print!("    {name:<14}");
                let mut scalar = 0.0;
                let mut least = f64::INFINITY;
                for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
                    let sampler = Frontier::new(&graph, &roots, BUDGET, &options).expect("options that fit");
                    let us = time(&sampler.with_level(level), &graph);
                    if level == Level::Scalar {
                        scalar = us;
                    }
                    least = least.min(us);
                    print!("{level:?} {us:.0}  ");
                }
                println!(
                    "| wide / scalar {:.2}x, intervals {:.1}x, sums {:.1}x",
                    scalar / least,
                    intervals / least,
                    sums / least
                );
            }
        }
    }
}

fn frontier_options() -> FrontierOptions {
    FrontierOptions { frontier_size: FRONTIER, ..FrontierOptions::default() }
}

fn options(parts: usize) -> OwnOptions {
    OwnOptions::default().with(frontier_options()).with(ClusterOptions { parts, ..ClusterOptions::default() })
}

/// Prints subgraphs per second on one thread and on all, with one subgraph per thread.
fn samplers() {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let (graph, roots) = graph(20, 30.0, RMAT);
    println!("\nsubgraphs per second of an R-MAT graph of 2^20 nodes, on 1 thread and on {threads}");
    let own = options(656);
    let with = SubgraphContext { budget: BUDGET, own: &own, partition: None, progress: &Quiet };
    for (name, make) in of_subgraphs() {
        let clock = Instant::now();
        let sampler = make(&graph, &roots, &with).expect("options that fit");
        let made = clock.elapsed().as_secs_f64() * 1e3;
        print!("{:<14}made in {made:7.1} ms", name);
        let mut alone = 0.0;
        for n in [1, threads] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build().expect("threads");
            let mut workers: Vec<(SubgraphScratch, Vec<NodeId>)> = vec![Default::default(); n];
            const EACH: u64 = 20;
            let mut least = f64::INFINITY;
            for group in 0..12 {
                let clock = Instant::now();
                pool.install(|| {
                    workers.par_iter_mut().enumerate().for_each(|(i, (scratch, nodes))| {
                        for batch in 0..EACH {
                            let key = BatchKey { seed: group, epoch: i as u64, batch };
                            sampler.sample(&graph, key, scratch, nodes).expect("a subgraph");
                        }
                    });
                });
                least = least.min(clock.elapsed().as_secs_f64());
            }
            let rate = n as f64 * EACH as f64 / least;
            if n == 1 {
                alone = rate;
            }
            print!("   {rate:8.0}/s ({:.2}x)", rate / alone);
        }
        println!();
    }
}

/// Prints the time of a subgraph of fixed size for graphs of growing size.
fn flatness() {
    println!("\nus per subgraph by nodes of an R-MAT graph of degree 16");
    let mut rows: Vec<String> = of_subgraphs().map(|(name, _)| format!("{name:<14}")).collect();
    for scale in [16, 18, 20] {
        let (graph, roots) = graph(scale, 16.0, RMAT);
        for ((_, make), row) in of_subgraphs().zip(&mut rows) {
            // parts of equal size in every graph
            let own = options(roots.len() / 1600);
            let sampler = make(
                &graph,
                &roots,
                &SubgraphContext { budget: BUDGET, own: &own, partition: None, progress: &Quiet },
            )
            .expect("options that fit");
            *row += &format!("  2^{scale} {:7.1}", time(&*sampler, &graph));
        }
    }
    rows.iter().for_each(|row| println!("{row}"));
}

/// Times the search for the edges among a subgraph's nodes: neighbour by neighbour, and by
/// `Induce`.
fn edges() {
    println!("\nedges among a subgraph's nodes, one thread: ms neighbour by neighbour, and by Induce");
    const MILD: [[f64; 2]; 2] = [[0.45, 0.22], [0.22, 0.11]];
    for (name, scale, degree, initiator, budget) in [
        ("R-MAT", 20, 16.0, RMAT, 8000),
        ("R-MAT", 20, 16.0, RMAT, 100_000),
        ("milder", 20, 16.0, MILD, 8000),
        ("milder", 18, 75.0, MILD, 70_000),
        ("uniform", 20, 16.0, UNIFORM, 8000),
    ] {
        let (graph, roots) = graph(scale, degree, initiator);
        let degree = graph.num_edges() as f64 / graph.num_nodes() as f64;
        println!("{name} 2^{scale}, degree {degree:.1}");
        let named = |(name, _): &(&str, _)| ["saint-node", "saint-rw", "frontier"].contains(name);
        for (name, make) in of_subgraphs().filter(named) {
            let own = options(656);
            let sampler = make(
                &graph,
                &roots,
                &SubgraphContext { budget, own: &own, partition: None, progress: &Quiet },
            )
            .expect("options that fit");
            let mut scratch = SubgraphScratch::default();
            let drawn = [0, 1, 2, 3, 4, 5, 6, 7].map(|batch| {
                let (key, mut nodes) = (BatchKey { seed: 1, epoch: 0, batch }, Vec::new());
                sampler.sample(&graph, key, &mut scratch, &mut nodes).expect("a subgraph");
                nodes
            });
            let nodes_of = |i: u64| &drawn[i as usize % drawn.len()];
            let (mut plain, mut induce, mut block) =
                (Plain::new(&graph), Induce::default(), Block::default());
            let simple = best(10, 8, |i| plain.block(&graph, nodes_of(i)));
            let ours =
                best(10, 8, |i| induce.block(&graph, nodes_of(i), &mut block, |_| {}).expect("a block"));
            assert_eq!((&plain.indptr, &plain.indices), (&block.indptr, &block.indices));
            let reads: usize =
                drawn.iter().flatten().map(|&v| graph.in_degree(v)).sum::<usize>() / drawn.len();
            println!(
                "    {:<12}{} nodes, {} edges of {reads}: {:.2} and {:.2}, {:.2}x",
                name,
                block.num_dst,
                block.num_edges(),
                simple / 1e3,
                ours / 1e3,
                simple / ours
            );
        }
    }
}

/// The plain search: a local id for every node of the graph, looked up for every neighbour.
struct Plain {
    local: Vec<u32>,
    indptr: Vec<u32>,
    indices: Vec<NodeId>,
}

impl Plain {
    fn new(graph: &Graph) -> Self {
        Self { local: vec![u32::MAX; graph.num_nodes()], indptr: Vec::new(), indices: Vec::new() }
    }

    fn block(&mut self, graph: &Graph, nodes: &[NodeId]) {
        (0..).zip(nodes).for_each(|(i, &v)| self.local[v as usize] = i);
        self.indptr.clear();
        self.indices.clear();
        self.indptr.push(0);
        for &v in nodes {
            let inside = graph.in_neighbors(v).iter().map(|&u| self.local[u as usize]);
            self.indices.extend(inside.filter(|&u| u != u32::MAX));
            self.indptr.push(self.indices.len() as u32);
        }
        nodes.iter().for_each(|&v| self.local[v as usize] = u32::MAX);
    }
}

fn main() {
    // cargo passes `--bench`
    let filter = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    for (name, run) in
        [("dashboard", dashboard as fn()), ("samplers", samplers), ("flatness", flatness), ("edges", edges)]
    {
        if name.contains(&filter) {
            run();
        }
    }
}
