//! `graphmill predict RUN --out FILE`: writes classes, probabilities or embeddings of nodes.

#[cfg(feature = "tables")]
mod on;

use std::{
    io::{self, Read},
    path::Path,
};

use clap::{ArgGroup, ArgMatches, Command};
use graphmill_core::progress::Quiet;
use graphmill_engine::{
    CandidateOptions, Error,
    predictions::{Target, known},
    saved::{Kind, SavedRun, Selection, Written},
};

use super::propagate;
use crate::{args, output};

/// The subcommand with its arguments.
// long: a list of arguments, each with its help
pub(crate) fn command() -> Command {
    let command = Command::new("predict")
        .about("Write a run's predictions or embeddings to a file")
        .long_about(
            "Write a run's predictions or embeddings to a file.\n\n\
             The best model predicts the class of each node, with all of its neighbours: N classes, or N x C \
             zeros and ones if the dataset has several labels per node. A run on values predicts these, at \
             the scale of the targets. Tables start with the node's id, or \
             with its key and the names of the classes if the dataset was imported from tables; .npy files \
             hold the values alone. With --top-k, a run on links recommends: rows have a source, a \
             candidate and a score. A run on several node types predicts the nodes of its task's type. A run \
             on classes or values of events predicts each event at its time: rows have a source, a \
             destination and a time.",
        )
        .after_long_help(
            "Examples:\n  \
             graphmill predict runs/cora --out classes.csv\n  \
             graphmill predict runs/cora --out p.npy --probabilities --nodes ids.txt\n  \
             graphmill predict runs/cora --out - | head\n  \
             graphmill predict runs/bank --nodes acc-7,acc-9 --probabilities --out -\n  \
             graphmill predict runs/friends --top-k 10 --out friends.csv\n  \
             graphmill predict runs/visits --at 1500000 --top-k 10 --out items.csv\n  \
             graphmill predict runs/bank --at 1714521600 --out may.csv\n  \
             graphmill predict runs/bank --on new-accounts.csv --edges transfers.csv --out scores.csv\n  \
             graphmill predict runs/shop --top-k 10 --on new-users.csv --edges visits.csv --out items.csv",
        )
        .arg(args::run_dir())
        .arg(args::path_option(
            "nodes",
            "LIST",
            "Nodes to predict: keys, ids or a file [default: all]",
            "Keys such as acc-7,acc-9 of a dataset with keys, ids such as 0,7 of another one, or a file with \
             one id per line or a .npy of integers (of keys: --keys), or - for lines of standard input; rows \
             come in the order of the list. Parts of a key of several columns are joined by |. Ids of a \
             reordered dataset are its new ones, unless --original-ids",
        ))
        .arg(
            args::path_option(
                "keys",
                "FILE",
                "Nodes to predict, by the keys of their tables",
                "One key per line, or a CSV table with the columns of the key, for a dataset that graphmill \
                 import tables wrote; rows come in the file's order",
            )
            .conflicts_with("nodes"),
        )
        .arg(args::path_option(
            "dataset",
            "DATASET",
            "Predict on another dataset [default: the run's]",
            "Use it if the run's dataset has moved, or for newer data. Its features must have the width that \
             the model reads; stored normalization statistics are applied",
        ))
        .arg(args::flag(
            "original-ids",
            "Use the node ids from before graphmill reorder",
            "They apply to --nodes and to the order of the rows",
        ))
        .arg(args::flag("probabilities", "Write N x C probabilities (f32) instead of classes", ""))
        .arg(args::flag(
            "embeddings",
            "Write N x H embeddings (f32) instead of classes",
            "The rows of the last hidden layer, for search, clustering or another model",
        ))
        .group(ArgGroup::new("kind").args(["probabilities", "embeddings"]))
        .arg(args::flag(
            "last",
            "Use the last checkpoint instead of the best model",
            "The best model is that of the epoch with the best validation score",
        ))
        .arg(
            args::explain(
                args::path("out", "FILE", "").long("out"),
                format!("File to write ({}); - for CSV to stdout", known()),
                "Its ending selects the format. The file appears whole or not at all, such as --out \
                 classes.parquet",
            )
            .allow_hyphen_values(true)
            .required(true),
        )
        .arg(args::force_file())
        .arg(args::threads())
        .arg(args::json());
    #[cfg(feature = "tables")]
    let command = on::with_options(command);
    with_link_options(propagate::with_options(command))
}

