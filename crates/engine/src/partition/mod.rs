//! `graphmill partition`: partitions a dataset by a method of [`graphmill_data::partition`], and
//! measures the communication of training over the parts.
//!
//! - [`requests`]: requests between parts in an epoch, counted by drawing its minibatches;
//!   [`requests_of_ranks`] between the ranks of a run.
//! - [`drawing_seconds`]: time in which a graph store draws for the ranks that train.
//! - [`locality`]: fraction of the training nodes' neighbourhoods that lies in their own parts.
//! - [`rank_cache`]: share of the requested rows that a rank's cache serves.
//! - [`plot::svg`]: a plot of both.

#![forbid(unsafe_code)]

mod advice;
mod drawing;
mod locality;
pub mod plot;
mod rank_cache;
mod requests;
mod text;

use std::{path::Path, time::Instant};

use graphmill_core::{Graph, Labels, NodeId, options::one_of, progress::Progress};
use graphmill_data::{
    Dataset,
    partition::{self, Description, KnownParts, PartitionBook, Partitioner},
};
use graphmill_loader::{order::proximity, sampler};
use rayon::prelude::*;
use serde::Serialize;
use serde_json::json;

pub use advice::Advice;
pub use drawing::drawing_seconds;
pub use locality::locality;
pub use rank_cache::{RankCache, rank_cache};
pub use requests::{CrossRequests, Hop, requests, requests_of_ranks};

use crate::{Error, Result, TrainConfig};

/// Methods to compare, and the run to measure them by.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names of methods; without effect with `like`.
    pub methods: Vec<String>,
    /// Earlier partition whose parts known nodes keep, instead of a method.
    pub like: Option<KnownParts>,
    /// Options of the methods.
    pub partition: partition::Options,
    /// Options of the run whose minibatches are drawn.
    pub train: TrainConfig,
    /// Maximum number of drawn minibatches; 0 for an epoch.
    pub batches: u64,
}

/// Balance of the parts: the largest part divided by the mean; at best 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Balance {
    /// Balance of nodes.
    pub nodes: f64,
    /// Balance of training nodes; 1 without training nodes.
    pub train: f64,
}

/// Quality of a partition.
#[derive(Clone, Debug, Serialize)]
pub struct Statistics {
    /// Fraction of edges between different parts.
    pub edge_cut: f64,
    /// Balance of the parts.
    pub balance: Balance,
    /// Fraction of walks of 1, 2 and 3 steps from training nodes that end in the part where they
    /// started; `None` without training nodes.
    pub locality: Option<[f64; 3]>,
    /// Requests between parts in an epoch; `None` without training nodes.
    pub cross_requests: Option<CrossRequests>,
}

/// Method with its name.
pub(crate) type Named = (&'static str, Box<dyn Partitioner>);

/// Result of one method.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Name of the method.
    pub method: String,
    /// Number of parts `K`.
    pub parts: u16,
    /// Quality of the partition.
    #[serde(flatten)]
    pub statistics: Statistics,
    /// Seconds of partitioning, without the measurement.
    pub seconds: f64,
}

/// Result of [`run`].
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name of the dataset.
    pub dataset: String,
    /// Number of nodes `V`.
    pub nodes: usize,
    /// Number of edges `E`.
    pub edges: usize,
    /// Results by method.
    pub results: Vec<Outcome>,
    /// Method to choose, if several are compared.
    pub advice: Option<Advice>,
}

/// Options that [`Options::train`] reads: those that determine the minibatches of a sampler from
/// seeds.
pub fn options() -> Vec<&'static str> {
    let groups = |subgraphs: bool| {
        let rows = sampler::TABLE.iter().filter(move |entry| entry.make.draws_subgraphs() == subgraphs);
        rows.flat_map(|entry| entry.options)
    };
    let of_subgraphs =
        |name: &str| groups(true).any(|group| group.has(name)) && !groups(false).any(|group| group.has(name));
    sampler::draws().into_iter().filter(|name| *name != "max_batches" && !of_subgraphs(name)).collect()
}

