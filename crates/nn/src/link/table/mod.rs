//! Models that are tables of embeddings: knowledge graphs and matrix factorization.
//!
//! A batch is a list of queries, each the known end of an edge and its relation, with candidates
//! for the other end: the true one and negatives. The step reads the distinct rows of the batch,
//! computes the row of each query once, and returns a gradient for each distinct row.
//!
//! | file | contents |
//! | --- | --- |
//! | [`batch`] | queries and candidates; the distinct rows of a batch |
//! | [`step`] | scores, loss and gradients of sampled candidates |
//! | [`softmax`] | the same against all candidates, by dense products |
//! | [`regularizer`] | penalties of rows |
//! | [`init`] | initial rows |
//!
//! Optimisers of rows are in [`crate::optim::rows`].

pub mod batch;
pub mod init;
pub mod regularizer;
pub mod softmax;
pub mod step;

pub use batch::{QueryBatch, Touched};
pub use init::Init;
pub use regularizer::Penalty;
pub use step::{Relations, TableStep};
