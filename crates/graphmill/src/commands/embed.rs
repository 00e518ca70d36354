//! `graphmill embed RUN --out FILE`: writes embeddings of nodes with their keys.

use clap::{ArgMatches, Command};
use graphmill_core::progress::Quiet;
use graphmill_engine::{EmbedOptions, predictions::known, saved::SavedRun};

use super::predict::{check_target, print, selection, standard_input};
use crate::args;

/// The subcommand with its arguments.
pub(crate) fn command() -> Command {
    Command::new("embed")
        .about("Write a run's embeddings of nodes to a file")
        .long_about(
            "Write a run's embeddings of nodes to a file.\n\n\
             Embeddings are the rows that the decoder of a run on links scores, or the last hidden rows of a \
             run on labels. Those of a run on events are as of a time. Tables start with the node's id, or \
             with its key if the dataset was imported from tables; .npy files hold the N x H rows alone.",
        )
        .after_long_help(
            "Examples:\n  \
             graphmill embed runs/friends --out friends.parquet\n  \
             graphmill embed runs/cora --out rows.npy --nodes ids.txt\n  \
             graphmill embed runs/visits --at 1500000 --out users.parquet",
        )
        .arg(args::run_dir())
        .arg(args::path_option(
            "nodes",
            "FILE",
            "Nodes to embed [default: all, in order]",
            "One id per line, or a .npy of integers, or - for lines of standard input; rows come in \
             the file's order",
        ))
        .arg(
            args::path_option(
                "keys",
                "FILE",
                "Nodes to embed, by the keys of their tables",
                "One key per line, or a CSV table with the columns of the key; rows come in the file's order",
            )
            .conflicts_with("nodes"),
        )
        .arg(args::path_option(
            "dataset",
            "DATASET",
            "Embed the nodes of another dataset [default: the run's]",
            "Use it if the run's dataset has moved, or for newer data of the same feature width",
        ))
        .arg(args::option(
            "node-type",
            "NAME",
            "Node type to embed, for a table of embeddings or events",
            "By default the first type that the run learned, or the sources of events. Example: --node-type \
             item",
        ))
        .arg(args::at())
        .arg(args::flag(
            "all-edges",
            "Read all edges, for a run on links",
            "By default embeddings read the edges of training only, so that they know none that validates or \
             tests",
        ))
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
                 rows.parquet",
            )
            .allow_hyphen_values(true)
            .required(true),
        )
        .arg(args::force_file())
        .arg(args::threads())
        .arg(args::json())
}

/// Writes the embeddings and prints their shape.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    args::use_thread_option(matches)?;
    let out = args::required_path(matches, "out");
    check_target(matches, out)?;
    let run = SavedRun::open(args::required_path(matches, "run"), matches.get_flag("last"))?;
    let options = EmbedOptions {
        node_type: matches.get_one::<String>("node-type").map(String::as_str),
        all_edges: matches.get_flag("all-edges"),
        at: args::get_at(matches)?,
    };
    let other = args::get_path(matches, "dataset");
    let input = standard_input(matches)?;
    let nodes = selection(matches, input.as_deref())?;
    let (name, written) = run.embed_on(other, nodes, options, out, &Quiet)?;
    print(matches, &name, &written)
}
