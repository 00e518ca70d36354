//! Our side of the kernel benchmarks, and the inputs that both sides read.
//!
//! - `graphmill-kernels w1 DIR --scale S`: R-MAT graph whose training nodes have neighbours.
//! - `graphmill-kernels block DATASET DIR --nodes N --fanout K --sources first-seen|by-id`: one
//!   sampled block as `indptr.u32` and `indices.u32`.
//! - `graphmill-kernels subgraph DATASET DIR --draws N --frontier M`: a subgraph of frontier
//!   sampling in the same files.
//! - `graphmill-kernels ids DATASET DIR --nodes N`: random nodes as `ids.u32`.
//! - `graphmill-kernels aggregate BLOCK --dim F`, `gather DATASET IDS` and `gemm --shapes
//!   MxKxN,...`: times, a line of JSON each with the fields of `benchmarks/peers/kernels.py`.
//! - `graphmill-kernels joins`: an empty parallel loop of as many pieces as threads, and copies of
//!   large arrays.
//! - `graphmill-kernels edge-times DATASET DIR`: a random time of each edge as `time.i64`, and the
//!   training nodes in random order as `seeds.u32`.
//! - `graphmill-kernels times DATASET TIMES --hops 10,10 --draw uniform|last|recency [--apart]`:
//!   edges and seeds per second of samplers with and without times.
//! - `graphmill-kernels misses DATASET --slices rows|theorem|copied --cache-kib C`: misses of a
//!   simulated cache while a subgraph is aggregated.
//!
//! Results that are not `reused` are allocated in every call, as PyTorch's are without `out=`.

mod misses;
mod subgraph;
mod times;
mod typed;

