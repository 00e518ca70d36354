//! Datasets on disk: the native format, importers and exporters, generators, external-memory
//! construction, reordering, partitioning, statistics. Nothing in this crate depends on training.
//!
//! Features: `parquet` imports Parquet tables, `tables` imports tables of any columns,
//! `object-storage` reads them from object storage, `metis` partitions with METIS, and `download`
//! fetches public datasets. No feature is enabled by default.
//!
//! ```
//! use graphmill_data::generate::{GenerateOptions, generate};
//!
//! let data = generate("sbm", &GenerateOptions { nodes: 500, classes: 4, ..GenerateOptions::default() })?;
//! assert_eq!((data.num_nodes(), data.labels.classes()), (500, 4));
//! # Ok::<(), graphmill_core::Error>(())
//! ```
//!
//! - [`dataset`]: the native on-disk format and its importers and exporters.
//! - [`npy`], [`npz`]: NumPy's formats; [`atomic`]: atomic creation of files and directories;
//!   [`checksum`]: checksum of a file.
//! - [`external`]: edge lists and tables larger than memory.
//! - [`generate`]: simulated graphs, parallel and deterministic.
//! - [`partition`]: assignment of the nodes to several machines.
//! - [`reorder`]: the same dataset with its nodes renumbered; [`mod@as_of`]: as it was at a time.
//! - [`typed`]: graphs of several node types and edge types.
//! - [`stats`]: the figures that `graphmill info` prints.
//! - `tables` (a feature): a dataset from tables of nodes and edges with any columns.
//! - `download` (a feature): catalogue of public datasets and their downloader.
//! - [`verification`]: checksums of feature rows, checked when they are first read.
//! - [`alias_file`]: alias tables of stored edge weights, cached in the dataset's directory.
//! - [`bottom_hop`]: feature rows with the aggregates of their in-neighbours, in a file.

#![forbid(unsafe_code)]

pub mod alias_file;
pub mod as_of;
pub mod atomic;
pub mod bottom_hop;
pub mod checksum;
pub mod dataset;
#[cfg(feature = "download")]
pub mod download;
pub mod external;
pub mod generate;
pub mod npy;
pub mod npz;
mod object_storage;
pub mod partition;
pub mod reorder;
mod signed;
pub mod stats;
#[cfg(feature = "tables")]
pub mod tables;
pub mod typed;
pub mod verification;

pub use dataset::{Dataset, DatasetBuilder};
pub use typed::{TypedBuilder, TypedDataset};
