//! Training over several machines, each with a part of the graph.
//!
//! ```text
//!   rank 0   order (the same on all) ─► own seeds ─► sample ─► extract ─► forward, backward ─┐
//!                                                     │ ▲         │ ▲                        ├─► sum over ranks ─► the same update
//!   rank 1   order ─► own seeds ─► ...             asks others for neighbours and rows ──────┘
//! ```
//!
//! A batch is that of a single process: its seeds are shared out by who owns them, what is drawn for a node depends on the run's seed,
//! the epoch, the batch, the hop and the node, and the gradients' sum over the ranks, weighted by their seeds, is the gradient of the
//! whole batch. What dropout drops is drawn by rank and row, so with dropout the numbers are others, as those of another seed are.
//!
//! - [`Ranks`]: the other ranks, and the sums of gradients, which travel while the layers below are still computed.
//! - [`View`]: what a rank has of the dataset.
//! - `inference.rs`: full-neighbour inference, layer by layer, each rank for its own nodes.

mod dealt;
mod gradients;
mod inference;
mod ranks;
mod view;

use std::{path::Path, sync::Arc};

use graphmill_distributed::{Collective, Post};
use graphmill_graph::partition::PartitionDir;

pub(crate) use dealt::{Dealt, Subgraphs};
pub use ranks::{RankRecord, Ranks};
pub use view::View;

use crate::{Error, Result, TrainConfig, record::Summary, trainer::Job};

/// Trains on a partitioned dataset, as one of the ranks that all call this with the same arguments but for `job`: rank 0 has the run
/// directory, and the others' [`Job::run`] is none. Where it fails it fails on all ranks, and says on each which one failed first; where
/// ranks are processes, [`Post::abort`] then ends those that do not hear.
///
/// # Errors
/// As [`crate::train`]; a rank did not do its part; a choice that needs more of the graph than a rank has.
pub fn train(config: &TrainConfig, dir: &PartitionDir, post: Arc<Post>, job: Job) -> Result<Summary> {
    let outcome = train_and_meet(config, dir, &post, job);
    match &outcome {
        Ok(_) | Err(Error::Interrupted { .. }) => post.close(),
        Err(error) => post.fail(&error.to_string()),
    }
    outcome
}

/// Trains, and waits for the others where all end alike: rank 0 may be writing still.
fn train_and_meet(config: &TrainConfig, dir: &PartitionDir, post: &Arc<Post>, job: Job) -> Result<Summary> {
    let config = &agree(config, post)?;
    check(config)?;
    let view = View::open(config, dir, post.clone())?;
    let outcome = crate::trainer::train_over_ranks(config, &view, job);
    if matches!(outcome, Ok(_) | Err(Error::Interrupted { .. })) {
        view.ranks.meet()?;
    }
    outcome
}

/// Rank 0's options on all ranks, but for what is each machine's own: where the dataset is, and threads.
fn agree(config: &TrainConfig, post: &Arc<Post>) -> Result<TrainConfig> {
    let text = ranks::pack(&vec![(String::new(), config.to_toml().into_bytes())]);
    let told = Collective::new(post.clone()).broadcast(ranks::class::OPTIONS, text)?;
    let mut agreed = config.clone();
    if post.rank() > 0 {
        let text = ranks::unpack(&told).and_then(|mut files| String::from_utf8(files.pop()?.1).ok());
        agreed.read_text(&text.unwrap_or_default(), Path::new("rank 0's options"))?;
        agreed.dataset.clone_from(&config.dataset);
        agreed.threads = config.threads;
    }
    Ok(agreed)
}

/// Refuses what needs more than a rank has.
fn check(config: &TrainConfig) -> Result<()> {
    let refuse = |flag: &str, value: &str, mend: &str| {
        Err(Error::usage(format!("--{flag} {value}: over several ranks {mend}")))
    };
    if !["sequential", "pipelined"].contains(&config.strategy.as_str()) {
        return refuse("strategy", &config.strategy, "it is sequential or pipelined");
    }
    if config.devices != "cpu" {
        return refuse("devices", &config.devices, "it is cpu");
    }
    if !["random", "sequential"].contains(&config.order.as_str()) {
        return refuse("order", &config.order, "it is random or sequential: others read the whole graph");
    }
    if config.edge_weights != "stored" {
        return refuse(
            "edge-weights",
            &config.edge_weights,
            "it is stored: others read the degrees of all nodes",
        );
    }
    if config.host_budget.0 > 0 {
        return refuse(
            "host-budget",
            &config.host_budget.0.to_string(),
            "--cache-ratio says how many rows of others a rank keeps",
        );
    }
    Ok(())
}
