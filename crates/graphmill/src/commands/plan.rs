//! `graphmill plan DATASET --hardware NAME|FILE`: predicts epoch times on a machine, by strategy.

use std::path::Path;

use clap::{Arg, ArgMatches, Command, parser::ValueSource, value_parser};
use graphmill_data::{
    partition::{PartitionDir, TypedPartitionDir},
    typed::has_several_types,
};
use graphmill_engine::{Error, TrainConfig, config::events, events::open_dataset as open_events, typed};
use graphmill_loader::feature::LinkOptions;
use graphmill_plan::{self as plan, Hardware, Profile, Request, machines::Cluster};

use crate::{args, output};

/// The subcommand with its arguments.
pub(crate) fn command() -> Command {
    let word = |name: &'static str, value: &'static str| Arg::new(name).long(name).value_name(value);
    let command = Command::new("plan")
        .about("Predict epoch times on another machine and the best strategy")
        .long_about(
            "Predict epoch times on another machine and the best strategy.\n\n\
             Measures a few minibatches here, scales them to the other machine's devices, links and memory, \
             and predicts an epoch for each strategy, without and with --reuse layered unless --reuse is \
             given. Reused rows are recommended only if they are clearly faster, because they change the \
             result.\n\n\
             A stream of events (--model tgn and others) trains on the processor of this machine: its \
             plan has the parts of an epoch for each number of threads, the memory and the disk space.",
        )
        .after_long_help(
            "Examples:\n  \
             graphmill plan data --hardware v100x8\n  \
             graphmill plan data --hardware machine.toml --model gat --hidden 128\n  \
             graphmill plan visits --model tgn --host-budget 8G\n  \
             graphmill plan data --partition parts --network 125M,50us\n  \
             graphmill plan data --partition parts --machines 6 --graph-stores 2\n  \
             graphmill plan data --partition parts --hardware v100x8 --devices cuda:0 --cache-ratio 0.1",
        )
        .arg(args::dataset().required_unless_present_any(["profile", "paper"]))
        .arg(args::explain(
            word("hardware", "NAME|FILE"),
            "Machine to predict for: a known name or a file",
            &format!(
                "Known: {}. A TOML or JSON file describes another machine. With --partition, the NVIDIA \
                 devices of each machine, which --devices cuda:0 uses. Left out of the plan of a stream of \
                 events, which trains on this machine",
                Hardware::known()
            ),
        ))
        .arg(
            args::path_option(
                "profile",
                "FILE",
                "Use a recorded profile instead of measuring here",
                "TOML or JSON, such as the field profile of --json. The same profile gives the same plan",
            )
            .conflicts_with("dataset"),
        )
        .arg(
            args::path_option(
                "partition",
                "DIR",
                "Predict for several machines that share this partition",
                "The directory that graphmill partition wrote. The machines are like this one, joined by \
                 --network. With --graph-stores N the last N hold the parts and the others train",
            )
            .requires("dataset"),
        )
        .arg(args::explain(
            word("machines", "N").requires("partition").value_parser(value_parser!(u16).range(1..)),
            "Number of machines, with --partition; by default one per part",
            "Graph stores included. Without graph stores at most as many as there are parts, which are \
             assigned to machines in turns, as in a run",
        ))
        .arg(args::explain(
            word("network", "LINK").requires("partition").default_value("12.5G,20us"),
            "Link of each machine, with --partition",
            "Bytes a second each way and a latency, such as 125M,50us for gigabit Ethernet",
        ))
        .arg(args::explain(
            word("paper", "NAME")
                .value_parser(["fgnn", "bgl"])
                .conflicts_with_all(["dataset", "hardware", "profile"]),
            "Predict the figures of a paper instead",
            "fgnn compares predictions with the paper's own measurements and prints the error; bgl predicts \
             its largest graph on 4 to 64 machines",
        ))
        .arg(args::explain(
            word("device-counts", "N,N").conflicts_with_all(["paper", "partition"]),
            "Also predict for these numbers of devices",
            "Such as 1,2,4,8, each with the machine's devices, links and host",
        ))
        .arg(args::json());
    args::when_used(command, |command| args::with_training_options(command, &plan::all_options()))
}

