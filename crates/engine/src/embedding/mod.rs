//! Training of models that are tables of embeddings: knowledge graphs, matrix factorization and
//! LightGCN. Their edges, negatives and rankings are those of `relational`.
//!
//! | file | contents |
//! | --- | --- |
//! | `trainer.rs` | a run: read it first |
//! | `batch.rs` | batches of queries with negatives |
//! | `model.rs` | rows, decoder and propagation of a configuration |
//! | `held_rows.rs` | rows of tables in files: which of them are in memory |
//! | `learner.rs` | loss, gradients and updates of rows |
//! | `position.rs` | files of a checkpoint |
//! | `saved.rs` | scores, best candidates and embeddings of a run |

#![forbid(unsafe_code)]

mod batch;
mod held_rows;
mod learner;
mod model;
mod position;
mod saved;
mod trainer;

use std::path::Path;

use graphmill_data::typed::{TypedDataset, Verify, open_any};

use crate::{Error, Result, TrainConfig, config::embedding::is_table};

pub use saved::SavedEmbedding;
pub use trainer::train;

/// Opens the dataset that a configuration names, if its model is a table of embeddings.
///
/// # Errors
/// The dataset cannot be read, or has no tasks.
pub fn open_dataset(config: &TrainConfig) -> Result<Option<TypedDataset>> {
    if !is_table(config) {
        return Ok(None);
    }
    let dir = Path::new(&config.dataset);
    if config.dataset.is_empty() || config.is_in_memory() {
        return Err(Error::usage(format!(
            "--model {}: it learns the edges of a dataset in a directory; import one with graphmill import, \
             such as interactions, triples or edges",
            config.model
        )));
    }
    Ok(Some(open_any(dir, Verify::Once)?))
}
