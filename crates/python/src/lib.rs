//! What the Python package is made of.
//!
//! ```text
//!   order ─► method (neighbours, ego networks, subgraphs) ─► gather ─► batch        threads that work ahead: prefetch
//! ```
//!
//! The plain modules know no Python: a [`source::Source`] makes [`batch::Batch`]es of a
//! [`topology::Topology`] and tables of rows ([`table::Table`]), each a function of (seed, epoch,
//! number) alone, and [`prefetch`] makes them ahead of whoever asks, in order. The conventions are
//! PyTorch Geometric's: node lists begin with the seeds, a node is expanded in the hop that it was
//! first seen in, and edges are known by their places in the user's edge list. `bind` (feature
//! `python`) hands all of it to Python; the package's own files beside this crate give it the names
//! and signatures that users know.

pub mod batch;
pub mod blocks;
pub mod fault;
pub mod method;
pub mod order;
pub mod pool;
pub mod prefetch;
pub mod source;
pub mod table;
pub mod tiered;
pub mod topology;

#[cfg(feature = "python")]
mod bind;
