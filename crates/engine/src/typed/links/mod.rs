//! Links of datasets of several types: encoders that read the typed graph, and a decoder with
//! parameters for each relation.
//!
//! | file | contents |
//! | --- | --- |
//! | `trainer.rs` | a run: read it first |
//! | `task.rs` | edges to learn, and the graph that batches read |
//! | `batch.rs` | seeds of a batch: ends of edges and of negatives, and excluded edges |
//! | `shares.rs` | seeds of a rank: its share of a batch |
//! | `learner.rs` | embeddings, scores, loss, update |
//! | `position.rs` | files of a checkpoint |
//! | `timed.rs` | rankings of rows with times, as of these times |
//! | `drawn.rs` | rankings among drawn candidates, of every edge as of its own time |
//! | `saved.rs` | scores, best candidates and embeddings of a run |

mod batch;
mod drawn;
mod learner;
#[cfg(feature = "tables")]
mod new_nodes;
mod position;
mod saved;
mod shares;
mod task;
mod timed;
mod trainer;

#[cfg(test)]
mod edge_times_tests;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(super) use self::trainer::train_alone;
pub use self::{saved::SavedTypedLinks, trainer::train};
pub(super) use self::{task::TypedLinks, trainer::train_as_rank};
