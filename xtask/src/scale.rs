//! `cargo xtask scale [--from 20] [--to 25] [--generator kronecker|uniform] [--rounds 3] [--threads
//! N] [--dim 64] [--data DIR] [--out FILE]`: time of a minibatch on graphs of equal average degree,
//! from small ones to ones that exceed every cache: it should be constant.
//!
//! GraphSAGE, 2 layers, hidden 256, fanout 15,10, batches of 1024, average degree 16. Every graph
//! is generated on disk and `graphmill train --max-batches` trains on it from there; a run is a
//! warm-up epoch and eight counted epochs, and runs alternate between the graphs, so that other
//! load affects all alike. Times are medians over the epochs of all rounds, each the mean of its
//! batches.
//!
//! `kronecker` has the default initiator: hubs and isolated nodes, more of them in larger graphs,
//! so that batch sizes differ. `uniform` has four equal initiator entries: the same degree
//! distribution at every size.
//!
//! Missing graphs are generated below `--data` and stay there; without it they are removed at the
//! end.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::graphs::{self, median, number};

/// Batches of an epoch (many, because a pass over the training nodes to order the seeds evicts the
/// caches), and counted epochs.
const BATCHES: usize = 50;
const EPOCHS: usize = 8;

/// Options of the command.
struct Options {
    from: u32,
    to: u32,
    generator: String,
    rounds: usize,
    threads: usize,
    dim: usize,
    data: Option<PathBuf>,
    out: Option<PathBuf>,
}

/// Figures of one graph.
struct Point {
    scale: u32,
    dir: PathBuf,
    edges: u64,
    /// Seconds of sample, extract and train per batch of each counted epoch.
    epochs: Vec<[f64; 3]>,
    /// Sizes of a batch: sampled edges, rows read in place, distinct input nodes.
    sizes: [f64; 3],
    /// Seconds to order the seeds of an epoch, the only step that grows with the graph.
    order: f64,
    peak: f64,
}

/// Runs the measurement.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let options = parse(words)?;
    super::build_release()?;
    let points = graphs::with_directory(options.data.as_deref(), |dir| measure(&options, dir))?;
    let report = report(&options, &points)?;
    if let Some(out) = &options.out {
        fs::write(out, serde_json::to_string_pretty(&report)? + "\n")?;
    }
    Ok(())
}

fn parse(words: &[&str]) -> Result<Options> {
    let mut o = Options {
        from: 20,
        to: 25,
        generator: "kronecker".into(),
        rounds: 3,
        threads: 0,
        dim: 64,
        data: None,
        out: None,
    };
    for pair in words.chunks(2) {
        let [name, value] = *pair else { bail!("{} wants a value", pair[0]) };
        match name {
            "--from" => o.from = value.parse()?,
            "--to" => o.to = value.parse()?,
            "--rounds" => o.rounds = value.parse()?,
            "--threads" => o.threads = value.parse()?,
            "--dim" => o.dim = value.parse()?,
            "--data" => o.data = Some(value.into()),
            "--out" => o.out = Some(value.into()),
            "--generator" => o.generator = graphs::generator(value)?,
            other => bail!(
                "no option {other}; known: --from, --to, --generator, --rounds, --threads, --dim, --data, \
                 --out"
            ),
        }
    }
    ensure!(
        o.from <= o.to && o.rounds > 0,
        "--from {} --to {} --rounds {}: nothing to measure",
        o.from,
        o.to,
        o.rounds
    );
    Ok(o)
}

fn measure(options: &Options, dir: &Path) -> Result<Vec<Point>> {
    let mut points = Vec::new();
    for scale in options.from..=options.to {
        let dir = graphs::generated(dir, &options.generator, scale, 16, options.dim)?;
        points.push(Point {
            scale,
            dir,
            edges: 0,
            epochs: Vec::new(),
            sizes: [0.0; 3],
            order: 0.0,
            peak: 0.0,
        });
    }
    for _ in 0..options.rounds {
        for point in &mut points {
            train(options, point)?;
        }
    }
    Ok(points)
}

/// Executes one run on a graph.
fn train(options: &Options, point: &mut Point) -> Result<()> {
    let line = |epochs: usize, fused: &str| {
        format!(
            "--fanout 15,10 --batch-size 1024 --hidden 256 --max-batches {BATCHES} --epochs {epochs} \
             --eval-nodes 1 --fused {fused} --threads {}",
            options.threads
        )
    };
    let summary = |epochs: usize, fused: &str| graphs::train(&line(epochs, fused), &point.dir);
    let found = summary(1 + EPOCHS, "auto")?;
    let epochs = found["epochs"].as_array().context("a summary has epochs")?;
    let batches = BATCHES as f64;
    for epoch in &epochs[1..] {
        point.epochs.push(graphs::stage_times(epoch)?.map(|time| time / batches));
    }
    if point.edges == 0 {
        let last = epochs.last().context("a summary has epochs")?;
        // Rows that are not read in place are gathered once per distinct node.
        let distinct = summary(1, "off")?;
        point.sizes = [
            number(&last["sampled_edges"])? / batches,
            number(&last["traffic"]["host"]["rows"])? / batches,
            number(&distinct["epochs"][0]["traffic"]["host"]["rows"])? / batches,
        ];
        point.order = number(&last["stages"]["order"])?;
        point.edges = found["dataset"]["edges"].as_u64().context("a number of edges")?;
    }
    point.peak = number(&found["peak_rss_bytes"])?.max(point.peak);
    Ok(())
}

/// Prints the table, and returns it as a document.
fn report(options: &Options, points: &[Point]) -> Result<Value> {
    println!(
        "  nodes       edges  ms a batch  least  sample  extract   train  ratio | edges  rows  distinct  \
         ratio | order s  peak GiB"
    );
    let first = points.first().context("at least one graph")?;
    let mut rows = Vec::new();
    for point in points {
        let of = |what: &dyn Fn(&[f64; 3]) -> f64| median(point.epochs.iter().map(what).collect()) * 1e3;
        let sum = |times: &[f64; 3]| times.iter().sum::<f64>();
        let (all, sample, extract, train) = (of(&sum), of(&|t| t[0]), of(&|t| t[1]), of(&|t| t[2]));
        let least = 1e3 * point.epochs.iter().map(sum).fold(f64::INFINITY, f64::min);
        let base = 1e3 * median(first.epochs.iter().map(sum).collect());
        let [edges, read, distinct] = point.sizes;
        let peak = point.peak / f64::from(1 << 30);
        println!(
            "  2^{:<4} {:>11}  {all:>10.3} {least:>6.3}  {sample:>6.3}  {extract:>7.3}  {train:>6.3}  \
             {:>5.3} | \
             {edges:>5.0} {read:>5.0}  {distinct:>8.0}  {:>5.3} | {:>7.3}  {peak:>8.2}",
            point.scale,
            point.edges,
            all / base,
            edges / first.sizes[0],
            point.order
        );
        rows.push(json!({
            "scale": point.scale, "edges": point.edges, "ms": all, "least_ms": least, "sample_ms": sample,
            "extract_ms": extract, "train_ms": train, "ratio": all / base,
            "sampled_edges": edges, "rows_read": read,
            "distinct_inputs": distinct, "order_seconds": point.order, "peak_bytes": point.peak,
            "epochs": point.epochs.len(),
        }));
    }
    Ok(json!({
        "generator": options.generator, "dim": options.dim, "batches_an_epoch": BATCHES, "points": rows,
    }))
}
