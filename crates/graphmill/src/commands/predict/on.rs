//! `graphmill predict RUN --on TABLE`: predictions for new nodes.

use std::{path::Path, sync::Arc};

use clap::{Arg, ArgAction, ArgMatches, Command};
use graphmill_core::progress::{Progress, Quiet};
use graphmill_engine::{
    saved::{
        Kind, SavedRun,
        on::{NewTables, WrittenNew},
    },
    typed::SavedTypedRun,
};

use crate::{args, cancel, output};

/// Adds the options of new nodes.
pub(super) fn with_options(command: Command) -> Command {
    let table = |name: &'static str, short: &'static str, more: &str| -> Arg {
        args::option(name, "TABLE", short, more).action(ArgAction::Append)
    };
    let memory = args::memory().requires("on");
    command
        .next_help_heading("New nodes, if graphmill import tables wrote the dataset")
        .arg(
            table(
                "on",
                "Predict the new nodes of this table",
                "CSV, JSON lines, Parquet or Arrow with the columns of the imported table; the label is not \
                 needed. The stored statistics encode it, and nodes are computed as if they were in the \
                 dataset, which does not change. With several node types, a type may stand before a table \
                 (--on branch=new-branches.csv); without it the nodes are of the predicted type. With \
                 --top-k, a run on links recommends nodes of the dataset to the new ones",
            )
            .conflicts_with_all(["nodes", "keys", "original-ids", "propagate", "at"]),
        )
        .arg(
            table(
                "edges",
                "Table with the edges of the new nodes",
                "It has the columns of the imported table, and names new and known nodes by their keys. \
                 Without it new nodes have no neighbours but those of foreign keys. With several edge \
                 tables, an edge type stands before it (--edges transfer=new.csv, or \
                 --edges account__transfer__account=new.csv)",
            )
            .requires("on"),
        )
        .arg(memory)
        .next_help_heading(None::<&str>)
}

/// The tables of the new nodes.
pub(super) fn tables(matches: &ArgMatches) -> anyhow::Result<NewTables> {
    let names = |name| -> Vec<String> {
        matches.get_many::<String>(name).map(|names| names.cloned().collect()).unwrap_or_default()
    };
    Ok(NewTables {
        nodes: names("on").into(),
        edges: names("edges").into(),
        budget: args::get_memory(matches)?,
        ..NewTables::default()
    })
}

/// Progress of an import, which a signal stops.
pub(super) fn watch() -> anyhow::Result<Arc<dyn Progress>> {
    Ok(cancel::until_signal(Box::new(Quiet))?.into())
}

/// Writes the predictions of the new nodes and prints their shape.
pub(super) fn run(
    matches: &ArgMatches,
    run: &SavedRun,
    other: Option<&Path>,
    kind: Kind,
    out: &Path,
) -> anyhow::Result<()> {
    let (new, watch) = (tables(matches)?, watch()?);
    let (name, written) = match SavedTypedRun::of(run) {
        Some(typed) => {
            let dataset = typed.dataset(other)?;
            let written = typed.predict_new(&dataset, &new, kind, out, &watch)?;
            (dataset.name, written)
        }
        None => {
            let dataset = run.dataset(other)?;
            let written = run.predict_new(&dataset, &new, kind, out, &watch)?;
            (dataset.name, written)
        }
    };
    print(matches, &name, &written)
}

/// Prints the shape of a written file, and remarks on the new nodes.
pub(super) fn print(matches: &ArgMatches, name: &str, written: &WrittenNew) -> anyhow::Result<()> {
    if matches.get_flag("json") {
        return output::json(written);
    }
    let result = &written.written;
    output::note_dataset(name, result.same_dataset, result.rescaled.as_deref());
    for note in written.read.notes() {
        output::note(&format!("note: {note}"));
    }
    if result.out.as_os_str() == "-" {
        return Ok(());
    }
    output::text(&format!(
        "{}: {} x {} {} of new nodes with {} edges\n",
        result.out.display(),
        result.rows,
        result.cols,
        result.kind,
        written.read.new_edges
    ))
}
