//! Training over several machines (ranks), each with a part of the graph.
//!
//! ```text
//!   rank 0   order (the same on all) ─► own seeds ─► sample ─► extract ─► forward, backward ─┐
//!                                                     │ ▲         │ ▲                        ├─► sum over ranks ─► the same update
//!   rank 1   order ─► own seeds ─► ...             request neighbours and rows ──────────────┘
//! ```
//!
//! A batch equals that of a single process. Each rank takes the seeds that it owns. The draws for a
//! node depend on the run's seed, the epoch, the batch, the hop and the node. The sum of the
//! gradients over ranks, weighted by seeds, is the gradient of the whole batch. Dropout masks
//! depend on rank and row, so dropout changes the numbers as another seed would.
//!
//! Asynchronous updates keep this order: update `i` sums the shares of batch `i` on all ranks, so
//! all ranks hold the same parameters after it, and all shares of a batch read the same version of
//! them. A rank can always compute its share of the next update, because that share needs no later
//! update and the other ranks answer requests from threads of their own: the ranks cannot deadlock.
//!
//! - [`Ranks`]: the other ranks, and the sums of gradients, which are sent while the layers below
//!   are still computed.
//! - [`RankDataset`]: a rank's part of the dataset.
//! - `links.rs`: links, which every rank finds in the edges of the whole graph.
//! - `aggregates.rs`: stored aggregates of own nodes (`--bottom exact`).
//! - `inference.rs`: full-neighbour inference, layer by layer, each rank for its own nodes.

#![forbid(unsafe_code)]

mod aggregates;
mod assigned_parts;
mod dataset;
mod exchange;
mod gradients;
mod inference;
mod links;
mod own_rows;
mod ranks;
mod read_counts;
mod row_exchange;
pub(crate) mod stages;
mod subgraphs;
mod tiers;
mod words;

use std::{path::Path, sync::Arc};

use graphmill_distributed::{Collective, Messenger};

pub(crate) use assigned_parts::AssignedParts;
pub use dataset::RankDataset;
pub(crate) use exchange::RoundLosses;
pub(crate) use links::{check_links, without_edges};
pub use ranks::Ranks;
pub(crate) use ranks::{LAYERS, LEARNED};
pub(crate) use subgraphs::RankSubgraphs;
pub(crate) use tiers::RankTiers;

use graphmill_core::{options::one_of, table::Entry};
use graphmill_loader::order::{self, OrderKind, OverRanks};

use crate::{
    Error, Result, TrainConfig,
    config::{embedding::is_table, events, link_task::is_link},
    strategy,
};

/// Returns rank 0's options on all ranks, except for each machine's own: the path of the dataset,
/// threads, and the numbers of its NVIDIA devices, of which all ranks have equally many.
pub(crate) fn agree(config: &TrainConfig, post: &Arc<Messenger>) -> Result<TrainConfig> {
    let text = words::pack(&vec![(VERSION.to_string(), config.to_toml().into_bytes())]);
    let received = Collective::new(post.clone()).broadcast(ranks::class::OPTIONS, text)?;
    let mut agreed = config.clone();
    if post.rank() > 0 {
        let (version, text) = words::unpack(&received).and_then(|mut files| files.pop()).unwrap_or_default();
        check_version(post.rank(), &version)?;
        let text = String::from_utf8(text).ok();
        agreed.read_text(&text.unwrap_or_default(), Path::new("rank 0's options"))?;
        agreed.dataset.clone_from(&config.dataset);
        agreed.threads = config.threads;
        let [own, others] = [config, &agreed].map(|config| config.cuda_devices().len());
        if own > 0 && own == others {
            // ranks of one machine compute on different devices
            agreed.devices.clone_from(&config.devices);
        }
    }
    Ok(agreed)
}

/// Version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Refuses rank 0's program if it is another version: its messages may differ.
fn check_version(rank: usize, version: &str) -> Result<()> {
    if version == VERSION {
        return Ok(());
    }
    let found = if version.is_empty() { "an older one" } else { version };
    Err(Error::usage(format!(
        "rank {rank} runs graphmill {VERSION}, and rank 0 {found}; install the same version on all machines"
    )))
}

/// Refuses options that need more of the graph than a rank has.
pub(crate) fn check(config: &TrainConfig) -> Result<()> {
    let refuse = |flag: &str, value: &str, fix: &str| {
        Err(Error::usage(format!("--{flag} {value}: it is not available over several ranks; {fix}")))
    };
    if trains_alone(config) {
        let fix = "it trains in one process; pass the dataset before graphmill partition";
        return refuse("model", &config.model, fix);
    }
    if !strategy::Chosen::find(config)?.strategy.make.over_ranks {
        let names = strategy::TABLE.iter().filter(|entry| entry.make.over_ranks).map(|entry| entry.name);
        let known = format!("use {}", one_of(&names.collect::<Vec<_>>()));
        return refuse("strategy", &config.strategy, &known);
    }
    let is_available = |entry: &Entry<OrderKind>| entry.make.over_ranks != OverRanks::Unavailable;
    if !order::TABLE.get(&config.order).is_some_and(is_available) {
        let names = order::TABLE.iter().filter(|entry| is_available(entry)).map(|entry| entry.name);
        let known = format!("use {}, which do not read the whole graph", one_of(&names.collect::<Vec<_>>()));
        return refuse("order", &config.order, &known);
    }
    if is_link(config) { links::check(config) } else { Ok(()) }
}

/// Returns true if ranks have no trainer of the model: a table of embeddings, or a model that
/// learns only streams of events.
fn trains_alone(config: &TrainConfig) -> bool {
    let is_of_types = || graphmill_nn::typed::TABLE.get(&config.model).is_some();
    is_table(config) || events::kind(config).is_some() && !is_of_types()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reuse_and_no_strategy_without_ranks_is_available() {
        let of = |reuse: &str| check(&TrainConfig { reuse: reuse.into(), ..TrainConfig::default() });
        strategy::reuse::TABLE.iter().for_each(|entry| of(entry.name).unwrap());
        let of_table = strategy::TABLE.iter();
        for other in of_table.filter(|entry| entry.make.alias.is_none() && !entry.make.over_ranks) {
            let message = check(&TrainConfig { strategy: other.name.into(), ..TrainConfig::default() });
            let expected = format!("--strategy {}: it is not available over several ranks; use ", other.name);
            let message = message.unwrap_err().to_string();
            assert!(message.starts_with(&expected), "{message}");
        }
        let unknown = of("layred").unwrap_err().to_string();
        let expected = strategy::reuse::TABLE.find("layred").err().unwrap().to_string();
        assert_eq!(unknown, expected, "not a fault of the strategy");
    }

    #[test]
    fn models_of_one_process_are_refused_before_their_names_are_looked_up() {
        for model in ["embedding", "lightgcn", "tgn"] {
            let message = check(&TrainConfig { model: model.into(), ..TrainConfig::default() }).unwrap_err();
            let expected = format!("--model {model}: it is not available over several ranks; it trains in ");
            assert!(message.to_string().starts_with(&expected), "{message}");
        }
        check(&TrainConfig { model: "gine".into(), ..TrainConfig::default() }).unwrap();
    }

    #[test]
    fn another_version_on_rank_0_is_refused() {
        check_version(2, VERSION).unwrap();
        for (version, found) in [("0.0.9", "rank 0 0.0.9"), ("", "rank 0 an older one")] {
            let message = check_version(2, version).unwrap_err().to_string();
            assert!(message.contains(found) && message.contains("rank 2 runs graphmill"), "{message}");
        }
    }
}
