//! Minibatches: seeds in an order, sampled blocks, extracted feature rows.
//!
//! An order chooses the seeds (the nodes whose labels a batch predicts), a sampler draws blocks
//! (the neighbours and edges around the seeds, one block per layer of the model), and a feature
//! table returns a row for each input node. A batch has another type at each stage ([`Seeds`],
//! [`Sampled`], [`Extracted`]), so no stage can be skipped. Recycling a batch passes its buffers to
//! the next one.
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
//!     // train a model on the batch, and then reuse its buffers
//!     memory = batch.recycle();
//! }
//! # Ok::<(), graphmill_core::Error>(())
//! ```
//!
//! - [`minibatch`]: a batch and its states.
//! - [`order`]: orders of the seeds in an epoch.
//! - [`sampler`]: samplers, from seeds to blocks.
//! - [`subgraph`]: samplers of node sets whose induced subgraphs are minibatches (GraphSAINT).
//! - [`hotness`]: predictions of how often each feature row is read.
//! - [`policy`]: cache policies, which choose the ids that a cache holds.
//! - [`typed`]: minibatches of graphs with several node types.
//! - [`time`]: minibatches without edges and nodes newer than their seeds.
//! - [`link`]: negatives of links, and batches that leave out the edges they predict.
//! - [`feature`]: feature tiers (host memory, files, caches), from node ids to feature rows.
//! - [`compact`]: numbers of a batch's nodes from 0; [`weights`]: weights of the symmetric
//!   normalisation.
//! - `testing` (a feature): conformance tests of samplers and cache policies.
//!
//! The crate works with any training framework: it has no gradients, and no threads beyond data
//! parallelism within one call. Every random draw is a function of (seed, epoch, batch, hop, node),
//! see [`graphmill_core::keyed`].

mod batch_key;
pub mod compact;
mod edge_rows;
mod edge_values;
mod fanout;
pub mod feature;
pub mod hotness;
pub mod link;
pub mod minibatch;
pub mod order;
pub mod policy;
pub mod sampler;
pub mod subgraph;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod time;
pub mod typed;
pub mod weights;

pub use batch_key::BatchKey;
pub use compact::Relabel;
pub use edge_rows::gather_edges;
pub use fanout::Fanout;
pub use feature::{Feature, Traffic};
pub use graphmill_core::prefetch;
pub use minibatch::{Extracted, MiniBatch, Sampled, Seeds, Upper};
pub use sampler::{BlockLayout, HopSampler, MinibatchSampler, Workspace};
