//! `graphmill append DATASET DST`: a dataset with the rows of further tables.

use std::time::Instant;

use clap::{Arg, ArgAction, ArgMatches, Command};
use graphmill_core::memory;
use graphmill_data::{
    dataset::Work,
    tables::{self, Appended, Changed, Dangling, ImportedTables, MoreTables, SplitRule},
};
use graphmill_engine::Error;
use serde_json::json;

use super::import;
use crate::{args, cancel, output, work};

/// `--NAME VALUE`, which may be given several times.
fn repeated(name: &'static str, value: &'static str, short: &'static str, more: &str) -> Arg {
    args::option(name, value, short, more).action(ArgAction::Append)
}

/// The subcommand with its arguments.
// long: a list of arguments, each with its help
pub(crate) fn command() -> Command {
    Command::new("append")
        .about("Add rows to a dataset that was imported from tables")
        .long_about(
            "Add rows to a dataset that was imported from tables.\n\n\
             Writes a new dataset with the rows of DATASET and those of further tables, which have the \
             columns of the import. DATASET does not change, and DST appears in one step. Nodes, edges and \
             rows of tasks keep their numbers, and new ones follow. Columns are encoded by the statistics \
             of the import, and values that it did not have count as unknown. New rows with labels are \
             divided by the rule of the import, on their own: earlier rows stay in their part of the split. \
             A node whose key DATASET has is refused, unless --changed says otherwise. Nodes and edges of \
             --end-nodes and --end-edges end before rows are added: a node that ends keeps its number and \
             its columns, without edges, labels and rows of targets.\n\n\
             Continue a run on DATASET by graphmill train DST --start-from RUN. The command graphmill info \
             DST lists what was appended.",
        )
        .after_long_help(
            "Examples:\n  \
             graphmill append data monday --nodes new.csv --edges transfers.csv\n  \
             graphmill append shop monday --nodes user=users.csv --edges user__buys__item=orders.parquet\n  \
             graphmill append shop monday --edges buys=orders.csv --targets churn=churn.csv\n  \
             graphmill append data monday --nodes new.csv --split random:100,0,0\n  \
             graphmill append data monday --nodes users.csv --changed replace --end-nodes closed.csv",
        )
        .arg(args::dataset().required(true))
        .arg(args::path("dst", "DST", "Dataset directory to write").required(true))
        .arg(repeated(
            "nodes",
            "[TYPE=]FILE",
            "Table of new nodes; may be repeated",
            "CSV, JSON lines, Parquet or Arrow with the columns of the import. The node type stands before \
             the file, unless the dataset has one type. Without all columns of the label, the nodes have \
             none",
        ))
        .arg(repeated(
            "edges",
            "[TYPE=]FILE",
            "Table of new edges, between old and new nodes; may be repeated",
            "The edge type stands before the file, as in user__buys__item=orders.csv or buys=orders.csv, \
             unless the dataset has one edge table. Reverse edges are added, too",
        ))
        .arg(repeated(
            "targets",
            "[NAME=]FILE",
            "Table of new targets, of old and new nodes; may be repeated",
            "The task stands before the file, unless the dataset has one table of targets",
        ))
        .arg(repeated(
            "end-nodes",
            "[TYPE=]FILE",
            "Keys of nodes that end; may be repeated",
            "A table with the columns of the key that the import had. The nodes lose all edges, labels and \
             rows of targets, and stay as nodes that nothing names, so that all ids stay the same. The type \
             as for --nodes",
        ))
        .arg(repeated(
            "end-edges",
            "[TYPE=]FILE",
            "Pairs of keys of edges that end; may be repeated",
            "A table with the columns of the source and the destination that the import had. All edges \
             between the two end, and those of the reverse type. The type as for --edges",
        ))
        .arg(args::option(
            "changed",
            "HOW",
            "Rows of nodes that DATASET has: fail, replace or keep [default: fail]",
            "replace writes the row over the columns of the node: features, the time and foreign keys. A \
             label of the row replaces that of the node, and an empty one keeps it. keep leaves the node \
             as it is",
        ))
        .arg(repeated(
            "split",
            "[NAME=]RULE",
            "Split of new rows with labels [default: that of the import]",
            "random:A,B,C, stratified:A,B,C, column:NAME, masks:TRAIN,VALID,TEST or time:COLUMN:A,B,C, of \
             the new rows of all tasks, or of one. random:100,0,0 trains on all of them",
        ))
        .arg(args::option("split-seed", "N", "Seed of random splits [default: 0]", "A whole number from 0"))
        .arg(args::option(
            "dangling",
            "HOW",
            "Edges to unknown nodes: error, drop or add [default: error]",
            "add adds the nodes, with missing values in all columns. drop also leaves out ends that name a \
             node or an edge that DATASET does not have",
        ))
        .arg(args::option("name", "NAME", "Name of the dataset [default: that of DATASET]", ""))
        .arg(
            args::option("separator", "C", "Separator of CSV files [default: found]", "A single character")
                .hide_short_help(true),
        )
        .arg(
            args::option("quote", "C", "Quote of CSV files [default: \"]", "A single character")
                .hide_short_help(true),
        )
        .arg(args::memory())
        .arg(args::force())
        .arg(args::threads())
        .arg(args::json())
}

