//! Progress of training on standard error, in the form that `--progress` chooses.

mod alarm;
mod bar;
mod json;
mod lines;
mod plain;

use std::io::IsTerminal;

use chrono::DateTime;
use clap::{ArgMatches, ValueEnum, builder::EnumValueParser, parser::ValueSource};
use graphmill_core::progress::Progress as Work;
use graphmill_engine::{
    Error,
    observer::{Observer, Quiet},
};

use crate::{args, output};

/// Form of the progress on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// `bar` on a terminal, `plain` elsewhere.
    Auto,
    /// A bar that is redrawn, and a line for each epoch.
    Bar,
    /// A line for each epoch, at most one a minute, and one a minute within long epochs; for log
    /// files.
    Plain,
    /// Every event as one JSON object on a line; for programs.
    Json,
    /// Nothing.
    None,
}

/// Arguments `--progress` and `--quiet`.
pub(crate) fn arguments() -> [clap::Arg; 2] {
    let progress = args::option(
        "progress",
        "FORM",
        "Form of the progress: auto, bar, plain, json or none",
        "auto is bar on a terminal and plain elsewhere; plain prints at most one epoch a minute, and one \
         line a minute within a longer epoch; json prints one object a line for each event, none nothing. \
         GRAPHMILL_PROGRESS sets another default, also of Python",
    );
    let quiet = args::flag("quiet", "Show no progress", "The same as --progress none");
    [
        progress
            .value_parser(EnumValueParser::<Form>::new())
            .default_value("auto")
            .hide_short_help(true)
            .hide_possible_values(true),
        quiet.short('q').overrides_with("progress"),
    ]
}

/// Environment variable with the default of `--progress`, for scripts and containers.
const VARIABLE: &str = "GRAPHMILL_PROGRESS";

/// The form that the arguments of the command choose, else the environment. An empty variable is as
/// none.
///
/// # Errors
/// The environment names an unknown form.
pub(crate) fn form(matches: &ArgMatches) -> Result<Form, Error> {
    if matches.get_flag("quiet") {
        return Ok(Form::None);
    }
    let given = matches.value_source("progress") == Some(ValueSource::CommandLine);
    let of_environment = if given { None } else { of_environment()? };
    Ok(of_environment.or_else(|| matches.get_one::<Form>("progress").copied()).unwrap_or(Form::Auto))
}

/// The form that the environment chooses, if it does.
///
/// # Errors
/// It names an unknown form.
pub(crate) fn of_environment() -> Result<Option<Form>, Error> {
    let name = std::env::var(VARIABLE).unwrap_or_default();
    let form = (!name.is_empty()).then(|| Form::from_str(&name, false)).transpose();
    form.map_err(|_| {
        Error::usage(format!("{VARIABLE}={name}: no such form; set it to auto, bar, plain, json or none"))
    })
}

/// Prints a line about the work of a command: an object with `--progress json`, else the line.
pub(crate) fn note(form: Form, line: &str) {
    match form {
        Form::Json => json::note(line),
        Form::None => {}
        Form::Auto | Form::Bar | Form::Plain => output::note(line),
    }
}

/// Progress of the work of a command as JSON lines on standard error.
pub(crate) fn json_work() -> Box<dyn Work> {
    Box::new(json::Preparing)
}

/// Observer that prints on standard error in the given form.
pub(crate) fn on_stderr(form: Form) -> Box<dyn Observer> {
    let shown: Box<dyn Observer> = match form {
        Form::Auto if std::io::stderr().is_terminal() => Box::new(bar::Bar::new()),
        Form::Bar => Box::new(bar::Bar::new()),
        Form::Auto | Form::Plain => Box::new(plain::Plain::new(std::io::stderr())),
        Form::Json => Box::new(json::Json::new(std::io::stderr())),
        Form::None => Box::new(Quiet),
    };
    // a bar without a terminal prints nothing
    let prints_notes = match form {
        Form::None => false,
        Form::Bar => std::io::stderr().is_terminal(),
        Form::Auto | Form::Plain | Form::Json => true,
    };
    Box::new(alarm::Alarm::new(shown, prints_notes))
}

/// Observer that shows nothing; signals stop the work before the first epoch.
pub(crate) fn silent() -> Box<dyn Observer> {
    Box::new(alarm::Silent)
}

/// Seconds as `m:ss` or `h:mm:ss`.
pub(crate) fn clock(seconds: f64) -> String {
    let s = seconds.max(0.0) as u64;
    if s >= 3600 {
        format!("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
    } else {
        format!("{}:{:02}", s / 60, s % 60)
    }
}

/// Seconds since 1970 as `yyyymmdd-hhmmss` in UTC.
pub(crate) fn utc(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    time.unwrap_or(DateTime::UNIX_EPOCH).format("%Y%m%d-%H%M%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_clock_and_calendar_times() {
        assert_eq!(clock(3725.0), "1:02:05");
        assert_eq!(utc(0), "19700101-000000");
        assert_eq!(utc(1_582_979_696), "20200229-123456");
        assert_eq!(utc(951_825_600), "20000229-120000");
    }
}
