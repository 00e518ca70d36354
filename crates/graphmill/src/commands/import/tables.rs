//! `graphmill import tables DST`: people's own tables of nodes and edges become a dataset.

mod flags;

use std::{collections::BTreeMap, path::PathBuf, str::FromStr, time::Instant};

use clap::{ArgMatches, Command};
use graphmill_core::memory;
use graphmill_data::{
    dataset::Work,
    tables::{
        self, CATEGORY_LIMIT, ColumnRule, Dangling, EdgeTable, Format, ImportedTables, Names, NodeTable,
        Preprocessing, SplitRule, TableSchema, TargetTable,
    },
    typed::TypedDataset,
};
use graphmill_engine::Error;
use serde_json::json;

use crate::{args, cancel, output, work};

/// Options that describe tables, which a schema file replaces.
const OF_TABLES: &[&str] = &[
    "nodes",
    "id",
    "label",
    "task",
    "split",
    "features",
    "ignore",
    "column",
    "format",
    "null",
    "missing",
    "category-limit",
    "node-time",
    "node-type",
    "edges",
    "src",
    "dst",
    "src-type",
    "dst-type",
    "edge-time",
    "edge-weight",
    "edge-label",
    "edge-task",
    "edge-split",
    "edge-features",
    "edge-column",
    "edge-format",
    "edge-null",
    "edge-type",
    "reverse",
    "undirected",
    "keep-duplicates",
    "targets",
    "target-id",
    "target-time",
    "target-label",
    "target-task",
    "target-split",
    "target-name",
    "target-format",
    "target-null",
    "separator",
    "quote",
];

/// The subcommand with its arguments.
pub(super) fn command() -> Command {
    let command = Command::new("tables")
        .alias("table")
        .about("Import your own tables of nodes, edges and targets")
        .long_about(
            "Import your own tables of nodes, edges and targets.\n\n\
             Tables are CSV, JSON lines, Parquet or Arrow files; gzip and Zstandard are decompressed. Keys \
             have any type, and predictions are written with them. The type of every column is inferred: \
             numbers are standardized, categories get a feature per value, dates become ages in days, lists \
             of numbers stay as they are, free text is ignored. --dry-run prints what each column \
             becomes.\n\n\
             All faults of all tables are listed at once, with file, line and column. Messages name options \
             without dashes, as schema files do: (column age=number) is --column age=number.",
        )
        .after_long_help(
            "Examples:\n  \
             graphmill import tables data --edges transfers.csv --src from --dst to\n  \
             graphmill import tables data --nodes users.csv --id id --label group --split random:60,20,20\n  \
             graphmill import tables data --nodes accounts.csv --id account_id --label segment \\\n    \
             --edges transfers.parquet --src from_account --dst to_account --edge-time timestamp\n  \
             graphmill import tables data --edges ratings.csv --src user --dst film \\\n    \
             --edge-time day --edge-label stars\n  \
             graphmill import tables data --edges bought.csv --src user --src-type user \\\n    \
             --dst item --dst-type item --reverse bought-by\n  \
             graphmill import tables data --nodes users.csv --id id \\\n    \
             --edges visits.csv --src from --dst to --edge-time day \\\n    \
             --targets churn.csv --target-id user --target-time day --target-label churned\n  \
             graphmill import tables data --nodes users.csv --id id --column age=quantile,indicator \
             --dry-run\n  graphmill import tables data schema.toml",
        )
        .arg(args::path("dataset", "DST", "Dataset directory to write").required(true))
        .arg(args::explain(
            args::path("schema", "SCHEMA", "").conflicts_with_all(OF_TABLES),
            "File that describes several tables, instead of options",
            "A TOML file with [[nodes]], [[edges]] and [[targets]]; --dry-run prints the file of a \
             command line",
        ));
    let command = flags::with_targets(flags::with_edges(flags::with_nodes(command)));
    let command = command
        .next_help_heading(None::<&str>)
        .arg(args::option(
            "dangling",
            "HOW",
            "Edges to nodes without a row: error, drop or add [default: error]",
            "add adds the nodes, with missing values in all columns",
        ))
        .arg(args::path_option(
            "like",
            "DATASET",
            "Encode columns by the statistics of another dataset",
            "A dataset that this command wrote: the columns, scales, categories and classes are the same, \
             so a model trained on it reads the new one",
        ))
        .arg(args::flag(
            "dry-run",
            "Print what each column becomes, and write nothing",
            "Also prints the schema file with the inferred types, to be edited",
        ))
        .arg(args::option("name", "NAME", "Name of the dataset [default: that of DST]", ""))
        .arg(args::option("split-seed", "N", "Seed of random splits [default: 0]", "A whole number from 0"))
        .arg(args::option("separator", "C", "Separator of CSV files [default: found]", "A single character"))
        .arg(args::option("quote", "C", "Quote of CSV files [default: \"]", "A single character"))
        .arg(args::memory())
        .arg(args::force())
        .arg(args::threads())
        .arg(args::json());
    flags::UNCOMMON.iter().fold(command, |command, id| command.mut_arg(id, |arg| arg.hide_short_help(true)))
}

