//! A graph in parts, each with the rank that owns it.
//!
//! ```text
//!   sampler ─► ids of other ranks' nodes ─► post ─► transport ~~~► transport ─► post ─► service: the owner draws
//!   feature ─► rows that are not here    ─►                                             the owner reads
//!   gradients ─► sums over ranks, in the order of ranks
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
//!     messenger.close();
//!     Ok(numbers)
//! };
//! let ranks: Vec<_> = local(2).into_iter().map(|end| thread::spawn(move || run(end))).collect();
//! for rank in ranks {
//!     assert_eq!(rank.join().expect("no panic")?, [[10], [11]]);
//! }
//! # Ok::<(), graphmill_core::Error>(())
//! ```
//!
//! - [`transport`]: frames from rank to rank, over MPI or within a process.
//! - [`messenger`]: who asks whom, who answers, what goes first, who waits and for how long.
//! - [`collective`]: what all ranks do together.
//! - [`ownership`]: which rank owns which node.
//! - [`sampler`]: neighbours of nodes that others own, drawn by their owners.
//! - [`rows`]: feature rows that others own: the remote tier.
//!
//! What an owner draws for a node depends on (seed, epoch, batch, hop, node) alone, so a batch that is sampled over ranks has the
//! blocks of one that is sampled by a single process.

pub mod collective;
pub mod messenger;
pub mod ownership;
pub mod rows;
pub mod sampler;
pub mod transport;

pub use collective::Collective;
pub use messenger::{Messenger, MessengerOptions, Sent, Service};
pub use ownership::NodeOwnership;
pub use transport::{Transport, local::local};
