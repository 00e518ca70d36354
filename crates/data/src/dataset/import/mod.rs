//! Importers: from the field's own formats to a [`Dataset`].
//!
//! Each importer is a function in a separate file that reads a source into a [`Raw`]; the steps
//! shared by all (edges to CSC, largest component, split, normalization) follow in one place. To
//! add a format, copy `graphsaint.rs`, the simplest, and add its row to [`TABLE`].
//!
//! Direction of edges: a matrix entry `(i, j)` and a line `i j` are an edge from `i` to `j`, so `i`
//! becomes an in-neighbour of `j`.

mod adjacency;
mod blocks;
pub(crate) mod claims;
mod class_map;
pub(crate) mod csr;
pub(crate) mod edges;
pub(crate) mod facebook100;
mod feature_rows;
pub(crate) mod features;
#[cfg(feature = "fuzz")]
pub mod fuzz;
pub(crate) mod graphbolt;
mod graphsage;
mod graphsaint;
pub(crate) mod identity;
pub(crate) mod json;
pub(crate) mod label_rows;
pub(crate) mod labels;
#[cfg(test)]
mod missing;
mod musae;
mod normalize;
mod npz;
mod ogb;
mod options;
mod pairs;
#[cfg(feature = "parquet")]
pub(crate) mod parquet;
pub(crate) mod pickle;
mod planetoid;
pub(crate) mod report;
mod scipy;
pub(crate) mod splits;
mod steps;
pub(crate) mod torch;

use std::{fs, path::Path};

pub use edges::Flavour;
pub(super) use edges::meta::Meta;
pub use normalize::NormalizationReport;
pub use options::{ImportOptions, METRICS, Normalize, SplitRule, WeightColumn, fractions};
pub use report::ImportReport;
pub use steps::draw_split;

use graphmill_core::{
    Error, Features, Labels, Result, Split,
    table::{self, Entry},
};

use super::{
    Dataset, NamedGraph, Normalization, graphs,
    native::check_target,
    work::{self, Work},
};
use crate::{
    external::{Edges, Scratch},
    object_storage::Copies,
};

/// Reads a source of one format.
pub type Importer = fn(&Path, &ImportOptions, &Scratch) -> Result<Raw>;

/// Formats, in the order of the help text.
pub const TABLE: &[Entry<Importer>] = &[
    Entry {
        name: "npz",
        summary: "one .npz file with a sparse adjacency (Shchur, PyG), with edges and masks (heterophilous \
            sets), or of scipy.sparse.save_npz",
        source: "Shchur et al., Pitfalls of graph neural network evaluation, 2018; Platonov et al., A \
            critical look at the evaluation of GNNs under heterophily, ICLR 2023",
        options: &[],
        make: npz::read,
    },
    Entry {
        name: "graphsaint",
        summary: "a directory of adj_full.npz, feats.npy, class_map.json and role.json",
        source: "Zeng et al., GraphSAINT, ICLR 2020: the repository's README",
        options: &[],
        make: graphsaint::read,
    },
    Entry {
        name: "planetoid",
        summary: "the ind.NAME.* files of Cora, CiteSeer and PubMed, with their public split",
        source: "Yang, Cohen and Salakhutdinov, Revisiting semi-supervised learning with graph embeddings, \
            ICML 2016",
        options: &[],
        make: planetoid::read,
    },
    Entry {
        name: "ogb",
        summary: "an OGB node property directory (raw/*.csv.gz or raw/data.npz, split/*), such as ogbn_arxiv",
        source: "Hu et al., Open Graph Benchmark, NeurIPS 2020: ogb/io/read_graph_raw.py",
        options: &[],
        make: ogb::read,
    },
    Entry {
        name: "graphsage",
        summary: "NAME-G.json with NAME-class_map.json, NAME-id_map.json and NAME-feats.npy, or PPI in DGL's \
            layout",
        source: "Hamilton, Ying and Leskovec, Inductive representation learning on large graphs, NeurIPS \
            2017: the repository's README; dgl/data/ppi.py",
        options: &[],
        make: graphsage::read,
    },
    Entry {
        name: "graphbolt",
        summary: "a GraphBolt directory: metadata.yaml, and edges, features and tasks as csv or .npy",
        source: "DGL, docs/source/stochastic_training/ondisk-dataset-specification.rst",
        options: &[],
        make: graphbolt::read,
    },
    Entry {
        name: "musae",
        summary: "musae_NAME_{edges.csv,features.json,target.csv} (Twitch, Facebook, GitHub), or a directory \
            of several such directories: one dataset of their graphs",
        source: "Rozemberczki, Allen and Sarkar, Multi-scale attributed node embedding, J. Complex Networks \
            2021",
        options: &[],
        make: musae::read,
    },
    Entry {
        name: "facebook100",
        summary: "a Facebook100 school (a MATLAB .mat file), or a directory of several: one dataset of their \
            graphs",
        source: "Traud, Mucha and Porter, Social structure of Facebook networks, Physica A 2012: the \
            archive's readme",
        options: &[],
        make: facebook100::read,
    },
    Entry {
        name: "edges",
        summary: "an edge list as text (plain, SNAP, METIS, WebGraph) with features, labels and splits as \
            text or .npy, or a GNNLab directory",
        source: "SNAP edge lists; METIS manual, section 4.5.1; WebGraph's ASCIIGraph; GNNLab's \
            datagen/README.md; the layout of the multi-label sets of Zhao et al., TMLR 2023",
        options: &[],
        make: edges::read,
    },
    #[cfg(feature = "parquet")]
    Entry {
        name: "parquet",
        summary: "Parquet tables of edges and, optionally, nodes",
        source: "Apache Parquet format, version 2; column names of PyG's and DGL's fields",
        options: &[],
        make: parquet::read,
    },
];

