//! `graphmill import FORMAT SRC DST`: converts a graph in another library's format to a dataset.

#[cfg(feature = "tables")]
mod relbench;
#[cfg(feature = "tables")]
mod tables;

use std::{str::FromStr, time::Instant};

#[cfg(feature = "tables")]
pub(super) use tables::character;

use clap::{Arg, ArgMatches, Command, parser::ValueSource};
use graphmill_core::{
    memory,
    table::{self, Entry},
};
use graphmill_data::{
    dataset::{
        Work,
        import::{self, ImportOptions, Imported, METRICS, TABLE},
    },
    typed::{
        self as typed_dataset,
        import::{self as typed, TypedImported, TypedOptions},
    },
};
use graphmill_engine::Error;
use serde_json::json;

use crate::{args, cancel, output, work};

/// The long help of `--flavour`.
const FLAVOURS: &str = "Known: plain, snap, metis, webgraph, gnnlab. auto recognizes .graph and .metis \
                        (metis), .graph-txt (webgraph), a comment '# Nodes: N Edges: M' (snap) and the \
                        files of a GNNLab directory; all else is plain";

/// The subcommand with its arguments.
pub(crate) fn command() -> Command {
    let format = Arg::new("format").value_name("FORMAT").required(true);
    let command = Command::new("import")
        .about("Import a graph from another library's format")
        .long_about(
            "Import a graph from another library's format.\n\n\
             Graphs larger than memory are sorted on disk; the disk space that this takes is reported before \
             anything is read. A killed import resumes when the same command runs again.\n\n\
             SRC and the files of options may be addresses (s3://, gs://, az://, https://): an object, or \
             all objects below a prefix. They are copied beside DST first, and removed at the end.",
        )
        .after_long_help(
            "Examples:\n  \
             graphmill import ogb ogbn_arxiv arxiv\n  \
             graphmill import npz amazon.npz amazon --split random:0.6,0.2,0.2\n  \
             graphmill import edges edges.csv data --features x.npy --labels y.csv --undirected\n  \
             graphmill import hgb DBLP.zip dblp\n  \
             graphmill import ogb s3://bucket/ogbn_arxiv arxiv\n\n\
             graphmill datasets NAME prints the command for a public dataset",
        )
        .arg(args::explain_names(format, "Format of SRC", &rows(), ""))
        .arg(args::path("src", "SRC", "File, directory or address to read").required(true))
        .arg(args::path("dst", "DST", "Dataset directory to write").required(true));
    let command = with_parts_of_edges(with_node_options(with_edge_options(command)));
    let command = with_typed_options(command);
    let command = command.arg(args::memory()).arg(args::force()).arg(args::threads()).arg(args::json());
    #[cfg(feature = "tables")]
    let command = command
        .subcommand(tables::command())
        .subcommand(relbench::command())
        .subcommand_negates_reqs(true)
        .args_conflicts_with_subcommands(true)
        .disable_help_subcommand(true);
    command
}

/// Adds the options of the graph's edges and features.
fn with_edge_options(command: Command) -> Command {
    command
        .arg(args::flag(
            "undirected",
            "Store every edge in both directions",
            "Use it if the source lists each undirected edge once. An edge listed both ways stays one edge \
             each way",
        ))
        .arg(args::flag("no-self-loops", "Drop edges from a node to itself", ""))
        .arg(args::flag(
            "keep-duplicates",
            "Keep parallel edges instead of merging them",
            "By default edges between the same two nodes become one, and their weights are summed",
        ))
        .arg(args::flag(
            "largest-component",
            "Keep only the largest weakly connected component",
            "Its nodes are renumbered in their old order; the report counts what was dropped",
        ))
        .arg(args::option(
            "normalize",
            "HOW",
            "Feature scaling: none, rows or standard [default: none]",
            "rows divides each row by its sum (bags of words); standard gives each column mean 0 and \
             deviation 1 over the training nodes (columns of different scale). Sparse features are scaled \
             without centring, unless --dense-features",
        ))
        .arg(args::flag(
            "dense-features",
            "Store features as a dense table even if mostly zero",
            "By default features are stored as sparse rows if those take fewer bytes",
        ))
        .arg(args::option(
            "weights",
            "COLUMN",
            "Edge weights: a column, auto or none [default: auto]",
            "auto takes a column called weight, or the format's own array. Otherwise a column's name or its \
             number from 1 (parquet and graphbolt: a name; beside edges.npy: the path of an array), such as \
             --weights 3",
        ))
}

