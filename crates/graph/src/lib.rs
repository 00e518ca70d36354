//! Topology and data at rest. Nothing in this crate knows about training.
//!
//! - [`Graph`]: the in-neighbours of every node, in CSC form.
//! - [`Block`]: one layer's bipartite message-flow graph.
//! - [`Buffer`]: an owned vector or a memory map behind one type.
//! - [`dataset`]: the native on-disk format and its importers.
//! - [`npy`], [`npz`]: NumPy's formats; [`atomic`]: files that appear whole or not at all.
//! - [`SparseRows`]: feature rows of which few values are not zero.
//! - [`alias`]: draws by weight in O(1).
//! - [`external`]: edges and rows beyond the size of memory.
//! - [`generate`]: graphs made up on the spot, parallel and deterministic.
//! - [`memory`]: how much of it there is.
//! - [`partition`]: the nodes dealt to several machines.
//! - [`rank`]: out-degrees and reverse PageRank.
//! - [`reorder`]: the same dataset with its nodes renumbered.
//! - [`traverse`], [`symmetry`], [`among`], [`stats`]: components, whether edges go both ways, the edges among some nodes, and
//!   the figures `graphmill info` prints.
//!
//! One alphabet of dimensions serves the whole workspace: `V` nodes and `E` edges of a graph,
//! `S` source and `D` destination nodes of a block, `B` seeds, `K` fanout, `L` layers,
//! `F` feature, `H` hidden and `C` class width.

pub mod accelerator;
pub mod alias;
pub mod among;
pub mod atomic;
pub mod block;
pub mod buffer;
pub mod builder;
pub mod csc;
pub mod dataset;
pub mod error;
pub mod external;
pub mod generate;
pub mod keyed;
pub mod matrix;
pub mod memory;
pub mod npy;
pub mod npz;
pub mod partition;
mod place;
pub mod prefetch;
pub mod rank;
pub mod reorder;
mod search;
pub mod shared;
pub mod sparse;
pub mod stats;
pub mod symmetry;
pub mod table;
pub mod traverse;

pub use block::{Block, Transposed};
pub use buffer::Buffer;
pub use builder::{EdgeOptions, build, build_weighted};
pub use csc::Graph;
pub use dataset::{Dataset, Features, Labels, Split};
pub use error::{Error, Result};
pub use matrix::{Matrix, View, ViewMut};
pub use sparse::SparseRows;

/// A node's number: 4.29 billion nodes fit.
pub type NodeId = u32;