/// Refuses the `given` options of partitioners that none of the `methods` reads.
///
/// # Errors
/// Wrong usage, with the nearest alternative; an unknown name.
pub fn refuse_unused(methods: &[String], given: &[&str]) -> Result<()> {
    let find = |name: &String| partition::TABLE.find(name).map_err(Error::name);
    let chosen = methods.iter().map(find).collect::<Result<Vec<_>>>()?;
    let unread = |option: &&&str| !chosen.iter().any(|entry| entry.make.reads(option));
    let Some(option) = given.iter().find(unread) else { return Ok(()) };
    let readers = partition::TABLE.iter().filter(|entry| entry.make.reads(option));
    let readers: Vec<&str> = readers.map(|entry| entry.name).collect();
    Err(Error::usage(format!(
        "--{}: --method {} does not use it; use --method {}, or leave it out",
        option.replace('_', "-"),
        methods.join(","),
        one_of(&readers)
    )))
}

/// Known names for [`Options::methods`].
pub fn known() -> String {
    partition::TABLE.names()
}

/// Partitions `data` by every method, and writes the parts to `dst` if given, which allows only one
/// method.
///
/// # Errors
/// An unknown name, an impossible option, several methods with a `dst`, targets that ranks do not
/// train, or `dst` cannot be written.
pub fn run(options: &Options, data: &Dataset, dst: Option<&Path>, watch: &dyn Progress) -> Result<Report> {
    let targets = match &data.labels {
        Labels::Values { .. } => Some("real values"),
        Labels::Columns { .. } => Some("several columns of classes"),
        Labels::Single { .. } | Labels::Multi { .. } => None,
    };
    if let (Some(targets), true) = (targets, dst.is_some()) {
        let message = format!(
            "its targets are {targets}, which several ranks do not train yet; leave out DST to print \
             statistics alone, or train in one process"
        );
        return Err(Error::dataset(&data.name, message));
    }
    let mut results = Vec::new();
    for (method, partitioner) in chosen(options, dst)? {
        let began = Instant::now();
        let book = partitioner.partition(&data.graph, &data.split.train, watch)?;
        let seconds = began.elapsed().as_secs_f64();
        let statistics = statistics(options, data, &book, watch)?;
        if let Some(dst) = dst {
            // `--order proximity` over ranks reads them: no rank has the whole graph
            let searches = match data.split.train.is_empty() {
                true => Vec::new(),
                false => proximity::searches(&data.graph, &data.split.train, options.partition.seed, watch)?,
            };
            let what = Description {
                method,
                seed: options.partition.seed,
                options: recorded(&options.partition),
                statistics: json!(statistics),
                searches: &searches,
            };
            partition::write(data, &book, &what, dst, watch)?;
        }
        results.push(Outcome { method: method.into(), parts: book.parts(), statistics, seconds });
    }
    let (nodes, edges) = (data.num_nodes(), data.graph.num_edges());
    Ok(Report { dataset: data.name.clone(), nodes, edges, results, advice: None }.advised())
}

/// The chosen methods by name.
///
/// # Errors
/// An unknown name, no name, several with a `dst`, which cannot be written, or an impossible
/// option.
pub(crate) fn chosen(options: &Options, dst: Option<&Path>) -> Result<Vec<Named>> {
    if let Some(known) = &options.like {
        dst.map_or(Ok(()), partition::check_target)?;
        return Ok(vec![(KnownParts::NAME, Box::new(known.clone()))]);
    }
    let names = options.methods.iter();
    let methods =
        names.map(|name| partition::TABLE.find(name).map_err(Error::name)).collect::<Result<Vec<_>>>()?;
    if methods.is_empty() {
        return Err(Error::usage(format!("--method: the list is empty; name at least one of {}", known())));
    }
    if methods.len() > 1 && dst.is_some() {
        return Err(Error::usage("DST holds the parts of one method; name one method, or leave DST out"));
    }
    if let Some(dst) = dst {
        partition::check_target(dst)?;
    }
    methods.into_iter().map(|method| Ok((method.name, (method.make.make)(&options.partition)?))).collect()
}

