//! Datasets on disk: the native format, importers and exporters, generators, work beyond the size of memory, reordering,
//! partitioning, statistics. Nothing in this crate knows about training.
//!
//! Features: `parquet` imports Parquet tables, `metis` partitions by METIS, `download` fetches public datasets. None is on by
//! default.
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
//! - [`npy`], [`npz`]: NumPy's formats; [`atomic`]: files that appear whole or not at all.
//! - [`external`]: edges and rows beyond the size of memory.
//! - [`generate`]: simulated graphs, parallel and deterministic.
//! - [`partition`]: the nodes assigned to several machines.
//! - [`reorder`]: the same dataset with its nodes renumbered.
//! - [`stats`]: the figures that `graphmill info` prints.
//! - `download` (a feature): known public datasets, and how to get them.
//! - [`alias_file`]: alias tables of stored edge weights, kept beside the dataset.

pub mod alias_file;
pub mod atomic;
pub mod dataset;
#[cfg(feature = "download")]
pub mod download;
pub mod external;
pub mod generate;
pub mod npy;
pub mod npz;
pub mod partition;
pub mod reorder;
mod signed;
pub mod stats;

pub use dataset::{Dataset, DatasetBuilder};