/// Adds the arguments for runs on links.
fn with_link_options(command: Command) -> Command {
    command
        .arg(args::option(
            "top-k",
            "K",
            "Write the K best candidates of each node, for a run on links",
            "Rows have a source, a candidate and the score of the pair, the best first. Nodes with a known \
             edge to the source are left out, but for a run on events, which repeat. --nodes and --keys \
             select the sources. Example: --top-k 10",
        ))
        .arg(args::at())
        .arg(args::flag(
            "all-edges",
            "Read all edges, for a run on links",
            "By default embeddings read the edges of training only, so that they know none that validates \
             or tests. Set it to recommend new edges",
        ))
        .arg(args::option(
            "relation",
            "NAME",
            "Relation of --top-k, for a knowledge graph",
            "A link task of the dataset, which graphmill info lists. Example: --relation capital_of",
        ))
        .arg(args::flag(
            "sources",
            "Rank the sources of given destinations, for a run on links",
            "By default --top-k ranks destinations",
        ))
}

/// Writes the predictions and prints their shape.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    args::use_thread_option(matches)?;
    let out = args::required_path(matches, "out");
    check_target(matches, out)?;
    let run = SavedRun::open(args::required_path(matches, "run"), matches.get_flag("last"))?;
    let run = propagate::apply(matches, run)?;
    let other = args::get_path(matches, "dataset");
    let kind = if matches.get_flag("embeddings") {
        Kind::Embeddings
    } else if matches.get_flag("probabilities") {
        Kind::Probabilities
    } else {
        Kind::Classes
    };
    let asks_for_links = ["top-k", "relation"].iter().any(|name| matches.contains_id(name))
        || ["all-edges", "sources"].iter().any(|name| matches.get_flag(name));
    // events without candidates may have classes or values
    let is_of_links = run.ranks_links() && !run.learns_events();
    if is_of_links || asks_for_links {
        let k = if run.ranks_links() { top_k(matches)? } else { 0 };
        return candidates(matches, &run, k, out);
    }
    let run = match args::get_at(matches)? {
        Some(at) if run.learns_events() => {
            let message = "events are predicted at their own times; leave it out, or pass --top-k";
            return Err(Error::usage(format!("--at {at}: {message}")).into());
        }
        Some(at) => run.as_of(at)?,
        None => run,
    };
    #[cfg(feature = "tables")]
    if matches.contains_id("on") {
        run.check_new_nodes()?;
        return on::run(matches, &run, other, kind, out);
    }
    let original = matches.get_flag("original-ids");
    let input = standard_input(matches)?;
    let nodes = selection(matches, input.as_deref())?;
    let (name, written) = run.predict_on(other, (nodes, original), (kind, out), &Quiet)?;
    print(matches, &name, &written)
}

/// Checks the file or the standard output of `--out`.
///
/// # Errors
/// Wrong usage: the ending is unknown, the file exists and `--force` is not given, or `--json`
/// prints to standard output, too.
pub(super) fn check_target(matches: &ArgMatches, out: &Path) -> Result<(), Error> {
    if !Target::new(out)?.is_standard_output() {
        return args::refuse_existing(matches, "out", out);
    }
    if matches.get_flag("json") {
        let message = "--out -: --json prints its document to standard output; name a file";
        return Err(Error::usage(message));
    }
    Ok(())
}

/// Returns true if `--nodes` names a file: it exists, or it has an ending or a directory, and no
/// comma.
fn looks_like_file(list: &Path) -> bool {
    let has_place = list.extension().is_some() || list.components().count() > 1;
    list.is_file() || has_place && !list.to_string_lossy().contains(',')
}

