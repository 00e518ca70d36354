//! `graphmill eval RUN`: every score of a run's best model, on every part of the split.

use clap::{Arg, ArgMatches, Command};
use graphmill_core::progress::Quiet;
use graphmill_engine::saved::SavedRun;

use crate::{args, output};

/// The arguments.
pub(crate) fn command() -> Command {
    Command::new("eval")
        .about("Score a run's best model on the train, valid and test nodes, with full neighbours")
        .arg(args::path("run", "RUN", "Run directory").required(true))
        .arg(
            args::path("dataset", "DATASET", "Another dataset to score on [default: the run's]")
                .long("dataset"),
        )
        .arg(
            Arg::new("last")
                .long("last")
                .action(clap::ArgAction::SetTrue)
                .help("Score the last checkpoint, not the best model"),
        )
        .arg(args::threads())
        .arg(args::json())
}

/// Scores.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    args::use_thread_option(matches)?;
    let run = SavedRun::open(args::required(matches, "run"), matches.get_flag("last"))?;
    let dataset = run.dataset(args::get_path(matches, "dataset"))?;
    let scores = run.scores(&dataset, &Quiet)?;
    if matches.get_flag("json") {
        return output::json(&scores);
    }
    output::note_dataset(&dataset.name, scores.same_dataset, scores.rescaled.as_deref());
    let mut text = format!("{:<8}{:>10}", "part", "nodes");
    let names: Vec<&str> =
        scores.parts.first().map_or(vec![], |part| part.scores.keys().map(String::as_str).collect());
    names.iter().for_each(|name| text += &format!("{name:>20}"));
    text += "\n";
    for part in &scores.parts {
        text += &format!("{:<8}{:>10}", part.part, part.nodes);
        for name in &names {
            text += &part.scores[*name].map_or(format!("{:>20}", "-"), |score| format!("{score:>20.4}"));
        }
        text += "\n";
    }
    output::text(&text)
}
