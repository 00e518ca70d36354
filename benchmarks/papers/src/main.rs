//! `graphmill-papers NAME [FILE] [--json]`: one paper's own figures or formula.

#![forbid(unsafe_code)]

use std::{env, error::Error, fmt, fs, process::ExitCode};

use graphmill_papers::{
    bgl_stages::{self, Capacity, Stages},
    bgl_user_item, fgnn,
};
use serde::{Deserialize, Serialize};

/// Forms of the command.
const USAGE: &str = "usage: graphmill-papers fgnn|bgl|bgl-stages FILE [--json]";

/// Input of BGL's allocation: a profile of the eight stages and the resources to divide.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    stages: Stages,
    capacity: Capacity,
}

fn main() -> ExitCode {
    graphmill_core::signals::end_on_closed_pipe();
    match run() {
        Ok(text) => {
            println!("{}", text.trim_end());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the command and returns what it prints.
fn run() -> Result<String, Box<dyn Error>> {
    let mut words: Vec<String> = env::args().skip(1).collect();
    let json = words.iter().position(|word| word == "--json").map(|at| words.remove(at)).is_some();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["fgnn"] => show(&fgnn::fgnn(), json),
        ["bgl"] => show(&bgl_user_item::user_item(), json),
        ["bgl-stages", file] => {
            let text = fs::read_to_string(file).map_err(|error| format!("{file} cannot be read: {error}"))?;
            let Profile { stages, capacity } =
                serde_json::from_str(&text).map_err(|error| format!("{file} is not a profile: {error}"))?;
            show(&StageTable(bgl_stages::allocate(&stages, &capacity)?), json)
        }
        _ => Err(USAGE.into()),
    }
}

/// Formats a result as text or as JSON.
fn show(result: &(impl Serialize + fmt::Display), json: bool) -> Result<String, Box<dyn Error>> {
    Ok(if json { serde_json::to_string_pretty(result)? } else { result.to_string() })
}

/// Allocation of the eight stages as a table.
#[derive(Serialize)]
#[serde(transparent)]
struct StageTable(bgl_stages::Allocation);

impl fmt::Display for StageTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(found) = self;
        let cores = |stage: usize| [Some(0), Some(1), None, Some(2), None, Some(3), None, None][stage];
        writeln!(f, "{:<10} {:>6} {:>12}", "stage", "cores", "ms a batch")?;
        for (stage, (name, seconds)) in bgl_stages::NAMES.iter().zip(found.seconds).enumerate() {
            let cores = cores(stage).map_or(String::new(), |at| found.cores[at].to_string());
            let mark = if stage == found.bottleneck { "  bottleneck" } else { "" };
            writeln!(f, "{name:<10} {cores:>6} {:>12.3}{mark}", 1e3 * seconds)?;
        }
        Ok(())
    }
}
