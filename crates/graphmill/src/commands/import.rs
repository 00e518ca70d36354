//! `graphmill import FORMAT SRC DST`: a graph in one of the field's formats becomes a dataset.

use std::{str::FromStr, time::Instant};

use clap::{Arg, ArgAction, ArgMatches, Command};
use graphmill_core::{memory, table};
use graphmill_data::dataset::{
    Work,
    import::{self, ImportOptions, Imported, METRICS, TABLE},
};
use graphmill_engine::Error;
use serde_json::json;

use crate::{args, output, work};

/// The help of `--flavour`.
const FLAVOURS: &str = "How the edges are written: plain, snap, metis, webgraph, gnnlab or auto (by the name's ending, .graph, .metis and .graph-txt, a comment '# Nodes: N Edges: M', or a GNNLab directory's files) [default: auto]";

/// The arguments.
pub(crate) fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    let option = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help).allow_hyphen_values(true)
    };
    let file = |name: &'static str, help: &'static str| {
        args::path(name, "FILE", help).long(name).help_heading("Parts of 'edges'")
    };
    let known =
        TABLE.iter().map(|entry| format!("{}: {}", entry.name, entry.summary)).collect::<Vec<_>>().join("; ");
    Command::new("import")
        .about("Import a graph in one of the field's formats")
        .arg(Arg::new("format").value_name("FORMAT").required(true).help(known))
        .arg(args::path("src", "SRC", "File or directory to read").required(true))
        .arg(args::path("dst", "DST", "Directory to write").required(true))
        .arg(flag("undirected", "Store every edge both ways"))
        .arg(flag("no-self-loops", "Drop edges from a node to itself"))
        .arg(flag("keep-duplicates", "Keep several edges between the same two nodes"))
        .arg(flag("largest-component", "Keep the largest weakly connected component alone"))
        .arg(option("normalize", "HOW", "Features: none, rows (divide by their sum) or standard (mean 0 and deviation 1 of the training nodes; sparse features are scaled without centring, unless --dense-features) [default: none]"))
        .arg(flag("dense-features", "Store features as a dense table even if sparse rows take fewer bytes"))
        .arg(option("split", "RULE", "given, given:K, planetoid:TRAIN,VALID (nodes per class), random:A,B,C (fractions) or graphs:TRAIN/VALID/TEST (names of several graphs) [default: the first that is given]"))
        .arg(option("split-seed", "N", "Seed of planetoid and random splits [default: 0]"))
        .arg(option("metric", "NAME", "Score the dataset is judged by").value_parser(METRICS.to_vec()))
        .arg(option("name", "NAME", "What to call it [default: the source's name]"))
        .arg(option("weights", "COLUMN", "Edge weights: a column by its name or number, from 1 (of parquet and graphbolt a name; beside edges.npy an array's path), auto (a column called weight, or the format's own place) or none [default: auto]"))
        .arg(file("features", "Feature rows, CSV or .npy"))
        .arg(file("labels", "Labels, CSV or .npy"))
        .arg(file("label-pairs", "Labels as rows node,class, in the place of --labels"))
        .arg(file("nodes", "Ids, one a row: how many nodes there are"))
        .arg(file("train", "Training nodes, text or .npy"))
        .arg(file("valid", "Validation nodes, text or .npy"))
        .arg(file("test", "Test nodes, text or .npy"))
        .arg(flag("compact-ids", "Ids are any whole numbers: number the nodes by ascending id").help_heading("Parts of 'edges'"))
        .arg(option("num-nodes", "N", "How many nodes there are, where no file says so").help_heading("Parts of 'edges'"))
        .arg(option("first-id", "N", "Id of the first node, in all files [default: 0]").help_heading("Parts of 'edges'"))
        .arg(option("flavour", "NAME", FLAVOURS).help_heading("Parts of 'edges'"))
        .arg(args::memory())
        .arg(flag("force", "Replace a dataset that is there"))
        .arg(args::threads())
        .arg(args::json())
}

/// Imports.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    args::use_thread_option(matches)?;
    let format = matches.get_one::<String>("format").expect("required");
    table::find("format", TABLE, format).map_err(Error::name)?;
    let options = options(matches)?;
    options.check(format).map_err(|error| Error::usage(error.to_string()))?;
    let (src, dst) = (args::required(matches, "src"), args::required(matches, "dst"));
    let began = Instant::now();
    let work = Work {
        memory: args::get_memory(matches)?,
        replace: matches.get_flag("force"),
        progress: work::on_stderr(matches.get_flag("json")),
    };
    let Imported { dataset, report } = import::import_to(format, src, dst, &options, work)?;
    if matches.get_flag("json") {
        let mut told = output::counts(&dataset);
        told["seconds"] = json!(began.elapsed().as_secs_f64());
        told["peak_rss_bytes"] = json!(memory::peak());
        told["report"] = json!(report);
        output::json(&told)
    } else {
        output::text(&format!("{dataset}\n{report}"))
    }
}

/// The options that were given.
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

/// The value of an option, where it was given.
fn parsed<T: FromStr<Err: std::fmt::Display>>(matches: &ArgMatches, name: &str) -> Result<Option<T>, Error> {
    let word = matches.get_one::<String>(name);
    word.map(|word| word.parse().map_err(|error| Error::usage(format!("--{name} {word}: {error}"))))
        .transpose()
}
