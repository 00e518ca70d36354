//! `graphmill`: glue between the command line and the library. One file per command.

mod args;
mod commands;
mod output;
mod progress;
mod ranks;
mod work;

use std::process::ExitCode;

fn main() -> ExitCode {
    // A reader that goes away (`graphmill info X | head`) ends us quietly, as it ends other tools.
    #[cfg(unix)]
    output::end_on_closed_pipe();
    let command = commands::cli();
    let json = std::env::args_os().skip(1).any(|word| word == "--json");
    let matches = match command.try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return output::usage(&error, json),
    };
    match commands::run(&matches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = output::failure(&error, json && ranks::is_first());
            // what is wrong has been told: now the others need not wait
            ranks::abort(&error.to_string());
            code
        }
    }
}
