//! Link prediction: decoders, which score pairs of embeddings, losses over positive and negative
//! scores, and metrics of rankings.
//!
//! - [`decoder`]: from the embeddings of both ends, and the relation, to a score.
//! - [`loss`]: from the scores of positives and their negatives to a loss and its gradients.
//! - [`EdgeHead`]: classes or values of edges.
//! - [`rank`]: MRR, Hits@K, recall and NDCG, with ties counted by the mean of the best and the
//!   worst rank.

pub mod decoder;
mod edge_head;
pub mod loss;
pub mod rank;

pub use edge_head::{EdgeHead, EdgeHeadState, EdgePairs};
