//! `graphmill hotness DATASET`: how many rows caches would serve, without training.

use clap::{Arg, ArgMatches, Command};
use graphmill_core::progress::Quiet;
use graphmill_data::atomic;
use graphmill_engine::{Error, hotness};

use crate::{args, output};

/// Policies where none are named: the metrics.
const POLICIES: &str =
    "random,degree,reverse-pagerank,weighted-reverse-pagerank,analytic,presc:1,presc:2,posterior:2,optimal";

/// The arguments.
pub(crate) fn command() -> Command {
    let list = |name: &'static str, value: &'static str, default: &'static str, help: String| {
        Arg::new(name)
            .long(name)
            .value_name(value)
            .default_value(default)
            .allow_hyphen_values(true)
            .help(help)
    };
    let command = Command::new("hotness")
        .about("Compare what caches would serve, by policy, sampler and size, without training")
        .arg(args::path("dataset", "DATASET", "Directory of the dataset").required(true))
        .arg(list("policies", "A,B", POLICIES, format!("What is held: {}", hotness::known())))
        .arg(list("samplers", "A,B", "neighbor", "What asks for rows".into()))
        .arg(list("ratios", "R,R", "0.01,0.05,0.1,0.25", "Parts of the rows that are held".into()))
        .arg(list("epochs", "N", "2", "Epochs whose reads are counted".into()))
        .arg(args::path("plot", "FILE.svg", "Draw the hit rates").long("plot"))
        .arg(args::json());
    args::with_training_options(command, &hotness::options())
}

/// Compares.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let (train, given) = args::training_options(matches, &hotness::options())?;
    args::use_threads(train.threads)?;
    let words = |name: &str| -> Vec<String> {
        let list = matches.get_one::<String>(name).expect("it has a default");
        list.split(',').map(str::trim).filter(|word| !word.is_empty()).map(String::from).collect()
    };
    let ratio = |word: &String| {
        word.parse()
            .map_err(|_| Error::usage(format!("--ratios {word}: numbers from 0 to 1, as in 0.01,0.1")))
    };
    let epochs = &words("epochs").concat();
    let options = hotness::Options {
        train,
        policies: words("policies"),
        samplers: words("samplers"),
        ratios: words("ratios").iter().map(ratio).collect::<Result<_, _>>()?,
        epochs: epochs
            .parse()
            .map_err(|_| Error::usage(format!("--epochs {epochs}: a whole number from 1")))?,
    };
    options.refuse_unused(&given)?;
    let data = args::open_dataset(args::required(matches, "dataset"))?;
    let report = hotness::run(&options, &data, &Quiet)?;
    if let Some(file) = args::get_path(matches, "plot") {
        let svg = hotness::plot::svg(&report);
        atomic::write(file, |out| std::io::Write::write_all(out, svg.as_bytes()))?;
    }
    if matches.get_flag("json") { output::json(&report) } else { output::text(&report.to_string()) }
}
