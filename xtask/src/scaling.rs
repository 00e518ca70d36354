//! `cargo xtask scaling [--quick] [--threads N] [--out DIR] [NAME ...]`: time per batch of
//! GraphSAGE against fanout, batch size, feature width, hidden width and depth, on a generated
//! graph, as `scaling.json` and a plot for each sweep.
//!
//! The line is the cost model's prediction, which `graphmill bench epoch` makes from the sampled
//! blocks' sizes and the machine's limits in the same process: bytes by bandwidth plus operations
//! by peak (`crates/engine/src/bench/cost.rs`).

use std::{fs, path::PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::plot::{Plot, Point};

/// Constant parameters.
const FIXED: &str = "GraphSAGE, else K = 15,10, B = 1024, F = 100, H = 256";

/// Sweep over one parameter.
struct Sweep {
    name: &'static str,
    title: &'static str,
    axis: &'static str,
    /// True if its values double.
    doubling: bool,
    values: &'static [usize],
    /// Options of `graphmill bench epoch` for a value.
    options: fn(usize) -> String,
}

/// Every sweep.
const SWEEPS: &[Sweep] = &[
    Sweep {
        name: "fanout",
        title: "Time per batch against the fanout",
        axis: "fanout K of both layers",
        doubling: false,
        values: &[2, 5, 10, 15, 20, 25, 30],
        options: |k| format!("--fanout {k},{k}"),
    },
    Sweep {
        name: "batch",
        title: "Time per batch against the batch size",
        axis: "seeds per batch B",
        doubling: true,
        values: &[128, 256, 512, 1024, 2048, 4096, 8192],
        options: |b| format!("--batch-size {b}"),
    },
    Sweep {
        name: "features",
        title: "Time per batch against the features' width",
        axis: "features F",
        doubling: true,
        values: &[16, 32, 64, 128, 256, 512],
        options: |f| format!("--dim {f}"),
    },
    Sweep {
        name: "hidden",
        title: "Time per batch against the hidden width",
        axis: "hidden width H",
        doubling: true,
        values: &[16, 32, 64, 128, 256, 512],
        options: |h| format!("--hidden {h}"),
    },
    Sweep {
        name: "depth",
        title: "Time per batch against the depth",
        axis: "layers L, fanout 5 each",
        doubling: false,
        values: &[1, 2, 3, 4],
        options: |l| format!("--fanout {}", vec!["5"; l].join(",")),
    },
];

/// Runs the sweeps.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let (mut quick, mut threads, mut out, mut names) =
        (false, None, PathBuf::from("book/src/figures"), Vec::new());
    let mut rest = words.iter().copied();
    while let Some(word) = rest.next() {
        match word {
            "--quick" => quick = true,
            "--threads" => threads = Some(rest.next().context("--threads wants a number")?),
            "--out" => out = rest.next().context("--out wants a directory")?.into(),
            name if SWEEPS.iter().any(|sweep| sweep.name == name) => names.push(name),
            other => {
                let known: Vec<_> = SWEEPS.iter().map(|sweep| sweep.name).collect();
                bail!("no sweep or option {other}; known: {}, --quick, --threads, --out", known.join(", "));
            }
        }
    }
    super::build_release()?;
    fs::create_dir_all(&out)?;
    let mut sweeps = Vec::new();
    for sweep in SWEEPS.iter().filter(|sweep| names.is_empty() || names.contains(&sweep.name)) {
        let mut points = Vec::new();
        let mut about = String::new();
        for &value in sweep.values.iter().take(if quick { 3 } else { usize::MAX }) {
            let fixed = if quick { "--scale 13 --repeat 1" } else { "--scale 18 --repeat 5" };
            let threads = threads.map_or(String::new(), |n| format!("--threads {n}"));
            let line = format!("bench epoch --json {fixed} {threads} {}", (sweep.options)(value));
            eprintln!("graphmill {line}");
            let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
            let report: Value = serde_json::from_str(&super::graphmill(&words)?)?;
            points.push(point(&report, value as f64)?);
            let (graph, threads) = (&report["graph"]["name"], &report["threads"]);
            about = format!("{}, {threads} threads; {FIXED}", graph.as_str().unwrap_or_default());
        }
        let plot = Plot {
            title: sweep.title,
            subtitle: &about,
            x: sweep.axis,
            y: "ms a batch",
            names: ["measured, min .. max", "cost model at the machine's limits"],
            doubling: sweep.doubling,
            points: &points,
            parts: &[],
        };
        fs::write(out.join(format!("scaling-{}.svg", sweep.name)), plot.svg())?;
        let rows = points.iter().map(|p| {
            let (min, max) = p.range;
            json!({ "value": p.x, "median_ms": p.y, "min_ms": min, "max_ms": max, "model_ms": p.line })
        });
        let rows: Vec<_> = rows.collect();
        sweeps.push(json!({ "sweep": sweep.name, "axis": sweep.axis, "on": about, "points": rows }));
    }
    let mut text = serde_json::to_string_pretty(&json!({ "sweeps": sweeps }))?;
    text.push('\n');
    fs::write(out.join("scaling.json"), text)?;
    Ok(())
}

/// Time of a batch and its prediction.
fn point(report: &Value, x: f64) -> Result<Point> {
    let rows = report["results"].as_array().context("a report has results")?;
    let row = rows.iter().find(|row| row["case"].as_str().is_some_and(|case| case.ends_with(": a batch")));
    let row = row.context("a report has the time of a batch")?;
    ensure!(row["unit"] == "ms", "the time of a batch is in ms");
    let number = |name: &str| row[name].as_f64().with_context(|| format!("no {name} in {row}"));
    Ok(Point { x, y: number("median")?, range: (number("min")?, number("max")?), line: number("limit")? })
}
