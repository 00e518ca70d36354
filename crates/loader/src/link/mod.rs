//! Minibatches of links: edges to learn, negatives that are none, and exact exclusion.
//!
//! ```text
//!   numbers of edges ──LinkSource::fill──► Seeds { nodes, links } ──MinibatchSampler──► blocks
//!                        │        │                        │             ▲
//!                   KnownEdges  NegativeSampler            └─ ExcludedEdges
//! ```
//!
//! A batch of links is a batch of nodes, the ends of its edges, so that samplers, caches and
//! devices serve both. [`LinkBatch`] says which of its seeds form pairs. Supervision edges and
//! their reverses are left out of every hop ([`ExcludedEdges`]), whose draws are those of the graph
//! without them: a model never sees the edge that it predicts. Negatives are looked up among all
//! known edges, and drawn exactly ([`KnownEdges::draw`]).
//!
//! ```
//! use std::sync::Arc;
//!
//! use graphmill_core::{EdgeOptions, build};
//! use graphmill_loader::{
//!     BatchKey, MinibatchSampler, Seeds, Workspace,
//!     link::{KnownEdges, LinkSource},
//!     sampler::{BatchRequest, HopStack, neighbor::Neighbor},
//! };
//!
//! // a ring of 6 nodes; learn the edge 0 - 1
//! let next = [1, 2, 3, 4, 5, 0];
//! let graph = build(6, &[0, 1, 2, 3, 4, 5], &next, EdgeOptions::UNDIRECTED)?;
//! let known = KnownEdges::of_undirected(&graph).expect("edges both ways");
//! let links = LinkSource::new([(0, 1)], Arc::new(known), "uniform")?;
//! let key = BatchKey { seed: 1, epoch: 0, batch: 0 };
//! let seeds = links.fill(key, &[0], Seeds::default())?;
//! let sampler = HopStack::new(Neighbor::new(&[5]).expect("a number of neighbours"));
//! let batch = sampler.sample(&BatchRequest::new(&graph, key), &mut Workspace::new(6), seeds)?;
//! // 0 reads 5 alone, and 1 reads 2 alone
//! let (block, nodes) = (&batch.blocks[0], &batch.input_nodes);
//! assert_eq!(nodes[block.indices[0] as usize], 5);
//! assert_eq!(nodes[block.indices[1] as usize], 2);
//! # Ok::<(), graphmill_core::Error>(())
//! ```

#![forbid(unsafe_code)]

mod batch;
mod excluded;
mod existing;
mod known;
mod lists;
mod negatives;
mod places;
mod source;
mod triples;
mod walks;
mod weighted;

pub use batch::LinkBatch;
pub use excluded::ExcludedEdges;
pub use existing::{ExistingNodes, KnownAt};
pub use known::{Known, KnownEdges};
pub use lists::NegativeLists;
pub use negatives::{
    ListSource, Make, NegativeKind, NegativeRequest, NegativeSampler, NegativeSource, TABLE, negatives_that,
};
pub(crate) use places::{ExcludedPlaces, append_places, remaining_place};
pub use source::{Corrupt, Exclude, LinkSource};
pub use triples::{KnownOfRelation, KnownTriples};
pub use walks::{WalkRule, Walks};
pub use weighted::WeightedNegatives;
