//! `graphmill bench`: each hot path of training alone, with what the machine can do beside it.
//!
//! ```text
//!   sample   order, draws, relabelling                       beside random reads of as large an array
//!   frontier  subgraphs' nodes: walks of many nodes at once, others   beside the same
//!   gather   feature rows of random nodes, copied            beside copying, and reading random rows
//!   aggregate  means over a sampled block, and their transpose   beside the same
//!   gemm     the dense products of a training step           beside the peak of fused multiply-adds
//!   epoch    whole epochs through the trainer, by stage      beside the model of `cost.rs`
//! ```
//!
//! The limits are measured in the same run, on the same threads ([`machine`]): absolute figures move from
//! machine to machine and with what else runs there, shares of a limit do so less. One file per bench, in `TABLE`.
//!
//! A case is a warm-up and then [`Options::repeat`] runs; a run repeats the work for at least a fiftieth of a second.

mod aggregate;
mod cost;
mod epoch;
mod frontier;
mod gather;
mod gemm;
pub mod machine;
mod sample;
#[cfg(test)]
mod tests;
mod text;
mod time;

use std::sync::Arc;

use graphmill_graph::{
    Dataset, Matrix, NodeId,
    generate::{self, GenerateOptions},
    keyed::{Stream, key},
    table::{self, Entry},
};
use serde::Serialize;

use self::{machine::Machine, time::Times};
use crate::{Error, Result, TrainConfig, gpu::Computers, stage::not_drawn};

/// What to measure, and on what.
#[derive(Clone, Debug)]
pub struct Options {
    /// Fanout, batch size, model, widths, seed. Its dataset and number of epochs play no part.
    pub train: TrainConfig,
    /// `F`: width of the generated features, and of the rows that are gathered and aggregated.
    pub dim: Option<usize>,
    /// Runs of every case, at least 1; the median, the least and the largest are reported.
    pub repeat: usize,
    /// The generated graph has 2^scale nodes.
    pub scale: u32,
}

/// `F` of the generated features.
const DIM: usize = 100;
/// `C` of the generated labels.
const CLASSES: usize = 47;

impl Default for Options {
    fn default() -> Self {
        Self { train: TrainConfig::default(), dim: None, repeat: 5, scale: 18 }
    }
}

/// One case: `median`, `min` and `max` over the runs, in `unit`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The bench; `machine` for what others are held against.
    pub bench: &'static str,
    /// What was done.
    pub case: String,
    /// `GB/s`, `GFLOP/s`, `edges/s`, `seeds/s`, `reads/s`, `subgraphs/s`: more is better; `s`, `ms`: less is.
    pub unit: &'static str,
    /// Over the runs.
    pub median: f64,
    /// Over the runs.
    pub min: f64,
    /// Over the runs.
    pub max: f64,
    /// What the machine can do, in `unit`: the best run of a measurement in the same process, or what the cost model
    /// makes of several.
    pub limit: Option<f64>,
    /// How near the median comes to the limit: 1 is there.
    pub of_limit: Option<f64>,
    /// Where the limit is from.
    pub limit_of: Option<&'static str>,
    /// Reading random rows of this width, in `unit`: the honest limit where rows are not read in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row_limit: Option<f64>,
    /// Median seconds of one call.
    pub seconds: f64,
    /// Runs.
    pub runs: usize,
}

/// What a limit is and where it is from.
#[derive(Clone, Copy, Debug)]
struct Limit {
    value: f64,
    of: &'static str,
    row: Option<f64>,
}

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of this program.
    pub graphmill: &'static str,
    /// Threads.
    pub threads: usize,
    /// Runs of every case.
    pub repeat: usize,
    /// The dataset.
    pub graph: GraphRecord,
    /// Case by case; the machine's own first.
    pub results: Vec<Measured>,
}

/// What was measured on.
#[derive(Clone, Debug, Serialize)]
pub struct GraphRecord {
    /// Its name.
    pub name: String,
    /// `V`.
    pub nodes: usize,
    /// `E`, as stored.
    pub edges: usize,
    /// `F`.
    pub feature_dim: usize,
    /// Nodes that train.
    pub train: usize,
}

/// A bench at work: what it measures on, and where its results go.
struct Bench<'b> {
    name: &'static str,
    options: &'b Options,
    data: &'b Dataset,
    computers: Arc<Computers>,
    machine: Machine,
    results: Vec<Measured>,
}

/// Measures.
type Run = fn(&mut Bench) -> Result<()>;

/// Every bench there is.
const TABLE: &[Entry<Run>] = &[
    Entry { name: "sample", summary: "draw blocks", source: "", make: sample::run },
    Entry { name: "frontier", summary: "draw subgraphs", source: "", make: frontier::run },
    Entry { name: "gather", summary: "copy feature rows of random nodes", source: "", make: gather::run },
    Entry { name: "aggregate", summary: "average rows over a block", source: "", make: aggregate::run },
    Entry { name: "gemm", summary: "multiply dense matrices", source: "", make: gemm::run },
    Entry { name: "epoch", summary: "train whole epochs", source: "", make: epoch::run },
];

