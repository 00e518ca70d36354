//! Importers of typed graphs, link sets and temporal lists, from the field's own formats to a
//! [`TypedDataset`].
//!
//! Each importer is a function in a separate file that reads a source into a [`RawTyped`]; the
//! steps shared by all (self-loops, duplicates, reverse edges, order by time) follow in one place.
//! To add a format, copy `heco.rs`, one of the simplest, and add its row to [`TABLE`].
//!
//! Original names and ids are kept as keys, so that predictions can be joined to the source.

mod arrays;
mod ciao;
mod dat;
mod dgl;
mod events;
mod files;
mod finish;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod graphbolt;
mod heco;
mod hgb;
mod hne;
mod ids;
mod interactions;
mod lines;
mod loose;
mod lsc;
mod mat_links;
mod ogb_hetero;
mod ogb_links;
mod ogb_nodes;
mod ogb_tables;
mod options;
mod pyg;
mod raw;
mod rdf;
mod streams;
mod tables;
mod tar;
mod temporal;
mod tgb;
mod times;
mod triples;
mod within;

use std::{fmt, path::Path, process, time::SystemTime};

use graphmill_core::{
    Result,
    progress::Unit,
    table::{self, Entry},
};

pub use options::TypedOptions;
pub use raw::{EdgeCounts, RawEdges, RawTyped, Reverse, TypedReport};

use super::TypedDataset;
use crate::{
    dataset::{Work, import::refuse_stream, native::check_target, work},
    external::Scratch,
    object_storage::Copies,
};

/// Importer of a format.
#[derive(Clone, Copy, Debug)]
pub struct TypedImporter {
    /// Reads a source.
    pub read: fn(&Path, &TypedOptions) -> Result<RawTyped>,
    /// Names of the options that the format uses, beyond those of all formats.
    pub options: &'static [&'static str],
}

