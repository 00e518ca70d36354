//! `graphmill bench BENCH [DATASET]`: times each hot path of training beside the machine's limit.

use clap::{Arg, ArgMatches, Command, value_parser};
use graphmill_engine::bench;

use crate::{args, output};

/// The subcommand with its arguments.
pub(crate) fn command() -> Command {
    let d = bench::Options::default();
    let number = |name: &'static str, value: &'static str, range, short: String, more: &str| {
        let arg = Arg::new(name).long(name).value_name(value).value_parser(value_parser!(u64).range(range));
        args::explain(arg.allow_negative_numbers(true), short, more)
    };
    let bench = Arg::new("bench").value_name("BENCH").required(true);
    let command = Command::new("bench")
        .about("Measure each hot path of training beside the machine's limit")
        .after_long_help(
            "Examples:\n  \
             graphmill bench all                  every bench on a generated graph\n  \
             graphmill bench sample data          the samplers on a dataset of your own\n  \
             graphmill bench gather --dim 256     copies of wide feature rows",
        )
        .arg(args::explain(
            bench,
            "Name of a bench, or all (--help lists them)",
            &format!("Known: {}", bench::known()),
        ))
        .arg(args::explain(
            args::path("dataset", "DATASET", ""),
            "Dataset directory [default: a generated R-MAT graph]",
            "Give one to measure its degrees and feature width; results of the generated graph compare \
             between machines",
        ))
        .arg(
            number(
                "scale",
                "S",
                1..=28,
                format!("Generate a graph of 2^S nodes [default: {}]", d.scale),
                "Raise it until the graph exceeds the processor's caches, as real graphs do. From 1 to 28, \
                 such as --scale 22",
            )
            .conflicts_with("dataset"),
        )
        .arg(number(
            "dim",
            "F",
            1..=1 << 16,
            "Feature width [default: 100; aggregate: 100, 128 and 256]".into(),
            "Set it to the width of your own features: of the generated graph, and of the rows that gather \
             and aggregate read. From 1 to 65536, such as --dim 768",
        ))
        .arg(number(
            "repeat",
            "N",
            1..=1000,
            format!("Measured runs of each case [default: {}]", d.repeat),
            "Raise it on a busy machine: the median of more runs varies less. From 1 to 1000, such as \
             --repeat 15",
        ))
        .arg(args::json());
    args::when_used(command, |command| args::with_training_options(command, &bench::options()))
}

/// Runs the benches and prints their table.
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
