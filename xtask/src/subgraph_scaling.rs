//! `cargo xtask subgraph-scaling [--from 20] [--to 24] [--generator kronecker|uniform] [--rounds 3]
//! [--threads N] [--dim 64] [--hidden 512] [--coverage 1] [--degree-cap N] [--data DIR] [--out DIR]
//! [size] [depth] [degree]`: time of an iteration of GraphSAINT training against the size of the
//! graph, the depth of the network and the degree of the graph, as `subgraph-scaling.json` and a
//! plot for each.
//!
//! The settings are those of Zeng et al., JPDC 2021, sections 7.6 and 7.7 (figures 5 and 8):
//! frontier sampling of n = 8000 nodes with a frontier of m = 1000; GraphSAGE of L layers of width
//! 512, and a linear classifier on top. Graphs have an average degree of 16 (`size`), 2^20 nodes
//! (`degree`), or both (`depth`, and L = 2 elsewhere); features are random numbers, because the
//! paper does not state their width.
//!
//! An iteration samples, gathers features and trains on one subgraph, whereas the paper's figure 5
//! shows only the forward and backward pass: the plots separate the stages. Counting for the
//! normalization precedes all iterations and is excluded; its cost per iteration, one number per
//! edge, does not depend on the coverage.
//!
//! A run of `graphmill train` on a point is a warm-up epoch and five counted epochs; runs alternate
//! between the points, so that other load affects all alike. Times are medians over the epochs of
//! all rounds, each the mean of its iterations.
//!
//! `kronecker` has the default initiator: hubs and isolated nodes, more of them in larger graphs,
//! so that subgraphs differ: their nodes and edges are reported. `uniform` has four equal initiator
//! entries: the same degree distribution at every size.
//!
//! Missing graphs are generated below `--data` and stay there; without it they are removed at the
//! end.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::{
    graphs::{self, STAGES, median, number},
    plot::{self, Plot},
};

/// Iterations of an epoch, and epochs that count.
const ITERATIONS: usize = 6;
const EPOCHS: usize = 5;

/// Options of the command.
struct Options {
    from: u32,
    to: u32,
    generator: String,
    rounds: usize,
    threads: usize,
    dim: usize,
    hidden: usize,
    coverage: f64,
    degree_cap: usize,
    data: Option<PathBuf>,
    out: PathBuf,
    sweeps: Vec<&'static Sweep>,
}

/// A graph and a depth.
#[derive(Clone, Copy, PartialEq)]
struct Setting {
    scale: u32,
    degree: usize,
    layers: usize,
}

/// Sweep over one parameter.
struct Sweep {
    name: &'static str,
    title: &'static str,
    axis: &'static str,
    /// Values, and their settings. The first argument is the range of sizes; the smallest is the
    /// size elsewhere.
    points: fn([u32; 2]) -> Vec<(f64, Setting)>,
    /// True if times should lie on a line, false if they should be equal.
    linear: bool,
}

const SWEEPS: &[Sweep] = &[
    Sweep {
        name: "size",
        title: "Time of an iteration against the size of the graph",
        axis: "nodes of the graph, 2^x",
        points: |[from, to]| {
            (from..=to).map(|scale| (f64::from(scale), Setting { scale, degree: 16, layers: 2 })).collect()
        },
        linear: false,
    },
    Sweep {
        name: "depth",
        title: "Time of an iteration against the depth",
        axis: "layers L",
        points: |[scale, _]| {
            (1..=6).map(|layers| (layers as f64, Setting { scale, degree: 16, layers })).collect()
        },
        linear: true,
    },
    Sweep {
        name: "degree",
        title: "Time of an iteration against the degree of the graph",
        axis: "neighbours drawn for each node, on average",
        points: |[scale, _]| {
            [8, 16, 32, 64, 128].map(|degree| (degree as f64, Setting { scale, degree, layers: 2 })).to_vec()
        },
        linear: true,
    },
];

/// Figures of one setting.
struct Point {
    setting: Setting,
    /// Seconds of each stage per iteration of each counted epoch.
    epochs: Vec<[f64; 3]>,
    /// Nodes and edges of a subgraph.
    size: [f64; 2],
    /// Stored edges of the graph for each node.
    stored_degree: f64,
    peak: f64,
}

/// Runs the measurement and draws the plots.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let options = parse(words)?;
    super::build_release()?;
    let points = graphs::with_directory(options.data.as_deref(), |dir| measure(&options, dir))?;
    report(&options, &points)
}

