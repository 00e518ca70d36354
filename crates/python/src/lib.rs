//! Rust side of the Python package.
//!
//! ```text
//!   order ─► method (neighbours, ego networks, subgraphs) ─► gather ─► batch
//!            └───────────── on the threads of `prefetch`, ahead of the consumer
//! ```
//!
//! The modules outside `bind` do not depend on Python: a [`source::Source`] makes
//! [`batch::Batch`]es from a [`topology::Topology`] and tables of rows ([`table::Table`]), each a
//! function of (seed, epoch, number) alone, and [`prefetch`] makes them ahead of time, in order.
//! The conventions are PyTorch Geometric's: node lists start with the seeds, a node is expanded in
//! the hop after the one that discovered it, and an edge's number is its position in the user's
//! edge list. `bind` (feature `python`) exports the modules to Python; the Python files of the
//! package add the names and signatures of PyTorch Geometric and DGL.

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
pub mod typed;

#[cfg(feature = "python")]
mod bind;