/// Imports the tables, or prints what their columns become.
pub(super) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    args::use_thread_option(matches)?;
    let schema = schema(matches)?;
    let like = args::get_path(matches, "like").map(Preprocessing::read).transpose()?;
    import(matches, &schema, like.as_ref(), Vec::new())
}

/// Imports the tables of `schema`, or prints what their columns become, with these notes about
/// them.
pub(super) fn import(
    matches: &ArgMatches,
    schema: &TableSchema,
    like: Option<&Preprocessing>,
    mut notes: Vec<String>,
) -> anyhow::Result<()> {
    let is_json = matches.get_flag("json");
    let lines = |notes: &[String]| notes.iter().map(|note| format!("note: {note}\n")).collect::<String>();
    if matches.get_flag("dry-run") {
        let planned = tables::plan(schema, like)?;
        return if is_json {
            let schema = planned.schema.to_string();
            output::json(&json!({ "report": planned.report, "schema": schema, "notes": notes }))
        } else {
            let notes = lines(&notes);
            output::text(&format!("{}{notes}\n# schema.toml\n{}", planned.report, planned.schema))
        };
    }
    let began = Instant::now();
    let work = Work {
        memory: args::get_memory(matches)?,
        replace: matches.get_flag("force"),
        progress: cancel::until_signal(work::on_stderr(is_json))?,
    };
    let dst = args::required_path(matches, "dataset");
    let ImportedTables { dataset, report } = tables::import_tables(schema, dst, like, work)?;
    if dataset.edges.is_empty() {
        notes.push("there are no edges, which training needs; name their table by --edges".into());
    }
    notes.extend(two_kinds(&dataset, schema));
    notes.extend(readers_of_edges(&dataset));
    if is_json {
        output::json(&json!({
            "name": dataset.name,
            "note": (!notes.is_empty()).then(|| notes.join("; ")),
            "nodes": dataset.num_nodes(),
            "edges": dataset.num_edges(),
            "report": report,
            "seconds": began.elapsed().as_secs_f64(),
            "peak_rss_bytes": memory::peak(),
        }))
    } else {
        output::text(&format!("{report}{dataset}\n{}", lines(&notes)))
    }
}

/// Schema of the file or the options.
fn schema(matches: &ArgMatches) -> anyhow::Result<TableSchema> {
    let mut schema = match args::get_path(matches, "schema") {
        Some(path) => TableSchema::read(path)?,
        None => of_options(matches)?,
    };
    if let Some(dangling) = parsed::<Dangling>(matches, "dangling")? {
        schema.dangling = dangling;
    }
    if let Some(seed) = parsed(matches, "split-seed")? {
        schema.seed = seed;
    }
    if let Some(name) = matches.get_one::<String>("name") {
        schema.name = Some(name.clone());
    }
    schema.check().map_err(|error| Error::usage(error.to_string()))?;
    Ok(schema)
}