/// Formats, in the order of the help text.
pub const TABLE: &[Entry<TypedImporter>] = &[
    Entry {
        name: "hgb",
        summary: "a set of the Heterogeneous Graph Benchmark: node.dat, link.dat, label.dat; directory or \
            .zip",
        source: "Lv et al., Are we really making much progress?, KDD 2021: the repository's data",
        options: &[],
        make: TypedImporter { read: hgb::read, options: &["valid-fraction", "dense-features"] },
    },
    Entry {
        name: "ogb-hetero",
        summary: "an OGB directory of several node types (raw/relations), such as ogbn_mag",
        source: "Hu et al., Open Graph Benchmark, NeurIPS 2020: ogb/io/read_graph_raw.py",
        options: &[],
        make: TypedImporter { read: ogb_hetero::read, options: &["dense-features"] },
    },
    Entry {
        name: "ogb-links",
        summary: "an OGB link property directory (raw/edge.csv.gz, split/*/*.pt), such as ogbl_ddi",
        source: "Hu et al., Open Graph Benchmark, NeurIPS 2020: ogb/linkproppred/dataset.py",
        options: &[],
        make: TypedImporter { read: ogb_links::read, options: &["dense-features", "undirected"] },
    },
    Entry {
        name: "ogb-nodes",
        summary: "an OGB node property directory with features of edges (raw/edge-feat), such as \
            ogbn_proteins",
        source: "Hu et al., Open Graph Benchmark, NeurIPS 2020: ogb/nodeproppred/dataset.py",
        options: &[],
        make: TypedImporter { read: ogb_nodes::read, options: &["dense-features", "undirected"] },
    },
    Entry {
        name: "triples",
        summary: "a knowledge graph: lines head, relation, tail in train.txt, valid.txt, test.txt; or an \
            archive",
        source: "Bordes et al., Translating embeddings, NIPS 2013; Safavi and Koutra, CoDEx, EMNLP 2020",
        options: &[],
        make: TypedImporter { read: triples::read, options: &[] },
    },
    Entry {
        name: "rdf",
        summary: "N-Triples (.nt, .nt.gz) with trainingSet.tsv and testSet.tsv, such as AIFB",
        source: "Schlichtkrull et al., Modeling relational data with graph convolutional networks, ESWC 2018",
        options: &[],
        make: TypedImporter { read: rdf::read, options: &["valid-fraction", "no-literals"] },
    },
    Entry {
        name: "interactions",
        summary: "users and items: lines 'user item item ...' in train.txt and test.txt, or s_adj_mat.npz",
        source: "He et al., LightGCN, SIGIR 2020: the repository's data",
        options: &[],
        make: TypedImporter { read: interactions::read, options: &[] },
    },
    Entry {
        name: "temporal",
        summary: "lines 'source destination time' or 'source,destination,rating,time' (SNAP); a file per \
            edge type",
        source: "Paranjape et al., Motifs in temporal networks, WSDM 2017; Kumar et al., Edge weight \
            prediction, \
            ICDM 2016",
        options: &[],
        make: TypedImporter {
            read: temporal::read,
            options: &["undirected", "valid-fraction", "test-fraction"],
        },
    },
    Entry {
        name: "events",
        summary: "events with edge features: ml_NAME.csv with .npy arrays (TGN, DyGLib), or a CSV of JODIE",
        source: "Kumar et al., JODIE, KDD 2019; Rossi et al., Temporal graph networks, 2020: \
            utils/preprocess_data.py",
        options: &[],
        make: TypedImporter { read: events::read, options: &["valid-fraction", "test-fraction"] },
    },
    Entry {
        name: "tgb",
        summary: "links of the Temporal Graph Benchmark: tgbl-NAME_edgelist.csv with val_ns.pkl and \
            test_ns.pkl",
        source: "Huang et al., Temporal graph benchmark, NeurIPS 2023: tgb/linkproppred/dataset.py",
        options: &[],
        make: TypedImporter { read: tgb::read, options: &[] },
    },
    Entry {
        name: "heco",
        summary: "a set of HeCo: edge lists such as pa.txt, p_feat.npz, labels.npy, train_20.npy",
        source: "Wang et al., HeCo, KDD 2021: the repository's data",
        options: &[],
        make: TypedImporter { read: heco::read, options: &["dense-features"] },
    },
    Entry {
        name: "hne",
        summary: "a set of HNE: node.dat, link.dat with weights, label.dat, link.dat.test",
        source: "Yang et al., Heterogeneous network representation learning, TKDE 2022: the repository's \
            data",
        options: &[],
        make: TypedImporter { read: hne::read, options: &["valid-fraction", "dense-features"] },
    },
    Entry {
        name: "mat-links",
        summary: "a network of SEAL: a MATLAB file with the sparse matrix 'net'; links are held out at \
            random",
        source: "Zhang and Chen, SEAL, NeurIPS 2018: the repository's data",
        options: &[],
        make: TypedImporter { read: mat_links::read, options: &["valid-fraction", "test-fraction"] },
    },
    Entry {
        name: "ciao",
        summary: "ratings and trust of Ciao or Epinions: rating.mat and trustnetwork.mat",
        source: "Tang, Gao and Liu, mTrust, WSDM 2012",
        options: &[],
        make: TypedImporter { read: ciao::read, options: &["valid-fraction", "test-fraction"] },
    },
    Entry {
        name: "graphbolt-typed",
        summary: "a GraphBolt directory of several types or tasks on links: metadata.yaml; numpy, torch or \
            csv",
        source: "DGL, docs/source/stochastic_training/ondisk-dataset-specification.rst",
        options: &[],
        make: TypedImporter { read: graphbolt::read, options: &["undirected"] },
    },
    Entry {
        name: "dgl-chunked",
        summary: "a chunked graph of DGL's distributed partitioning: metadata.json; numpy, csv or parquet",
        source: "DGL, docs/source/guide/distributed-preprocessing.rst: tools/chunk_graph.py",
        options: &[],
        make: TypedImporter { read: dgl::read, options: &["undirected"] },
    },
    Entry {
        name: "pyg",
        summary: "a .pt file of PyTorch Geometric's data.to_dict(), with one type or several",
        source: "PyTorch Geometric, torch_geometric/data/hetero_data.py",
        options: &[],
        make: TypedImporter { read: pyg::read, options: &["undirected"] },
    },
    Entry {
        name: "mag240m",
        summary: "the directory of MAG240M: meta.pt, split_dict.pt, processed/*/node_feat.npy and \
            edge_index.npy",
        source: "Hu et al., OGB-LSC, NeurIPS 2021: ogb/lsc/mag240m.py",
        options: &[],
        make: TypedImporter { read: lsc::read_mag240m, options: &[] },
    },
    Entry {
        name: "igbh",
        summary: "a directory of IGBH: processed/*/node_feat.npy, edge_index.npy, paper/node_label_19.npy",
        source: "Khatua et al., IGB, KDD 2023: igb/dataloader.py",
        options: &[],
        make: TypedImporter { read: lsc::read_igbh, options: &["valid-fraction", "test-fraction"] },
    },
];

