//! Distributed graphs: each part belongs to the rank that owns it.
//!
//! ```text
//!   sampler ─► ids of remote nodes ─► messenger ─► transport ~~~► transport ─► messenger ─► service: the owner samples
//!   feature ─► ids of remote rows  ─►                                                       the owner reads
//!   gradients ─► sums over ranks, in rank order
//! ```
//!
//! ```
//! use std::thread;
//! use graphmill_core::Result;
//! use graphmill_distributed::{Collective, Messenger, MessengerOptions, local};
//!
//! // two ranks, each a thread of this process, learn each other's numbers
//! let run = |end| -> Result<Vec<Vec<u32>>> {
//!     let messenger = Messenger::start(MessengerOptions::default(), move || Ok(end))?;
//!     let numbers = Collective::new(messenger.clone()).gather(1, &[10 + messenger.rank() as u32])?;
//!     messenger.close()?;
//!     Ok(numbers)
//! };
//! let ranks: Vec<_> = local(2).into_iter().map(|end| thread::spawn(move || run(end))).collect();
//! for rank in ranks {
//!     assert_eq!(rank.join().expect("no panic")?, [[10], [11]]);
//! }
//! # Ok::<(), graphmill_core::Error>(())
//! ```
//!
//! - [`transport`]: frames between ranks, over MPI or within a process.
//! - [`messenger`]: requests and replies, priorities, timeouts.
//! - [`collective`]: collective operations.
//! - [`numbers`]: numbers of 64 bits as words of messages.
//! - [`ownership`]: the map from nodes to owning ranks.
//! - [`sampler`]: neighbours of remote nodes, sampled by their owners.
//! - [`neighbors`]: lists and single neighbours of remote nodes, for samplers that read several.
//! - [`rows`]: feature rows of remote nodes: the remote tier.
//! - [`edges`]: feature rows of edges into remote nodes.
//! - [`sparse`]: sparse feature rows over ranks.
//! - [`times`]: draws of graphs with times, bounded by the owners of the nodes.
//! - [`walks`]: walks along edge types, whose steps the owners of the nodes draw.
//! - [`subgraphs`]: subgraphs that graph stores draw for the ranks that train.
//!
//! The neighbours that an owner draws for a node depend only on (seed, epoch, batch, hop, node), so
//! a batch sampled over ranks has the same blocks as in a single process.

mod answer;
pub mod collective;
pub mod edges;
pub mod messenger;
pub mod neighbors;
pub mod numbers;
pub mod ownership;
mod row_requests;
mod row_words;
pub mod rows;
pub mod sampler;
pub mod sparse;
pub mod subgraphs;
pub mod times;
pub mod transport;
pub mod walks;

pub use collective::Collective;
pub use messenger::{Messenger, MessengerOptions, Sent, Service};
pub use ownership::NodeOwnership;
pub use transport::{Transport, local::local};