/// Schema of one node table and one edge table.
fn of_options(matches: &ArgMatches) -> Result<TableSchema, Error> {
    let all = |name| {
        matches.get_many::<String>(name).map(|values| values.cloned().collect::<Vec<_>>()).unwrap_or_default()
    };
    let one = |name| matches.get_one::<String>(name).cloned();
    let (nodes, edges, targets) = (all("nodes"), all("edges"), all("targets"));
    if nodes.is_empty() && edges.is_empty() {
        return Err(Error::usage(
            "there are no tables; name --nodes FILE, --edges FILE or both, or a schema file",
        ));
    }
    check_columns(matches, [&nodes, &edges, &targets].map(|files| !files.is_empty()))?;
    for split in ["split", "edge-split", "target-split"] {
        parsed::<SplitRule>(matches, split)?;
    }
    let (separator, quote) = (character(matches, "separator")?, character(matches, "quote")?);
    let kind = one("node-type").unwrap_or("node".into());
    let node_table = NodeTable {
        kind: kind.clone(),
        files: nodes.into(),
        id: names(matches, "id").into(),
        time: one("node-time"),
        label: names(matches, "label").into(),
        task: parsed(matches, "task")?,
        split: one("split"),
        features: names(matches, "features"),
        ignore: names(matches, "ignore"),
        columns: rules(matches, "column")?,
        missing: parsed(matches, "missing")?,
        category_limit: parsed(matches, "category-limit")?.unwrap_or(CATEGORY_LIMIT),
        formats: formats(matches, "format")?,
        nulls: nulls(matches, "null")?,
        separator,
        quote,
        foreign_keys: Vec::new(),
    };
    let ends = types_of_ends(matches, &kind, !edges.is_empty())?;
    let edge_table = (!edges.is_empty()).then(|| -> Result<_, Error> {
        Ok(EdgeTable {
            kind: one("edge-type").unwrap_or("edge".into()),
            files: Names::from(edges),
            source: ends[0].clone(),
            destination: ends[1].clone(),
            src: names(matches, "src").into(),
            dst: names(matches, "dst").into(),
            time: one("edge-time"),
            weight: one("edge-weight"),
            label: names(matches, "edge-label").into(),
            task: parsed(matches, "edge-task")?,
            split: one("edge-split"),
            features: names(matches, "edge-features"),
            columns: rules(matches, "edge-column")?,
            missing: parsed(matches, "missing")?,
            reverse: one("reverse"),
            undirected: matches.get_flag("undirected"),
            keep_duplicates: matches.get_flag("keep-duplicates"),
            formats: formats(matches, "edge-format")?,
            nulls: nulls(matches, "edge-null")?,
            separator,
            quote,
        })
    });
    let nodes = with_types(node_table, ends);
    let edges = edge_table.transpose()?.into_iter().collect();
    let targets = target_table(matches, targets, (separator, quote))?.into_iter().collect();
    let base = PathBuf::new();
    Ok(TableSchema { nodes, edges, targets, base, ..TableSchema::default() })
}

/// Checks that the columns of the keys and targets are named, of the tables that are given: those
/// of nodes, edges and targets.
fn check_columns(matches: &ArgMatches, [nodes, edges, targets]: [bool; 3]) -> Result<(), Error> {
    let key = "the column of the key";
    let needed = [
        ("id", nodes, key, "--nodes"),
        ("src", edges, key, "--edges"),
        ("dst", edges, key, "--edges"),
        ("target-id", targets, key, "--targets"),
        ("target-label", targets, "the column to predict", "--targets"),
    ];
    let missing: Vec<String> = needed
        .iter()
        .filter(|(name, is_needed, ..)| *is_needed && matches.get_one::<String>(name).is_none())
        .map(|(name, _, what, of)| format!("--{name} is missing: name {what} in the table of {of}"))
        .collect();
    if missing.is_empty() { Ok(()) } else { Err(Error::usage(missing.join("\n"))) }
}

