//! Typed datasets: graphs of several node types and edge types with their tasks, in memory or in a
//! directory of format 2.
//!
//! ```
//! use graphmill_data::typed::{self, TypedBuilder, Verify};
//!
//! // Two node types with keys and features of different widths, and an edge type between them.
//! let mut builder = TypedBuilder::new("shop");
//! builder.node_type("user", 3).text_keys(["ann", "bob", "eve"]);
//! builder.node_type("item", 2).integer_keys(vec![700, 800]).features(2, vec![1.0f32, 0.0, 0.5, 0.5]);
//! builder
//!     .edge_type("user", "buys", "item")
//!     .edges(vec![0, 1, 2], vec![1, 0, 1])
//!     .time(vec![20, 30, 10])
//!     .with_reverse("bought-by");
//! builder.task("churn").on_nodes("user").classes(2, vec![0, 1, -1]).split([0], [1], []);
//! let data = builder.build()?;
//!
//! let directory = tempfile::tempdir().unwrap();
//! let path = directory.path().join("shop");
//! data.save(&path)?; // in one step: the whole directory, or nothing
//! let stored = typed::open(&path, Verify::Once)?; // mapped
//! assert_eq!(stored.edges[0].in_neighbors(1), [0, 2]);
//! assert_eq!(stored.edges[0].time.as_deref(), Some(&[30, 20, 10][..])); // columns follow the edges
//! assert_eq!(stored.schema()?.offsets(), [0, 3, 5]);
//! # Ok::<(), graphmill_core::Error>(())
//! ```
//!
//! - [`TypedBuilder`]: builds a dataset from arrays, in memory or mapped.
//! - [`TypedDataset`]: columns of [`NodeData`] and [`EdgeData`], and [`Task`]s.
//! - [`Schema`]: the types, and the id space that the node types share.
//! - [`Values`], [`FeatureTable`], [`Keys`]: arrays of any number type, feature rows, original
//!   keys.
//! - [`TypedDataset::save`], [`open`]: the directory.
//! - [`create`], [`EdgeSorter`], [`TextRows`]: datasets beyond memory.
//! - [`TypedDataset::from_dataset`], [`TypedDataset::to_dataset`], [`open_any`]: datasets of one
//!   type.
//!
//! # Format
//!
//! Ids in files are local to a node type. Every array is an `.npy` file with its data from byte
//! 4096 on.
//!
//! ```text
//! graphmill.json        manifest: types, tasks, and the shape, type, size and checksum of every file
//! preprocessing.json    operations that were applied to columns, with their statistics (optional)
//! verified.json         files whose checksums were compared at this place; may be deleted
//! nodes/TYPE/           V nodes; every column is optional
//!   features.npy            any number type [V, F]
//!                           or the nonzero values by rows:
//!   features_indptr.npy     u8 [V + 1]     row starts
//!   features_indices.npy    u4 [stored]    columns, ascending within a row
//!   features_values.npy     f4 [stored]
//!   feature_mean.npy        f8 [F]         if columns were standardized and centred
//!   feature_deviation.npy   f8 [F]         if columns were standardized
//!   keys.npy                i8 [V]         original keys that are integers, or
//!   keys_offsets.npy        u8 [V + 1]     texts: starts in
//!   keys_bytes.npy          u1 [bytes]     the UTF-8 bytes of all keys
//!   time.npy                i8 [V]         time from which a node exists
//!   original_ids.npy        u4 [V]         ids before the dataset was reordered
//! edges/SOURCE__NAME__DESTINATION/   E edges in CSC order: by destination
//!   indptr.npy              u8 [D + 1]     row starts of the D destinations
//!   indices.npy             u4 [E]         sources
//!   weights.npy             f4 [E]         (optional, as all below)
//!   time.npy                i8 [E]
//!   features.npy, ...       as for nodes
//! tasks/NAME/           R rows: nodes or edges of a type in their order, or the seeds
//!   seeds.npy               u4 [R] nodes, or u4 [R, 2] sources and destinations (optional)
//!   time.npy                i8 [R]         time of each row (optional)
//!   targets.npy             i4 [R] classes (-1 unknown), u1 [R, C] sets of classes, or f4 [R, values]
//!                           (NaN unknown); none for link prediction
//!   train.npy valid.npy test.npy   u4      rows, ascending and disjoint
//!   train_negatives.npy            u4 [N, 2]   pairs, or for each positive
//!   train_negative_destinations.npy u4 [P, K]  or train_negative_sources.npy; likewise valid_, test_
//!   train_negative_lists.npy       u4 [N]      or destinations of any number for each positive,
//!   train_negative_starts.npy      u8 [P + 1]  from its start to the next
//! ```

mod builder;
#[cfg(test)]
mod column_tests;
mod convert;
mod create;
mod csc;
mod dataset;
pub mod import;
mod info;
mod keys;
mod lists;
mod manifest;
mod names;
mod read;
mod save;
mod schema;
mod sort;
mod stored;
mod strangers;
mod task;
mod task_check;
mod text_rows;
mod topology;
mod validate;
mod values;
mod write;

pub use builder::{EdgeBuilder, NodeBuilder, TaskBuilder, TypedBuilder};
pub use convert::open_any;
pub(crate) use convert::open_one_type;
pub use create::create;
pub use dataset::{EdgeData, NodeData, TypedDataset};
pub use info::{EdgeTypeInfo, FeatureInfo, NodeTypeInfo, TaskInfo, TypedInfo, info};
pub use keys::{KEY_SEPARATOR, Key, Keys, Texts};
pub use lists::CandidateLists;
pub(crate) use names::{escape as file_name, unique as unique_name};
pub use save::open;
pub use schema::{EdgeType, Schema};
pub(crate) use sort::RowRules;
pub use sort::{EdgeColumns, EdgeSorter, SortedEdges};
pub(crate) use stored::{StoredFeatures, checksum_of, stored_features};
pub use stored::{has_several_types, is_dataset, is_typed, manifest_text};
pub(crate) use strangers::{is_own_entry, stranger};
pub use task::{Negatives, Seeds, Targets, Task, TaskKind, TaskOn};
pub use text_rows::TextRows;
pub(crate) use values::each_buffer;
pub use values::{FeatureTable, TableData, Values};

pub use crate::verification::Verify;