/// Completed import.
#[derive(Clone, Debug)]
pub struct TypedImported {
    /// Imported dataset.
    pub dataset: TypedDataset,
    /// Record of merged, dropped, added and ignored data.
    pub report: TypedReport,
}

/// Imports `src` in the format called `format` into memory.
///
/// # Errors
/// The format is unknown, an option does not fit it, or the source has faults, reported with files
/// and positions.
pub fn import(format: &str, src: impl AsRef<Path>, options: &TypedOptions) -> Result<TypedImported> {
    let (src, entry) = (src.as_ref(), table::find("format", TABLE, format)?);
    options.check(format)?;
    Copies::reject([src])?;
    finish::finish((entry.make.read)(src, options)?, src, options, &Scratch::in_memory())
}

/// Imports `src` into the dataset directory `dst`, atomically. Edges are sorted within the memory
/// budget, in the directory `dst.importing`; what the source lists is held in memory while it is
/// read, at least 8 bytes per edge. The dataset has the same bytes for any budget. `src` is a path
/// or an address of object storage, whose objects are copied into that directory. A killed import
/// leaves the directory; the next one continues the copy, and starts everything else again.
///
/// # Errors
/// As for [`import`]; `dst` is not empty; the disk is too small; a request to a server fails; the
/// progress cancels the work.
pub fn import_to(
    format: &str,
    src: impl AsRef<Path>,
    dst: impl AsRef<Path>,
    options: &TypedOptions,
    work: Work,
) -> Result<TypedImported> {
    let (src, dst) = (src.as_ref(), dst.as_ref());
    let entry = table::find("format", TABLE, format)?;
    options.check(format)?;
    refuse_stream(src)?;
    check_target(dst, work.replace)?;
    let copies = Copies::find([src])?;
    // Only copies are resumed: other files of an earlier process are removed.
    let identity = || {
        if !copies.is_empty() {
            let version = env!("CARGO_PKG_VERSION");
            return Ok(format!("{version} {format} {options:?}{}", copies.identity()));
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        Ok(format!("{format} {} {now}", process::id()))
    };
    let mut report = TypedReport::default();
    let replace = work.replace;
    let make = |scratch: &Scratch| {
        scratch.keep_only(&Copies::FILES)?;
        let copied = copies.copy(scratch)?;
        let src = &*copied.path(src);
        scratch.stage("reading the source", None, Unit::Edges);
        let named = |error| copied.name_addresses(error);
        let raw = (entry.make.read)(src, options).map_err(named)?;
        scratch.check()?;
        let (bytes, budget) = (raw.edge_bytes(), scratch.memory());
        let mut imported = finish::finish(raw, src, options, scratch).map_err(named)?;
        if bytes > budget {
            imported.report.note(format!(
                "the edges of the source took {} MB while they were read, more than the {} MB of --memory; \
                 these formats list them in memory",
                bytes >> 20,
                budget >> 20
            ));
        }
        report = imported.report;
        Ok(imported.dataset)
    };
    let save = |dataset: &TypedDataset, scratch: &Scratch| dataset.save_by_way_of(scratch, dst, replace);
    let dataset = work::run_saved(work, dst, ".importing", identity, make, save)?;
    Ok(TypedImported { dataset, report })
}

impl fmt::Display for TypedReport {
    /// Prints one line for each count that is not zero, and each note.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Vec::new();
        for (name, counts) in &self.edges {
            let parts = [
                (counts.reverse_added, "reverse edges added"),
                (counts.self_loops_removed, "self-loops removed"),
                (counts.self_loops_kept, "self-loops kept"),
                (counts.duplicates_merged, "duplicates merged"),
                (counts.duplicates_kept, "parallel edges kept"),
            ];
            let parts: Vec<String> = parts
                .iter()
                .filter(|(count, _)| *count > 0)
                .map(|(count, what)| format!("{count} {what}"))
                .collect();
            if !parts.is_empty() {
                lines.push(format!("{name}: {}", parts.join(", ")));
            }
        }
        lines.extend(self.other.iter().map(|(what, count)| format!("{what}: {count}")));
        lines.extend(self.notes.iter().cloned());
        if !self.ignored_parts.is_empty() {
            lines.push(format!("not read: {}", self.ignored_parts.join(", ")));
        }
        lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

#[cfg(test)]
mod tests;
