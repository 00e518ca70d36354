//! Arguments that several commands share.

use std::{
    ffi::OsStr,
    num::NonZero,
    path::{Path, PathBuf},
    thread::available_parallelism,
};

use clap::{
    Arg, ArgAction, ArgMatches, Command,
    builder::{PossibleValue, StringValueParser, TypedValueParser},
    value_parser,
};
use graphmill_core::{options::Values, table::Entry};
use graphmill_engine::{Dataset, Error, TrainConfig, config, options};
use rayon::ThreadPoolBuilder;

/// Characters of a line of the short help.
pub(crate) const SHORT_HELP: usize = 70;

/// Sets the help of `arg`: `-h` prints the line `short`, `--help` also `more`. A default at the end
/// of `short` comes last in both.
pub(crate) fn explain(arg: Arg, short: impl Into<String>, more: &str) -> Arg {
    let short = short.into();
    if more.is_empty() {
        return arg.help(short);
    }
    let (line, default) = short.find(" [default: ").map_or((&short[..], ""), |at| short.split_at(at));
    let long = format!("{line}. {more}{default}");
    arg.long_help(long).help(short)
}

/// `--NAME VALUE`.
pub(crate) fn option(name: &'static str, value: &'static str, short: impl Into<String>, more: &str) -> Arg {
    explain(Arg::new(name).long(name).value_name(value).allow_hyphen_values(true), short, more)
}

/// `--NAME`, which is set or not.
pub(crate) fn flag(name: &'static str, short: &'static str, more: &str) -> Arg {
    explain(Arg::new(name).long(name).action(ArgAction::SetTrue), short, more)
}

/// `--NAME PATH`.
pub(crate) fn path_option(name: &'static str, value: &'static str, short: &'static str, more: &str) -> Arg {
    explain(path(name, value, short).long(name), short, more)
}

/// Sets the help of an argument that takes a name of `table`: `-h` lists as many names as fit into
/// the line, `--help` all of them with their summaries, and then `more`.
pub(crate) fn explain_names<'a, T: 'static>(
    arg: Arg,
    what: &str,
    table: impl IntoIterator<Item = &'a Entry<T>>,
    more: &str,
) -> Arg {
    const REST: &str = ", ... (see --help)";
    let rows: Vec<(&'static str, &str)> =
        table.into_iter().map(|entry| (entry.name, entry.summary)).collect();
    let names: Vec<&'static str> = rows.iter().map(|(name, _)| *name).collect();
    let fits = |count: &usize| {
        let rest = if *count < names.len() { REST.len() } else { 0 };
        what.len() + 2 + names[..*count].join(", ").len() + rest <= SHORT_HELP
    };
    let count = (1..=names.len()).rev().find(fits).unwrap_or(1);
    let rest = if count < names.len() { REST } else { "" };
    let mut long = format!("{what}:");
    for (name, summary) in rows {
        long += &format!("\n- {name}: {summary}");
    }
    if !more.is_empty() {
        long += &format!("\n{more}");
    }
    let short = format!("{what}: {}{rest}", names[..count].join(", "));
    arg.help(short).long_help(long).value_parser(Named(names)).hide_possible_values(true)
}

/// `--json`.
pub(crate) fn json() -> Arg {
    flag(
        "json",
        "Print one JSON document to standard output",
        "Use it in scripts: standard output holds the document and nothing else, errors included, as \
         {\"error\": \"...\"}. Progress and notes go to standard error",
    )
}

/// `--force`, for commands that write a dataset.
pub(crate) fn force() -> Arg {
    flag(
        "force",
        "Replace the dataset in DST",
        "The old dataset is replaced in one step once the new one is complete, so an interrupted command \
         keeps it. A directory that holds anything but a dataset is never replaced",
    )
}

/// `--force`, for commands that write one file.
pub(crate) fn force_file() -> Arg {
    flag(
        "force",
        "Replace an existing file",
        "The old file is replaced in one step once the new one is complete",
    )
}

/// Refuses to replace the file `path` of the option `name`, unless `--force` is given.
///
/// # Errors
/// Wrong usage: the file exists.
pub(crate) fn refuse_existing(matches: &ArgMatches, name: &str, path: &Path) -> Result<(), Error> {
    if path.is_file() && !matches.get_flag("force") {
        let path = path.display();
        return Err(Error::usage(format!("--{name} {path}: the file exists; pass --force to replace it")));
    }
    Ok(())
}

/// `--plot`, for commands that draw a chart, and its `--force`.
pub(crate) fn with_plot(command: Command, short: &'static str) -> Command {
    let more = "The old file is replaced in one step once the new one is complete";
    let force = flag("force", "Replace an existing chart", more).requires("plot");
    command.arg(path_option("plot", "FILE.svg", short, "")).arg(force)
}

/// Checks the file given for `--plot`, if any, before the work.
///
/// # Errors
/// Wrong usage: the name is not that of an SVG file, or the file exists and `--force` is not given.
pub(crate) fn check_plot(matches: &ArgMatches) -> Result<(), Error> {
    let Some(file) = get_path(matches, "plot") else { return Ok(()) };
    if file.extension().is_none_or(|ending| ending != "svg") {
        let file = file.display();
        return Err(Error::usage(format!("--plot {file}: a chart is an SVG file; end its name with .svg")));
    }
    refuse_existing(matches, "plot", file)
}

/// `--threads`, for commands other than `train`.
pub(crate) fn threads() -> Arg {
    let arg = Arg::new("threads").long("threads").value_name("N");
    let arg = arg.value_parser(value_parser!(u64).range(0..=4096));
    explain(
        arg.allow_negative_numbers(true).default_value("0"),
        "Number of threads; 0 for all cores",
        "Lower it to leave cores to other programs, such as --threads 4. From 0 to 4096; results do not \
         depend on it",
    )
}

/// `--memory`, for work that spills to disk.
pub(crate) fn memory() -> Arg {
    option(
        "memory",
        "BYTES",
        "Memory budget; larger work spills to disk [default: half the free]",
        "Lower it if other programs need the memory, such as --memory 4G. Suffixes K, M, G and T are powers \
         of 1024; at least 64M are used. Results do not depend on it",
    )
}

/// The value of `--memory`.
pub(crate) fn get_memory(matches: &ArgMatches) -> Result<Option<u64>, Error> {
    let Some(word) = matches.get_one::<String>("memory") else { return Ok(None) };
    let bytes: config::Bytes = word.parse().map_err(|e| Error::usage(format!("--memory: {e}")))?;
    Ok(Some(bytes.0))
}

/// Texts of which some are names of a table, for completions. Others pass, because the table's own
/// error lists what is known.
#[derive(Clone)]
struct Named(Vec<&'static str>);

impl TypedValueParser for Named {
    type Value = String;

    fn parse_ref(&self, cmd: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(cmd, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(|name| PossibleValue::new(*name))))
    }
}

/// A positional path.
pub(crate) fn path(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).value_name(value).value_parser(value_parser!(PathBuf)).help(help)
}

