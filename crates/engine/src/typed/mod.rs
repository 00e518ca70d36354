//! Training on datasets of several node types and edge types: tasks on the nodes of one type, and
//! links. A dataset of one type passes through this module if its model is one of types, for
//! instance because it has no features, so that a row of each node is learned.
//!
//! | file | contents |
//! | --- | --- |
//! | `trainer.rs` | a run: read it first |
//! | `notices.rs` | its notes about choices |
//! | `task.rs` | graph, feature tables, labels and split of a task |
//! | `edges.rs` | feature tables of the edges, if the model reads them |
//! | `label_columns.rs` | labels of training nodes beside the features of the task's type |
//! | `added.rs` | relations that a sampler adds to the graph |
//! | `build.rs` | model, sampler and metric of a configuration |
//! | `stages.rs` | stages of a batch before training |
//! | `batches.rs` | batches of a run as its caches count and measure them |
//! | `strategy.rs` | workers of the stages |
//! | `turns.rs` | training on batches one after the other |
//! | `reuse/` | rows of the first layer that batches share |
//! | `devices.rs` | simulated devices |
//! | `rounds/` | devices that train together: copies of the model, and sums of gradients |
//! | `learner.rs` | forward, backward, update of dense parameters and learned rows |
//! | `clip.rs` | limit of the norm of all their gradients |
//! | `tables.rs` | feature tables of all types |
//! | `tiers/` | caches of feature rows within a budget, over host memory or disk |
//! | `shares.rs` | shares of that budget by type |
//! | `visits.rs` | hotness of the nodes of all types |
//! | `hotness.rs` | hit rates of caches without training |
//! | `partition.rs` | partitions and their communication |
//! | `cost.rs` | costs of minibatches, for plans |
//! | `machines.rs` | the same of minibatches that machines share |
//! | `step.rs` | memory of a training step on a device |
//! | `time.rs` | neighbours that existed at the times of a task's rows |
//! | `ranks/` | the same over ranks, each with a part of the graph |
//! | `inference.rs` | rows of nodes from all their neighbours |
//! | `computing.rs` | backends of inference: a device for what fits in its memory |
//! | `neighborhoods.rs` | samplers of those neighbours |
//! | `position.rs` | files of a checkpoint |
//! | `counts.rs` | counts by type of an epoch |
//! | `saved.rs` | scores and predictions of a run |
//! | `propagated.rs` | labels that spread between the nodes of a type |
//! | `exported.rs` | properties of a run that exports of its model record |
//! | `new_nodes.rs` | predictions for nodes that the dataset does not hold |
//! | `open.rs` | a run that stays open and answers for single nodes |
//! | [`links`] | links as a task: edges, decoder, rankings |

#![forbid(unsafe_code)]

mod added;
mod batches;
mod build;
mod clip;
mod computing;
pub mod cost;
mod counted_steps;
mod counts;
mod devices;
mod edges;
mod exported;
pub mod hotness;
mod inference;
mod label_columns;
mod learner;
pub mod links;
pub mod machines;
mod neighborhoods;
#[cfg(feature = "tables")]
mod new_nodes;
mod notices;
mod open;
pub mod partition;
mod position;
mod propagated;
mod ranks;
mod reuse;
mod rounds;
mod saved;
mod shares;
mod stages;
mod step;
mod strategy;
mod tables;
mod task;
mod tiers;
mod time;
mod trainer;
mod turns;
mod visits;

#[cfg(test)]
mod faults;
#[cfg(test)]
mod wrapped;

use std::path::Path;

use graphmill_data::typed::{self, TypedDataset, Verify, has_several_types, is_typed};

use crate::{
    Result, TrainConfig,
    config::link_task::{has_node_times, has_typed_model, learns_edge_targets},
    edge_rows,
};

pub(crate) use open::OpenTypedRun;
pub use ranks::train_over_ranks;
pub use saved::SavedTypedRun;
pub use tiers::opened::{OpenTypedTiers, ProgramSeeds, open_tiers};
pub use trainer::train;
pub(crate) use trainer::{infer, train_model};

/// Opens the dataset that a configuration names, if it has several node types, edge types or tasks,
/// or a task whose rows are nodes at times, or if the model is one of types. Edges with classes or
/// values that the run learns are nodes of it.
///
/// # Errors
/// The dataset cannot be read.
pub fn open_dataset(config: &TrainConfig) -> Result<Option<TypedDataset>> {
    let dir = Path::new(&config.dataset);
    if config.dataset.is_empty()
        || config.is_in_memory()
        || !(has_several_types(dir)
            || has_node_times(config)
            || learns_edge_targets(config)
            || has_typed_model(config))
    {
        return Ok(None);
    }
    edge_rows::as_nodes(typed::open_any(dir, config.verify.at_opening())?, config).map(Some)
}

/// Opens the dataset in `dir`, if a dataset of one type cannot hold all of it: several node types,
/// edge types or tasks, other tasks than one on all nodes, times, or edge features.
///
/// # Errors
/// The dataset cannot be read.
pub fn open_beyond_one_type(dir: &Path) -> Result<Option<TypedDataset>> {
    if !is_typed(dir) {
        return Ok(None);
    }
    let data = typed::open(dir, Verify::Once)?;
    let has_more = data.nodes.iter().any(|nodes| nodes.time.is_some())
        || data.edges.iter().any(|edges| edges.time.is_some() || edges.features.is_some());
    Ok((has_more || !data.is_one_type()).then_some(data))
}
