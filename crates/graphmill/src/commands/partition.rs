//! `graphmill partition DATASET [DST] --parts K`: assigns a dataset's nodes to several machines and
//! reports the cost of training over them.

use std::path::Path;

use clap::{Arg, ArgMatches, Command, parser::ValueSource};
use graphmill_data::{
    atomic,
    partition::{self as methods, KnownParts},
    typed::TypedDataset,
};
use graphmill_engine::{Error, TrainConfig, partition, typed};
use serde_json::json;

use crate::{args, cancel, output, work};

/// The subcommand with its arguments.
// long: a list of arguments, each with its help
pub(crate) fn command() -> Command {
    let number = |name, value, default: &'static str, short: &'static str, more: &str| {
        args::option(name, value, short, more).default_value(default)
    };
    let method = Arg::new("method").long("method").value_name("NAME").default_value("bgl");
    let command = Command::new("partition")
        .about("Partition a dataset for training on several machines")
        .long_about(
            "Partition a dataset for training on several machines.\n\n\
             Assigns every node to a part, writes each part as a directory that one machine opens alone, and \
             reports the edge cut, the balance and the requests that parts send each other in an epoch.\n\n\
             Columns: edge cut, the share of edges between parts; nodes and train, the largest part over the \
             mean, by all nodes and by training nodes; 1 to 3 hops, the share of walks of that length from \
             training nodes that end in the part where they started; requests, the nodes whose neighbours a \
             part asks another one for in an epoch; remote rows, the feature rows that it asks for; seconds \
             of the partitioning.",
        )
        .after_long_help(
            "Examples:\n  \
             graphmill partition data parts --parts 4          write four parts\n  \
             graphmill partition data --method all --parts 4   compare all methods, write nothing\n  \
             graphmill partition monday more --like parts      keep the parts of known nodes\n  \
             mpirun -n 4 graphmill train parts                 train on them",
        )
        .arg(args::dataset().required(true))
        .arg(args::explain(
            args::path("dst", "DST", ""),
            "Directory to write the parts to",
            "Without it the statistics are printed and nothing is written",
        ))
        .arg(args::explain_names(
            method,
            "Method",
            methods::TABLE.iter(),
            "Without DST several may be compared, such as --method hash,bgl or --method all",
        ))
        .arg(args::path_option(
            "like",
            "PARTITION",
            "Partition whose parts known nodes keep",
            "Of the dataset that graphmill append extended to DATASET. A new node goes to the part with most \
             of its neighbours, up to --slack; the number of parts is that of PARTITION",
        ))
        .arg(number(
            "parts",
            "K",
            "2",
            "Number of parts, one per machine",
            "From 1 to 65535, such as --parts 8",
        ))
        .arg(number(
            "slack",
            "R",
            "0.1",
            "Allowed excess of a part's nodes over the mean",
            "Raise it for a smaller edge cut and less even parts. From 0; 0.1 allows 1.1 times the mean",
        ))
        .arg(number(
            "train-slack",
            "R",
            "0.05",
            "Allowed excess of a part's training nodes over the mean",
            "The machine with most training nodes sets the pace of an epoch. From 0; 0.05 allows 1.05 times \
             the mean",
        ))
        .arg(number(
            "refine",
            "on|off",
            "on",
            "Move nodes to better parts after the assignment (bgl)",
            "Off selects the algorithm of BGL's authors: coarsen, merge, assign, map back",
        ))
        .arg(number(
            "seed",
            "N",
            "0",
            "Seed of the random draws",
            "The same seed and options give the same parts. A whole number from 0",
        ))
        .arg(number(
            "batches",
            "N",
            "0",
            "Minibatches drawn to count requests; 0 for a whole epoch",
            "Lower it on large graphs, whose epochs take long to draw, such as --batches 100",
        ));
    let command = args::with_plot(command, "Draw the statistics as an SVG chart");
    let command = command.arg(args::threads()).arg(args::json());
    args::when_used(command, |command| args::with_training_options(command, &options()))
}

/// Options of a run that the command reads; `--task` chooses one of a dataset of several types.
fn options() -> Vec<&'static str> {
    partition::options().into_iter().chain(["task"]).collect()
}

