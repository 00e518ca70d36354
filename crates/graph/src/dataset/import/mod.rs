//! Importers: from the field's own formats to a [`Dataset`].
//!
//! Every importer is a function in a file of its own that reads a source into a [`Raw`]; the steps
//! that all share (edges to CSC, largest component, split, normalisation) are taken in one place.
//! To add a format, copy `graphsaint.rs`, the plainest, and add its row to [`TABLE`].
//!
//! The direction of edges: a matrix entry `(i, j)` and a line `i j` are an edge from `i` to `j`, so
//! `i` becomes an in-neighbour of `j`.

mod blocks;
mod csr;
mod edges;
mod features;
mod graphsaint;
mod labels;
mod npz;
mod options;
#[cfg(feature = "parquet")]
mod parquet;
mod pickle;
mod planetoid;
mod splits;
mod steps;

use std::path::Path;

pub use edges::Flavour;
pub(super) use edges::meta::Meta;
pub use options::{ImportOptions, METRICS, Normalize, SplitRule};

use super::{Dataset, Features, Labels, NamedGraph, Split, graphs};
use crate::{
    Result,
    external::{Edges, Scratch},
    table::{self, Entry},
};

/// Reads a source of one format.
pub type Importer = fn(&Path, &ImportOptions, &Scratch) -> Result<Raw>;

/// The formats, in the order in which help lists them.
pub const TABLE: &[Entry<Importer>] = &[
    Entry {
        name: "npz",
        summary: "one .npz file with a sparse adjacency (Shchur, PyG) or with edges and masks (heterophilous sets)",
        source: "Shchur et al., Pitfalls of graph neural network evaluation, 2018; Platonov et al., A critical look at the evaluation of GNNs under heterophily, ICLR 2023",
        make: npz::read,
    },
    Entry {
        name: "graphsaint",
        summary: "a directory of adj_full.npz, feats.npy, class_map.json and role.json",
        source: "Zeng et al., GraphSAINT, ICLR 2020: the repository's README",
        make: graphsaint::read,
    },
    Entry {
        name: "planetoid",
        summary: "the ind.NAME.* files of Cora, CiteSeer and PubMed, with their public split",
        source: "Yang, Cohen and Salakhutdinov, Revisiting semi-supervised learning with graph embeddings, ICML 2016",
        make: planetoid::read,
    },
    Entry {
        name: "edges",
        summary: "an edge list as text (plain, SNAP, METIS, WebGraph) with features, labels and splits as text or .npy, or a GNNLab directory",
        source: "SNAP edge lists; METIS manual, section 4.5.1; WebGraph's ASCIIGraph; GNNLab's datagen/README.md; the layout of the multi-label sets of Zhao et al., TMLR 2023",
        make: edges::read,
    },
    #[cfg(feature = "parquet")]
    Entry {
        name: "parquet",
        summary: "tables of edges and perhaps nodes as Parquet files",
        source: "Apache Parquet format, version 2; column names as PyG and DGL call their fields",
        make: parquet::read,
    },
];

/// What an importer found, before the shared steps.
#[derive(Clone, Debug, Default)]
pub struct Raw {
    /// What the source is called.
    pub name: String,
    /// `V`.
    pub num_nodes: usize,
    /// The edges, in a collection that knows what to make of them (see [`ImportOptions::edge_options`]).
    pub edges: Edges,
    /// `V` rows, or none at all.
    pub features: Features,
    /// `V` labels, -1 where unknown.
    pub labels: Labels,
    /// The splits that come with the source, ids ascending.
    pub splits: Vec<Split>,
    /// The graphs that the source is the union of, in the order of their nodes; none where it is one graph.
    pub graphs: Vec<NamedGraph>,
    /// How the source is usually scored.
    pub metric: Option<String>,
}

/// Imports `src`, which has the format called `format`.
///
/// # Errors
/// An unknown format, an option that does not fit it, or a fault in the source, with file and place.
pub fn import(format: &str, src: impl AsRef<Path>, options: &ImportOptions) -> Result<Dataset> {
    let entry = table::find("format", TABLE, format)?;
    options.check(format)?;
    let raw = (entry.make)(src.as_ref(), options, &Scratch::in_memory())?;
    steps::finish(raw, src.as_ref(), options)
}
