//! `graphmill eval RUN`: scores a run's best model on each part of the split, by every metric.

mod classes;
mod diagnostics;

use clap::{ArgMatches, Command};
use graphmill_core::progress::Quiet;
use graphmill_engine::{record::ScoredRows, saved::SavedRun};

use super::propagate;
use crate::{args, output};

/// The subcommand with its arguments.
pub(crate) fn command() -> Command {
    let command = Command::new("eval")
        .about("Score a run's best model on the train, valid and test nodes")
        .long_about(
            "Score a run's best model on the train, valid and test nodes.\n\n\
             Prints every metric for each part of the split, of a run that learned links those of rankings \
             of its edges. Then precision, recall and F1 of each class on the test nodes, and the confusion \
             matrix (of many classes the lowest scores and the most frequent confusions); --json has them \
             for every part. Then the calibration of the probabilities, the best threshold of two classes or \
             several labels, or the residuals of values. Inference takes all neighbours of each node, so \
             scores do not depend on sampling.",
        )
        .after_long_help(
            "Examples:\n  \
             graphmill eval runs/cora                    scores of the best epoch\n  \
             graphmill eval runs/cora --last             scores of the last checkpoint\n  \
             graphmill eval runs/cora --propagate correct-and-smooth\n  \
             graphmill eval runs/cora --dataset newer    scores on other data of the same widths",
        )
        .arg(args::run_dir())
        .arg(args::path_option(
            "dataset",
            "DATASET",
            "Score on another dataset [default: the run's]",
            "Use it if the run's dataset has moved, or to test the model on newer data. Its features must \
             have the width that the model reads; stored normalization statistics are applied",
        ))
        .arg(args::flag(
            "last",
            "Score the last checkpoint instead of the best model",
            "The best model is that of the epoch with the best validation score",
        ))
        .arg(args::threads())
        .arg(args::json());
    propagate::with_options(command)
}

/// Scores the model and prints the table.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    args::use_thread_option(matches)?;
    let run = SavedRun::open(args::required_path(matches, "run"), matches.get_flag("last"))?;
    let run = propagate::apply(matches, run)?;
    let scores = run.scores_on(args::get_path(matches, "dataset"), &Quiet)?;
    if matches.get_flag("json") {
        return output::json(&scores);
    }
    output::note_dataset(&scores.dataset, scores.same_dataset, scores.rescaled.as_deref());
    if let Some(propagation) = &scores.propagation {
        output::note(&format!("scores after --propagate {}", propagation.method));
    }
    let what = match ScoredRows::of(run.config()) {
        // the tasks of a dataset that has moved are unknown
        ScoredRows::Nodes if run.ranks_links() => ScoredRows::Edges,
        what => what,
    };
    let mut text = format!("{:<8}{:>10}", "part", what);
    let names: Vec<&str> =
        scores.parts.first().map_or(vec![], |part| part.scores.keys().map(String::as_str).collect());
    let width = |name: &str| 20.max(name.len() + 2);
    names.iter().for_each(|name| text += &format!("{name:>width$}", width = width(name)));
    text += "\n";
    for part in &scores.parts {
        text += &format!("{:<8}{:>10}", part.part, part.nodes);
        for name in &names {
            let score = part.scores.get(*name).copied().flatten();
            let score = score.map_or("-".to_string(), |score| format!("{score:.4}"));
            text += &format!("{score:>width$}", width = width(name));
        }
        text += "\n";
    }
    // the part that nothing was fitted to, if it has nodes
    let last = scores.parts.iter().rev().find_map(|part| Some((part.part, part.by_class.as_ref()?)));
    if let Some((part, report)) = last {
        text += &classes::text(part, report, what);
    }
    text += &diagnostics::text(&scores.parts, what);
    output::text(&text)
}