use std::{fs, path::Path, time::Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use graphmill_core::{
    Block, Matrix, NodeId,
    keyed::{Stream, key},
    matrix::TableType,
    probe,
};
use graphmill_data::{
    Dataset,
    generate::{GenerateOptions, generate},
};
use graphmill_loader::{Feature, feature::Host};
use graphmill_nn::backend::{
    AggregationWeights, Cpu, Precision, Side,
    ops::{Aggregate, AggregateTransposed, Gemm},
};
use rayon::prelude::*;
use serde_json::json;

/// Kernels of a training step alone
#[derive(Parser, Debug)]
struct Arguments {
    /// w1, block, subgraph, ids, edge-times, aggregate, gather, gemm, joins, times, typed or
    /// misses, then its paths
    #[arg(required = true)]
    words: Vec<String>,
    #[arg(long, default_value_t = 20)]
    scale: u32,
    #[arg(long, default_value_t = 60_000)]
    nodes: usize,
    /// Neighbours of a node; of typed: by hop
    #[arg(long, default_value = "10")]
    fanout: String,
    /// Seeds of a typed block
    #[arg(long, default_value_t = 1024)]
    batch_size: usize,
    #[arg(long, default_value = "first-seen")]
    sources: String,
    #[arg(long, default_value_t = 100)]
    dim: usize,
    #[arg(long, default_value = "7000x100x256")]
    shapes: String,
    /// Nodes that a subgraph draws, and those of its frontier
    #[arg(long, default_value_t = 8000)]
    draws: usize,
    #[arg(long, default_value_t = 1000)]
    frontier: usize,
    /// Size of the simulated cache
    #[arg(long, default_value_t = 256)]
    cache_kib: usize,
    /// rows, theorem or copied
    #[arg(long, default_value = "theorem")]
    slices: String,
    /// Neighbours per node and hop, their draw, and seeds of a batch
    #[arg(long, default_value = "10,10")]
    hops: String,
    #[arg(long, default_value = "uniform")]
    draw: String,
    #[arg(long, default_value_t = 1024)]
    batch: usize,
    /// Gives each seed another time
    #[arg(long)]
    apart: bool,
    /// Threads; 0 for all cores
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Timed runs of each operation
    #[arg(long, default_value_t = 5)]
    repeat: usize,
    /// Minimum seconds of a run
    #[arg(long, default_value_t = 0.1)]
    seconds: f64,
}

fn main() -> Result<()> {
    graphmill_core::signals::end_on_closed_pipe();
    let arguments = Arguments::parse();
    rayon::ThreadPoolBuilder::new().num_threads(arguments.threads).build_global()?;
    let words: Vec<&str> = arguments.words.iter().map(String::as_str).collect();
    match words[..] {
        ["w1", out] => w1(&arguments, out),
        ["block", dataset, out] => block(&arguments, dataset, out.as_ref()),
        ["subgraph", dataset, out] => {
            let Arguments { draws, frontier, .. } = arguments;
            subgraph::write(dataset, subgraph::Draws { draws, frontier }, out.as_ref())
        }
        ["ids", dataset, out] => ids(&arguments, dataset, out.as_ref()),
        ["aggregate", block] => rayon::scope(|_| aggregate(&arguments, block.as_ref())),
        ["gather", dataset, ids] => rayon::scope(|_| gather(&arguments, dataset, ids.as_ref())),
        ["typed", dataset] => {
            let Arguments { ref fanout, batch_size, repeat, seconds, .. } = arguments;
            rayon::scope(|_| typed::sample(dataset, &typed::Draws { fanout, batch_size, repeat, seconds }))
        }
        ["misses", dataset] => {
            let Arguments { draws, frontier, dim, cache_kib, ref slices, .. } = arguments;
            let draws = subgraph::Draws { draws, frontier };
            let sizes = misses::Sizes { draws, dim, cache: cache_kib << 10 };
            println!("{}", misses::misses(dataset, sizes, misses::Walk::named(slices)?)?);
            Ok(())
        }
        ["edge-times", dataset, out] => times::write(dataset, out.as_ref()),
        ["times", dataset, inputs] => {
            let Arguments { ref hops, ref draw, batch, apart, repeat, .. } = arguments;
            times::times(dataset, inputs.as_ref(), &times::Sampled { hops, draw, apart, batch, repeat })
        }
        ["gemm"] => rayon::scope(|_| gemm(&arguments)),
        ["joins"] => {
            rayon::scope(|_| joins(&arguments));
            Ok(())
        }
        _ => bail!("unknown words {words:?}; see --help"),
    }
}

/// Graph500's R-MAT parameters; isolated nodes, almost half of all, are not in the split.
fn w1(arguments: &Arguments, out: &str) -> Result<()> {
    let options = GenerateOptions {
        scale: arguments.scale,
        initiator: [[0.57, 0.19], [0.19, 0.05]],
        degree: Some(16.0),
        dim: arguments.dim,
        classes: 47,
        train: 0.375,
        valid: 0.05,
        test: 0.05,
        ..GenerateOptions::default()
    };
    let mut data = generate("kronecker", &options)?;
    let graph = data.graph.clone();
    for part in [&mut data.split.train, &mut data.split.valid, &mut data.split.test] {
        let connected: Vec<NodeId> =
            part.iter().copied().filter(|&node| !graph.in_neighbors(node).is_empty()).collect();
        *part = connected.into();
    }
    data.save(out)?;
    Ok(())
}

/// Samples up to `fanout` neighbours of the first training nodes. Destinations are the first
/// sources; the others follow as first seen, as our sampler numbers them, or by their global ids.
fn block(arguments: &Arguments, dataset: &str, out: &Path) -> Result<()> {
    let data = Dataset::open(dataset)?;
    let fanout = arguments.fanout.parse().context("--fanout: a number for a block of one hop")?;
    let mut train = data.split.train.to_vec();
    let mut stream = Stream::new(key(&[9]));
    stream.shuffle(&mut train);
    train.truncate(arguments.nodes);
    let mut drawn: Vec<Vec<NodeId>> = Vec::new();
    for &node in &train {
        let mut neighbors = data.graph.in_neighbors(node).to_vec();
        stream.shuffle(&mut neighbors);
        neighbors.truncate(fanout);
        drawn.push(neighbors);
    }
    let mut local = vec![NodeId::MAX; data.num_nodes()];
    let mut sources = 0;
    let mut number = |node: NodeId, local: &mut Vec<NodeId>| {
        if local[node as usize] == NodeId::MAX {
            local[node as usize] = sources;
            sources += 1;
        }
    };
    train.iter().for_each(|&node| number(node, &mut local));
    let mut seen: Vec<NodeId> = drawn.concat();
    match arguments.sources.as_str() {
        "first-seen" => {}
        "by-id" => seen.sort_unstable(),
        other => bail!("--sources {other}: first-seen or by-id"),
    }
    seen.into_iter().for_each(|node| number(node, &mut local));
    let mut indptr = vec![0];
    let mut indices = Vec::new();
    for neighbors in &drawn {
        indices.extend(neighbors.iter().map(|&node| local[node as usize]));
        indptr.push(indices.len() as u32);
    }
    write_block(out, &indptr, &indices)
}

fn write_block(out: &Path, indptr: &[u32], indices: &[NodeId]) -> Result<()> {
    fs::create_dir_all(out)?;
    fs::write(out.join("indptr.u32"), bytemuck::cast_slice(indptr))?;
    fs::write(out.join("indices.u32"), bytemuck::cast_slice(indices))?;
    Ok(())
}

fn ids(arguments: &Arguments, dataset: &str, out: &Path) -> Result<()> {
    let nodes = Dataset::open(dataset)?.num_nodes() as u64;
    let mut stream = Stream::new(key(&[5]));
    let ids: Vec<u32> = (0..arguments.nodes).map(|_| stream.below(nodes) as u32).collect();
    fs::create_dir_all(out)?;
    fs::write(out.join("ids.u32"), bytemuck::cast_slice(&ids))?;
    Ok(())
}

/// Numbers of a file.
fn numbers(path: &Path) -> Result<Vec<u32>> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    Ok(bytemuck::pod_collect_to_vec(&bytes))
}