/// The bench's names with what they do, for a help text.
pub fn known() -> String {
    TABLE.iter().map(|entry| format!("{}: {}", entry.name, entry.summary)).collect::<Vec<_>>().join("; ")
}

/// Runs the bench called `name` (or `all`) on `data`, or on a generated graph, on the current rayon pool.
///
/// # Errors
/// No such bench (the known ones are listed), options that cannot be, a dataset that cannot be trained on.
pub fn run(name: &str, options: &Options, data: Option<Dataset>) -> Result<Report> {
    let chosen = if name == "all" {
        TABLE
    } else {
        std::slice::from_ref(table::find("bench", TABLE, name).map_err(|error| match error {
            graphmill_graph::Error::Unknown { axis, name, known } => {
                Error::name(graphmill_graph::Error::Unknown { axis, name, known: format!("{known}, all") })
            }
            other => Error::name(other),
        })?)
    };
    options.train.validate()?;
    let data = match data {
        Some(data) => alone(data)?,
        None => generated(options)?,
    };
    let computers = Arc::new(Computers::open(&options.train)?);
    let machine = Machine::new(options.repeat, computers.gpus().first().map(|gpu| gpu.backend.queue()));
    let mut bench = Bench { name: "", options, data: &data, computers, machine, results: Vec::new() };
    for entry in chosen {
        bench.name = entry.name;
        (entry.make)(&mut bench)?;
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

/// An R-MAT graph of 2^scale nodes, 16 in-neighbours each on average, with the Graph500's initiator, 100 features and 47
/// classes. 3/16 of its nodes train, as long as there are so many with an edge: R-MAT leaves almost half without.
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
    alone(data)
}

/// The dataset with its training nodes alone: nothing is evaluated.
fn alone(mut data: Dataset) -> Result<Dataset> {
    if data.split.train.is_empty() {
        let mend = "it has no training nodes: import it with --split, for example --split random:0.6,0.2,0.2";
        return Err(Error::dataset(&data.name, mend));
    }
    (data.split.valid, data.split.test) = Default::default();
    Ok(data)
}

impl Bench<'_> {
    /// Seeds per batch.
    fn seeds(&self) -> usize {
        let (wanted, all) = (self.options.train.batch_size, self.data.split.train.len());
        if wanted == 0 { all } else { wanted.min(all) }
    }

    /// Times `work` inside the pool, to its end where it is only queued.
    fn time(&self, work: impl FnMut() + Send) -> Times {
        time::time(self.options.repeat, work, &|| _ = self.computers.training().settle(0.0))
    }

    /// Records a rate: each call did `amount` of the unit's thing.
    fn rate(
        &mut self,
        case: impl Into<String>,
        unit: &'static str,
        amount: f64,
        times: &Times,
        limit: impl Into<Option<Limit>>,
    ) {
        let limit = limit.into();
        let (least, median, most) = times.spread();
        let median_rate = amount / median;
        self.results.push(Measured {
            bench: self.name,
            case: case.into(),
            unit,
            median: median_rate,
            min: amount / most,
            max: amount / least,
            limit: limit.map(|limit| limit.value),
            of_limit: limit.map(|limit| median_rate / limit.value),
            limit_of: limit.map(|limit| limit.of),
            row_limit: limit.and_then(|limit| limit.row),
            seconds: median,
            runs: times.len(),
        });
    }

    /// Records a duration in seconds; `ms` is shown as such.
    fn duration(&mut self, case: impl Into<String>, unit: &'static str, times: &Times, limit: Option<Limit>) {
        let (least, median, most) = times.spread();
        let scale = if unit == "ms" { 1e3 } else { 1.0 };
        self.results.push(Measured {
            bench: self.name,
            case: case.into(),
            unit,
            median: median * scale,
            min: least * scale,
            max: most * scale,
            limit: limit.map(|limit| limit.value * scale),
            of_limit: limit.filter(|_| median > 0.0).map(|limit| limit.value / median),
            limit_of: limit.map(|limit| limit.of),
            row_limit: None,
            seconds: median,
            runs: times.len(),
        });
    }

    /// What moving rows of `width` values is held against, in GB/s.
    fn moving(&mut self, width: usize) -> Result<Limit> {
        let row = self.computers.gpus().is_empty().then(|| self.machine.random_rows(width));
        Ok(Limit { value: self.machine.copy()?, of: "copy", row })
    }
}

/// `rows x cols` of small random values.
fn random(rows: usize, cols: usize) -> Matrix {
    let mut matrix = Matrix::zeros(rows, cols);
    let mut stream = Stream::new(key(&[rows as u64, cols as u64]));
    matrix.view_mut().host().fill_with(|| stream.uniform() as f32 - 0.5);
    matrix
}