/// Adds the options of splits, labels and the dataset as a whole.
fn with_node_options(command: Command) -> Command {
    command
        .arg(args::option(
            "split",
            "RULE",
            "Train, valid and test nodes [default: the source's split]",
            "given takes the source's first split, given:K its split number K, from 0; planetoid:TRAIN,VALID \
             draws nodes per class; random:A,B,C draws fractions of the labelled nodes, or percentages as \
             in random:60,20,20; graphs:TRAIN/VALID/TEST assigns whole graphs, such as graphs:1,2/3/4. \
             Another example: --split random:0.6,0.2,0.2",
        ))
        .arg(args::option(
            "split-seed",
            "N",
            "Seed of planetoid and random splits [default: 0]",
            "Change it to repeat an experiment on other splits. A whole number from 0",
        ))
        .arg(args::explain(
            Arg::new("metric").long("metric").value_name("NAME").value_parser(METRICS.to_vec()),
            "Metric that validation and test scores use",
            "By default it follows from the labels and the source",
        ))
        .arg(
            args::option("name", "NAME", "Name of the dataset [default: the source's name]", "")
                .hide_short_help(true),
        )
}

/// Adds the options of the format `edges`: its other files and its ids.
fn with_parts_of_edges(command: Command) -> Command {
    let part = |name, short: &'static str, more: &str| args::path_option(name, "FILE", short, more);
    command
        .next_help_heading("Options of the format edges")
        .arg(part("features", "Feature rows, CSV or .npy", "One row per node, in the order of the ids"))
        .arg(part(
            "labels",
            "Labels, CSV or .npy",
            "One column of classes, or a column of zeros and ones per label. An empty line or -1 is no label",
        ))
        .arg(
            part(
                "label-pairs",
                "Labels as lines node,class, instead of --labels",
                "Several lines may name the same node",
            )
            .hide_short_help(true),
        )
        .arg(part("nodes", "Node ids, one per line; they set the number of nodes", "Also for parquet"))
        .arg(part("train", "Training nodes, text or .npy", "One id per line; as .npy also a mask"))
        .arg(part("valid", "Validation nodes, text or .npy", "One id per line; as .npy also a mask"))
        .arg(part("test", "Test nodes, text or .npy", "One id per line; as .npy also a mask"))
        .arg(args::flag(
            "compact-ids",
            "Renumber arbitrary integer ids from 0, in ascending order",
            "Use it if ids have gaps; feature rows follow the ascending ids, too. Also for parquet",
        ))
        .arg(args::option(
            "num-nodes",
            "N",
            "Number of nodes, if no file states it",
            "Needed if the highest ids have no edges, such as --num-nodes 2708. Also for parquet",
        ))
        .arg(
            args::option(
                "first-id",
                "N",
                "Id of the first node, in all files [default: 0]",
                "Set it to 1 for files of programs that count from 1. Also for parquet",
            )
            .hide_short_help(true),
        )
        .arg(args::option("flavour", "NAME", "Layout of the edge file [default: auto]", FLAVOURS))
        .next_help_heading(None::<&str>)
}

/// Formats of graphs of one type, and then of typed graphs.
fn rows() -> Vec<Entry<()>> {
    let one = TABLE.iter().map(|row| Entry {
        name: row.name,
        summary: row.summary,
        source: row.source,
        options: row.options,
        make: (),
    });
    let typed = typed::TABLE.iter().map(|row| Entry {
        name: row.name,
        summary: row.summary,
        source: row.source,
        options: row.options,
        make: (),
    });
    one.chain(typed).collect()
}