/// Partitions the dataset and prints the statistics.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    args::use_thread_option(matches)?;
    args::check_plot(matches)?;
    let seed = parsed(matches, "seed", "a whole number from 0")?;
    let slack = |name| -> Result<f64, Error> {
        let value: f64 = parsed(matches, name, "a number from 0, such as 0.1")?;
        if value >= 0.0 { Ok(value) } else { Err(wrong(matches, name, "a number from 0, such as 0.1")) }
    };
    let parts = parsed(matches, "parts", "a number from 1 to 65535")?;
    if parts == 0 {
        return Err(wrong(matches, "parts", "a number from 1 to 65535").into());
    }
    let (mut train, given_options) = args::training_options(matches, &options())?;
    let path = args::required_path(matches, "dataset");
    let of_types = typed::open_beyond_one_type(path)?;
    if of_types.is_some() {
        train.dataset = path.to_string_lossy().into_owned();
        train.derive_options(&given_options)?;
    }
    train.refuse_unused(&given_options)?;
    let methods = match word(matches, "method") {
        "all" => methods::TABLE.iter().map(|entry| entry.name.to_string()).collect(),
        list => list.split(',').map(|name| name.trim().to_string()).collect::<Vec<_>>(),
    };
    let is_given = |flag: &str| matches.value_source(flag) == Some(ValueSource::CommandLine);
    let like: Option<&Path> = args::get_path(matches, "like");
    if like.is_none() {
        let limits = [("slack", "slack"), ("train-slack", "train_slack"), ("refine", "refine")].into_iter();
        let given = limits.filter(|(flag, _)| is_given(flag)).map(|(_, option)| option);
        partition::refuse_unused(&methods, &given.collect::<Vec<_>>())?;
    } else if let Some(flag) =
        ["method", "parts", "train-slack", "refine"].into_iter().find(|flag| is_given(flag))
    {
        let message =
            format!("--{flag}: --like keeps the parts of known nodes and does not use it; leave one out");
        return Err(Error::usage(message).into());
    }
    let like = like.map(|like| known_parts(like, path, of_types.as_ref(), slack("slack")?)).transpose()?;
    let options = partition::Options {
        methods,
        like,
        partition: methods::Options {
            parts,
            seed,
            slack: slack("slack")?,
            train_slack: slack("train-slack")?,
            refine: match word(matches, "refine") {
                "on" => true,
                "off" => false,
                _ => return Err(wrong(matches, "refine", "on or off").into()),
            },
        },
        train: TrainConfig { seed, ..train },
        batches: parsed(matches, "batches", "a whole number from 0")?,
    };
    let dst: Option<&Path> = args::get_path(matches, "dst");
    let is_json = matches.get_flag("json");
    let progress = cancel::until_signal(work::on_stderr(is_json))?;
    if let Some(data) = of_types {
        let report = typed::partition::run(&options, &data, dst, &*progress)?;
        drop(progress);
        plot(matches, &report.overall())?;
        let text = report.to_string();
        return print(is_json, &report.dataset, &report.results, json!(report), &text);
    }
    let dataset = args::open_dataset(path)?;
    let report = partition::run(&options, &dataset, dst, &*progress)?;
    drop(progress);
    plot(matches, &report)?;
    print(is_json, &report.dataset, &report.results, json!(report), &report.to_string())
}

/// Parts of the partition in `like`, for the dataset in `path`, which `data` is if it has several
/// types.
fn known_parts(
    like: &Path,
    path: &Path,
    data: Option<&TypedDataset>,
    slack: f64,
) -> Result<KnownParts, Error> {
    let (types, checksum, is_reordered) = match data {
        Some(data) => {
            let types = data.nodes.iter().map(|nodes| (nodes.name.clone(), nodes.count)).collect();
            (types, data.identity()?, data.nodes.iter().any(|nodes| nodes.original_ids.is_some()))
        }
        None => {
            let data = args::open_dataset(path)?;
            (vec![(String::new(), data.num_nodes())], data.identity()?, data.original_ids.is_some())
        }
    };
    // ids of a reordered dataset are not those of the datasets that it extends
    partition::known_parts(like, &types, (checksum, (!is_reordered).then_some(path)), slack)
}

/// Draws the chart, if one was requested.
fn plot(matches: &ArgMatches, report: &partition::Report) -> anyhow::Result<()> {
    if let Some(file) = args::get_path(matches, "plot") {
        let svg = partition::plot::svg(report);
        atomic::write(file, |out| std::io::Write::write_all(out, svg.as_bytes()))?;
    }
    Ok(())
}

/// Prints a report as text or as a document. That of one method is not a list.
fn print<T: serde::Serialize>(
    is_json: bool,
    dataset: &str,
    results: &[T],
    report: serde_json::Value,
    text: &str,
) -> anyhow::Result<()> {
    match results {
        _ if !is_json => output::text(text),
        [outcome] => {
            let mut document = json!(outcome);
            document["dataset"] = json!(dataset);
            output::json(&document)
        }
        _ => output::json(&report),
    }
}

/// The value of option `name`, as text.
fn word<'m>(matches: &'m ArgMatches, name: &str) -> &'m str {
    matches.get_one::<String>(name).expect("the option has a default")
}

/// Error for a value of option `name` that is not `expected`.
fn wrong(matches: &ArgMatches, name: &str, expected: &str) -> Error {
    Error::usage(format!("--{name} {}: expected {expected}", word(matches, name)))
}

/// The value of option `name`; `expected` describes valid ones.
fn parsed<T: std::str::FromStr>(matches: &ArgMatches, name: &str, expected: &str) -> Result<T, Error> {
    word(matches, name).parse().map_err(|_| wrong(matches, name, expected))
}