/// The request of a plan, from the options given on the command line.
fn request(matches: &ArgMatches, config: TrainConfig, given: &[&'static str]) -> Result<Request, Error> {
    let word = |name: &&'static str| Some((*name, matches.get_one::<String>(name)?.clone()));
    let mut request = Request::new(config, given.iter().filter_map(word).collect());
    if let Some(path) = args::get_path(matches, "dataset") {
        request.dataset = path.display().to_string();
    }
    if let Some(counts) = matches.get_one::<String>("device-counts") {
        request.set_device_counts(counts)?;
    }
    Ok(request)
}

/// Predicts and prints the plan.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let json = matches.get_flag("json");
    let (mut config, given) = args::training_options(matches, &plan::all_options())?;
    let has_typed_model = graphmill_nn::typed::TABLE.get(&config.model).is_some();
    let has_event_model = events::TABLE.get(&config.model).is_some();
    let has_own_defaults = |path: &&Path| has_typed_model || has_event_model || has_several_types(path);
    let of_types = args::get_path(matches, "dataset").filter(has_own_defaults);
    if let Some(path) = of_types {
        config.dataset = path.to_string_lossy().into_owned();
        config.derive_options(&given)?;
    }
    if events::is_of_events(&config) {
        return of_events(matches, config, &given);
    }
    plan::refuse_of_events(&config, &given)?;
    for (source, predicted) in [("paper", &[][..]), ("profile", &Request::OPTIONS[..])] {
        if matches.contains_id(source) {
            plan::refuse_measured(source, predicted, &given)?;
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
    if of_types.is_none() {
        plan::compare_reuse(&mut config, &given);
    }
    let request = request(matches, config.clone(), &given)?;
    let hardware = matches.get_one::<String>("hardware").ok_or_else(|| {
        let known = Hardware::known();
        Error::usage(format!(
            "--hardware: the plan needs the machine to predict for; name one of {known}, or a file"
        ))
    })?;
    let hardware = Hardware::find(hardware)?;
    request.refuse_unused(&hardware)?;
    let profile = match args::get_path(matches, "profile") {
        Some(file) => Profile::open(file)?,
        None => {
            args::use_threads(config.threads)?;
            let of_types = of_types.map(|_| typed::open_dataset(&config)).transpose()?.flatten();
            match &of_types {
                Some(data) => plan::measure_types(&config, data)?,
                None => {
                    plan::measure(&config, &args::open_dataset(args::required_path(matches, "dataset"))?)?
                }
            }
        }
    };
    let report = plan::plan_run(hardware, profile, &request)?;
    if json { output::json(&report) } else { output::text(&report.to_string()) }
}

/// Predicts a run on a stream of events on this machine, and prints the plan.
fn of_events(matches: &ArgMatches, config: TrainConfig, given: &[&'static str]) -> anyhow::Result<()> {
    let is_given = |name: &&str| matches.value_source(name) == Some(ValueSource::CommandLine);
    let of_machines = plan::OF_MACHINES.into_iter().filter(|name| matches.ids().any(|id| id == name));
    plan::refuse_other_machines(&config, &of_machines.filter(is_given).collect::<Vec<_>>())?;
    let request = request(matches, config.clone(), given)?;
    args::use_threads(config.threads)?;
    let data = open_events(&config)?.ok_or_else(|| {
        Error::usage(format!("--model {}: name the dataset with its stream of events", config.model))
    })?;
    let report = plan::plan_events(&request, &data, Path::new("."))?;
    if matches.get_flag("json") { output::json(&report) } else { output::text(&report.to_string()) }
}

/// Predicts for several machines with a part each, and prints the plan.
fn over_machines(
    matches: &ArgMatches,
    parts: &Path,
    config: &TrainConfig,
    given: &[&str],
) -> anyhow::Result<()> {
    let word = matches.get_one::<String>("network").expect("the option has a default");
    let network = word.parse::<LinkOptions>().map_err(|error| Error::usage(format!("--network {error}")))?;
    let machines = matches.get_one::<u16>("machines").copied().map(usize::from);
    let hardware = matches.get_one::<String>("hardware").map(|word| Hardware::find(word)).transpose()?;
    let cluster = Cluster { machines, network, hardware };
    args::use_threads(config.threads)?;
    let report = if TypedPartitionDir::is_in(parts) {
        let data = typed::open_dataset(config)?.ok_or_else(|| {
            let message = "the parts have several types, but the dataset has one; name the dataset that was \
                           partitioned";
            Error::usage(format!("--partition {}: {message}", parts.display()))
        })?;
        plan::machines::plan_types((config, given), &data, &TypedPartitionDir::open(parts)?, cluster)?
    } else {
        let data = args::open_dataset(args::required_path(matches, "dataset"))?;
        plan::machines::plan((config, given), &data, &PartitionDir::open(parts)?, cluster)?
    };
    if matches.get_flag("json") { output::json(&report) } else { output::text(&report.to_string()) }
}
