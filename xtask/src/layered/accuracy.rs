//! Test scores against exact training.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{
    COMPUTERS, FB100, Options, PUBMED, Source, W2,
    curves::{Curve, svg},
    imported, work,
};
use crate::{graphs::number, runs};

/// Dataset, and the training options of all its runs.
struct Case {
    source: Source,
    train: &'static str,
    /// True if it takes so long that it must be selected by name.
    named: bool,
}

const CASES: &[Case] = &[
    Case {
        source: COMPUTERS,
        train: "--layers 2 --hidden 128 --lr 0.003 --dropout 0.1 --fanout 15,10 --batch-size 256 --epochs 30",
        named: false,
    },
    Case {
        source: PUBMED,
        train: "--layers 2 --hidden 128 --lr 0.003 --dropout 0.1 --fanout 15,10 --batch-size 256 --epochs 40",
        named: false,
    },
    Case {
        source: FB100,
        train: "--layers 2 --hidden 128 --lr 0.003 --dropout 0.1 --fanout 10,10 --batch-size 1024 --epochs 8 \
                --eval-nodes 10000",
        named: true,
    },
    Case {
        source: W2,
        train: "--layers 2 --hidden 256 --lr 0.003 --dropout 0.5 --fanout 10,25 --batch-size 1024 --epochs 5 \
            --eval-nodes 10000",
        named: true,
    },
];

/// Models, and whether their bottom layers have reusable aggregates: attention has none.
const MODELS: &[(&str, bool)] = &[("gcn", true), ("sage", true), ("gat", false)];

/// Variant of training.
struct Variant {
    /// Name as a `WORD`.
    word: &'static str,
    /// Name in the table and the plot.
    name: &'static str,
    options: &'static str,
    /// True if it differs from the others only for reusable aggregates.
    keeps: bool,
}

/// Variants, with exact training first.
const VARIANTS: &[Variant] = &[
    Variant { word: "exact", name: "exact", options: "--strategy sequential", keeps: false },
    Variant {
        word: "layered",
        name: "layered, n = 4",
        options: "--strategy layered --super-batch 4 --hot-ratio 0.3",
        keeps: false,
    },
    Variant {
        word: "directions",
        name: "layered without gradients",
        options: "--strategy layered --super-batch 4 --hot-ratio 0.3 --hot-gradient none",
        keeps: true,
    },
    Variant {
        word: "constants",
        name: "constants, as the released code",
        options: "--strategy layered --super-batch 4 --hot-ratio 0.3 --hot-rank 0 --hot-gradient none",
        keeps: true,
    },
    Variant {
        word: "kept",
        name: "kept gradients (section 4.1.1)",
        options: "--strategy layered --super-batch 4 --hot-ratio 0.3 --hot-rank 0 --hot-gradient kept",
        keeps: true,
    },
    Variant {
        word: "n8",
        name: "layered, n = 8",
        options: "--strategy layered --super-batch 8 --hot-ratio 0.3",
        keeps: false,
    },
    Variant {
        word: "n16",
        name: "layered, n = 16",
        options: "--strategy layered --super-batch 16 --hot-ratio 0.3",
        keeps: false,
    },
    Variant {
        word: "ahead",
        name: "layered ahead, n = 4",
        options: "--strategy layered --super-batch 4 --hot-ratio 0.3 --hot-ahead on",
        keeps: false,
    },
    Variant {
        word: "historical",
        name: "unbounded, as GNNAutoScale",
        options: "--strategy historical",
        keeps: false,
    },
];

/// Result of a run.
struct Outcome {
    test: f64,
    /// Validation score of each epoch.
    valid: Vec<f64>,
    /// Shares of the requested rows: reused, and computed for reuse.
    reused: f64,
    made: f64,
    staleness: [f64; 2],
    /// Epsilon of the last epoch.
    variation: f64,
}

