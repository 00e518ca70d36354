//! `graphmill generate kronecker|sbm DST`: a graph made up on the spot, saved as a dataset.

use std::str::FromStr;

use clap::{Arg, ArgAction, ArgMatches, Command};
use graphmill_core::table;
use graphmill_data::{
    dataset::Work,
    generate::{FeatureType, GenerateOptions, TABLE, generate_to},
    stats,
};
use graphmill_engine::Error;

use crate::{args, output, work};

/// The arguments.
pub(crate) fn command() -> Command {
    let option = |name: &'static str, value: &'static str, help: String| {
        Arg::new(name).long(name).value_name(value).help(help).allow_hyphen_values(true)
    };
    let d = GenerateOptions::default();
    let [[a, b], [c, e]] = d.initiator;
    let known =
        TABLE.iter().map(|entry| format!("{}: {}", entry.name, entry.summary)).collect::<Vec<_>>().join("; ");
    Command::new("generate")
        .about("Generate a graph with features, labels and a split")
        .arg(Arg::new("generator").value_name("GENERATOR").required(true).help(known))
        .arg(args::path("dst", "DST", "Directory to write").required(true))
        .arg(option("nodes", "N", format!("Nodes (sbm) [default: {}]", d.nodes)))
        .arg(option("scale", "S", format!("2^S nodes (kronecker) [default: {}]", d.scale)))
        .arg(option(
            "initiator",
            "A,B,C,D",
            format!("2x2 initiator, row by row (kronecker) [default: {a},{b},{c},{e}]"),
        ))
        .arg(option("edges", "N", "Edges to draw [default: by --degree]".into()))
        .arg(option("degree", "X", "Average in-degree [default: the initiator's expectation, or 16]".into()))
        .arg(Arg::new("directed").long("directed").action(ArgAction::SetTrue).help("Keep edges one way"))
        .arg(
            Arg::new("ordered-ids")
                .long("ordered-ids")
                .action(ArgAction::SetTrue)
                .help("Leave the node ids as generated: the first have the highest degrees (kronecker)"),
        )
        .arg(option("classes", "N", format!("Classes [default: {}]", d.classes)))
        .arg(option(
            "degree-exponent",
            "X",
            format!("Power law of the degrees (sbm) [default: {}]", d.degree_exponent),
        ))
        .arg(option("p-in", "P", format!("Share of edges inside a class (sbm) [default: {}]", d.p_in)))
        .arg(option("feature-dim", "N", format!("Features per node [default: {}]", d.dim)).alias("dim"))
        .arg(option("feature-type", "TYPE", "How features are stored: f32 or f16 [default: f32]".into()))
        .arg(option(
            "signal",
            "X",
            format!("Strength of the class in the features (sbm) [default: {}]", d.signal),
        ))
        .arg(option(
            "label-noise",
            "P",
            format!("Share of labels replaced at random (sbm) [default: {}]", d.label_noise),
        ))
        .arg(option(
            "split",
            "A,B,C",
            format!("Shares that train, validate and test [default: {},{},{}]", d.train, d.valid, d.test),
        ))
        .arg(option(
            "communities",
            "N",
            "Communities, each of one class (sbm) [default: as many as classes]".into(),
        ))
        .arg(option(
            "train-communities",
            "N",
            "Draw training nodes from so many communities alone (sbm) [default: all]".into(),
        ))
        .arg(option("seed", "N", format!("Seed [default: {}]", d.seed)))
        .arg(
            Arg::new("force")
                .long("force")
                .action(ArgAction::SetTrue)
                .help("Replace a dataset that is there"),
        )
        .arg(args::memory())
        .arg(args::threads())
        .arg(args::json())
}

/// Generates.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    args::use_thread_option(matches)?;
    let name = matches.get_one::<String>("generator").expect("required");
    table::find("generator", TABLE, name).map_err(|e| Error::usage(e.to_string()))?;
    let options = options(matches)?;
    let work = Work {
        memory: args::get_memory(matches)?,
        replace: matches.get_flag("force"),
        progress: work::on_stderr(matches.get_flag("json")),
    };
    let dataset =
        generate_to(name, args::required(matches, "dst"), &options, work).map_err(|error| match error {
            graphmill_core::Error::Invalid(message) => Error::usage(message),
            other => other.into(),
        })?;
    if matches.get_flag("json") {
        output::json(&stats::info(&dataset))
    } else {
        output::text(&format!("{dataset}\n"))
    }
}

/// Reads the options that were given.
fn options(matches: &ArgMatches) -> Result<GenerateOptions, Error> {
    let mut o = GenerateOptions::default();
    set(matches, "nodes", &mut o.nodes)?;
    set(matches, "scale", &mut o.scale)?;
    set(matches, "classes", &mut o.classes)?;
    set(matches, "degree-exponent", &mut o.degree_exponent)?;
    set(matches, "p-in", &mut o.p_in)?;
    set(matches, "feature-dim", &mut o.dim)?;
    set(matches, "signal", &mut o.signal)?;
    set(matches, "label-noise", &mut o.label_noise)?;
    set(matches, "communities", &mut o.communities)?;
    set(matches, "train-communities", &mut o.train_communities)?;
    set(matches, "seed", &mut o.seed)?;
    if let Some(word) = matches.get_one::<String>("feature-type") {
        let known = FeatureType::ALL.into_iter().find(|(name, _)| name == word);
        (_, o.feature_type) =
            known.ok_or_else(|| Error::usage(format!("--feature-type: '{word}' is neither f32 nor f16")))?;
    }
    if matches.contains_id("edges") {
        let mut edges = 0;
        set(matches, "edges", &mut edges)?;
        o.edges = Some(edges);
    }
    if matches.contains_id("degree") {
        let mut degree = 0.0;
        set(matches, "degree", &mut degree)?;
        o.degree = Some(degree);
    }
    o.directed = matches.get_flag("directed");
    o.shuffle_ids = !matches.get_flag("ordered-ids");
    if let Some([a, b, c, d]) = list::<4>(matches, "initiator")? {
        o.initiator = [[a, b], [c, d]];
    }
    if let Some([train, valid, test]) = list::<3>(matches, "split")? {
        (o.train, o.valid, o.test) = (train, valid, test);
    }
    Ok(o)
}

/// Parses one value into place, where it was given.
fn set<T: FromStr>(matches: &ArgMatches, name: &str, value: &mut T) -> Result<(), Error> {
    if let Some(word) = matches.get_one::<String>(name) {
        *value =
            word.parse().map_err(|_| Error::usage(format!("--{name}: '{word}' is not a possible number")))?;
    }
    Ok(())
}

/// Parses `N` numbers separated by commas.
fn list<const N: usize>(matches: &ArgMatches, name: &str) -> Result<Option<[f64; N]>, Error> {
    let Some(word) = matches.get_one::<String>(name) else { return Ok(None) };
    let numbers: Vec<f64> = word.split(',').filter_map(|x| x.trim().parse().ok()).collect();
    <[f64; N]>::try_from(numbers)
        .map(Some)
        .map_err(|_| Error::usage(format!("--{name}: '{word}' is not {N} numbers separated by commas")))
}