/// Appends the tables and prints what was added.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    args::use_thread_option(matches)?;
    let tables = tables(matches)?;
    let (base, dst) = (args::required_path(matches, "dataset"), args::required_path(matches, "dst"));
    let is_json = matches.get_flag("json");
    let began = Instant::now();
    let work = Work {
        memory: args::get_memory(matches)?,
        replace: matches.get_flag("force"),
        progress: cancel::until_signal(work::on_stderr(is_json))?,
    };
    let (ImportedTables { dataset, report }, appended) = tables::append_tables(base, &tables, dst, work)?;
    if is_json {
        return output::json(&json!({
            "name": dataset.name,
            "nodes": dataset.num_nodes(),
            "edges": dataset.num_edges(),
            "appended": appended,
            "report": report,
            "seconds": began.elapsed().as_secs_f64(),
            "peak_rss_bytes": memory::peak(),
        }));
    }
    output::text(&format!("{report}{}{dataset}\n", describe(&appended)))
}

/// The tables and their treatment.
fn tables(matches: &ArgMatches) -> Result<MoreTables, Error> {
    let all = |name| {
        matches.get_many::<String>(name).map(|values| values.cloned().collect::<Vec<_>>()).unwrap_or_default()
    };
    let splits = all("split");
    for text in &splits {
        let rule = text.split_once('=').map_or(&text[..], |(_, rule)| rule);
        rule.parse::<SplitRule>().map_err(|error| Error::usage(format!("--split {text}: {error}")))?;
    }
    let tables = MoreTables {
        nodes: all("nodes").into(),
        edges: all("edges").into(),
        targets: all("targets").into(),
        end_nodes: all("end-nodes").into(),
        end_edges: all("end-edges").into(),
        changed: import::parsed::<Changed>(matches, "changed")?.unwrap_or_default(),
        splits,
        seed: import::parsed(matches, "split-seed")?.unwrap_or_default(),
        dangling: import::parsed::<Dangling>(matches, "dangling")?.unwrap_or_default(),
        name: matches.get_one::<String>("name").cloned(),
        separator: import::character(matches, "separator")?,
        quote: import::character(matches, "quote")?,
        ..MoreTables::default()
    };
    match tables.is_any() {
        true => Ok(tables),
        false => Err(Error::usage(
            "there are no tables; name --nodes FILE, --edges FILE or --targets FILE, or --end-nodes FILE or \
             --end-edges FILE",
        )),
    }
}

/// Lines of the numbers that differ.
fn describe(appended: &Appended) -> String {
    let mut text = format!("appended to {} ({})\n", appended.base, appended.checksum);
    for (what, counts) in [("nodes", &appended.nodes), ("edges", &appended.edges), ("task", &appended.tasks)]
    {
        for (name, [before, new]) in counts.iter().filter(|(_, [_, new])| *new > 0) {
            text += &format!("  {what} {name}: {before} + {new}\n");
        }
    }
    let (changed, nodes, edges) = (&appended.changed, &appended.ended_nodes, &appended.ended_edges);
    for (what, counts, did) in
        [("nodes", changed, "changed"), ("nodes", nodes, "ended"), ("edges", edges, "ended")]
    {
        counts.iter().for_each(|(name, count)| text += &format!("  {what} {name}: {count} {did}\n"));
    }
    text
}