/// Adds the options of formats of typed graphs, links and events.
fn with_typed_options(command: Command) -> Command {
    command
        .next_help_heading("Options of typed graphs, links and events")
        .arg(
            args::flag(
                "add-reverses",
                "Add a reverse edge type to every edge type without one",
                "It is called rev_NAME and has the same columns. Use it so that messages flow both ways",
            )
            .hide_short_help(true),
        )
        .arg(
            args::flag("no-literals", "Leave out literals and their triples (rdf)", "").hide_short_help(true),
        )
        .arg(
            args::option(
                "valid-fraction",
                "X",
                "Fraction of rows that validate, if the source has no such set",
                "From 0 to below 1, such as 0.2. Drawn by --split-seed; the latest rows of temporal formats",
            )
            .hide_short_help(true),
        )
        .arg(
            args::option(
                "test-fraction",
                "X",
                "Fraction of rows that test, if the source has no such set",
                "From 0 to below 1, such as 0.1. Drawn by --split-seed; the latest rows of temporal formats",
            )
            .hide_short_help(true),
        )
        .next_help_heading(None::<&str>)
}

/// Options that formats of typed graphs share with those of one type, and those of their own.
const SHARED: [&str; 6] =
    ["undirected", "no-self-loops", "keep-duplicates", "dense-features", "split-seed", "name"];
const TYPED: [&str; 4] = ["add-reverses", "no-literals", "valid-fraction", "test-fraction"];
/// Arguments of every format.
const ALWAYS: [&str; 7] = ["format", "src", "dst", "memory", "force", "threads", "json"];

/// Rejects given options that belong to formats of the other kind.
pub(super) fn check_kind(matches: &ArgMatches, format: &str, is_typed: bool) -> Result<(), Error> {
    let given = |id: &&str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let belongs = |id: &&str| match is_typed {
        true => SHARED.contains(id) || TYPED.contains(id) || ALWAYS.contains(id),
        false => !TYPED.contains(id),
    };
    let ids: Vec<&str> = matches.ids().map(|id| id.as_str()).collect();
    match ids.iter().find(|id| given(id) && !belongs(id)) {
        Some(id) => Err(Error::usage(format!(
            "the option --{id} does not belong to the format '{format}'; leave it out (`graphmill import \
             --help` lists the options of each kind of format)"
        ))),
        None => Ok(()),
    }
}

/// The given options of a typed format.
pub(super) fn typed_options(matches: &ArgMatches) -> Result<TypedOptions, Error> {
    Ok(TypedOptions {
        name: matches.get_one::<String>("name").cloned(),
        add_reverses: matches.get_flag("add-reverses"),
        no_self_loops: matches.get_flag("no-self-loops"),
        keep_duplicates: matches.get_flag("keep-duplicates"),
        dense_features: matches.get_flag("dense-features"),
        no_literals: matches.get_flag("no-literals"),
        undirected: matches.get_flag("undirected"),
        valid_fraction: parsed(matches, "valid-fraction")?,
        test_fraction: parsed(matches, "test-fraction")?,
        split_seed: parsed(matches, "split-seed")?.unwrap_or_default(),
    })
}

