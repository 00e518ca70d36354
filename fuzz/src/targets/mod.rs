//! Targets, one per file.

use std::path::Path;

use graphmill_data::{
    dataset::import::{ImportOptions, import},
    typed::import::{self as typed_import, TypedOptions},
};

use crate::{alloc::limited, input::Input, scratch::with_files};

/// Result of a reader: acceptance, or the reason of a rejection.
pub type Answer = Result<(), Box<dyn std::error::Error>>;

/// Row of [`TABLE`].
pub struct Target {
    /// Name of the target for `cargo xtask fuzz`.
    pub name: &'static str,
    /// Description of its input.
    pub summary: &'static str,
    /// Runs it on one input.
    pub run: fn(&[u8]) -> Answer,
    /// Words of the format, used by mutations.
    pub tokens: &'static [&'static [u8]],
}

macro_rules! table {
    ($($(#[$when:meta])? $name:ident $summary:literal)+) => {
        $($(#[$when])? pub mod $name;)+

        /// Every target.
        pub const TABLE: &[Target] = &[
            $(
                $(#[$when])?
                Target { name: stringify!($name), summary: $summary, run: $name::run, tokens: $name::TOKENS },
            )+
        ];
    };
}

table! {
    npy_header "the header of an .npy array"
    npy "an .npy array, mapped and converted"
    npz "an .npz archive: every member as numbers and as text"
    pickle "a pickle, and the arrays, matrices and neighbour lists in it"
    manifest "the text of graphmill.json, its checksum made to fit"
    native "a dataset directory, its checksums made to fit"
    typed "a dataset directory of format 2, its checksums made to fit"
    partition "a partitioned dataset of one type or several, its checksums made to fit"
    edge_alias "the alias tables beside a dataset, their checksum made to fit"
    bottom_hop "the stored aggregates beside a dataset, their checksum made to fit"
    features_checksums "the checksums of a feature file"
    import_npz "the importer npz"
    import_graphsaint "the importer graphsaint"
    import_planetoid "the importer planetoid"
    import_ogb "the importer ogb, text and binary"
    import_graphsage "the importer graphsage: node-link JSON, and PPI as DGL has it"
    import_graphbolt "the importer graphbolt: YAML, CSV and arrays"
    import_musae "the importer musae: lists of edges, JSON and tables"
    import_facebook100 "the importer facebook100: MATLAB files, packed or not"
    import_edges "the importer edges in its flavours: text, gzip, arrays, JSON, METIS, WebGraph, SNAP, GNNLab"
    #[cfg(feature = "parquet")] import_parquet "the importer parquet: tables of edges and nodes"
    import_hgb "the importer hgb: tables of nodes, links and labels, and JSON"
    import_ogb_hetero "the importer ogb-hetero: tables of several node types"
    import_ogb_links "the importer ogb-links: tables of links, and splits as files of PyTorch and NumPy"
    import_ogb_nodes "the importer ogb-nodes: tables of nodes, and of edges with their features"
    import_triples "the importer triples: lines of head, relation and tail, and JSON"
    import_rdf "the importer rdf: N-Triples and tables"
    import_interactions "the importer interactions: lists of users and items, and a sparse matrix"
    import_temporal "the importer temporal: lists of timed links"
    import_events "the importer events: logs of events with arrays"
    import_tgb "the importer tgb: logs of events with pickled negatives"
    import_heco "the importer heco: edge lists, arrays and sparse matrices"
    import_hne "the importer hne: tables of nodes, weighted links and labels"
    import_mat_links "the importer mat-links: a MATLAB file with a matrix"
    import_ciao "the importer ciao: MATLAB files with tables"
    import_graphbolt_typed "the importer graphbolt-typed: YAML and arrays of several types"
    import_dgl_chunked "the importer dgl-chunked: JSON, arrays and tables"
    import_pyg "the importer pyg: a dictionary in a file of PyTorch"
    import_mag240m "the importer mag240m: arrays of MAG240M"
    import_igbh "the importer igbh: arrays of IGBH"
    archive "zip and tar archives of an importer, and every file in them"
    torch "a file of PyTorch, and every array and tensor in it"
    #[cfg(feature = "tables")] import_tables "people's own tables with a schema, in every format"
    #[cfg(feature = "tables")] tables_append "tables of further rows of an imported dataset"
    #[cfg(feature = "tables")] tables_schema "schema.toml of own tables"
    #[cfg(feature = "tables")] import_relbench "the importer of RelBench: metadata of tables and manifests"
    resume "what a killed import left in its directory"
    rules "words of the command line: split rules, normalisations"
    #[cfg(feature = "fetch")] fetch_unpack "archives, as a download unpacks them"
    #[cfg(feature = "fetch")] fetch_sums "a download's checksums, notes and ranges, and the catalogue"
    #[cfg(feature = "engine")] options "words of the command line: options of train"
    #[cfg(feature = "engine")] config "config.toml"
    #[cfg(feature = "engine")] safetensors "a model's safetensors file"
    #[cfg(feature = "engine")] checkpoint "a checkpoint directory, its checksums made to fit"
    #[cfg(feature = "engine")] run_dir "a run's metrics.jsonl and summary.json, and the report of them"
    #[cfg(feature = "engine")] sweep "a sweep's sweep.json"
    #[cfg(feature = "plan")] plan_files "a machine and a profile that plan reads"
    #[cfg(feature = "serve")] serve_body "the body of a request to the service"
    #[cfg(feature = "engine")] nodes "the list of nodes that predict takes"
}

/// Dictionary words of arrays.
pub(crate) const ARRAY_TOKENS: &[&[u8]] = &[
    b"\x93NUMPY\x01\0v\0",
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }",
    b"'descr': ",
    b"'fortran_order': True",
    b"'shape': (",
    b"(0,)",
    b"(4294967296, 4294967296)",
    b"'|b1'",
    b"'|i1'",
    b"'<i4'",
    b"'>i8'",
    b"'<f2'",
    b"'<f8'",
    b"'|S3'",
    b"'<U33'",
    crate::input::FILE,
    crate::input::MEMBER,
];

/// Imports a source of several files; `source` is its path in the directory of the files, empty for
/// the directory.
pub(crate) fn import_files(
    target: &'static str,
    format: &str,
    names: &[&'static str],
    source: &str,
    data: &[u8],
) -> Answer {
    let input = Input::read(data, names);
    let options = import_options(&input, format);
    with_files(target, &input.files, |dir| {
        let source = if source.is_empty() { dir.to_path_buf() } else { dir.join(source) };
        let dataset = limited(input.unpacked, || import(format, source, &options))?.dataset;
        assert!(dataset.validate().is_ok(), "an imported dataset is sound");
        Ok(())
    })
}

/// Imports a typed source of several files as [`import_files`] does.
pub(crate) fn import_typed_files(
    target: &'static str,
    format: &str,
    names: &[&'static str],
    source: &str,
    data: &[u8],
) -> Answer {
    let input = Input::read(data, names);
    let fits = |name: &str| {
        typed_import::TABLE.iter().any(|row| row.name == format && row.make.options.contains(&name))
    };
    let flag = |name: &str| input.has(name) && fits(name);
    let fraction = |name: &str| input.option(name).filter(|_| fits(name)).and_then(|x| x.parse().ok());
    let options = TypedOptions {
        add_reverses: input.has("add-reverses"),
        no_self_loops: input.has("no-self-loops"),
        keep_duplicates: input.has("keep-duplicates"),
        dense_features: flag("dense-features"),
        no_literals: flag("no-literals"),
        undirected: flag("undirected"),
        valid_fraction: fraction("valid-fraction"),
        test_fraction: fraction("test-fraction"),
        ..TypedOptions::default()
    };
    with_files(target, &input.files, |dir| {
        let source = if source.is_empty() { dir.to_path_buf() } else { dir.join(source) };
        let dataset = limited(input.unpacked, || typed_import::import(format, source, &options))?.dataset;
        assert!(dataset.validate().is_ok(), "an imported dataset is sound");
        Ok(())
    })
}

/// Options of an import, from words. `num-nodes` is chosen by the user, not by the file, so it is
/// kept small.
fn import_options(input: &Input, format: &str) -> ImportOptions {
    let has_ids = ["edges", "parquet"].contains(&format);
    ImportOptions {
        undirected: input.has("undirected"),
        no_self_loops: input.has("no-self-loops"),
        keep_duplicates: input.has("keep-duplicates"),
        largest_component: input.has("largest-component"),
        normalize: input.option("normalize").and_then(|rule| rule.parse().ok()).unwrap_or_default(),
        split: input.option("split").and_then(|rule| rule.parse().ok()),
        compact_ids: has_ids && input.has("compact-ids"),
        first_id: input
            .option("first-id")
            .filter(|_| has_ids)
            .and_then(|id| id.parse().ok())
            .unwrap_or_default(),
        flavour: input
            .option("flavour")
            .filter(|_| format == "edges")
            .and_then(|flavour| flavour.parse().ok())
            .unwrap_or_default(),
        // Not a path, because an array of weights is found in the same directory.
        weights: input
            .option("weights")
            .filter(|column| ["none", "3", "4", "w"].contains(column))
            .filter(|column| *column == "none" || ["edges", "parquet", "graphbolt"].contains(&format))
            .and_then(|column| column.parse().ok())
            .unwrap_or_default(),
        dense_features: input.has("dense-features"),
        num_nodes: input
            .option("num-nodes")
            .filter(|_| has_ids)
            .and_then(|n| n.parse().ok().filter(|n| *n <= 1 << 16)),
        ..ImportOptions::default()
    }
}

/// Runs a reader on one file called `name`.
pub(crate) fn one_file(
    target: &'static str,
    name: &str,
    data: &[u8],
    unpacked: usize,
    read: impl FnOnce(&Path) -> Answer,
) -> Answer {
    with_files(target, &[(name, data)], |dir| {
        let path = dir.join(name);
        limited(unpacked, || read(&path))
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_target_has_a_program() {
        let manifest = include_str!("../../Cargo.toml");
        for target in super::TABLE {
            let path = format!("fuzz_targets/{}.rs", target.name);
            assert!(manifest.contains(&path), "Cargo.toml has no program for '{}'", target.name);
        }
    }
}
