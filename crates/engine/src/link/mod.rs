//! Links as a task on graphs of one node type and one edge type.
//!
//! | file | contents |
//! | --- | --- |
//! | `task.rs`, `split.rs` | edges that train, validate and test, and the graph that is read |
//! | `step.rs` | loss of a batch of links, and the gradients of embeddings |
//! | `existing.rs` | times that bound negatives |
//! | `lists.rs` | lists that negatives are drawn from |
//! | `metric.rs`, `evaluate.rs` | metrics of rankings, and the candidates of an edge |
//! | `subset.rs` | evaluation by the embeddings of some nodes |
//! | `pairs.rs` | scores of single pairs, as rankings give them |
//! | `structure.rs` | the graph around pairs that a decoder reads |
//! | `check.rs` | parts of a run that do not know links |

#![forbid(unsafe_code)]

mod check;
pub mod evaluate;
mod existing;
pub(crate) mod lists;
pub mod metric;
mod pairs;
mod random_pairs;
pub mod split;
pub mod step;
pub(crate) mod structure;
mod subset;
pub mod task;

#[cfg(test)]
mod tests;

pub use check::{check, check_tiers};
pub(crate) use evaluate::QueryShare;
pub use evaluate::{LinkEvaluation, Scored};
pub use existing::Existence;
pub use metric::LinkMetric;
pub(crate) use random_pairs::RandomPairs;
pub(crate) use step::find_loss;
pub(crate) use subset::Numbering;
pub use task::{GivenNegatives, LinkPart, LinkTask};
