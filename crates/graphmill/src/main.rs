//! The `graphmill` command: a thin layer over the library, with a file per subcommand.

mod args;
mod cancel;
mod commands;
#[cfg(unix)]
mod fatal;
mod output;
mod panics;
mod progress;
mod ranks;
mod signals;
mod work;

use std::process::ExitCode;

use graphmill_core::memory;

#[cfg(unix)]
#[global_allocator]
static ALLOCATOR: fatal::Allocator = fatal::Allocator;

fn main() -> ExitCode {
    graphmill_core::signals::end_on_closed_pipe();
    #[cfg(unix)]
    fatal::install();
    panics::install();
    let command = commands::cli();
    let json = std::env::args_os().skip(1).any(|word| word == "--json");
    let matches = match command.try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return output::usage(error, json),
    };
    // refused memory of an intermediate result unwinds to here, unless it was that of a batch
    let run = || memory::catch(|| commands::run(&matches)).unwrap_or_else(|refused| Err(refused.into()));
    let (error, status) = match panics::caught(run) {
        Ok(Ok(())) => return ExitCode::SUCCESS,
        Ok(Err(error)) => (error, None),
        Err(fault) => (anyhow::anyhow!(fault), Some(panics::STATUS)),
    };
    let code = output::failure(&error, json && ranks::is_first());
    // the error is reported, so the other ranks need not wait
    ranks::abort(&error.to_string());
    status.map_or(code, ExitCode::from)
}
