//! `graphmill partition`: a dataset dealt to parts by a method of [`graphmill_data::partition`],
//! and what training over them would cost.
//!
//! - [`requests`]: what the parts ask of each other in an epoch, by drawing its minibatches.
//! - [`locality`]: how much of the training nodes' neighbourhoods lies in their own parts.
//! - [`plot::svg`]: both as a picture.

mod locality;
pub mod plot;
mod requests;
mod text;

use std::{path::Path, time::Instant};

use graphmill_core::{Graph, NodeId, options::one_of, progress::Progress};
use graphmill_data::{
    Dataset,
    partition::{self, Description, PartitionBook},
};
use graphmill_loader::sampler;
use rayon::prelude::*;
use serde::Serialize;
use serde_json::json;

pub use locality::locality;
pub use requests::{CrossRequests, Hop, requests};

use crate::{Error, Result, TrainConfig};

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names of methods.
    pub methods: Vec<String>,
    /// What they are told.
    pub partition: partition::Options,
    /// Of the run whose minibatches are drawn.
    pub train: TrainConfig,
    /// Minibatches that are drawn at most; 0 for an epoch.
    pub batches: u64,
}

/// How even the parts are: the largest over the mean, 1 at best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Balance {
    /// Of nodes.
    pub nodes: f64,
    /// Of training nodes; 1 where there are none.
    pub train: f64,
}

/// What a partition is like.
#[derive(Clone, Debug, Serialize)]
pub struct Statistics {
    /// The share of edges between different parts.
    pub edge_cut: f64,
    /// How even the parts are.
    pub balance: Balance,
    /// The share of walks of 1, 2 and 3 steps from training nodes that end in the part where they
    /// began; none without training nodes.
    pub locality: Option<[f64; 3]>,
    /// What the parts ask of each other in an epoch; none without training nodes.
    pub cross_requests: Option<CrossRequests>,
}

/// What one method comes to.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Its name.
    pub method: String,
    /// `K`.
    pub parts: u16,
    /// See there.
    #[serde(flatten)]
    pub statistics: Statistics,
    /// Time of the partitioning alone.
    pub seconds: f64,
}

/// What [`run`] finds.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The dataset's name.
    pub dataset: String,
    /// `V`.
    pub nodes: usize,
    /// `E`.
    pub edges: usize,
    /// By method.
    pub results: Vec<Outcome>,
}

/// Options of a run that [`Options::train`] is read for: those that decide which minibatches a
/// sampler from seeds draws.
pub fn options() -> Vec<&'static str> {
    let groups = |subgraphs: bool| {
        let rows = sampler::TABLE.iter().filter(move |entry| entry.make.draws_subgraphs() == subgraphs);
        rows.flat_map(|entry| entry.options)
    };
    let of_subgraphs =
        |name: &str| groups(true).any(|group| group.has(name)) && !groups(false).any(|group| group.has(name));
    sampler::draws().into_iter().filter(|name| *name != "max_batches" && !of_subgraphs(name)).collect()
}

/// Refuses the `given` limits of a part's size that none of the `methods` keeps to.
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

/// The names that [`Options::methods`] may have.
pub fn known() -> String {
    partition::TABLE.names()
}

/// Partitions `data` by every method, and writes what the last one makes to `dst`, where that is
/// given.
///
/// # Errors
/// An unknown name or an impossible option, several methods and a `dst`, or writing fails.
pub fn run(options: &Options, data: &Dataset, dst: Option<&Path>, watch: &dyn Progress) -> Result<Report> {
    let methods = options
        .methods
        .iter()
        .map(|name| partition::TABLE.find(name).map_err(Error::name))
        .collect::<Result<Vec<_>>>()?;
    if methods.is_empty() {
        return Err(Error::usage(format!("--method: name at least one of {}", known())));
    }
    if methods.len() > 1 && dst.is_some() {
        return Err(Error::usage("DST takes the parts of one method: name one, or leave DST out"));
    }
    if let Some(dst) = dst {
        partition::check_target(dst)?;
    }
    let mut results = Vec::new();
    for method in methods {
        let partitioner = (method.make.make)(&options.partition)?;
        let began = Instant::now();
        let book = partitioner.partition(&data.graph, &data.split.train, watch)?;
        let seconds = began.elapsed().as_secs_f64();
        let statistics = statistics(options, data, &book, watch)?;
        if let Some(dst) = dst {
            let what = Description {
                method: method.name,
                seed: options.partition.seed,
                options: json!({
                    "slack": options.partition.slack,
                    "train_slack": options.partition.train_slack,
                }),
                statistics: json!(statistics),
            };
            partition::write(data, &book, &what, dst, watch)?;
        }
        results.push(Outcome { method: method.name.into(), parts: book.parts(), statistics, seconds });
    }
    let (nodes, edges) = (data.num_nodes(), data.graph.num_edges());
    Ok(Report { dataset: data.name.clone(), nodes, edges, results })
}

/// What is to be known of a partition.
///
/// # Errors
/// An impossible option, or memory that cannot be had.
pub fn statistics(
    options: &Options,
    data: &Dataset,
    book: &PartitionBook,
    watch: &dyn Progress,
) -> Result<Statistics> {
    let train = &data.split.train;
    let any = !train.is_empty();
    Ok(Statistics {
        edge_cut: edge_cut(&data.graph, book),
        balance: Balance { nodes: even(&book.sizes()), train: even(&book.sizes_of(train)) },
        locality: any.then(|| locality(&data.graph, train, book, options.partition.seed)),
        cross_requests: any
            .then(|| requests(&options.train, options.batches, data, book, watch))
            .transpose()?,
    })
}

/// The share of edges between different parts. O(E), parallel.
pub fn edge_cut(graph: &Graph, book: &PartitionBook) -> f64 {
    let cut = |v: NodeId| {
        let own = book.part_of(v);
        graph.in_neighbors(v).iter().filter(|&&u| book.part_of(u) != own).count()
    };
    let cut: usize = (0..graph.num_nodes() as NodeId).into_par_iter().with_min_len(1 << 10).map(cut).sum();
    cut as f64 / graph.num_edges().max(1) as f64
}

/// The largest over the mean.
fn even(sizes: &[usize]) -> f64 {
    let (largest, sum) = (sizes.iter().max().copied().unwrap_or(0), sizes.iter().sum::<usize>());
    if sum == 0 { 1.0 } else { largest as f64 * sizes.len() as f64 / sum as f64 }
}

#[cfg(test)]
mod tests;
