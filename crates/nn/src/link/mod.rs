//! Link prediction: decoders, which score pairs of embeddings, losses over positive and negative
//! scores, and metrics of rankings.
//!
//! - [`decoder`]: from the embeddings of both ends, and the relation, to a score.
//! - [`loss`]: from the scores of positives and their negatives to a loss and its gradients.
//! - [`EdgeHead`]: classes or values of edges.
//! - [`rank`]: MRR, Hits@K, recall and NDCG, with ties counted by the mean of the best and the
//!   worst rank.
//! - [`kernel`]: from the row of a query to the scores of its candidates.
//! - [`structure`]: features of the graph around a pair of nodes.
//! - [`table`]: models that are tables of embeddings, trained by their rows.
//! - [`light_gcn`]: embeddings that are propagated over a graph without weights.

#![forbid(unsafe_code)]

pub mod decoder;
mod edge_head;
pub mod kernel;
pub mod light_gcn;
pub mod loss;
pub mod rank;
pub mod structure;
pub mod table;

pub use edge_head::{EdgeHead, EdgeHeadState, EdgePairs};