/// Keys or ids in the lines of standard input, joined by commas as those of `--nodes` are, if that
/// is `-`.
///
/// # Errors
/// Standard input cannot be read, or a line has a comma, which would separate two nodes.
pub(super) fn standard_input(matches: &ArgMatches) -> Result<Option<String>, Error> {
    if args::get_path(matches, "nodes").is_none_or(|nodes| nodes.as_os_str() != "-") {
        return Ok(None);
    }
    let mut text = String::new();
    let read = io::stdin().lock().read_to_string(&mut text);
    read.map_err(|error| Error::usage(format!("--nodes -: standard input cannot be read: {error}")))?;
    if let Some(line) = text.lines().find(|line| line.contains(',')) {
        return Err(Error::usage(format!(
            "--nodes -: the line '{line}' has a comma, which separates nodes; give keys with commas in a \
             file, as --keys FILE"
        )));
    }
    Ok(Some(text.lines().collect::<Vec<_>>().join(",")))
}

/// Nodes that `--nodes` or `--keys` select; those of `--nodes -` are [`standard_input`].
///
/// # Errors
/// `--keys` names no file.
pub(super) fn selection<'s>(matches: &'s ArgMatches, input: Option<&'s str>) -> Result<Selection<'s>, Error> {
    if let Some(keys) = args::get_path(matches, "keys").filter(|keys| !keys.exists()) {
        let keys = keys.display();
        return Err(Error::usage(format!(
            "--keys {keys}: there is no such file; write one key per line into a file, or pass the keys \
             themselves as --nodes {keys}"
        )));
    }
    Ok(match (args::get_path(matches, "nodes"), args::get_path(matches, "keys")) {
        (Some(nodes), _) => match input.or_else(|| nodes.to_str().filter(|_| !looks_like_file(nodes))) {
            Some(words) => Selection::List(words),
            None => Selection::Nodes(nodes),
        },
        (None, Some(keys)) => Selection::Keys(keys),
        (None, None) => Selection::All,
    })
}

/// Number of candidates of each node, after a check of flags that runs on links do not use.
fn top_k(matches: &ArgMatches) -> anyhow::Result<usize> {
    let unused = ["probabilities", "embeddings", "original-ids"];
    if let Some(flag) = unused.iter().find(|flag| matches.get_flag(flag)) {
        let remedy = if *flag == "embeddings" { "use graphmill embed" } else { "leave it out" };
        return Err(Error::usage(format!("--{flag}: the run learned links; {remedy}")).into());
    }
    let Some(word) = matches.get_one::<String>("top-k") else {
        let message = "the run learned links: pass --top-k K for the K best candidates of each node, or use \
                       graphmill embed for embeddings";
        return Err(Error::usage(message).into());
    };
    let k = word.parse().ok().filter(|&k: &usize| k > 0);
    Ok(k.ok_or_else(|| Error::usage(format!("--top-k {word}: pass an integer above 0")))?)
}

/// Writes the `k` best candidates of nodes.
fn candidates(matches: &ArgMatches, run: &SavedRun, k: usize, out: &Path) -> anyhow::Result<()> {
    let options = CandidateOptions {
        k,
        all_edges: matches.get_flag("all-edges"),
        relation: matches.get_one::<String>("relation").map(String::as_str),
        sources: matches.get_flag("sources"),
        at: args::get_at(matches)?,
    };
    let other = args::get_path(matches, "dataset");
    #[cfg(feature = "tables")]
    if matches.contains_id("on") {
        Target::new(out)?.check_columns()?;
        let (name, found) = run.new_candidates_on(other, &on::tables(matches)?, options, &on::watch()?)?;
        return on::print(matches, &name, &found.write(out)?);
    }
    let input = standard_input(matches)?;
    let nodes = selection(matches, input.as_deref())?;
    let (name, written) = run.write_candidates_on(other, nodes, options, out, &Quiet)?;
    print(matches, &name, &written)
}

/// Prints the shape of a written file.
pub(super) fn print(matches: &ArgMatches, dataset: &str, written: &Written) -> anyhow::Result<()> {
    if matches.get_flag("json") {
        return output::json(written);
    }
    output::note_dataset(dataset, written.same_dataset, written.rescaled.as_deref());
    if written.out.as_os_str() == "-" {
        return Ok(());
    }
    let Written { out, rows, cols, kind, .. } = written;
    output::text(&format!("{}: {rows} x {cols} {kind}\n", out.display()))
}
