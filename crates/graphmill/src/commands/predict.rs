//! `graphmill predict RUN --out FILE`: classes, probabilities or embeddings of nodes as a table.

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command};
use graphmill_core::progress::Quiet;
use graphmill_engine::{
    Error,
    predictions::{Target, known},
    saved::{Kind, SavedRun},
};

use crate::{args, output};

/// The arguments.
pub(crate) fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    Command::new("predict")
        .about("Write what a run's best model says of nodes, with full neighbours, to a file")
        .arg(args::path("run", "RUN", "Run directory").required(true))
        .arg(
            args::path("nodes", "FILE", "Node ids of the dataset (of a reordered one its new ids), one a line, or a .npy of integers [default: all nodes, in order]")
                .long("nodes"),
        )
        .arg(
            args::path("dataset", "DATASET", "Another dataset to predict on [default: the run's]")
                .long("dataset"),
        )
        .arg(flag(
            "original-ids",
            "Of a reordered dataset: nodes by the ids they had before, in --nodes and in the order of the rows",
        ))
        .arg(flag("probabilities", "Write N x C probabilities (f32) in place of classes"))
        .arg(flag("embeddings", "Write N x H last hidden rows (f32) in place of classes"))
        .group(ArgGroup::new("kind").args(["probabilities", "embeddings"]))
        .arg(flag("last", "Use the last checkpoint, not the best model"))
        .arg(
            args::path(
                "out",
                "FILE",
                "The file to write, in the format of its ending",
            )
            .long("out")
            .allow_hyphen_values(true)
            .help(format!(
                "The file to write, in the format of its ending ({}), or - for CSV on standard output: N classes, \
                 or N x C zeros and ones for multi-label; but for .npy after the node's id",
                known()
            ))
            .required(true),
        )
        .arg(args::threads())
        .arg(args::json())
}

/// Predicts.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    args::use_thread_option(matches)?;
    let out = args::required(matches, "out");
    let is_json = matches.get_flag("json");
    if Target::new(out)?.is_standard_output() && is_json {
        return Err(Error::usage("--out -: standard output holds the document of --json; name a file").into());
    }
    let run = SavedRun::open(args::required(matches, "run"), matches.get_flag("last"))?;
    let dataset = run.dataset(args::get_path(matches, "dataset"))?;
    let kind = if matches.get_flag("embeddings") {
        Kind::Embeddings
    } else if matches.get_flag("probabilities") {
        Kind::Probabilities
    } else {
        Kind::Classes
    };
    let original = matches.get_flag("original-ids");
    let written = run.predict(&dataset, args::get_path(matches, "nodes"), original, kind, out, &Quiet)?;
    if !is_json {
        output::note_dataset(&dataset.name, written.same_dataset, written.rescaled.as_deref());
    }
    if is_json {
        output::json(&written)
    } else if out.as_os_str() == "-" {
        Ok(())
    } else {
        output::text(&format!("{}: {} x {} {}\n", out.display(), written.rows, written.cols, written.kind))
    }
}