fn parse(words: &[&str]) -> Result<Options> {
    let mut o = Options {
        from: 20,
        to: 24,
        generator: "kronecker".into(),
        rounds: 3,
        threads: 0,
        dim: 64,
        hidden: 512,
        coverage: 1.0,
        degree_cap: 3000,
        data: None,
        out: "book/src/figures".into(),
        sweeps: Vec::new(),
    };
    let mut rest = words.iter().copied();
    while let Some(word) = rest.next() {
        if let Some(sweep) = SWEEPS.iter().find(|sweep| sweep.name == word) {
            o.sweeps.push(sweep);
            continue;
        }
        let mut value = || rest.next().with_context(|| format!("{word} wants a value"));
        match word {
            "--from" => o.from = value()?.parse()?,
            "--to" => o.to = value()?.parse()?,
            "--generator" => o.generator = graphs::generator(value()?)?,
            "--rounds" => o.rounds = value()?.parse()?,
            "--threads" => o.threads = value()?.parse()?,
            "--dim" => o.dim = value()?.parse()?,
            "--hidden" => o.hidden = value()?.parse()?,
            "--coverage" => o.coverage = value()?.parse()?,
            "--degree-cap" => o.degree_cap = value()?.parse()?,
            "--data" => o.data = Some(value()?.into()),
            "--out" => o.out = value()?.into(),
            other => bail!(
                "no sweep or option {other}; known: size, depth, degree, --from, --to, --generator, \
                 --rounds, --threads, \
                 --dim, --hidden, --coverage, --degree-cap, --data, --out"
            ),
        }
    }
    if o.sweeps.is_empty() {
        o.sweeps = SWEEPS.iter().collect();
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

/// Measures every setting of the sweeps once.
fn measure(options: &Options, dir: &Path) -> Result<Vec<Point>> {
    let mut points: Vec<Point> = Vec::new();
    for (_, setting) in options.sweeps.iter().flat_map(|sweep| (sweep.points)([options.from, options.to])) {
        if points.iter().all(|point| point.setting != setting) {
            let point = Point { setting, epochs: Vec::new(), size: [0.0; 2], stored_degree: 0.0, peak: 0.0 };
            points.push(point);
        }
    }
    for _ in 0..options.rounds {
        for point in &mut points {
            train(options, dir, point)?;
        }
    }
    Ok(points)
}

/// Executes one run.
fn train(options: &Options, dir: &Path, point: &mut Point) -> Result<()> {
    let Setting { scale, degree, layers } = point.setting;
    let graph = graphs::generated(dir, &options.generator, scale, degree, options.dim)?;
    let line = format!(
        "--sampler frontier --batch-size 8000 --frontier-size 1000 --degree-cap {} --coverage {} \
         --layers {layers} --hidden {} --head-layers 1 --max-batches {ITERATIONS} --epochs {} --eval-nodes 1 \
         --threads {}",
        options.degree_cap,
        options.coverage,
        options.hidden,
        1 + EPOCHS,
        options.threads
    );
    let summary = graphs::train(&line, &graph)?;
    let iterations = ITERATIONS as f64;
    let epochs = summary["epochs"].as_array().context("a summary has epochs")?;
    point.size = [0.0; 2];
    let before = point.epochs.len();
    for epoch in &epochs[1..] {
        point.epochs.push(graphs::stage_times(epoch)?.map(|time| time / iterations));
        for (size, name) in point.size.iter_mut().zip(["seeds", "sampled_edges"]) {
            *size += number(&epoch[name])? / iterations / EPOCHS as f64;
        }
    }
    let of_run = point.epochs[before..].iter().map(|times| 1e3 * times.iter().sum::<f64>()).collect();
    eprintln!("  {:.2} ms an iteration", median(of_run));
    let dataset = &summary["dataset"];
    point.stored_degree = number(&dataset["edges"])? / number(&dataset["nodes"])?;
    point.peak = number(&summary["peak_rss_bytes"])?.max(point.peak);
    Ok(())
}

/// Prints the tables, draws the plots, and writes the document.
fn report(options: &Options, points: &[Point]) -> Result<()> {
    fs::create_dir_all(&options.out)?;
    let mut sweeps = Vec::new();
    for sweep in &options.sweeps {
        let (x, points): (Vec<f64>, Vec<&Point>) = (sweep.points)([options.from, options.to])
            .into_iter()
            .map(|(x, setting)| (x, points.iter().find(|p| p.setting == setting).expect("it was measured")))
            .unzip();
        sweeps.push(report_sweep(options, sweep, &x, &points)?);
    }
    let document = json!({
        "generator": options.generator, "dim": options.dim, "hidden": options.hidden,
        "threads": options.threads,
        "coverage": options.coverage, "degree_cap": options.degree_cap,
        "rounds": options.rounds, "sweeps": sweeps,
    });
    fs::write(options.out.join("subgraph-scaling.json"), serde_json::to_string_pretty(&document)? + "\n")?;
    Ok(())
}

fn report_sweep(options: &Options, sweep: &Sweep, x: &[f64], points: &[&Point]) -> Result<Value> {
    println!(
        "{:>7}  ms an iteration   min .. max   | sample  extract    train | nodes   edges  stored degree | \
         peak GiB",
        sweep.name
    );
    let mut rows = Vec::new();
    let mut drawn = Vec::new();
    let mut stages: [Vec<f64>; 3] = Default::default();
    for (&x, point) in x.iter().zip(points) {
        let all: Vec<f64> = point.epochs.iter().map(|times| 1e3 * times.iter().sum::<f64>()).collect();
        let range =
            (all.iter().copied().fold(f64::INFINITY, f64::min), all.iter().copied().fold(0.0, f64::max));
        let y = median(all);
        let parts: [f64; 3] =
            std::array::from_fn(|i| median(point.epochs.iter().map(|t| 1e3 * t[i]).collect()));
        stages.iter_mut().zip(parts).for_each(|(all, part)| all.push(part));
        let ([sample, extract, train], [nodes, edges]) = (parts, point.size);
        let (stored, peak) = (point.stored_degree, point.peak / f64::from(1 << 30));
        println!(
            "{x:>7}  {y:>15.2}  {:>6.2} ..{:>6.2} | {sample:>6.3}  {extract:>7.3}  {train:>7.2} | \
             {nodes:>5.0}  {edges:>6.0}  \
             {stored:>13.2} | {peak:>8.2}",
            range.0, range.1
        );
        rows.push(json!({
            "value": x, "median_ms": y, "min_ms": range.0, "max_ms": range.1,
            "sample_ms": sample, "extract_ms": extract,
            "train_ms": train, "nodes": nodes, "edges": edges,
            "stored_degree": stored, "peak_bytes": point.peak,
            "epochs": point.epochs.len(),
        }));
        drawn.push(plot::Point { x, y, range, line: 0.0 });
    }
    let y: Vec<f64> = drawn.iter().map(|point| point.y).collect();
    let (verdict, line) = if sweep.linear {
        let Line { slope, start, r2 } = Line::fit(x, &y);
        drawn.iter_mut().for_each(|point| point.line = start + slope * point.x);
        let verdict_text = format!("{slope:.3} ms x + {start:.2} ms, R^2 = {r2:.4}");
        println!("        line: {verdict_text}\n");
        (json!({ "slope_ms": slope, "start_ms": start, "r2": r2 }), verdict_text)
    } else {
        let spread = |y: &[f64]| {
            y.iter().copied().fold(0.0, f64::max) / y.iter().copied().fold(f64::INFINITY, f64::min)
        };
        let middle = median(y.clone());
        drawn.iter_mut().for_each(|point| point.line = middle);
        let of_stages: Vec<f64> = stages.iter().map(|part| spread(part)).collect();
        println!("        largest by least: {:.3}; by stage: {of_stages:.3?}\n", spread(&y));
        (json!({ "max_by_min": spread(&y), "max_by_min_of_stages": of_stages }), "median".into())
    };
    let subtitle = format!(
        "{}{}, frontier n = 8000, m = 1000, GraphSAGE {}{}, {} features",
        options.generator,
        if sweep.name == "size" { ", degree 16".into() } else { format!(" 2^{}", options.from) },
        if sweep.name == "depth" { String::new() } else { "2 x ".into() },
        options.hidden,
        options.dim
    );
    let parts: Vec<(&str, &[f64])> = STAGES.into_iter().zip(stages.iter().map(Vec::as_slice)).collect();
    let plot = Plot {
        title: sweep.title,
        subtitle: &subtitle,
        x: sweep.axis,
        y: "ms",
        names: ["an iteration, min .. max", &line],
        doubling: false,
        points: &drawn,
        parts: &parts,
    };
    fs::write(options.out.join(format!("subgraph-{}.svg", sweep.name)), plot.svg())?;
    Ok(json!({ "sweep": sweep.name, "axis": sweep.axis, "on": subtitle, "points": rows, "verdict": verdict }))
}

/// A least-squares line, and the share of the variance that it explains.
struct Line {
    slope: f64,
    start: f64,
    r2: f64,
}

impl Line {
    /// Fits a line to at least two different `x`.
    fn fit(x: &[f64], y: &[f64]) -> Self {
        let n = x.len() as f64;
        let mean = |values: &[f64]| values.iter().sum::<f64>() / n;
        let (mx, my) = (mean(x), mean(y));
        let product = |a: &[f64], ma: f64, b: &[f64], mb: f64| -> f64 {
            a.iter().zip(b).map(|(a, b)| (a - ma) * (b - mb)).sum()
        };
        let (xx, xy, yy) = (product(x, mx, x, mx), product(x, mx, y, my), product(y, my, y, my));
        let slope = xy / xx;
        Self { slope, start: my - slope * mx, r2: xy * xy / (xx * yy) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_fitted_and_judged() {
        let line = Line::fit(&[1.0, 2.0, 4.0], &[5.0, 7.0, 11.0]);
        assert!((line.slope - 2.0).abs() < 1e-12 && (line.start - 3.0).abs() < 1e-12);
        assert!((line.r2 - 1.0).abs() < 1e-12);
        assert!(Line::fit(&[0.0, 1.0, 2.0], &[1.0, 0.0, 1.0]).r2 < 1e-12);
    }
}