/// Node types of both ends of the edges, if one is given; the other one is `kind`.
fn types_of_ends(matches: &ArgMatches, kind: &str, has_edges: bool) -> Result<[Option<String>; 2], Error> {
    let ends = ["src-type", "dst-type"].map(|name| matches.get_one::<String>(name).cloned());
    match ends.iter().flatten().next().cloned() {
        None => Ok(ends),
        Some(_) if has_edges => Ok(ends.map(|end| end.or_else(|| Some(kind.to_string())))),
        Some(name) => {
            Err(Error::usage(format!("node type '{name}': there is no table of edges; name --edges FILE")))
        }
    }
}

/// The node table, and types without a table that the ends of the edges name. If both ends are of
/// such types, a node table without files is left out, unless an option is for its columns: the
/// import reports that.
fn with_types(node_table: NodeTable, ends: [Option<String>; 2]) -> Vec<NodeTable> {
    let is_named = ends.iter().any(|end| end.as_ref().is_none_or(|kind| *kind == node_table.kind));
    let mut nodes = Vec::new();
    for kind in ends.into_iter().flatten() {
        if kind != node_table.kind && nodes.iter().all(|known: &NodeTable| known.kind != kind) {
            nodes.push(NodeTable { kind, category_limit: CATEGORY_LIMIT, ..NodeTable::default() });
        }
    }
    let without_options = NodeTable {
        kind: node_table.kind.clone(),
        id: node_table.id.clone(),
        missing: node_table.missing,
        category_limit: node_table.category_limit,
        separator: node_table.separator,
        quote: node_table.quote,
        ..NodeTable::default()
    };
    if is_named || node_table != without_options {
        nodes.insert(0, node_table);
    }
    nodes
}

/// Table of targets of these files, if there are any.
fn target_table(
    matches: &ArgMatches,
    files: Vec<String>,
    (separator, quote): (Option<char>, Option<char>),
) -> Result<Option<TargetTable>, Error> {
    let one = |name| matches.get_one::<String>(name).cloned();
    if files.is_empty() {
        let given = OF_TABLES.iter().find(|name| name.starts_with("target-") && one(name).is_some());
        return match given {
            Some(name) => {
                Err(Error::usage(format!("--{name}: there is no table of targets; name --targets FILE")))
            }
            None => Ok(None),
        };
    }
    Ok(Some(TargetTable {
        name: one("target-name"),
        files: files.into(),
        train: Names::None,
        valid: Names::None,
        test: Names::None,
        on: None,
        id: names(matches, "target-id").into(),
        time: one("target-time"),
        label: names(matches, "target-label").into(),
        task: parsed(matches, "target-task")?,
        split: one("target-split"),
        formats: formats(matches, "target-format")?,
        nulls: nulls(matches, "target-null")?,
        separator,
        quote,
    }))
}

/// Names of columns, separated by commas.
fn names(matches: &ArgMatches, name: &str) -> Vec<String> {
    let text = matches.get_one::<String>(name).map(String::as_str).unwrap_or_default();
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(String::from).collect()
}

/// Treatments of columns.
pub(super) fn rules(matches: &ArgMatches, name: &str) -> Result<BTreeMap<String, ColumnRule>, Error> {
    let mut rules = BTreeMap::new();
    for text in matches.get_many::<String>(name).into_iter().flatten() {
        let Some((column, rule)) = text.split_once('=') else {
            return Err(Error::usage(format!(
                "--{name} {text}: write NAME=HOW, such as --{name} age=quantile"
            )));
        };
        let rule = rule.parse().map_err(|error| Error::usage(format!("--{name} {text}: {error}")))?;
        if rules.insert(column.to_string(), rule).is_some() {
            return Err(Error::usage(format!(
                "--{name} {text}: the column is named twice; join the words with commas"
            )));
        }
    }
    Ok(rules)
}

