//! Training over several machines, each with a part of the graph.
//!
//! ```text
//!   rank 0   order (the same on all) ─► own seeds ─► sample ─► extract ─► forward, backward ─┐
//!                                                     │ ▲         │ ▲                        ├─► sum over ranks ─► the same update
//!   rank 1   order ─► own seeds ─► ...             asks others for neighbours and rows ──────┘
//! ```
//!
//! A batch is that of a single process: its seeds are shared out by who owns them, what is drawn
//! for a node depends on the run's seed, the epoch, the batch, the hop and the node, and the
//! gradients' sum over the ranks, weighted by their seeds, is the gradient of the whole batch. What
//! dropout drops is drawn by rank and row, so with dropout the numbers are others, as those of
//! another seed are.
//!
//! - [`Ranks`]: the other ranks, and the sums of gradients, which travel while the layers below are
//!   still computed.
//! - [`RankDataset`]: what a rank has of the dataset.
//! - `inference.rs`: full-neighbour inference, layer by layer, each rank for its own nodes.

mod assigned_parts;
mod dataset;
mod gradients;
mod inference;
mod ranks;

use std::{path::Path, sync::Arc};

use graphmill_distributed::{Collective, Messenger};

pub(crate) use assigned_parts::{AssignedParts, Subgraphs};
pub use dataset::RankDataset;
pub use ranks::Ranks;

use graphmill_core::options::one_of;
use graphmill_loader::{
    order,
    sampler::{WeightOptions, weighted::EdgeWeights},
};

use crate::{Error, Result, TrainConfig, config::Devices, strategy};

/// Rank 0's options on all ranks, but for what is each machine's own: where the dataset is, and
/// threads.
pub(crate) fn agree(config: &TrainConfig, post: &Arc<Messenger>) -> Result<TrainConfig> {
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
pub(crate) fn check(config: &TrainConfig) -> Result<()> {
    let refuse = |flag: &str, value: &str, mend: &str| {
        Err(Error::usage(format!("--{flag} {value}: over several ranks {mend}")))
    };
    if !strategy::of(config).is_some_and(|entry| entry.make.over_ranks) {
        let names = strategy::TABLE.iter().filter(|entry| entry.make.over_ranks).map(|entry| entry.name);
        let known = format!("it is {}", one_of(&names.collect::<Vec<_>>()));
        return refuse("strategy", &config.strategy, &known);
    }
    if *config.devices != Devices::Cpu {
        return refuse("devices", config.devices.as_str(), "it is cpu");
    }
    if order::TABLE.get(&config.order).is_none_or(|entry| entry.make.reads_graph) {
        let names = order::TABLE.iter().filter(|entry| !entry.make.reads_graph).map(|entry| entry.name);
        let known = format!("it is {}: others read the whole graph", one_of(&names.collect::<Vec<_>>()));
        return refuse("order", &config.order, &known);
    }
    let WeightOptions { edge_weights } = config.own.get();
    if edge_weights != EdgeWeights::Stored {
        return refuse(
            "edge-weights",
            &edge_weights.to_string(),
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
