//! `graphmill partition DATASET [DST] --parts K`: a dataset dealt to several machines, and what
//! training over them would cost.

use std::path::Path;

use clap::{Arg, ArgMatches, Command, parser::ValueSource};
use graphmill_data::{atomic, partition as methods};
use graphmill_engine::{Error, TrainConfig, partition};
use serde_json::json;

use crate::{args, output, work};

/// The arguments.
pub(crate) fn command() -> Command {
    let known: Vec<String> =
        methods::TABLE.iter().map(|entry| format!("{}: {}", entry.name, entry.summary)).collect();
    let number = |name: &'static str, value: &'static str, default: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name(value)
            .default_value(default)
            .allow_hyphen_values(true)
            .help(help)
    };
    let command = Command::new("partition")
        .about("Deal a dataset's nodes to parts, one a machine, and tell what training over them would ask of each other")
        .arg(args::path("dataset", "DATASET", "Directory of the dataset").required(true))
        .arg(args::path("dst", "DST", "Directory to write; without it the figures alone are told"))
        .arg(
            Arg::new("method")
                .long("method")
                .value_name("NAME")
                .default_value("bgl")
                .help(format!("{}; several as A,B or all, without DST", known.join("; "))),
        )
        .arg(number("parts", "K", "2", "How many parts"))
        .arg(number("slack", "R", "0.1", "How far a part's nodes may be above the mean"))
        .arg(number("train-slack", "R", "0.05", "How far a part's training nodes may be above the mean"))
        .arg(number("seed", "N", "0", "Seed of what is drawn"))
        .arg(number("batches", "N", "0", "Minibatches that are drawn to count requests, 0 for an epoch"))
        .arg(args::path("plot", "FILE.svg", "Draw the figures").long("plot"))
        .arg(args::threads())
        .arg(args::json());
    args::with_training_options(command, &partition::options())
}

/// Partitions.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    args::use_thread_option(matches)?;
    let seed = parsed(matches, "seed", "a whole number from 0")?;
    let slack = |name| -> Result<f64, Error> {
        let value: f64 = parsed(matches, name, "a number from 0, such as 0.1")?;
        if value >= 0.0 { Ok(value) } else { Err(wrong(matches, name, "a number from 0, such as 0.1")) }
    };
    let parts = parsed(matches, "parts", "a number from 1 to 65535")?;
    if parts == 0 {
        return Err(wrong(matches, "parts", "a number from 1 to 65535").into());
    }
    let (train, given) = args::training_options(matches, &partition::options())?;
    train.refuse_unused(&given)?;
    let methods = match word(matches, "method") {
        "all" => methods::TABLE.iter().map(|entry| entry.name.to_string()).collect(),
        list => list.split(',').map(|name| name.trim().to_string()).collect::<Vec<_>>(),
    };
    let limits = [("slack", "slack"), ("train-slack", "train_slack")].into_iter();
    let given = limits.filter(|(flag, _)| matches.value_source(flag) == Some(ValueSource::CommandLine));
    partition::refuse_unused(&methods, &given.map(|(_, option)| option).collect::<Vec<_>>())?;
    let options = partition::Options {
        methods,
        partition: methods::Options {
            parts,
            seed,
            slack: slack("slack")?,
            train_slack: slack("train-slack")?,
        },
        train: TrainConfig { seed, ..train },
        batches: parsed(matches, "batches", "a whole number from 0")?,
    };
    let dst: Option<&Path> = args::get_path(matches, "dst");
    let dataset = args::open_dataset(args::required(matches, "dataset"))?;
    let is_json = matches.get_flag("json");
    let progress = work::on_stderr(is_json);
    let report = partition::run(&options, &dataset, dst, &*progress)?;
    drop(progress);
    if let Some(file) = args::get_path(matches, "plot") {
        let svg = partition::plot::svg(&report);
        atomic::write(file, |out| std::io::Write::write_all(out, svg.as_bytes()))?;
    }
    match &report.results[..] {
        _ if !is_json => output::text(&report.to_string()),
        // one method is told as itself
        [outcome] => {
            let mut told = json!(outcome);
            told["dataset"] = json!(report.dataset);
            output::json(&told)
        }
        _ => output::json(&report),
    }
}

fn word<'m>(matches: &'m ArgMatches, name: &str) -> &'m str {
    matches.get_one::<String>(name).expect("it has a default")
}

fn wrong(matches: &ArgMatches, name: &str, expected: &str) -> Error {
    Error::usage(format!("--{name} {}: {expected}", word(matches, name)))
}

fn parsed<T: std::str::FromStr>(matches: &ArgMatches, name: &str, expected: &str) -> Result<T, Error> {
    word(matches, name).parse().map_err(|_| wrong(matches, name, expected))
}