/// Formats of columns.
fn formats(matches: &ArgMatches, name: &str) -> Result<BTreeMap<String, Format>, Error> {
    let mut formats = BTreeMap::new();
    for text in matches.get_many::<String>(name).into_iter().flatten() {
        let Some((column, format)) = text.split_once('=') else {
            return Err(Error::usage(format!(
                "--{name} {text}: write NAME=FORMAT, such as --{name} opened=%d.%m.%Y"
            )));
        };
        let format = format.parse().map_err(|error| Error::usage(format!("--{name} {text}: {error}")))?;
        if formats.insert(column.to_string(), format).is_some() {
            return Err(Error::usage(format!("--{name} {text}: the column has two formats; leave one out")));
        }
    }
    Ok(formats)
}

/// Texts that stand for missing values, by column.
fn nulls(matches: &ArgMatches, name: &str) -> Result<BTreeMap<String, Names>, Error> {
    let mut nulls: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for text in matches.get_many::<String>(name).into_iter().flatten() {
        match text.split_once('=') {
            Some((column, null)) if !null.is_empty() => {
                nulls.entry(column.into()).or_default().push(null.into())
            }
            _ => {
                return Err(Error::usage(format!(
                    "--{name} {text}: write NAME=TEXT, such as --{name} age=unknown"
                )));
            }
        }
    }
    Ok(nulls.into_iter().map(|(column, texts)| (column, texts.into())).collect())
}

/// The single character of an option.
pub(crate) fn character(matches: &ArgMatches, name: &str) -> Result<Option<char>, Error> {
    let Some(text) = matches.get_one::<String>(name) else { return Ok(None) };
    let mut characters = text.chars();
    match (text.as_str(), characters.next(), characters.next()) {
        ("\\t" | "tab", ..) => Ok(Some('\t')),
        (_, Some(one), None) if one.is_ascii() => Ok(Some(one)),
        _ => Err(Error::usage(format!("--{name} {text}: one ASCII character is expected, or 'tab'"))),
    }
}

/// The value of option `name`, if given.
pub(super) fn parsed<T: FromStr<Err: std::fmt::Display>>(
    matches: &ArgMatches,
    name: &str,
) -> Result<Option<T>, Error> {
    let word = matches.get_one::<String>(name);
    word.map(|word| word.parse().map_err(|error| Error::usage(format!("--{name} {word}: {error}"))))
        .transpose()
}

/// A remark about edges of one node type whose sources and destinations have no key in common, as
/// users and items: they are probably two types. Stops at the first common key.
fn two_kinds(data: &TypedDataset, schema: &TableSchema) -> Option<String> {
    let ([nodes], [table], [edges]) = (&schema.nodes[..], &schema.edges[..], &data.edges[..]) else {
        return None;
    };
    let is_destination = |v: u32| edges.indptr[v as usize] < edges.indptr[v as usize + 1];
    let indices = &edges.indices;
    if !nodes.files.is_empty() || indices.is_empty() || indices.iter().any(|&v| is_destination(v)) {
        return None;
    }
    let [src, dst] = [&table.src, &table.dst].map(|columns| columns.list().join(","));
    Some(format!(
        "no key is in both columns {src} and {dst}, but their nodes have one type; if these are different \
         kinds, such as users and items, pass --src-type and --dst-type"
    ))
}

/// Models that read what the dataset's edges have beside weights.
fn readers_of_edges(data: &TypedDataset) -> Option<String> {
    let has_features = data.edges.iter().any(|edges| edges.features.is_some());
    let has_times = data.edges.iter().any(|edges| edges.time.is_some());
    let of_features = "edge features are read by --model gine, gatv2-edge, sage-edge and edge-gated";
    let of_times = "edge times are read by tasks with times and by models of events";
    let notes: Vec<&str> = [(has_features, of_features), (has_times, of_times)]
        .into_iter()
        .filter_map(|(has, note)| has.then_some(note))
        .collect();
    (!notes.is_empty()).then(|| notes.join("; "))
}
