//! Speed of sampling with times beside that without, on the same graph, seeds and fanouts.
//!
//! Edges have random times, and all of them exist at the times of the seeds, so that both samplers
//! choose among the same edges. Their batches alternate, and the best batch of each counts: other
//! load disturbs the longer one more often. `benchmarks/peers/times.py` draws from the same files.

use std::{fs, hint::black_box, mem, path::Path, time::Instant};

use anyhow::{Context, Result, ensure};
use bytemuck::Pod;
use graphmill_core::{
    NodeId,
    keyed::{Stream, key},
};
use graphmill_data::Dataset;
use graphmill_loader::{
    BatchKey, MinibatchSampler, Seeds, Workspace,
    sampler::{BatchRequest, HopStack, neighbor::Neighbor},
    time::{TimeDraw, TimeOptions, TimeRequest, TimeSampler, TimeSeeds, TimeWorkspace, TimedGraph},
};
use serde_json::json;

/// Time above those of all edges.
const LATEST: i64 = 1000;

/// Batches to sample.
pub(crate) struct Sampled<'a> {
    /// Neighbours per node and hop, such as `10,10`.
    pub(crate) hops: &'a str,
    /// `uniform`, `last` or `recency`.
    pub(crate) draw: &'a str,
    /// True if each seed has another time, so that no rows of deeper hops are shared.
    pub(crate) apart: bool,
    pub(crate) batch: usize,
    pub(crate) repeat: usize,
}

/// Writes a random time below [`LATEST`] for each edge (`time.i64`), and the training nodes in
/// random order (`seeds.u32`).
pub(crate) fn write(dataset: &str, out: &Path) -> Result<()> {
    let data = Dataset::open(dataset)?;
    let mut stream = Stream::new(key(&[3]));
    let time: Vec<i64> = (0..data.graph.num_edges()).map(|_| stream.below(LATEST as u64) as i64).collect();
    let mut train = data.split.train.to_vec();
    stream.shuffle(&mut train);
    fs::create_dir_all(out)?;
    fs::write(out.join("time.i64"), bytemuck::cast_slice(&time))?;
    fs::write(out.join("seeds.u32"), bytemuck::cast_slice(&train))?;
    Ok(())
}

/// Prints the edges and seeds per second of both samplers in their best runs, and the ratio of
/// edges per second, each as a line of JSON. `inputs` is a directory of [`write()`].
pub(crate) fn times(dataset: &str, inputs: &Path, of: &Sampled) -> Result<()> {
    let graph = Dataset::open(dataset)?.graph.to_huge_pages()?;
    let time: Vec<i64> = read(&inputs.join("time.i64"))?;
    let train: Vec<NodeId> = read(&inputs.join("seeds.u32"))?;
    let timed = TimedGraph::of_one_type(graph.clone(), Some(time.into()), None)?;
    let fanout: Vec<i64> = of.hops.split(',').map(str::parse).collect::<Result<_, _>>().context("--hops")?;
    let draws = [("uniform", TimeDraw::Uniform), ("last", TimeDraw::Last), ("recency", TimeDraw::Recency)];
    let draw = draws.iter().find(|(name, _)| *name == of.draw).context("--draw uniform, last or recency")?;
    let options = TimeOptions { time_draw: draw.1, time_half_life: 100.0, ..TimeOptions::default() };
    let parsed = of.hops.parse().map_err(anyhow::Error::msg)?;
    let sampler = TimeSampler::new(timed.schema(), &parsed, options).map_err(anyhow::Error::msg)?;
    let plain = HopStack::new(Neighbor::new(fanout).map_err(anyhow::Error::msg)?);
    let (mut workspace, mut of_times) =
        (Workspace::new(graph.num_nodes()), TimeWorkspace::new(timed.schema()));
    let batches: Vec<&[NodeId]> = train.chunks_exact(of.batch.max(1)).collect();
    ensure!(!batches.is_empty(), "--batch {}: there are {} training nodes", of.batch, train.len());
    let mut rates = [Vec::new(), Vec::new()];
    // both reuse the buffers of their previous batch
    let (mut memory, mut of_times_memory) = (Seeds::new(0, []), TimeSeeds::default());
    // the first batch is a warm-up
    for number in 0..=of.repeat.max(1) {
        let (key, seeds) =
            (BatchKey { seed: 3, epoch: 0, batch: number as u64 }, batches[number % batches.len()]);
        let without = rate(|| {
            let request = BatchRequest::new(&graph, key);
            let of_nodes = mem::take(&mut memory).refill(0, seeds.iter().copied());
            let sampled = plain.sample(&request, &mut workspace, of_nodes)?;
            let edges = sampled.num_edges();
            memory = sampled.recycle();
            Ok(edges)
        })?;
        let at: Vec<i64> = (0..seeds.len() as i64).map(|i| LATEST + i * i64::from(of.apart)).collect();
        let with = rate(|| {
            let of_nodes = mem::take(&mut of_times_memory).refill(0, &[(seeds, &at)]);
            let sampled = sampler.sample(&TimeRequest::new(&timed, key), &mut of_times, of_nodes)?;
            let edges = sampled.sampled.num_edges();
            of_times_memory = sampled.recycle();
            Ok(edges)
        })?;
        if number > 0 {
            rates[0].push(without);
            rates[1].push(with);
        }
    }
    let runs = of.repeat.max(1);
    let best = |of: &[[f64; 2]], at: usize| of.iter().map(|rates| rates[at]).fold(0.0, f64::max);
    for (op, rates) in [("without times", &rates[0]), ("with times", &rates[1])] {
        let seeds = best(rates, 1) * of.batch as f64;
        println!("{}", json!({ "op": op, "rate": best(rates, 0), "seeds_per_second": seeds, "runs": runs }));
    }
    let share = best(&rates[1], 0) / best(&rates[0], 0);
    println!("{}", json!({ "op": "share", "rate": share, "runs": runs }));
    Ok(())
}

/// Edges per second of `work`, which returns their number, and calls per second.
fn rate(work: impl FnOnce() -> Result<usize>) -> Result<[f64; 2]> {
    let start = Instant::now();
    let edges = black_box(work()?);
    let seconds = start.elapsed().as_secs_f64().max(1e-9);
    Ok([edges as f64 / seconds, 1.0 / seconds])
}

/// Values of a file.
fn read<T: Pod>(path: &Path) -> Result<Vec<T>> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    Ok(bytemuck::pod_collect_to_vec(&bytes))
}
