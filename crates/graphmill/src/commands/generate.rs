//! `graphmill generate GENERATOR DST`: generates a synthetic graph and saves it as a dataset.

use std::str::FromStr;

use clap::{Arg, ArgMatches, Command, parser::ValueSource};
use graphmill_core::table::{self, Entry};
use graphmill_data::{
    dataset::{Work, import},
    generate::{
        FeatureType, GenerateOptions, TABLE, TYPED_TABLE, generate_to, generate_typed_to, unread_option,
    },
    stats, typed,
};
use graphmill_engine::Error;

use crate::{args, cancel, output, work};

/// The subcommand with its arguments.
pub(crate) fn command() -> Command {
    let d = GenerateOptions::default();
    let generator = Arg::new("generator").value_name("GENERATOR").required(true);
    let command = Command::new("generate")
        .about("Generate a synthetic dataset: graph, features, labels and a split")
        .after_long_help(
            "Examples:\n  \
             graphmill generate sbm data                           50,000 nodes to learn on\n  \
             graphmill generate sbm hard --p-in 0.3 --signal 0.05  a weaker signal\n  \
             graphmill generate kronecker big --scale 24           16.8 million nodes, skewed degrees\n  \
             graphmill generate typed shop --nodes 200000          several node and edge types\n  \
             graphmill generate igbh papers --scale 20             the shape of IGB-H",
        )
        .arg(args::explain_names(generator, "Generator", &generators(), ""))
        .arg(args::path("dst", "DST", "Dataset directory to write").required(true));
    let command = with_attribute_options(with_graph_options(command, &d), &d);
    command.arg(args::force()).arg(args::memory()).arg(args::threads()).arg(args::json())
}

/// Rows of both tables of generators.
fn generators() -> Vec<Entry<()>> {
    let row = |name, summary, source| Entry { name, summary, source, options: &[], make: () };
    let one_type = TABLE.iter().map(|entry| row(entry.name, entry.summary, entry.source));
    one_type.chain(TYPED_TABLE.iter().map(|entry| row(entry.name, entry.summary, entry.source))).collect()
}

/// Adds the options of nodes, edges and degrees; `d` has the defaults.
fn with_graph_options(command: Command, d: &GenerateOptions) -> Command {
    let [[a, b], [c, e]] = d.initiator;
    command
        .arg(args::option(
            "nodes",
            "N",
            format!("Number of nodes (sbm, typed) [default: {}]", d.nodes),
            "From 1 to 4294967295, such as --nodes 1000000",
        ))
        .arg(args::option(
            "scale",
            "S",
            format!("Number of nodes, or of papers, as 2^S (kronecker, igbh) [default: {}]", d.scale),
            "Each step doubles the graph, such as --scale 20 for a million nodes",
        ))
        .arg(args::option(
            "initiator",
            "A,B,C,D",
            format!("2x2 initiator, row by row (kronecker) [default: {a},{b},{c},{e}]"),
            "A larger A concentrates edges on few nodes. Numbers from 0; only their proportions matter if \
             --edges or --degree is given. Graph500 has 0.57,0.19,0.19,0.05",
        ))
        .arg(args::option(
            "edges",
            "N",
            "Number of edges to draw [default: by --degree]",
            "An undirected edge counts once. Duplicates are stored once, so somewhat fewer remain. Give \
             either --edges or --degree, such as --edges 5000000",
        ))
        .arg(args::option(
            "degree",
            "X",
            "Average in-degree [default: by the initiator, or 16 (sbm, typed)]",
            "Raise it to make neighbourhoods, and so minibatches, larger. A number from 0, such as \
             --degree 50",
        ))
        .arg(args::flag(
            "directed",
            "Store each edge in one direction",
            "By default an edge makes both of its ends in-neighbours of each other",
        ))
        .arg(args::flag(
            "ordered-ids",
            "Keep the ids as generated, highest degrees first (kronecker)",
            "By default nodes are renumbered at random, as ids of real graphs say nothing about degrees",
        ))
        .arg(args::option(
            "degree-exponent",
            "X",
            format!("Exponent of the degrees' power law (sbm) [default: {}]", d.degree_exponent),
            "A larger one makes degrees more even. Above 1; social networks lie between 2 and 3",
        ))
        .arg(args::option(
            "p-in",
            "P",
            format!("Fraction of edges inside a class (sbm, typed, igbh) [default: {}]", d.p_in),
            "A larger one makes neighbours more informative. From 0 to 1, such as --p-in 0.8",
        ))
        .arg(args::option(
            "communities",
            "N",
            "Number of communities (sbm) [default: one per class]",
            "Each community has one class, and edges stay inside it as --p-in says. Use more of them than \
             classes for a graph of many clusters, such as --communities 500",
        ))
}

