//! Minibatches: seeds in an order, sampled blocks, extracted feature rows.
//!
//! The pipeline in one sentence: an order picks the seeds, a sampler draws blocks around them, and a feature
//! table gives a row for each input node.
//!
//! ```
//! use graphmill_core::{EdgeOptions, Features, build};
//! use graphmill_loader::{
//!     BatchKey, Feature, MiniBatch, MinibatchSampler, Workspace,
//!     feature::Host,
//!     order::{Order, random::Random},
//!     sampler::{BatchRequest, HopStack, neighbor::Neighbor},
//! };
//!
//! let ring: Vec<u32> = (0..100).collect();
//! let next: Vec<u32> = (0..100).map(|v| (v + 1) % 100).collect();
//! let graph = build(100, &ring, &next, EdgeOptions::UNDIRECTED)?;
//! let features = Host::new(&Features::f32(8, vec![1.0; 800]));
//!
//! let (mut seeds, mut batch) = (Vec::new(), MiniBatch::default());
//! Random::new(&ring, 1).order(0, &mut seeds);
//! batch.seeds.extend_from_slice(&seeds[..10]);
//! let request = BatchRequest::new(&graph, BatchKey { seed: 1, epoch: 0, batch: 0 });
//! let sampler = HopStack::new(Neighbor::new(&[2, 1]).expect("two numbers of neighbours"));
//! sampler.sample(&request, &mut Workspace::new(100), &mut batch)?;
//! features.gather(&batch.input_nodes, &mut batch.features)?;
//! assert_eq!(batch.features.num_rows(), batch.input_nodes.len());
//! # Ok::<(), graphmill_core::Error>(())
//! ```
//!
//! - [`order`]: which seeds come when.
//! - [`sampler`]: seeds to blocks.
//! - [`reuse`]: rows of the bottom layer that are read instead of computed.
//! - [`subgraph`]: sets of nodes whose induced subgraphs are minibatches.
//! - [`hotness`]: how often each row will be asked for.
//! - [`policy`]: which ids a cache holds.
//! - [`feature`]: node ids to feature rows, tier by tier, with counters.
//!
//! Useful alone, under any training framework. There are no gradients here, and no threads beyond data
//! parallelism inside one call: who runs what ahead of time is the engine's business. Every random
//! draw is a function of (seed, epoch, batch, hop, node), see [`graphmill_core::keyed`].

mod batch_key;
pub mod compact;
mod fanout;
pub mod feature;
pub mod hotness;
pub mod minibatch;
pub mod order;
pub mod policy;
pub mod reuse;
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
pub use minibatch::MiniBatch;
pub use sampler::{BlockLayout, HopSampler, MinibatchSampler, Workspace};