/// The positional DATASET.
pub(crate) fn dataset() -> Arg {
    explain(
        path("dataset", "DATASET", ""),
        "Dataset directory",
        "`graphmill import`, `generate` and `reorder` write such directories",
    )
}

/// The positional RUN.
pub(crate) fn run_dir() -> Arg {
    explain(path("run", "RUN", ""), "Run directory", "`graphmill train --out RUN` writes it").required(true)
}

/// The path given for `name`, if any.
pub(crate) fn get_path<'a>(matches: &'a ArgMatches, name: &str) -> Option<&'a Path> {
    matches.get_one::<PathBuf>(name).map(PathBuf::as_path)
}

/// The path given for `name`, a required argument.
pub(crate) fn required_path<'a>(matches: &'a ArgMatches, name: &str) -> &'a Path {
    get_path(matches, name).expect("clap rejects a command line without it")
}

/// Adds the training options ([`options::keys`]) called `names` as flags. The short help shows the
/// common ones.
pub(crate) fn with_training_options(mut command: Command, names: &[&str]) -> Command {
    let keys = options::keys();
    let current: Vec<&str> = keys.iter().map(|key| key.name).collect();
    for key in keys.into_iter().filter(|key| names.contains(&key.name)) {
        let former = key.former().iter().filter(|name| !current.contains(&name.as_str()));
        let mut arg = Arg::new(key.name)
            .long(key.flag())
            .aliases(former.map(|name| name.replace('_', "-")))
            .value_name(key.value)
            .help(key.help())
            .long_help(key.long_help())
            .hide_short_help(!key.is_common)
            .allow_hyphen_values(true);
        let rows = options::rows(key.name);
        if !rows.is_empty() {
            arg = arg.value_parser(Named(rows)).hide_possible_values(true);
        }
        if !key.is_common {
            arg = arg.help_heading(key.heading());
        }
        if key.value == "BOOL" {
            arg = arg.num_args(0..=1).default_missing_value("true").require_equals(true);
        }
        command = command.arg(arg);
    }
    command
}

/// Adds training options only when the command is the one that runs: to define those of all
/// commands took three quarters of the time before a command started.
pub(crate) fn when_used(command: Command, with_options: fn(Command) -> Command) -> Command {
    command.after_help("More options: --help").defer(with_options)
}

