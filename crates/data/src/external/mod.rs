//! External-memory construction: edges and rows are collected in a [`Scratch`], in memory while
//! they fit its budget and in files of its directory beyond that.
//!
//! - [`Edges`]: any number of edges in any order, built into CSC by an external sort by
//!   destination.
//! - [`SortedArray`]: records of fixed length, sorted by an external merge in files without names.
//! - [`Rows`]: a table written row by row, validated and checksummed on the way.

mod csc;
mod directory;
mod edges;
mod merge;
mod needs;
mod publish;
#[cfg(feature = "tables")]
mod records;
mod rows;
mod scratch;
mod sort;
mod sorted_array;
mod spill;

pub(crate) use directory::remove_left;
pub use edges::Edges;
pub use needs::Needs;
#[cfg(feature = "tables")]
pub(crate) use records::{RecordSorter, SortedRecords};
pub use rows::Rows;
pub use scratch::Scratch;
pub use sorted_array::{SortedArray, least_memory};
