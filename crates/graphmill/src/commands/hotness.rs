//! `graphmill hotness DATASET`: hit rates of caches, by policy and size, without training.

use clap::{ArgMatches, Command, parser::ValueSource};
use graphmill_core::progress::Quiet;
use graphmill_data::atomic;
use graphmill_engine::{Error, hotness, typed};

use crate::{args, output};

/// Default of `--policies`: the hotness metrics.
const POLICIES: &str =
    "random,degree,reverse-pagerank,weighted-reverse-pagerank,analytic,presc:1,presc:2,posterior:2,optimal";

/// The subcommand with its arguments.
pub(crate) fn command() -> Command {
    let list = |name, value, default: &'static str, short: &'static str, more: &str| {
        args::option(name, value, short, more).default_value(default)
    };
    let command = Command::new("hotness")
        .about("Compare cache hit rates by policy, sampler and size")
        .long_about(
            "Compare cache hit rates by policy, sampler and size.\n\n\
             Draws the minibatches of a few epochs without training and counts the feature rows that a cache \
             of each size would have served.",
        )
        .after_long_help(
            "Examples:\n  \
             graphmill hotness data                             all hotness metrics, four cache sizes\n  \
             graphmill hotness data --policies degree,presc:1,lru --ratios 0.05\n  \
             graphmill hotness data --samplers neighbor,labor --plot hits.svg",
        )
        .arg(args::dataset().required(true))
        .arg(list(
            "policies",
            "A,B",
            POLICIES,
            "Cache policies to compare [default: hotness metrics]",
            &format!(
                "A static cache holds the hottest rows by a metric, a dynamic one follows the reads; random \
                 and optimal are the bounds of static ones. Known: {}. The default is {POLICIES}",
                hotness::known()
            ),
        )
        .hide_default_value(true))
        .arg(list(
            "samplers",
            "A,B",
            "neighbor",
            "Samplers whose reads are counted",
            "Name several if you choose a sampler as well, such as --samplers neighbor,labor,saint-rw",
        ))
        .arg(list(
            "ratios",
            "R,R",
            "0.01,0.05,0.1,0.25",
            "Cache sizes, as fractions of the rows",
            "Take the fractions that fit your devices. From 0 to 1, such as --ratios 0.02,0.2",
        ))
        .arg(list(
            "epochs",
            "N",
            "2",
            "Epochs whose reads are counted",
            "Raise it on small graphs, whose hit rates vary between epochs. From 1, such as --epochs 5",
        ));
    let command = args::with_plot(command, "Draw the hit rates as an SVG chart").arg(args::json());
    args::when_used(command, |command| args::with_training_options(command, &options()))
}

/// Options of a run that the command reads; `--task` chooses one of a dataset of several types.
fn options() -> Vec<&'static str> {
    hotness::options().into_iter().chain(["task"]).collect()
}

/// Counts the hits and prints the table.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    args::check_plot(matches)?;
    let (train, given) = args::training_options(matches, &options())?;
    args::use_threads(train.threads)?;
    let words = |name: &str| -> Vec<String> {
        let list = matches.get_one::<String>(name).expect("the option has a default");
        list.split(',').map(str::trim).filter(|word| !word.is_empty()).map(String::from).collect()
    };
    let ratio = |word: &String| {
        word.parse().map_err(|_| {
            Error::usage(format!(
                "--ratios: '{word}' is not a fraction; write numbers from 0 to 1, such as 0.01,0.1"
            ))
        })
    };
    let epochs = &words("epochs").concat();
    let mut options = hotness::Options {
        train,
        policies: words("policies"),
        samplers: words("samplers"),
        ratios: words("ratios").iter().map(ratio).collect::<Result<_, _>>()?,
        epochs: epochs
            .parse()
            .map_err(|_| Error::usage(format!("--epochs: '{epochs}' is not a whole number from 1")))?,
    };
    let path = args::required_path(matches, "dataset");
    options.train.dataset = path.to_string_lossy().into_owned();
    if let Some(data) = typed::open_dataset(&options.train)? {
        options.train.derive_options(&given)?;
        if matches.value_source("policies") == Some(ValueSource::DefaultValue) {
            options.policies.retain(|name| typed::hotness::is_defined(name));
        }
        options.refuse_unused(&given)?;
        let report = typed::hotness::run(&options, &data, &Quiet)?;
        plot(matches, &report.overall())?;
        return if matches.get_flag("json") {
            output::json(&report)
        } else {
            output::text(&report.to_string())
        };
    }
    options.train.dataset.clear();
    options.refuse_unused(&given)?;
    let data = args::open_dataset(path)?;
    let report = hotness::run(&options, &data, &Quiet)?;
    plot(matches, &report)?;
    if matches.get_flag("json") { output::json(&report) } else { output::text(&report.to_string()) }
}

/// Draws the chart, if one was requested.
fn plot(matches: &ArgMatches, report: &hotness::Report) -> anyhow::Result<()> {
    if let Some(file) = args::get_path(matches, "plot") {
        let svg = hotness::plot::svg(report);
        atomic::write(file, |out| std::io::Write::write_all(out, svg.as_bytes()))?;
    }
    Ok(())
}