/// Applies the given training options among `names` to `config`; returns the names of those given.
pub(crate) fn apply_training_options(
    matches: &ArgMatches,
    config: &mut TrainConfig,
    names: &[&str],
) -> Result<Vec<&'static str>, Error> {
    let (mut values, mut given) = (Values::new(), Vec::new());
    for key in options::keys().iter().filter(|key| names.contains(&key.name)) {
        if let Some(word) = matches.get_one::<String>(key.name) {
            values.insert(key.name.into(), word.as_str().into());
            given.push(key.name);
        }
    }
    config.set(&values).map_err(|fault| Error::usage(options::by_flag(&fault)))?;
    Ok(given)
}

/// The defaults with the given training options among `names`, settled and checked, and the names
/// of those given.
pub(crate) fn training_options(
    matches: &ArgMatches,
    names: &[&str],
) -> Result<(TrainConfig, Vec<&'static str>), Error> {
    let mut config = TrainConfig::default();
    let given = apply_training_options(matches, &mut config, names)?;
    config.derive_options(&given)?;
    config.check()?;
    Ok((config, given))
}

/// Builds rayon's global pool with `threads` threads; 0 takes `RAYON_NUM_THREADS`, or one per core.
///
/// The calling thread joins a pool of several threads, so that a parallel operation of a few
/// microseconds need not be handed to another thread. It does not join a pool of one: other threads
/// would wait for a caller that waits for them.
pub(crate) fn use_threads(threads: usize) -> anyhow::Result<()> {
    let threads = match threads {
        0 if std::env::var_os("RAYON_NUM_THREADS").is_none() => {
            available_parallelism().map_or(0, NonZero::get)
        }
        threads => threads,
    };
    let pool = ThreadPoolBuilder::new().num_threads(threads);
    Ok(if threads > 1 { pool.use_current_thread() } else { pool }.build_global()?)
}

/// Builds rayon's global pool with the number of threads of `--threads`.
pub(crate) fn use_thread_option(matches: &ArgMatches) -> anyhow::Result<()> {
    use_threads(matches.get_one::<u64>("threads").map_or(0, |&n| n as usize))
}

/// The option `--at TIME`.
pub(crate) fn at() -> Arg {
    let arg = option(
        "at",
        "TIME",
        "Time to look from, if nodes, edges or events have times",
        "Only events or edges strictly before it are read, for the memory of nodes too, and nodes that exist \
         by then; by default all. Of all nodes, those that exist are predicted. A run with --time-bound \
         inclusive also reads edges of the time itself. An integer in the units of the dataset's times; \
         those of dates are seconds since 1970, or microseconds if the import says so. Example: --at 1500000",
    );
    arg.allow_hyphen_values(true)
}

/// The time of `--at`, if given.
///
/// # Errors
/// It is not an integer.
pub(crate) fn get_at(matches: &ArgMatches) -> Result<Option<i64>, Error> {
    let Some(word) = matches.get_one::<String>("at") else { return Ok(None) };
    let wrong = |_| {
        let message = "pass an integer in the units of the times of the dataset; dates are seconds since \
                       1970, as 'date -u -d 2024-05-01 +%s' prints them, or microseconds if the import says \
                       so";
        Error::usage(format!("--at {word}: {message}"))
    };
    word.parse().map(Some).map_err(wrong)
}

/// Opens a dataset directory.
///
/// # Errors
/// The path is a file or does not exist, or the dataset is damaged; the message says how to fix it.
pub(crate) fn open_dataset(path: &Path) -> Result<Dataset, Error> {
    Ok(Dataset::open(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_help_lists_the_names_that_fit_a_line() {
        let table: Vec<Entry<()>> = ["first", "second", "third", "fourth"]
            .map(|name| Entry { name, summary: "a summary", source: "", options: &[], make: () })
            .into();
        let help = |what: &str| {
            let arg = explain_names(Arg::new("name"), what, &table, "More");
            (arg.get_help().unwrap().to_string(), arg.get_long_help().unwrap().to_string())
        };
        let (short, long) = help("Name");
        assert_eq!(short, "Name: first, second, third, fourth");
        assert!(long.starts_with("Name:\n- first: a summary\n") && long.ends_with("\nMore"), "{long}");
        let (short, _) = help("A much longer description of the argument");
        assert_eq!(short, "A much longer description of the argument: first, ... (see --help)");
    }

    #[test]
    fn defaults_stand_behind_both_helps() {
        let arg = option("size", "N", "Size [default: 3]", "From 1 to 5");
        assert_eq!(arg.get_help().unwrap().to_string(), "Size [default: 3]");
        assert_eq!(arg.get_long_help().unwrap().to_string(), "Size. From 1 to 5 [default: 3]");
    }
}
