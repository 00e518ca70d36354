//! `graphmill bench BENCH [DATASET]`: each hot path alone, with the machine's limit beside it.

use clap::{Arg, ArgMatches, Command, value_parser};
use graphmill_engine::bench;

use crate::{args, output};

/// The arguments.
pub(crate) fn command() -> Command {
    let d = bench::Options::default();
    let number = |name: &'static str, value: &'static str, range, help: String| {
        Arg::new(name)
            .long(name)
            .value_name(value)
            .value_parser(value_parser!(u64).range(range))
            .allow_negative_numbers(true)
            .help(help)
    };
    let command = Command::new("bench")
        .about("Measure the hot paths of training alone, beside what the machine can do")
        .arg(Arg::new("bench").value_name("BENCH").required(true).help(format!("all; {}", bench::known())))
        .arg(args::path("dataset", "DATASET", "Directory of the dataset [default: a generated R-MAT graph]"))
        .arg(
            number("scale", "S", 1..=28, format!("2^S nodes of the generated graph [default: {}]", d.scale))
                .conflicts_with("dataset"),
        )
        .arg(number(
            "dim",
            "F",
            1..=1 << 16,
            "Width of the generated features, and of rows that are gathered and aggregated [default: 100; aggregate: 100, \
             128 and 256]"
                .into(),
        ))
        .arg(number("repeat", "N", 1..=1000, format!("Runs of each case [default: {}]", d.repeat)))
        .arg(args::json());
    args::with_training_options(command, &bench::options())
}

/// Measures.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let name = matches.get_one::<String>("bench").expect("required");
    let (train, given) = args::training_options(matches, &bench::options())?;
    bench::refuse_unused(name, &train, &given)?;
    args::use_threads(train.threads)?;
    let number = |name: &str| matches.get_one::<u64>(name).copied();
    let d = bench::Options::default();
    let options = bench::Options {
        train,
        dim: number("dim").map(|dim| dim as usize),
        repeat: number("repeat").map_or(d.repeat, |repeat| repeat as usize),
        scale: number("scale").map_or(d.scale, |scale| scale as u32),
    };
    let data = args::get_path(matches, "dataset").map(args::open_dataset).transpose()?;
    let report = bench::run(name, &options, data)?;
    if matches.get_flag("json") { output::json(&report) } else { output::text(&report.to_string()) }
}
