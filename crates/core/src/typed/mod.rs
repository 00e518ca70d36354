//! Typed (heterogeneous) graphs: several node types, and relations between them.
//!
//! - [`Schema`]: the node types and relations of a graph, by name and number.
//! - [`TypedGraph`]: a CSC graph for each relation.
//! - [`TypedBlock`]: one layer's message-flow graph, with a slice for each relation.
//!
//! One id space serves all types: type `t` owns the contiguous range of global ids
//! `offset[t]..offset[t + 1]`, so everything that works on node ids (hotness, caches, partitions)
//! works on typed graphs. Relations and blocks number the nodes of each type from 0 (local ids).
//!
//! `T` is the number of node types and `R` the number of relations.
//!
//! ```
//! use graphmill_core::typed::{NodeType, Relation, Schema, TypedGraph, bipartite};
//!
//! let types = vec![NodeType::new("author", 2), NodeType::new("paper", 3)];
//! let schema = Schema::new(types, vec![Relation::new(0, "writes", 1)])?;
//! // author 0 writes papers 0 and 2, author 1 writes paper 2
//! let writes = bipartite(2, 3, &[0, 0, 1], &[0, 2, 2])?;
//! let graph = TypedGraph::new(schema, vec![writes])?;
//! assert_eq!(graph.relation(0).in_neighbors(2), [0, 1]);
//! assert_eq!(graph.schema().relation_name(0), "author:writes:paper");
//! assert_eq!(graph.schema().global(1, 2), 4);
//! # Ok::<(), graphmill_core::Error>(())
//! ```

#![forbid(unsafe_code)]

mod block;
mod graph;
mod schema;

pub use block::TypedBlock;
pub use graph::{TypedGraph, bipartite, bipartite_weighted};
pub use schema::{NodeType, Relation, Schema};