/// Imports a typed graph and prints its sizes and the import report.
fn run_typed(matches: &ArgMatches, format: &str) -> anyhow::Result<()> {
    check_kind(matches, format, true)?;
    let options = typed_options(matches)?;
    options.check(format).map_err(|error| Error::usage(error.to_string()))?;
    let (src, dst) = (args::required_path(matches, "src"), args::required_path(matches, "dst"));
    let began = Instant::now();
    let work = Work {
        memory: args::get_memory(matches)?,
        replace: matches.get_flag("force"),
        progress: cancel::until_signal(work::on_stderr(matches.get_flag("json")))?,
    };
    let TypedImported { dataset, report } = typed::import_to(format, src, dst, &options, work)?;
    if !matches.get_flag("json") {
        return output::text(&format!("{dataset}\n{report}"));
    }
    let mut document = serde_json::to_value(typed_dataset::info(&dataset))?;
    document["seconds"] = json!(began.elapsed().as_secs_f64());
    document["peak_rss_bytes"] = json!(memory::peak());
    document["report"] = json!(report);
    output::json(&document)
}

/// Imports the graph and prints its sizes and the import report.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    #[cfg(feature = "tables")]
    match matches.subcommand() {
        Some(("relbench", matches)) => return relbench::run(matches),
        Some((_, matches)) => return tables::run(matches),
        None => {}
    }
    args::use_thread_option(matches)?;
    let format = matches.get_one::<String>("format").expect("required");
    table::find("format", &rows(), format).map_err(|error| {
        Error::usage(format!(
            "{error}; 'graphmill import tables' reads your own CSV, JSON lines, Parquet and Arrow"
        ))
    })?;
    if typed::TABLE.iter().any(|row| row.name == format) {
        return run_typed(matches, format);
    }
    check_kind(matches, format, false)?;
    let options = options(matches)?;
    options.check(format).map_err(|error| Error::usage(error.to_string()))?;
    let (src, dst) = (args::required_path(matches, "src"), args::required_path(matches, "dst"));
    let began = Instant::now();
    let work = Work {
        memory: args::get_memory(matches)?,
        replace: matches.get_flag("force"),
        progress: cancel::until_signal(work::on_stderr(matches.get_flag("json")))?,
    };
    let Imported { dataset, report } = import::import_to(format, src, dst, &options, work)?;
    if matches.get_flag("json") {
        let mut document = output::counts(&dataset);
        document["seconds"] = json!(began.elapsed().as_secs_f64());
        document["peak_rss_bytes"] = json!(memory::peak());
        document["report"] = json!(report);
        output::json(&document)
    } else {
        output::text(&format!("{dataset}\n{report}"))
    }
}

/// The given import options.
pub(super) fn options(matches: &ArgMatches) -> Result<ImportOptions, Error> {
    let path = |name| args::get_path(matches, name).map(|path| path.to_path_buf());
    Ok(ImportOptions {
        undirected: matches.get_flag("undirected"),
        no_self_loops: matches.get_flag("no-self-loops"),
        keep_duplicates: matches.get_flag("keep-duplicates"),
        largest_component: matches.get_flag("largest-component"),
        normalize: parsed(matches, "normalize")?.unwrap_or_default(),
        dense_features: matches.get_flag("dense-features"),
        split: parsed(matches, "split")?,
        split_seed: parsed(matches, "split-seed")?.unwrap_or_default(),
        metric: matches.get_one::<String>("metric").cloned(),
        name: matches.get_one::<String>("name").cloned(),
        features: path("features"),
        labels: path("labels"),
        label_pairs: path("label-pairs"),
        nodes: path("nodes"),
        train: path("train"),
        valid: path("valid"),
        test: path("test"),
        compact_ids: matches.get_flag("compact-ids"),
        num_nodes: parsed(matches, "num-nodes")?,
        flavour: parsed(matches, "flavour")?.unwrap_or_default(),
        first_id: parsed(matches, "first-id")?.unwrap_or_default(),
        weights: parsed(matches, "weights")?.unwrap_or_default(),
    })
}

/// The value of option `name`, if given.
pub(super) fn parsed<T: FromStr<Err: std::fmt::Display>>(
    matches: &ArgMatches,
    name: &str,
) -> Result<Option<T>, Error> {
    let word = matches.get_one::<String>(name);
    word.map(|word| word.parse().map_err(|error| Error::usage(format!("--{name} {word}: {error}"))))
        .transpose()
}
