//! `--propagate`: labels or errors that spread over the graph after a run's model.

use clap::{ArgMatches, Args, Command, FromArgMatches, builder::Resettable};
use graphmill_engine::{
    Error,
    propagation::{PropagationOptions, TABLE},
    saved::{Propagation, SavedRun},
};

use crate::args;

/// Ids of the options that need `--propagate`.
const OWN: [&str; 3] = ["propagation_steps", "propagation_alpha", "correction_alpha"];

/// Adds the options of propagation.
pub(super) fn with_options(command: Command) -> Command {
    let method = args::option(
        "propagate",
        "NAME",
        format!("Spread labels over the graph: {}", TABLE.names()),
        "label-propagation predicts from the labels of the training nodes alone, a baseline without the \
         model. correct-and-smooth corrects the model's predictions by its errors on the training nodes, \
         which helps most if neighbours have similar labels. On several types labels spread over the \
         relations from the task's type to itself, or without any through one other type. For runs on \
         classes or values of nodes",
    );
    let command = command.next_help_heading("Propagation, after the model").arg(method);
    // the derived options would describe the command as they describe themselves
    let texts = [command.get_about().cloned(), command.get_long_about().cloned()];
    let [about, long] = texts.map(Resettable::from);
    let command = PropagationOptions::augment_args(command).about(about).long_about(long);
    let command =
        OWN.iter().fold(command, |command, id| command.mut_arg(id, |arg| arg.requires("propagate")));
    command.next_help_heading(None::<&str>)
}

/// The run with the propagation that the options name, if any.
pub(super) fn apply(matches: &ArgMatches, run: SavedRun) -> anyhow::Result<SavedRun> {
    let Some(name) = matches.get_one::<String>("propagate") else { return Ok(run) };
    let options = PropagationOptions::from_arg_matches(matches).map_err(|e| Error::usage(e.to_string()))?;
    Ok(run.with_propagation(Propagation::new(name, options)?)?)
}
