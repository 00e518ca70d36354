//! Arguments that several commands share.

use std::{
    num::NonZero,
    path::{Path, PathBuf},
    thread::available_parallelism,
};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use graphmill_core::options::Values;
use graphmill_engine::{Dataset, Error, TrainConfig, config, options};
use rayon::ThreadPoolBuilder;

/// `--json`.
pub(crate) fn json() -> Arg {
    Arg::new("json")
        .long("json")
        .action(ArgAction::SetTrue)
        .help("Write one JSON document to standard output and nothing else there")
}

/// `--threads`, for commands other than `train`.
pub(crate) fn threads() -> Arg {
    Arg::new("threads")
        .long("threads")
        .value_name("N")
        .value_parser(value_parser!(u64).range(0..=4096))
        .allow_negative_numbers(true)
        .default_value("0")
        .help("Threads; 0 takes all cores")
}

/// `--memory`, for work that goes through the disk.
pub(crate) fn memory() -> Arg {
    Arg::new("memory").long("memory").value_name("BYTES").allow_hyphen_values(true).help(
        "Memory to stay within, such as 4G; what does not fit goes to disk meanwhile [default: half of what is available]",
    )
}

/// The value of `--memory`.
pub(crate) fn get_memory(matches: &ArgMatches) -> Result<Option<u64>, Error> {
    let Some(word) = matches.get_one::<String>("memory") else { return Ok(None) };
    let bytes: config::Bytes = word.parse().map_err(|e| Error::usage(format!("--memory: {e}")))?;
    Ok(Some(bytes.0))
}

/// A path, by position.
pub(crate) fn path(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).value_name(value).value_parser(value_parser!(PathBuf)).help(help)
}

/// The path given for `name`.
pub(crate) fn get_path<'a>(matches: &'a ArgMatches, name: &str) -> Option<&'a Path> {
    matches.get_one::<PathBuf>(name).map(PathBuf::as_path)
}

/// The path given for `name`, which the command line requires.
pub(crate) fn required<'a>(matches: &'a ArgMatches, name: &str) -> &'a Path {
    get_path(matches, name).expect("clap has checked that it is there")
}

/// Adds the training options ([`options::keys`]) of those names as flags. The short help shows
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
        if !key.is_common {
            arg = arg.help_heading(key.heading);
        }
        if key.value == "BOOL" {
            arg = arg.num_args(0..=1).default_missing_value("true").require_equals(true);
        }
        command = command.arg(arg);
    }
    command.after_help("More options: --help")
}

/// Applies the training options that were given, of those `names`, to `config`; returns which.
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

/// The training options that were given, of those `names`, over the defaults, settled and checked;
/// and which they are.
pub(crate) fn training_options(
    matches: &ArgMatches,
    names: &[&str],
) -> Result<(TrainConfig, Vec<&'static str>), Error> {
    let mut config = TrainConfig::default();
    let given = apply_training_options(matches, &mut config, names)?;
    config.settle(&given)?;
    config.check()?;
    Ok((config, given))
}

/// Makes rayon's global pool that many threads wide (0: one per core, or as `RAYON_NUM_THREADS`
/// says). This thread is one of several, so that a parallel operation of a few microseconds need
/// not be handed to another; not the only one, which others would wait for while it waits for them.
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

/// Makes the pool as `--threads` says.
pub(crate) fn use_thread_option(matches: &ArgMatches) -> anyhow::Result<()> {
    use_threads(matches.get_one::<u64>("threads").map_or(0, |&n| n as usize))
}

/// Opens a dataset directory; a file or a missing directory gets a hint.
pub(crate) fn open_dataset(path: &Path) -> Result<Dataset, Error> {
    Ok(Dataset::open(path)?)
}
