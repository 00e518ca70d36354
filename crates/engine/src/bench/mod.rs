//! `graphmill bench`: each hot path of training on its own, beside a limit of the machine.
//!
//! | bench | measures | limit |
//! | --- | --- | --- |
//! | `sample` | order, draws, relabelling | random reads of an array as large as the graph |
//! | `frontier` | node sets of subgraphs | the same |
//! | `gather` | copies of feature rows of random nodes | copying, and reading random rows |
//! | `aggregate` | means over a sampled block, and their transpose | the same |
//! | `gemm` | dense products of a training step | peak of fused multiply-adds |
//! | `epoch` | whole epochs through the trainer, by stage | the model of `cost.rs` |
//!
//! The limits are measured in the same process on the same threads ([`machine`]), because fractions
//! of a limit vary less between machines and loads than absolute figures. Each bench is a file and
//! a row of `TABLE`.
//!
//! A case is a warm-up followed by [`Options::repeat`] runs. A run repeats the work for at least a
//! fiftieth of a second.

#![forbid(unsafe_code)]

mod aggregate;
mod cost;
mod epoch;
mod frontier;
mod gather;
mod gemm;
pub mod machine;
mod measure;
mod result;
mod sample;
#[cfg(test)]
mod tests;
mod text;
mod time;

use std::sync::Arc;

use graphmill_core::{
    NodeId,
    keyed::{Stream, key},
    options::one_of,
    table::{self, Entry},
};
use graphmill_data::{
    Dataset,
    generate::{self, GenerateOptions},
};
use graphmill_loader::sampler;
use serde::Serialize;

use self::{
    machine::Machine,
    measure::{Bench, CLASSES, DIM},
};
pub use self::{measure::Options, result::Measured};
use crate::{
    Error, Result, TrainConfig,
    accelerator::ComputeDevices,
    options::{
        self,
        used::{self, refuse_all},
    },
    run::setup::check_all_reduce,
};

/// All measurements.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of Graphmill.
    pub graphmill: &'static str,
    /// Number of threads.
    pub threads: usize,
    /// Number of runs of every case.
    pub repeat: usize,
    /// Dataset of the measurements.
    pub graph: GraphRecord,
    /// Results by case, limits of the machine first.
    pub results: Vec<Measured>,
}

/// Dataset of the measurements.
#[derive(Clone, Debug, Serialize)]
pub struct GraphRecord {
    /// Name of the dataset.
    pub name: String,
    /// Number of nodes `V`.
    pub nodes: usize,
    /// Number of stored edges `E`.
    pub edges: usize,
    /// Number of feature columns `F`.
    pub feature_dim: usize,
    /// Number of training nodes.
    pub train: usize,
}

/// A bench.
struct Kind {
    /// Measures all cases.
    run: fn(&mut Bench) -> Result<()>,
    /// Options of a run that the bench reads.
    options: fn() -> Vec<&'static str>,
    /// Runs whose components the bench measures.
    runs: fn(&TrainConfig) -> Vec<TrainConfig>,
    /// Decides if these components read an option.
    used: used::Rule,
    /// True if the bench uses feature rows, of the dataset or of the same width.
    rows: bool,
}

/// All benches.
const TABLE: &[Entry<Kind>] = &[
    Entry {
        name: "sample",
        summary: "draw blocks",
        source: "",
        options: &[],
        make: Kind {
            run: sample::run,
            options: || {
                let others = ["bottom", "sample_coverage", "estimator", "seed", "threads", "devices"];
                [&draws()[..], &others[..]].concat()
            },
            runs: one,
            used: used::drawn,
            rows: false,
        },
    },
    Entry {
        name: "frontier",
        summary: "draw subgraphs",
        source: "",
        options: &[],
        make: Kind {
            run: frontier::run,
            options: || frontier::OPTIONS.to_vec(),
            runs: frontier::runs,
            used: used::drawn,
            rows: false,
        },
    },
    Entry {
        name: "gather",
        summary: "copy feature rows of random nodes",
        source: "",
        options: &[],
        make: Kind {
            run: gather::run,
            options: || vec!["seed", "threads", "devices"],
            runs: one,
            used: used::always,
            rows: true,
        },
    },
    Entry {
        name: "aggregate",
        summary: "average rows over a block",
        source: "",
        options: &[],
        make: Kind {
            run: aggregate::run,
            options: || [&draws(), &["seed", "threads", "devices"][..]].concat(),
            runs: one,
            used: used::drawn,
            rows: true,
        },
    },
    Entry {
        name: "gemm",
        summary: "multiply dense matrices",
        source: "",
        options: &[],
        make: Kind {
            run: gemm::run,
            options: || vec!["hidden", "threads", "devices"],
            runs: one,
            used: used::always,
            rows: true,
        },
    },
    Entry {
        name: "epoch",
        summary: "train whole epochs",
        source: "",
        options: &[],
        make: Kind { run: epoch::run, options: epoch::options, runs: one, used: used::whole, rows: true },
    },
];

/// Options that determine the drawn minibatches, except their number, which the bench sets.
fn draws() -> Vec<&'static str> {
    sampler::draws().into_iter().filter(|&name| name != "max_batches").collect()
}

/// The configured run alone.
fn one(config: &TrainConfig) -> Vec<TrainConfig> {
    vec![config.clone()]
}

