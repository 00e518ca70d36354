//! Draws of blocks of several types, a batch on each thread as training draws them.

use std::{path::Path, time::Instant};

use anyhow::{Context, Result, bail};
use graphmill_core::{
    NodeId,
    keyed::{Stream, key},
};
use graphmill_data::typed::{self, TaskOn, Verify};
use graphmill_loader::{
    BatchKey,
    typed::{TABLE, TypedOptions, TypedRequest, TypedSeeds, TypedWorkspace},
};
use rayon::prelude::*;
use serde_json::json;

/// Draws of a measurement.
pub(crate) struct Draws<'a> {
    /// Fanouts by hop, as `graphmill train` reads them.
    pub(crate) fanout: &'a str,
    pub(crate) batch_size: usize,
    /// Runs of at least so many seconds.
    pub(crate) repeat: usize,
    pub(crate) seconds: f64,
}

/// Prints a line with the median seeds and edges a second of the first task's training nodes.
pub(crate) fn sample(dataset: &str, draws: &Draws) -> Result<()> {
    let data = typed::open(Path::new(dataset), Verify::Once)?;
    let task = data.tasks.first().context("the dataset has no task")?;
    let TaskOn::Nodes(name) = &task.on else { bail!("task '{}' is not on nodes", task.name) };
    let graph = data.graph()?;
    let of = graph.schema().find_type(name)?;
    let fanout = draws.fanout.parse().map_err(anyhow::Error::msg)?;
    let options = TypedOptions { fanout, ..TypedOptions::default() };
    let sampler = (TABLE.find("neighbor")?.make.make)(&options, &graph).map_err(anyhow::Error::msg)?;
    let mut nodes = task.split.train.to_vec();
    Stream::new(key(&[1])).shuffle(&mut nodes);
    let batches: Vec<&[NodeId]> = nodes.chunks(draws.batch_size).collect();
    let threads = rayon::current_num_threads();
    let mut slots: Vec<_> = (0..threads)
        .map(|_| {
            let mut workspace = TypedWorkspace::new(graph.schema());
            workspace.set_parallel(threads == 1);
            (workspace, Some(TypedSeeds::of_type(graph.schema(), 0, of, Vec::new())))
        })
        .collect();
    let mut group = |first: usize| -> Result<[usize; 2]> {
        let drawn = slots.par_iter_mut().enumerate().map(|(i, (workspace, memory))| {
            let number = (first + i) % batches.len();
            let mut lists: Vec<&[NodeId]> = vec![&[]; graph.schema().num_types()];
            lists[of] = batches[number];
            let seeds = memory.take().expect("each draw returns its memory").refill(number as u64, &lists);
            let request = TypedRequest::new(&graph, BatchKey { seed: 1, epoch: 0, batch: number as u64 });
            let batch = sampler.sample(&request, workspace, seeds)?;
            let counts = [batches[number].len(), batch.num_edges()];
            *memory = Some(batch.recycle());
            Ok(counts)
        });
        drawn.try_reduce(|| [0; 2], |a, b| Ok([a[0] + b[0], a[1] + b[1]]))
    };
    group(0)?;
    let (mut turn, mut rates) = (0, [Vec::new(), Vec::new()]);
    for _ in 0..draws.repeat.max(1) {
        let (clock, mut counts) = (Instant::now(), [0; 2]);
        while counts[0] == 0 || clock.elapsed().as_secs_f64() < draws.seconds {
            let drawn = group(turn)?;
            turn += threads;
            counts = [counts[0] + drawn[0], counts[1] + drawn[1]];
        }
        let elapsed = clock.elapsed().as_secs_f64();
        rates.iter_mut().zip(counts).for_each(|(rates, count)| rates.push(count as f64 / elapsed));
    }
    let [seeds, edges] = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    });
    let line = json!({
        "system": "graphmill", "threads": threads, "seeds_per_second": seeds, "edges_per_second": edges,
    });
    println!("{line}");
    Ok(())
}
