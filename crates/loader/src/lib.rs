//! What a minibatch is: seeds in an order, sampled blocks, extracted feature rows.
//!
//! - [`order`]: which seeds come when.
//! - [`sampler`]: seeds to blocks.
//! - [`reuse`]: rows of the bottom layer that are read instead of computed.
//! - [`alias`]: draws by weight in O(1).
//! - [`subgraph`]: sets of nodes whose induced subgraphs are minibatches.
//! - [`hotness`]: how often each row will be asked for.
//! - [`policy`]: which ids a cache holds.
//! - [`feature`]: node ids to feature rows, tier by tier, with counters.
//!
//! Useful alone, under any training framework. There are no gradients here, and no threads beyond data
//! parallelism inside one call: who runs what ahead of time is the engine's business. Every random
//! draw is a function of (seed, epoch, batch, hop, node), see [`graphmill_graph::keyed`].

pub mod alias;
pub mod compact;
pub mod feature;
pub mod hotness;
pub mod minibatch;
pub mod order;
pub mod policy;
pub mod prefetch;
pub mod reuse;
pub mod sampler;
pub mod subgraph;
pub mod weights;

pub use compact::Relabel;
pub use feature::{Feature, Traffic};
pub use minibatch::MiniBatch;
pub use sampler::{BatchKey, Form, Sampler, Workspace};