/// Small random values.
fn random(rows: usize, cols: usize) -> Matrix {
    let mut matrix = Matrix::zeros(rows, cols);
    let mut stream = Stream::new(key(&[rows as u64, cols as u64]));
    matrix.view_mut().host().fill_with(|| stream.uniform() as f32 - 0.5);
    matrix
}

/// Times an operation and prints its line; `amount` is what a call does, in billions.
fn time(arguments: &Arguments, op: &str, amount: f64, mut work: impl FnMut()) {
    work();
    let clock = Instant::now();
    work();
    let calls = (arguments.seconds / clock.elapsed().as_secs_f64().max(1e-9)).ceil().max(1.0);
    let mut runs: Vec<f64> = (0..arguments.repeat.max(1))
        .map(|_| {
            let clock = Instant::now();
            (0..calls as usize).for_each(|_| work());
            clock.elapsed().as_secs_f64() / calls
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    let median = (runs[(runs.len() - 1) / 2] + runs[runs.len() / 2]) / 2.0;
    let line = json!({
        "op": op, "threads": rayon::current_num_threads(), "seconds": median, "rate": amount / median,
        "min_seconds": runs[0], "max_seconds": runs[runs.len() - 1], "runs": runs.len(),
    });
    println!("{line}");
}

/// Cost of a parallel operation without work while the threads are awake, and rate of the memory.
fn joins(arguments: &Arguments) {
    let pieces = rayon::current_num_threads();
    let empty = || {
        (0..pieces).into_par_iter().with_max_len(1).for_each(|piece| _ = std::hint::black_box(piece));
    };
    time(arguments, "fork-join", 0.0, empty);
    let mut arrays = probe::Arrays::new(probe::VALUES);
    for (name, copy) in probe::KINDS {
        time(arguments, name, 8e-9 * probe::VALUES as f64, || arrays.run(*copy));
    }
}

fn aggregate(arguments: &Arguments, directory: &Path) -> Result<()> {
    let (indptr, indices) =
        (numbers(&directory.join("indptr.u32"))?, numbers(&directory.join("indices.u32"))?);
    let num_dst = indptr.len() - 1;
    let num_src = indices.iter().map(|&at| at as usize + 1).max().unwrap_or(0).max(num_dst);
    let mut block = Block { num_dst, num_src, indptr, indices, ..Block::default() };
    block.par_transpose();
    let (backend, weights) = (&Cpu::default(), AggregationWeights::MEAN);
    let (x, gradient) = (random(num_src, arguments.dim), random(num_dst, arguments.dim));
    let forward = |out: &mut Matrix| {
        Aggregate { block: &block, weights, src: x.view(), beta: 0.0, dst: out.view_mut() }.run(backend);
    };
    let backward = |out: &mut Matrix| {
        let dst_grad = gradient.view();
        AggregateTransposed { block: &block, weights, dst_grad, beta: 0.0, src_grad: out.view_mut() }
            .run(backend);
    };
    let edges = 2e-9 * (block.num_edges() * arguments.dim) as f64;
    let (mut y, mut dx) = (Matrix::zeros(num_dst, arguments.dim), Matrix::zeros(num_src, arguments.dim));
    time(arguments, "mean", edges, || forward(&mut Matrix::zeros(num_dst, arguments.dim)));
    time(arguments, "mean, reused", edges, || forward(&mut y));
    time(arguments, "mean and gradient", 2.0 * edges, || {
        forward(&mut Matrix::zeros(num_dst, arguments.dim));
        backward(&mut Matrix::zeros(num_src, arguments.dim));
    });
    time(arguments, "mean and gradient, reused", 2.0 * edges, || {
        forward(&mut y);
        backward(&mut dx);
    });
    Ok(())
}

fn gather(arguments: &Arguments, dataset: &str, ids: &Path) -> Result<()> {
    let data = Dataset::open(dataset)?;
    let table = Host::resident(&data.features, TableType::F32)?;
    let (ids, width) = (numbers(&ids.join("ids.u32"))?, data.features.dim);
    let mut out = vec![0.0; ids.len() * width];
    let rows = 1e-9 * ids.len() as f64;
    table.read(&ids, &mut out)?;
    let read = |out: &mut [f32]| _ = table.read(&ids, out).expect("the ids were just read");
    time(arguments, "gather", rows, || read(&mut vec![0.0; ids.len() * width]));
    time(arguments, "gather, reused", rows, || read(&mut out));
    Ok(())
}

fn gemm(arguments: &Arguments) -> Result<()> {
    for shape in arguments.shapes.split(',') {
        let sizes = shape.split('x').map(str::parse).collect::<Result<Vec<usize>, _>>();
        let [m, k, n] = sizes.ok().and_then(|sizes| sizes.try_into().ok()).context("--shapes MxKxN,...")?;
        let (x, w, mut y, mut gradient) = (random(m, k), random(k, n), random(m, n), Matrix::zeros(k, n));
        let work = 2e-9 * (m * k * n) as f64;
        for (name, precision) in [("", Precision::F32), ("bf16 ", Precision::Bf16)] {
            let backend = &Cpu { precision };
            time(arguments, &format!("{name}{shape}"), work, || {
                let (a, b) = ((x.view(), Side::Plain), (w.view(), Side::Plain));
                Gemm { a, b, beta: 0.0, c: y.view_mut() }.run(backend);
            });
            time(arguments, &format!("{name}{shape} gradient"), work, || {
                let (a, b) = ((x.view(), Side::Transposed), (y.view(), Side::Plain));
                Gemm { a, b, beta: 0.0, c: gradient.view_mut() }.run(backend);
            });
        }
    }
    Ok(())
}
