//! `graphmill plan DATASET --hardware NAME|FILE`: what an epoch would take on a machine, by
//! strategy.

use std::path::Path;

use clap::{Arg, ArgMatches, Command};
use graphmill_data::partition::PartitionDir;
use graphmill_engine::{Error, TrainConfig};
use graphmill_loader::feature::LinkOptions;
use graphmill_plan::{self as plan, Hardware, Profile};

use crate::{args, output};

/// The arguments.
pub(crate) fn command() -> Command {
    let word = |name: &'static str, value: &'static str| Arg::new(name).long(name).value_name(value);
    let command = Command::new("plan")
        .about("Predict an epoch on a machine by strategy, from a few minibatches here, and recommend one")
        .arg(
            args::path("dataset", "DATASET", "Directory of the dataset")
                .required_unless_present_any(["profile", "paper"]),
        )
        .arg(
            word("hardware", "NAME|FILE")
                .required_unless_present_any(["paper", "partition"])
                .help(format!("The machine: a TOML or JSON file, or one of {}", Hardware::known())),
        )
        .arg(
            args::path(
                "profile",
                "FILE",
                "Take the profile from a TOML or JSON file instead of this machine",
            )
            .long("profile")
            .conflicts_with("dataset"),
        )
        .arg(
            args::path("partition", "DIR", "Predict for as many machines as this partition of the dataset has parts")
                .long("partition")
                .requires("dataset")
                .conflicts_with("hardware"),
        )
        .arg(
            word("network", "LINK").requires("partition").conflicts_with("hardware").default_value("12.5G,20us").help(
                "Each machine's link, with --partition: bytes a second each way and a latency, such as 125M,50us",
            ),
        )
        .arg(
            word("paper", "NAME")
                .value_parser(["fgnn", "bgl"])
                .conflicts_with_all(["dataset", "hardware", "profile"])
                .help("fgnn: predict that paper's own figures, and tell how far off they are; bgl: its largest graph on 4 to 64 machines"),
        )
        .arg(args::json());
    args::with_training_options(command, &plan::options())
}

/// Predicts.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let json = matches.get_flag("json");
    let (config, given) = args::training_options(matches, &plan::options())?;
    for source in ["paper", "profile"] {
        if let (true, Some(option)) = (matches.contains_id(source), given.first()) {
            return Err(Error::usage(format!(
                "--{}: --{source} holds the figures of a run, so that nothing is measured here; give a dataset \
                 instead, or leave it out",
                option.replace('_', "-")
            ))
            .into());
        }
    }
    match matches.get_one::<String>("paper").map(String::as_str) {
        None => {}
        Some("bgl") => {
            let found = graphmill_papers::bgl_user_item::user_item();
            return if json { output::json(&found) } else { output::text(&found.to_string()) };
        }
        Some(_) => {
            let found = graphmill_papers::fgnn::fgnn();
            return if json { output::json(&found) } else { output::text(&found.to_string()) };
        }
    }
    if let Some(parts) = args::get_path(matches, "partition") {
        return over_machines(matches, parts, &config, &given);
    }
    plan::refuse_unused(&config, &given)?;
    let hardware = Hardware::find(matches.get_one::<String>("hardware").expect("clap requires it"))?;
    let profile = match args::get_path(matches, "profile") {
        Some(file) => Profile::open(file)?,
        None => {
            args::use_threads(config.threads)?;
            plan::measure(&config, &args::open_dataset(args::required(matches, "dataset"))?)?
        }
    };
    let report = plan::plan(hardware, profile)?;
    if json { output::json(&report) } else { output::text(&report.to_string()) }
}

/// Predicts for several machines.
fn over_machines(
    matches: &ArgMatches,
    parts: &Path,
    config: &TrainConfig,
    given: &[&str],
) -> anyhow::Result<()> {
    if given.contains(&"cache") {
        let reason = "machines without a cache are predicted; leave it out";
        return Err(Error::usage(format!("--cache {}: {reason}", config.cache)).into());
    }
    config.refuse_unused(given)?;
    let word = matches.get_one::<String>("network").expect("it has a default");
    let network = word.parse::<LinkOptions>().map_err(|error| Error::usage(format!("--network {error}")))?;
    args::use_threads(config.threads)?;
    let data = args::open_dataset(args::required(matches, "dataset"))?;
    let report = plan::machines::plan(config, &data, &PartitionDir::open(parts)?, network)?;
    if matches.get_flag("json") { output::json(&report) } else { output::text(&report.to_string()) }
}
