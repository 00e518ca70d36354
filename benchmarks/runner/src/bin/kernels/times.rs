//! Speed of sampling with times beside that without, on the same graph, seeds and fanouts.
//!
//! Edges have random times, and all of them exist at the times of the seeds, so that both samplers
//! choose among the same edges. Their batches alternate, and the best batch of each counts: other
//! load disturbs the longer one more often.

use std::{hint::black_box, mem, time::Instant};

use anyhow::{Context, Result, ensure};
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

/// Prints the edges per second of both samplers in their best runs, and their ratio, each as a line
/// of JSON.
pub(crate) fn times(dataset: &str, of: &Sampled) -> Result<()> {
    let data = Dataset::open(dataset)?;
    let graph = data.graph.to_huge_pages()?;
    let mut stream = Stream::new(key(&[3]));
    let time: Vec<i64> = (0..graph.num_edges()).map(|_| stream.below(LATEST as u64) as i64).collect();
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
    let mut train = data.split.train.to_vec();
    stream.shuffle(&mut train);
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
    let [without, with] = rates.map(|of| of.into_iter().fold(0.0, f64::max));
    for (op, value) in [("without times", without), ("with times", with), ("share", with / without)] {
        println!("{}", json!({ "op": op, "rate": value, "runs": of.repeat.max(1) }));
    }
    Ok(())
}

/// Edges per second of `work`, which returns their number.
fn rate(work: impl FnOnce() -> Result<usize>) -> Result<f64> {
    let start = Instant::now();
    let edges = black_box(work()?);
    Ok(edges as f64 / start.elapsed().as_secs_f64().max(1e-9))
}
