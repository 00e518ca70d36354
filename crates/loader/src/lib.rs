//! Minibatches: seeds in an order, sampled blocks, extracted feature rows.
//!
//! The pipeline in one sentence: an order picks the seeds, a sampler draws blocks around them, and
//! a feature table gives a row for each input node. A batch is a value of another type at each
//! stage ([`Seeds`], [`Sampled`], [`Extracted`]), so no stage can be skipped; recycled, it gives
//! its memory to the next.
//!
//! ```
//! use graphmill_core::{EdgeOptions, Features, build};
//! use graphmill_loader::{
//!     BatchKey, MinibatchSampler, Seeds, Workspace,
//!     feature::Host,
//!     order::{SeedOrder, random::Random},
//!     sampler::{BatchRequest, HopStack, neighbor::Neighbor},
//! };
//!
//! let ring: Vec<u32> = (0..100).collect();
//! let next: Vec<u32> = (0..100).map(|v| (v + 1) % 100).collect();
//! let graph = build(100, &ring, &next, EdgeOptions::UNDIRECTED)?;
//! let features = Host::new(&Features::f32(8, vec![1.0; 800]));
//!
//! let sampler = HopStack::new(Neighbor::new(&[2, 1]).expect("two numbers of neighbours"));
//! let mut order = Vec::new();
//! Random::new(&ring, 1).order(0, &mut order);
//!
//! let mut workspace = Workspace::new(100);
//! let mut memory = Seeds::default();
//! for (number, nodes) in (0..).zip(order.chunks(10)) {
//!     let seeds = memory.refill(number, nodes.iter().copied());
//!     let request = BatchRequest::new(&graph, BatchKey { seed: 1, epoch: 0, batch: number });
//!     let sampled = sampler.sample(&request, &mut workspace, seeds)?;
//!     assert_eq!(sampled.blocks.len(), 2);
//!     let batch = sampled.extract(&features)?;
//!     assert_eq!(batch.features.num_rows(), batch.sampled.input_nodes.len());
//!     // a model trains on the batch, and then the next one takes over its memory
//!     memory = batch.recycle();
//! }
//! # Ok::<(), graphmill_core::Error>(())
//! ```
//!
//! - [`minibatch`]: a batch and its states.
//! - [`order`]: which seeds come when.
//! - [`sampler`]: seeds to blocks.
//! - [`subgraph`]: sets of nodes whose induced subgraphs are minibatches.
//! - [`hotness`]: how often each row will be asked for.
//! - [`policy`]: which ids a cache holds.
//! - [`feature`]: node ids to feature rows, tier by tier, with counters.
//!
//! Useful alone, under any training framework. There are no gradients here, and no threads beyond
//! data parallelism inside one call: who runs what ahead of time is the engine's business. Every
//! random draw is a function of (seed, epoch, batch, hop, node), see [`graphmill_core::keyed`].

mod batch_key;
pub mod compact;
mod fanout;
pub mod feature;
pub mod hotness;
pub mod minibatch;
pub mod order;
pub mod policy;
pub mod sampler;
pub mod subgraph;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod weights;

pub use batch_key::BatchKey;
pub use compact::Relabel;
pub use fanout::Fanout;
pub use feature::{Feature, Traffic};
pub use graphmill_core::prefetch;
pub use minibatch::{Extracted, MiniBatch, Sampled, Seeds, Upper};
pub use sampler::{BlockLayout, HopSampler, MinibatchSampler, Workspace};
