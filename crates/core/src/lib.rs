//! Graphs, blocks, matrices, buffers and keyed randomness: the data structures of all other crates.
//! No files, no formats, no training.
//!
//! ```
//! use graphmill_core::{EdgeOptions, build};
//!
//! // messages flow from source to destination: node 2 has two in-neighbours
//! let graph = build(3, &[0, 1, 0], &[2, 2, 1], EdgeOptions::DIRECTED)?;
//! assert_eq!(graph.in_neighbors(2), [0, 1]);
//! # Ok::<(), graphmill_core::Error>(())
//! ```
//!
//! - [`Graph`]: the in-neighbours of every node, in CSC form; [`build()`] makes one from edges.
//! - [`Block`]: one layer's bipartite message-flow graph.
//! - [`typed`]: graphs of several node types and relations, and their blocks.
//! - [`Matrix`], [`SparseRows`]: rows of values, dense, shared, sparse or on a device.
//! - [`Buffer`]: an owned vector or a memory map behind one type; [`FileArray`]: values in a file
//!   without a name.
//! - [`Features`], [`Labels`], [`Split`]: data of nodes; [`verifier`]: their checksums, checked by
//!   first reads.
//! - [`keyed`]: random numbers as functions of a key; [`alias`]: draws by weight in O(1).
//! - [`rank`], [`traverse`], [`symmetry`], [`induced`], [`node_order`]: out-degrees and reverse
//!   PageRank, components, a test for undirected graphs, induced subgraphs, and nodes ordered by a
//!   score.
//! - [`table`]: registries with a row for each algorithm of a kind; `options` (a feature): their
//!   options.
//! - [`progress`]: progress and cancellation of long work; [`signals`]: the handler of SIGTERM
//!   beside a foreign library, and the action on a closed pipe.
//! - [`probe`]: work that the machine alone limits, for benchmarks.
//! - [`memory`]: the size of the machine's memory; [`huge_pages`]: large vectors of intermediate
//!   results; [`disk`]: the free space of file systems; [`units`]: readable counts and sizes.
//!
//! One alphabet of dimensions serves the whole workspace: `V` nodes and `E` edges of a graph, `S`
//! source and `D` destination nodes of a block, `B` seeds, `K` fanout, `L` layers, `F` feature, `H`
//! hidden and `C` class width.

pub mod accelerator;
pub mod alias;
pub mod atomic_slice;
pub mod block;
pub mod buffer;
pub mod builder;
pub mod csc;
pub mod disk;
mod end;
pub mod error;
pub mod features;
pub mod file_array;
pub mod huge_pages;
pub mod induced;
pub mod keyed;
pub mod labels;
pub mod location;
pub mod maps;
pub mod matrix;
pub mod memory;
pub mod node_order;
pub mod object_pool;
#[cfg(feature = "options")]
pub mod options;
pub mod parallel;
pub mod prefetch;
pub mod probe;
pub mod progress;
pub mod rank;
pub mod search;
pub mod signals;
pub mod sparse;
pub mod spread;
pub mod symmetry;
pub mod table;
pub mod traverse;
pub mod typed;
pub mod units;
pub mod verifier;

pub use block::{Block, Transposed};
pub use buffer::Buffer;
pub use builder::{EdgeOptions, build, build_weighted};
pub use csc::{Graph, WholeDegrees};
pub use end::End;
pub use error::{Error, Result};
pub use features::{FeatureData, Features};
pub use file_array::FileArray;
pub use labels::{ClassColumn, Labels, Split};
pub use matrix::{Matrix, View, ViewMut};
pub use object_pool::ObjectPool;
pub use sparse::SparseRows;

/// Number of a node: up to 4.29 billion nodes.
pub type NodeId = u32;
