//! `graphmill export DATASET FORMAT DST`: a dataset goes back to one of the field's formats.

use clap::{Arg, ArgAction, ArgMatches, Command};
use graphmill_core::table;
use graphmill_data::dataset::export::{self, ExportOptions, TABLE};
use graphmill_engine::Error;

use crate::{args, output};

/// The arguments.
pub(crate) fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    let known =
        TABLE.iter().map(|entry| format!("{}: {}", entry.name, entry.summary)).collect::<Vec<_>>().join("; ");
    Command::new("export")
        .about("Export a dataset to one of the field's formats")
        .arg(args::path("dataset", "DATASET", "Directory of the dataset").required(true))
        .arg(Arg::new("format").value_name("FORMAT").required(true).help(known))
        .arg(args::path("dst", "DST", "File or directory to write").required(true))
        .arg(flag("undirected-once", "Write each edge of a symmetric graph once (edges)"))
        .arg(flag(
            "compress",
            "Deflate the members (npz), gzip the list (edges; a name in .gz asks for it too)",
        ))
        .arg(flag("force", "Replace an export that is there"))
        .arg(args::threads())
        .arg(args::json())
}

/// Exports.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    args::use_thread_option(matches)?;
    let format = matches.get_one::<String>("format").expect("required");
    table::find("format", TABLE, format).map_err(Error::name)?;
    let options = ExportOptions {
        replace: matches.get_flag("force"),
        undirected_once: matches.get_flag("undirected-once"),
        compress: matches.get_flag("compress"),
    };
    options.check(format).map_err(|error| Error::usage(error.to_string()))?;
    let dst = args::required(matches, "dst");
    export::check_target(format, dst, options.replace)?;
    let dataset = args::open_dataset(args::required(matches, "dataset"))?;
    let lost = export::export(format, &dataset, dst, &options)?;
    if matches.get_flag("json") {
        let edges = dataset.graph.num_edges();
        return output::json(&serde_json::json!({
            "format": format,
            "path": dst,
            "nodes": dataset.num_nodes(),
            "edges": edges,
            "left_out": lost,
        }));
    }
    lost.iter().for_each(|what| eprintln!("left out: {what}"));
    output::text(&format!("{dataset}\n"))
}