/// Prints the table and writes the plots.
pub(super) fn run(options: &Options) -> Result<()> {
    println!(
        "| dataset | model | | test, % | to exact, same seeds | rows reused, % | made, % | staleness, most \
         (bound) | epsilon |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let free: Vec<&str> = CASES.iter().map(|case| case.source.name).collect();
    for case in CASES {
        let name = case.source.name;
        if !options.wants(name, free.iter().copied())
            || case.named && !options.words.iter().any(|w| w == name)
        {
            continue;
        }
        let data = imported(&options.datasets, &case.source)?;
        for &(model, keeps) in MODELS {
            if options.wants(model, MODELS.iter().map(|model| model.0)) {
                compare(options, case, &data, model, keeps)?;
            }
        }
    }
    Ok(())
}

/// Prints the rows and draws the plot of a dataset and a model.
fn compare(options: &Options, case: &Case, data: &Path, model: &str, keeps: bool) -> Result<()> {
    let words = || VARIANTS.iter().map(|variant| variant.word);
    let variants: Vec<&Variant> = VARIANTS
        .iter()
        .filter(|variant| variant.word == "exact" || options.wants(variant.word, words()))
        .filter(|variant| keeps || !variant.keeps)
        .collect();
    let seeds = options.runs.unwrap_or(5);
    let name = case.source.name;
    let outcomes = runs::side_by_side(variants.len() * seeds, &|run| {
        one(case, data, model, variants[run / seeds], run % seeds)
    })?;
    let of: Vec<&[Outcome]> = outcomes.chunks(seeds).collect();
    let tests = |outcomes: &[Outcome]| outcomes.iter().map(|o| 100.0 * o.test).collect::<Vec<f64>>();
    for (variant, outcomes) in variants.iter().zip(&of) {
        let scores = tests(outcomes);
        let to_exact: Vec<f64> = scores.iter().zip(tests(of[0])).map(|(this, exact)| this - exact).collect();
        let mean = |f: fn(&Outcome) -> f64| outcomes.iter().map(f).sum::<f64>() / seeds as f64;
        let most = |i: usize| outcomes.iter().map(|o| o.staleness[i]).fold(0.0, f64::max);
        let row = format!("| {name} | {model} | {} | {} |", variant.name, runs::mean_and_deviation(&scores));
        if variant.word == "exact" {
            println!("{row} | | | | |");
        } else {
            // Unbounded reuse does not monitor the weights.
            let variation = mean(|o| o.variation);
            let variation = if variation > 0.0 { format!("{variation:.3}") } else { String::new() };
            println!(
                "{row} {} | {:.1} | {:.1} | {} ({}) | {variation} |",
                runs::mean_and_deviation(&to_exact),
                100.0 * mean(|o| o.reused),
                100.0 * mean(|o| o.made),
                most(0),
                most(1),
            );
        }
    }
    let curves: Vec<Curve> = variants
        .iter()
        .zip(&of)
        .map(|(variant, outcomes)| Curve {
            name: variant.name,
            scores: (0..outcomes[0].valid.len())
                .map(|epoch| 100.0 * outcomes.iter().map(|o| o.valid[epoch]).sum::<f64>() / seeds as f64)
                .collect(),
        })
        .collect();
    let title = format!("{name}, {model}: mean of {seeds} seeds");
    fs::write(work()?.join(format!("layered-{name}-{model}.svg")), svg(&title, &curves))?;
    Ok(())
}

fn one(case: &Case, data: &Path, model: &str, variant: &Variant, seed: usize) -> Result<Outcome> {
    let out = work()?.join(format!("layered-{}-{model}-{}-{seed}", case.source.name, variant.word));
    let _ = fs::remove_dir_all(&out);
    let line = format!(
        "train --model {model} {} {} --sparse off --seed {seed} --threads 1 --json --quiet --out",
        case.train, variant.options
    );
    let mut words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
    words.extend([&out, data].map(|path| path.display().to_string()));
    let summary: Value = serde_json::from_str(&crate::graphmill(&words)?)?;
    fs::remove_dir_all(&out)?;
    let epochs = summary["epochs"].as_array().context("a summary has epochs")?;
    let valid = epochs.iter().map(|epoch| number(&epoch["valid_score"])).collect::<Result<_>>()?;
    let reuse = &epochs.last().context("there is an epoch")?["reuse"];
    let of = |name: &str| reuse[name].as_f64().unwrap_or(0.0);
    let asked = of("asked_rows").max(1.0);
    let staleness = &summary["staleness"];
    Ok(Outcome {
        test: number(&summary["test"]["score"])?,
        valid,
        reused: of("reused_rows") / asked,
        made: of("made_rows") / asked,
        staleness: [number(&staleness["max"])?, number(&staleness["bound"])?],
        variation: of("variation"),
    })
}
