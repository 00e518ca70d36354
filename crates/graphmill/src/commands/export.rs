//! `graphmill export DATASET FORMAT DST`: writes a dataset in another library's format.

use clap::{Arg, ArgMatches, Command};
use graphmill_core::table;
use graphmill_data::{
    dataset::export::{self, ExportOptions, TABLE},
    typed::{self, Verify},
};
use graphmill_engine::Error;

use crate::{args, output};

/// The subcommand with its arguments.
pub(crate) fn command() -> Command {
    let format = Arg::new("format").value_name("FORMAT").required(true);
    Command::new("export")
        .about("Export a dataset to another format")
        .after_long_help(
            "Examples:\n  \
             graphmill export data npz data.npz --compress\n  \
             graphmill export data edges list --undirected-once\n  \
             graphmill export data csv tables   a table for each type and task",
        )
        .arg(args::dataset().required(true))
        .arg(args::explain_names(format, "Format of DST", TABLE, ""))
        .arg(args::path("dst", "DST", "File or directory to write").required(true))
        .arg(args::flag(
            "undirected-once",
            "Write each edge of a symmetric graph once (edges)",
            "Use it for readers that add the reverse edges themselves: the file is half the size",
        ))
        .arg(args::flag(
            "compress",
            "Compress the output with Deflate (npz) or gzip (edges)",
            "Smaller files, slower to write and read. An edge list whose name ends in .gz is compressed \
             without this option",
        ))
        .arg(args::flag(
            "force",
            "Replace an existing export",
            "The old one is replaced in one step once the new one is complete",
        ))
        .arg(args::threads())
        .arg(args::json())
}

/// Exports the dataset and lists the parts that the format cannot hold.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    args::use_thread_option(matches)?;
    let format = matches.get_one::<String>("format").expect("required");
    let entry = table::find("format", TABLE, format).map_err(Error::name)?;
    let options = ExportOptions {
        replace: matches.get_flag("force"),
        undirected_once: matches.get_flag("undirected-once"),
        compress: matches.get_flag("compress"),
    };
    options.check(format).map_err(|error| Error::usage(error.to_string()))?;
    let dst = args::required_path(matches, "dst");
    export::check_target(format, dst, options.replace)?;
    let path = args::required_path(matches, "dataset");
    let (lost, nodes, edges, text) = if entry.make.is_typed() && typed::is_typed(path) {
        let data = typed::open(path, Verify::Once)?;
        let lost = export::export_typed(format, &data, dst, &options)?;
        (lost, data.num_nodes(), data.num_edges(), data.to_string())
    } else {
        let dataset = args::open_dataset(path)?;
        let lost = export::export(format, &dataset, dst, &options)?;
        (lost, dataset.num_nodes(), dataset.graph.num_edges(), dataset.to_string())
    };
    if matches.get_flag("json") {
        return output::json(&serde_json::json!({
            "format": format,
            "path": dst,
            "nodes": nodes,
            "edges": edges,
            "left_out": lost,
        }));
    }
    lost.iter().for_each(|what| output::note(&format!("left out: {what}")));
    output::text(&format!("{text}\n"))
}
