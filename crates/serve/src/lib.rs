//! Predictions of a saved run over HTTP: `graphmill serve`.
//!
//! ```text
//!   connection ─► limits, token ─► JSON ─► nodes ─┐ queue
//!   connection ─► limits, token ─► JSON ─► nodes ─┼─► batch ─► Predictor ─► answers ─► JSON, Arrow
//!   connection ─► limits, token ─► JSON ─► nodes ─┘
//! ```
//!
//! A [`Predictor`](graphmill_engine::predictor::Predictor) computes one batch at a time, on all
//! threads. Requests that arrive meanwhile, or within [`ServeOptions::window`], are the next batch.
//! An answer is a function of the run, the node and the seed, so it does not depend on its batch.
//!
//! A run on links is opened by a [`LinkPredictor`](graphmill_engine::predictor::LinkPredictor),
//! which keeps the embeddings of all nodes, or for a run on events those as of a few times.
//! Requests for the best candidates form batches, too; scores of pairs and embeddings are answered
//! beside them.
//!
//! Requests with new nodes are answered beside the batches: exact ones as many at a time as the
//! machine has threads, and one alone whose neighbours are drawn, because it copies the graph.
//!
//! The run that resolves the keys of a request also answers it. A reload opens and tries the new
//! run beside the old one and then exchanges them, so no request is lost, and no answer mixes two
//! runs.

#![forbid(unsafe_code)]

mod app;
mod arrow;
mod batch;
mod body;
mod connections;
mod document;
mod failure;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod handlers;
mod links;
mod metrics;
mod new_nodes;
mod options;
mod question;
mod server;
mod token;

pub use options::{EmbeddingCache, ServeOptions};
pub use server::serve;
pub use token::Token;