/// Adds the options of features, labels and the split; `d` has the defaults.
fn with_attribute_options(command: Command, d: &GenerateOptions) -> Command {
    command
        .arg(args::option(
            "classes",
            "N",
            format!("Number of classes [default: {}]", d.classes),
            "More classes make the task harder. From 1, such as --classes 40",
        ))
        .arg(
            args::option(
                "feature-dim",
                "N",
                format!("Features per node [default: {}]", d.dim),
                "Raise it to make feature rows the bottleneck. From 0 (no features), such as \
                 --feature-dim 768",
            )
            .alias("dim"),
        )
        .arg(args::option(
            "feature-type",
            "TYPE",
            "Storage type of the features: f32 or f16 [default: f32]",
            "f16 takes half the disk and memory",
        ))
        .arg(args::option(
            "signal",
            "X",
            format!("Strength of the class in the features (sbm, typed, igbh) [default: {}]", d.signal),
            "Length of a class's mean feature vector in units of the noise, per feature. Lower it until a \
             model needs the neighbours, such as --signal 0.05",
        ))
        .arg(args::option(
            "label-noise",
            "P",
            format!("Fraction of random labels (sbm, typed, igbh) [default: {}]", d.label_noise),
            "It bounds the accuracy that a model can reach. From 0 to 1, such as --label-noise 0.1",
        ))
        .arg(args::option(
            "split",
            "A,B,C",
            format!("Train, valid and test fractions [default: {},{},{}]", d.train, d.valid, d.test),
            "Lower the first for sparse labels, such as --split 0.01,0.1,0.89, or as percentages \
             1,10,89. The sum is at most 1, or 100",
        ))
        .arg(args::option(
            "train-communities",
            "N",
            "Communities with training nodes (sbm) [default: all]",
            "Lower it for a graph of which only a part is labelled, such as --train-communities 10",
        ))
        .arg(args::option(
            "seed",
            "N",
            format!("Seed of the generator [default: {}]", d.seed),
            "The same seed and options give the same bytes. A whole number from 0, such as --seed 7",
        ))
}

/// Generates the dataset and prints its sizes.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    args::use_thread_option(matches)?;
    let name = matches.get_one::<String>("generator").expect("required");
    table::find("generator", &generators(), name).map_err(|e| Error::usage(e.to_string()))?;
    check_given(matches, name)?;
    let options = options(matches)?;
    let (dst, json) = (args::required_path(matches, "dst"), matches.get_flag("json"));
    let work = Work {
        memory: args::get_memory(matches)?,
        replace: matches.get_flag("force"),
        progress: cancel::until_signal(work::on_stderr(json))?,
    };
    if TYPED_TABLE.iter().any(|entry| entry.name == name) {
        let dataset = generate_typed_to(name, dst, &options, work).map_err(usage)?;
        return if json {
            output::json(&typed::info(&dataset))
        } else {
            output::text(&format!("{dataset}\n"))
        };
    }
    let dataset = generate_to(name, dst, &options, work).map_err(usage)?;
    if json { output::json(&stats::info(&dataset)) } else { output::text(&format!("{dataset}\n")) }
}

/// Refuses given options that the generator `name` does not read.
fn check_given(matches: &ArgMatches, name: &str) -> Result<(), Error> {
    let given = |id: &&clap::Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
    let field = |id: &clap::Id| match id.as_str() {
        "ordered-ids" => "shuffle_ids".to_string(),
        id => id.replace('-', "_"),
    };
    let fields: Vec<String> = matches.ids().filter(given).map(field).collect();
    let Some((field, readers)) = unread_option(name, fields.iter().map(String::as_str)) else {
        return Ok(());
    };
    let option = if field == "shuffle_ids" { "ordered-ids".into() } else { field.replace('_', "-") };
    Err(Error::usage(format!(
        "--{option}: the generator {name} does not read it; leave it out, or use {readers}"
    )))
}

/// Converts an error of options to wrong usage.
fn usage(error: graphmill_core::Error) -> Error {
    match error {
        graphmill_core::Error::Invalid(message) => Error::usage(message),
        other => other.into(),
    }
}

/// The defaults with the given options.
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
        (_, o.feature_type) = known.ok_or_else(|| {
            Error::usage(format!("--feature-type: '{word}' is not a feature type; use f32 or f16"))
        })?;
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
        [o.train, o.valid, o.test] = import::fractions([train, valid, test]);
    }
    Ok(o)
}

/// Parses option `name` into `value`, if given.
fn set<T: FromStr>(matches: &ArgMatches, name: &str, value: &mut T) -> Result<(), Error> {
    if let Some(word) = matches.get_one::<String>(name) {
        *value = word.parse().map_err(|_| {
            Error::usage(format!(
                "--{name}: '{word}' is not a valid number; graphmill generate --help has its range"
            ))
        })?;
    }
    Ok(())
}

/// Parses option `name` as `N` numbers separated by commas.
fn list<const N: usize>(matches: &ArgMatches, name: &str) -> Result<Option<[f64; N]>, Error> {
    let Some(word) = matches.get_one::<String>(name) else { return Ok(None) };
    let numbers: Vec<f64> = word.split(',').filter_map(|x| x.trim().parse().ok()).collect();
    <[f64; N]>::try_from(numbers).map(Some).map_err(|_| {
        Error::usage(format!(
            "--{name}: '{word}' is not {N} numbers separated by commas; see graphmill generate --help"
        ))
    })
}