/// Result of an importer, before the shared steps.
#[derive(Debug, Default)]
pub struct Raw {
    /// Name of the source.
    pub name: String,
    /// Number of nodes, `V`.
    pub num_nodes: usize,
    /// Edges, in a collection with the options of its construction (see
    /// [`ImportOptions::edge_options`]).
    pub edges: Edges,
    /// True to leave out weights that are all 1 when duplicate edges are summed.
    pub omit_unit_weights: bool,
    /// Feature rows of all nodes, or empty.
    pub features: Features,
    /// Normalization of the features as declared by the source; an export of a normalized dataset
    /// declares it.
    pub normalization: Option<Normalization>,
    /// Labels of all nodes, -1 if unknown; in sets of classes an unlabelled node has only missing
    /// values (see `labels.rs`).
    pub labels: Labels,
    /// Splits of the source, ids ascending.
    pub splits: Vec<Split>,
    /// Graphs of a disjoint union, in node order; empty for a single graph.
    pub graphs: Vec<NamedGraph>,
    /// Customary metric of the source.
    pub metric: Option<String>,
    /// Ignored parts of the source; the shared steps add the counts of edges, nodes and labels.
    pub report: ImportReport,
}

/// Completed import.
#[derive(Clone, Debug)]
pub struct Imported {
    /// Imported dataset.
    pub dataset: Dataset,
    /// Record of merged, dropped, added and ignored data.
    pub report: ImportReport,
}

/// Refuses a pipe, which can be read only once: importers read a source several times.
///
/// # Errors
/// `path` is neither a file nor a directory. A path that does not exist is left to its reader.
pub(crate) fn refuse_stream(path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() && !found.is_dir() => Err(Error::format(
            path,
            "file",
            "a pipe or a device can be read only once; write its content to a file, or pass it to 'graphmill \
             import tables' as -",
        )),
        _ => Ok(()),
    }
}

/// Imports `src` in the format called `format` into memory.
///
/// # Errors
/// The format is unknown, an option does not fit it, or the source has a fault, reported with file
/// and position.
pub fn import(format: &str, src: impl AsRef<Path>, options: &ImportOptions) -> Result<Imported> {
    let src = src.as_ref();
    Copies::reject(options.paths(src))?;
    read(format, src, options, &Scratch::in_memory())
}

/// Imports `src` into the dataset directory `dst`, atomically and within a memory budget. `src` is
/// a path or an address of object storage (`s3://bucket/key`), as are the paths of the options; the
/// objects of addresses are copied first. Copies and data beyond the budget are kept in the
/// directory `dst.importing` meanwhile. A killed import leaves
/// that directory, and the same import of the same source resumes from it; after an error it is
/// removed.
///
/// Returns the dataset, mapped without being read again, and the report.
///
/// # Errors
/// As for [`import`]; `dst` is not empty; the disk is too small; a request to a server fails.
pub fn import_to(
    format: &str,
    src: impl AsRef<Path>,
    dst: impl AsRef<Path>,
    options: &ImportOptions,
    work: Work,
) -> Result<Imported> {
    let (src, dst) = (src.as_ref(), dst.as_ref());
    table::find("format", TABLE, format)?;
    options.check(format)?;
    refuse_stream(src)?;
    check_target(dst, work.replace)?;
    let copies = Copies::find(options.paths(src))?;
    let identity = || Ok(identity::of(format, src, options)? + &copies.identity());
    let mut report = ImportReport::default();
    let dataset = work::run(work, dst, ".importing", identity, |scratch| {
        let copied = copies.copy(scratch)?;
        let options = options.with_paths(|path| copied.path(path));
        let imported = read(format, &copied.path(src), &options, scratch);
        let imported = imported.map_err(|error| copied.name_addresses(error))?;
        report = imported.report;
        Ok(imported.dataset)
    })?;
    Ok(Imported { dataset, report })
}

fn read(format: &str, src: &Path, options: &ImportOptions, scratch: &Scratch) -> Result<Imported> {
    let entry = table::find("format", TABLE, format)?;
    options.check(format)?;
    let raw = (entry.make)(src, options, scratch)?;
    steps::finish(raw, src, options, scratch)
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// Imports as [`import`](super::import) does, without the report.
    pub(crate) fn import(format: &str, src: impl AsRef<Path>, options: &ImportOptions) -> Result<Dataset> {
        super::import(format, src, options).map(|imported| imported.dataset)
    }
}