/// Parts of the partition in `like`, for the dataset in `directory` with this checksum, which has
/// these types with their numbers of nodes. A part accepts new nodes up to `1 + slack` times the
/// mean.
///
/// # Errors
/// As for [`KnownParts::open`].
pub fn known_parts(
    like: &Path,
    types: &[(String, usize)],
    (checksum, directory): (String, Option<&Path>),
    slack: f64,
) -> Result<KnownParts> {
    let mut checksums = directory.map_or_else(Vec::new, extended);
    checksums.push(checksum);
    Ok(KnownParts::open(like, types, &checksums, slack)?)
}

/// Checksums of the datasets that the one in `directory` extends by further rows of tables.
#[cfg(feature = "tables")]
fn extended(directory: &Path) -> Vec<String> {
    let record = graphmill_data::tables::Preprocessing::read(directory);
    record.map_or_else(|_| Vec::new(), |record| record.appended.into_iter().map(|of| of.checksum).collect())
}

/// No checksums: a build without tables does not read what a dataset extends.
#[cfg(not(feature = "tables"))]
fn extended(_: &Path) -> Vec<String> {
    Vec::new()
}

/// Options of a method as a partition records them.
pub(crate) fn recorded(options: &partition::Options) -> serde_json::Value {
    json!({ "slack": options.slack, "train_slack": options.train_slack, "refine": options.refine })
}

impl Report {
    /// The same report with advice, if it compares several methods.
    pub(crate) fn advised(self) -> Self {
        Self { advice: advice::advise(&self), ..self }
    }
}

/// Measures a partition.
///
/// # Errors
/// An impossible option, or a failed allocation.
pub fn statistics(
    options: &Options,
    data: &Dataset,
    book: &PartitionBook,
    watch: &dyn Progress,
) -> Result<Statistics> {
    let train = &data.split.train;
    let cross_requests = match train.is_empty() {
        true => None,
        false => Some(requests(&options.train, options.batches, data, book, watch)?),
    };
    let of_graph = of_graph(&data.graph, train, book, options.partition.seed);
    Ok(Statistics { cross_requests, ..of_graph })
}

/// Quality of a partition by the graph and its `train` nodes, without requests.
pub(crate) fn of_graph(graph: &Graph, train: &[NodeId], book: &PartitionBook, seed: u64) -> Statistics {
    Statistics {
        edge_cut: edge_cut(graph, book),
        balance: Balance { nodes: balance(&book.sizes()), train: balance(&book.sizes_of(train)) },
        locality: (!train.is_empty()).then(|| locality(graph, train, book, seed)),
        cross_requests: None,
    }
}

/// Fraction of edges between different parts. O(E), parallel.
pub fn edge_cut(graph: &Graph, book: &PartitionBook) -> f64 {
    let cut = |v: NodeId| {
        let own = book.part_of(v);
        graph.in_neighbors(v).iter().filter(|&&u| book.part_of(u) != own).count()
    };
    let cut: usize = (0..graph.num_nodes() as NodeId).into_par_iter().with_min_len(1 << 10).map(cut).sum();
    cut as f64 / graph.num_edges().max(1) as f64
}

/// The largest size divided by the mean.
pub(crate) fn balance(sizes: &[usize]) -> f64 {
    let (largest, sum) = (sizes.iter().max().copied().unwrap_or(0), sizes.iter().sum::<usize>());
    if sum == 0 { 1.0 } else { largest as f64 * sizes.len() as f64 / sum as f64 }
}

#[cfg(test)]
mod tests;