/// Options of a run that at least one bench reads.
pub fn options() -> Vec<&'static str> {
    let read: Vec<&str> = TABLE.iter().flat_map(|entry| (entry.make.options)()).collect();
    options::names().into_iter().filter(|name| read.contains(name)).collect()
}

/// Refuses the `given` options that the bench called `name` (or `all`) would ignore.
///
/// # Errors
/// Wrong usage, with the reason and the nearest alternative; an unknown bench.
pub fn refuse_unused(name: &str, config: &TrainConfig, given: &[&str]) -> Result<()> {
    let chosen = find(name)?;
    for option in given {
        let reads = |entry: &&Entry<Kind>| (entry.make.options)().contains(option);
        let refuse =
            |Entry { make, .. }: &Entry<Kind>| refuse_all(&(make.runs)(config), &[option], make.used);
        let mut outcomes: Vec<Result<()>> = chosen.iter().filter(reads).map(refuse).collect();
        if outcomes.is_empty() {
            let readers: Vec<&str> = TABLE.iter().filter(reads).map(|entry| entry.name).collect();
            return Err(Error::usage(format!(
                "--{}: bench {name} does not use it; use bench {}, or leave it out",
                option.replace('_', "-"),
                one_of(&readers)
            )));
        }
        if outcomes.iter().all(Result::is_err) {
            return outcomes.swap_remove(0);
        }
    }
    Ok(())
}

/// The bench called `name`, or all benches.
fn find(name: &str) -> Result<&'static [Entry<Kind>]> {
    if name == "all" {
        return Ok(TABLE);
    }
    let found = table::find("bench", TABLE, name).map_err(|error| match error {
        graphmill_core::Error::Unknown { axis, name, known } => {
            Error::name(graphmill_core::Error::Unknown { axis, name, known: format!("{known}, all") })
        }
        other => Error::name(other),
    })?;
    Ok(std::slice::from_ref(found))
}

/// Names and summaries of all benches, for a help text.
pub fn known() -> String {
    TABLE.iter().map(|entry| format!("{}: {}", entry.name, entry.summary)).collect::<Vec<_>>().join("; ")
}

/// Runs the bench called `name` (or `all`) on `data`, or on a generated graph, on the current rayon
/// pool.
///
/// # Errors
/// An unknown bench (the message lists the known ones), impossible options, or a dataset without
/// training nodes.
pub fn run(name: &str, options: &Options, data: Option<Dataset>) -> Result<Report> {
    let chosen = find(name)?;
    options.train.check()?;
    let data = match data {
        Some(_) if options.dim.is_some() && !chosen.iter().any(|entry| entry.make.rows) => {
            let readers = TABLE.iter().filter(|entry| entry.make.rows).map(|entry| entry.name);
            return Err(Error::usage(format!(
                "--dim: bench {name} uses no feature rows; use bench {}, or leave it out",
                one_of(&readers.collect::<Vec<_>>())
            )));
        }
        Some(data) => train_only(data)?,
        None => generated(options)?,
    };
    check_all_reduce(&options.train)?;
    let computers = Arc::new(ComputeDevices::open(&options.train)?);
    let machine = Machine::of(options.repeat, computers.gpus().first());
    let mut bench = Bench { name: "", options, data: &data, computers, machine, results: Vec::new() };
    for entry in chosen {
        bench.name = entry.name;
        (entry.make.run)(&mut bench)?;
    }
    let Bench { machine, results, .. } = bench;
    Ok(Report {
        graphmill: env!("CARGO_PKG_VERSION"),
        threads: rayon::current_num_threads(),
        repeat: options.repeat,
        graph: GraphRecord {
            name: data.name.clone(),
            nodes: data.num_nodes(),
            edges: data.graph.num_edges(),
            feature_dim: data.features.dim,
            train: data.split.train.len(),
        },
        results: machine.into_results().into_iter().chain(results).collect(),
    })
}

/// An R-MAT graph of 2^scale nodes with 16 in-neighbours each on average, the initiator of the
/// Graph500, 100 features and 47 classes. 3/16 of the nodes are training nodes, or all nodes with
/// in-neighbours if these are fewer: R-MAT leaves almost half of the nodes without edges.
fn generated(options: &Options) -> Result<Dataset> {
    let seed = options.train.seed;
    let generate = GenerateOptions {
        scale: options.scale,
        initiator: [[0.57, 0.19], [0.19, 0.05]],
        degree: Some(16.0),
        dim: options.dim.unwrap_or(DIM),
        classes: CLASSES,
        seed,
        ..GenerateOptions::default()
    };
    let mut data =
        generate::generate("kronecker", &generate).map_err(|error| Error::usage(error.to_string()))?;
    data.name = format!("R-MAT of scale {}", options.scale);
    let with_edges = |&v: &NodeId| data.graph.in_degree(v) > 0;
    let mut train: Vec<NodeId> = (0..data.num_nodes() as NodeId).filter(with_edges).collect();
    Stream::new(key(&[seed, 0x7365_6564])).shuffle(&mut train);
    train.truncate((data.num_nodes() * 3 / 16).max(1));
    train.sort_unstable();
    data.split.train = train.into();
    train_only(data)
}

/// The dataset without validation and test nodes, so that runs evaluate nothing.
fn train_only(mut data: Dataset) -> Result<Dataset> {
    if data.split.train.is_empty() {
        return Err(Error::without(
            &data.name,
            "training nodes",
            "--split random:0.6,0.2,0.2",
            "train_mask=",
        ));
    }
    (data.split.valid, data.split.test) = Default::default();
    Ok(data)
}
