//! `graphmill import relbench SRC DST`: a database and tasks of RelBench become a dataset.

use clap::{Arg, ArgAction, ArgMatches, Command};
use graphmill_data::tables::{self, RelBench, RelBenchOptions, Target};
use graphmill_engine::Error;

use super::tables::{import, parsed, rules};
use crate::args;

/// `--NAME VALUE`, which may be given several times.
fn repeated(name: &'static str, value: &'static str, short: &'static str, more: &str) -> Arg {
    args::option(name, value, short, more).action(ArgAction::Append)
}

/// The subcommand with its arguments.
pub(super) fn command() -> Command {
    Command::new("relbench")
        .about("Import a database and tasks of RelBench")
        .long_about(
            "Import a database and tasks of RelBench.\n\n\
             SRC is the directory of a dataset in the cache of RelBench: db/TABLE.parquet, and \
             tasks/NAME/train.parquet, val.parquet and test.parquet. Each table becomes a node type, each \
             foreign key an edge type with its reverse, and each task with one target per row, or with \
             recommended nodes, a task. Nodes and edges exist from the time of their row, so that no \
             prediction sees what came later. Columns become features as those of graphmill import tables; \
             free text is ignored.\n\n\
             Tasks with other lists per row are left out.",
        )
        .after_long_help(
            "Examples:\n  \
             graphmill import relbench ~/.cache/relbench/rel-f1 f1 --task driver-dnf\n  \
             graphmill import relbench rel-f1 f1 --column drivers.code=ignore\n  \
             graphmill import relbench rel-stack stack --target-task post-votes=regression\n  \
             graphmill import relbench rel-f1 f1 --dry-run   the columns, and a schema file to edit",
        )
        .arg(args::path("src", "SRC", "Directory with db and tasks").required(true))
        .arg(args::path("dataset", "DST", "Dataset directory to write").required(true))
        .arg(repeated(
            "task",
            "NAME",
            "Task to import; may be repeated [default: all]",
            "A directory of SRC/tasks. Columns of tables that a task predicts are not features, so name one \
             task if the tasks of SRC predict different columns",
        ))
        .arg(repeated(
            "target-task",
            "[NAME=]KIND",
            "classification or regression, of a task or of all",
            "By default two different values are classes, and numbers with fractions are targets of a \
             regression. Needed if a target has more than two whole numbers",
        ))
        .arg(repeated(
            "column",
            "TABLE.COLUMN=HOW",
            "Treatment of a column, such as drivers.code=ignore",
            "As --column of graphmill import tables: a kind, the scale of a number, parts of a date, and \
             missing values",
        ))
        .arg(args::option(
            "dangling",
            "HOW",
            "Rows that name no row: error, drop or add [default: error]",
            "drop drops edges to rows that do not exist, and targets of such rows or from before their \
             row's time; add adds the rows that edges name, with missing values in all columns",
        ))
        .arg(args::flag(
            "dry-run",
            "Print what each column becomes, and write nothing",
            "Also prints a schema file for graphmill import tables, to be edited",
        ))
        .arg(args::option("name", "NAME", "Name of the dataset [default: that of DST]", ""))
        .arg(args::memory())
        .arg(args::force())
        .arg(args::threads())
        .arg(args::json())
}

/// Imports the directory, or prints what its columns become.
pub(super) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    args::use_thread_option(matches)?;
    let tasks = matches.get_many::<String>("task").into_iter().flatten().cloned().collect();
    let columns = rules(matches, "column")?.into_iter().collect();
    let options = RelBenchOptions { tasks, kinds: kinds(matches)?, columns };
    let RelBench { mut schema, notes } = tables::relbench(args::required_path(matches, "src"), &options)?;
    schema.dangling = parsed(matches, "dangling")?.unwrap_or_default();
    schema.name = matches.get_one::<String>("name").cloned();
    import(matches, &schema, None, notes)
}

/// Kinds of targets, of a task or of all.
fn kinds(matches: &ArgMatches) -> Result<Vec<(Option<String>, Target)>, Error> {
    let given = matches.get_many::<String>("target-task").into_iter().flatten();
    let kind = |text: &String| {
        let (name, kind) = match text.split_once('=') {
            Some((name, kind)) => (Some(name.to_string()), kind),
            None => (None, &text[..]),
        };
        let kind = kind.parse().map_err(|error| Error::usage(format!("--target-task {text}: {error}")))?;
        Ok((name, kind))
    };
    given.map(kind).collect()
}
