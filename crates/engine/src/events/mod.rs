//! Training on streams of events: their links, classes or values, by TGN, TGAT, DyGFormer and
//! layers with rows of edges.
//!
//! | file | contents |
//! | --- | --- |
//! | `trainer.rs` | the loop: read it first |
//! | `choice.rs` | the task, or the edge type with times, whose edges are the events |
//! | `rows.rs` | rows of a task in the order of their times, sorted in memory or in files |
//! | `destinations.rs` | destinations of single edges |
//! | `opening.rs` | arrays of a stream while it opens, in memory or in files |
//! | `stream.rs` | events of a task in the order of their times, with features and a split |
//! | `features.rs` | features of events and nodes, in memory or in the file of the dataset |
//! | `files.rs` | rows that exceed `--host-budget`, and the least that a batch needs |
//! | `history.rs` | the graph of events, from which neighbours are drawn |
//! | `batch.rs` | rows of a batch, and the neighbours that existed at their times |
//! | `model.rs` | memory, layers and head of a configuration |
//! | `pair.rs` | DyGFormer: the rows of both ends of a pair together |
//! | `hop.rs` | attention, or a layer with rows of edges |
//! | `learner.rs` | loss, gradients, update, and the memory after a batch |
//! | `target.rs` | classes and values of events, of tasks that are not links |
//! | `evaluation.rs` | outputs of validation and test events |
//! | `scored.rs` | metrics, and the scores of a part |
//! | `cost.rs` | time of an epoch and bytes of a run, for plans |
//! | `steps.rs` | timed steps of some batches |
//! | `position.rs` | checkpoints |
//! | `saved.rs` | scores of a saved run |
//! | `as_of.rs` | embeddings and best destinations of nodes as of a time |
//! | `open.rs` | the same by a run that stays open |
//! | `added.rs` | new events of such a run |
//!
//! # Order
//!
//! An event never reaches its own prediction. Neighbours are events strictly before its time. The
//! memory of TGN is that of earlier batches ([`graphmill_nn::temporal`]). Memory is empty at the
//! begin of an epoch. For scores, it is computed again from the training events, so that scores
//! depend on the parameters alone: `eval` of a saved run has those of training.

#![forbid(unsafe_code)]

mod added;
mod as_of;
mod batch;
mod choice;
pub mod cost;
mod destinations;
mod evaluation;
mod features;
mod files;
mod history;
mod hop;
mod learner;
mod model;
mod open;
mod opening;
mod pair;
mod position;
mod predicted;
mod rows;
mod saved;
mod scored;
mod steps;
mod stream;
mod target;
mod trainer;

use std::path::Path;

use graphmill_data::typed::{self, TypedDataset, is_dataset, is_typed};

use crate::{Error, Result, TrainConfig, config::events::is_of_events};

pub use added::NewEvents;
pub(crate) use open::OpenEvents;
pub use saved::SavedEvents;
pub use trainer::train;

/// Opens the dataset that a configuration names, if its model is one of events.
///
/// # Errors
/// The dataset cannot be read, or is in memory.
pub fn open_dataset(config: &TrainConfig) -> Result<Option<TypedDataset>> {
    if !is_of_events(config) {
        return Ok(None);
    }
    let dir = Path::new(&config.dataset);
    if !config.dataset.is_empty() && !config.is_in_memory() && is_dataset(dir) && !is_typed(dir) {
        return Err(of_format_1(config));
    }
    if config.dataset.is_empty() || config.is_in_memory() || !is_typed(dir) {
        return Err(Error::usage(format!(
            "--model {}: it learns edges with times of a dataset in a directory; import one with graphmill \
             import events, temporal, or tables with --edge-time{}",
            config.model,
            if graphmill_nn::typed::TABLE.get(&config.model).is_some() {
                ", or a task on nodes whose edges have features with graphmill import tables"
            } else {
                ""
            }
        )));
    }
    Ok(Some(typed::open(dir, config.verify.at_opening())?))
}

/// Error of a dataset of format 1, whose edges have neither times nor features.
fn of_format_1(config: &TrainConfig) -> Error {
    let model = &config.model;
    let (lacks, options) = match graphmill_nn::typed::TABLE.get(model).is_some() {
        true => ("neither features nor times, and it reads these", "--edge-features or --edge-time"),
        false => ("no times, and it learns these", "--edge-time"),
    };
    Error::usage(format!(
        "--model {model}: the edges of {} have {lacks}; use --model rsage, or import the edges again \
         with graphmill import tables {options}",
        config.dataset
    ))
}
