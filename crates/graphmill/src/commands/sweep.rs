//! `graphmill sweep`: tries values of options, and trains the better ones longer.

use std::path::Path;

use clap::{Arg, ArgAction, ArgMatches, Command};
use graphmill_core::units::counted;
use graphmill_engine::{
    Error, RunDir, TrainConfig,
    observer::Observer,
    options,
    sweep::{Axis, Plan, Step, SweepOptions, SweepRecord, TrialRecord, sweep},
};
use graphmill_report::{Recorder, write_sweep_report};

use super::train::{self, repeat};
use crate::{args, output, progress, ranks, signals};

/// The subcommand with its arguments.
// long: a list of arguments, each with its help
pub(crate) fn command() -> Command {
    let command = Command::new("sweep")
        .about("Try values of options, and train the better ones longer")
        .long_about(
            "Try values of options, and train the better ones longer (successive halving).\n\n\
             Every combination of values is a trial. All trials are trained for a few epochs; the best third \
             by validation score goes on for three times the epochs, and so on up to --epochs. Each trial is \
             a run directory below --out, which is stopped and resumed without a change to its results. The \
             best one is printed with its command line. A sweep that is killed goes on with --resume.",
        )
        .after_long_help(
            "Examples:\n  \
             graphmill sweep data --try lr=0.001,0.01 --try hidden=64,256 --epochs 30 --out s\n  \
             graphmill sweep data --try lr=log:1e-4..1e-1 --trials 27 --epochs 81 --out s\n  \
             graphmill sweep data --try 'fanout=10,5|15,10' --try model=sage,gat --out s --repeat 5\n  \
             graphmill sweep --resume --out s                  go on after a kill\n  \
             graphmill runs s                                  all trials in a table",
        )
        .arg(args::explain(
            args::path("dataset", "DATASET", ""),
            "Dataset directory [default: a built-in demo graph]",
            "`graphmill import`, `generate` and `reorder` write such directories",
        ))
        .arg(args::explain(
            Arg::new("try").long("try").value_name("NAME=VALUES").action(ArgAction::Append),
            "Option and the values to try; repeat it for more options",
            "A list, lr=0.001,0.01, whose values are separated by | if they contain commas, \
             'fanout=10,5|15,10'; a range, dropout=0..0.6; or a range by the logarithm, lr=log:1e-4..1e-1. \
             Ranges need --trials",
        ))
        .arg(args::path_option(
            "out",
            "DIR",
            "Directory of the sweep to write",
            "Holds sweep.json, report.html, and a run directory for each trial",
        ))
        .arg(args::option(
            "trials",
            "N",
            "Number of trials [default: all combinations]",
            "Draws values of ranges, and of lists some of the combinations. Example: --trials 27",
        ))
        .arg(args::option(
            "sweep-eta",
            "N",
            "One in N trials goes on after each rung [default: 3]",
            "Lower it if early scores say little about later ones. From 2. Example: --sweep-eta 2",
        ))
        .arg(args::option(
            "min-epochs",
            "N",
            "Epochs before the first comparison [default: by the trials]",
            "Raise it if scores of few epochs are noise; the value of --epochs trains every trial to the \
             end. Example: --min-epochs 10",
        ))
        .arg(args::option(
            "sweep-seed",
            "N",
            "Seed of the values that are drawn [default: 0]",
            "--seed is the seed of every trial. Example: --sweep-seed 1",
        ))
        .arg(args::option(
            "repeat",
            "N",
            "Train the best trial with N seeds in the end",
            "The first is the trial itself. Prints the mean and the standard deviation of the scores, which \
             say more than the score of the one seed that was chosen. Example: --repeat 5",
        ))
        .arg(args::flag(
            "resume",
            "Continue the sweep in --out",
            "The plan is read from sweep.json; the result is that of a sweep that was never interrupted",
        ))
        .arg(args::path_option(
            "config",
            "FILE",
            "Read options from a TOML file; flags override it",
            "Each run directory has one, config.toml",
        ))
        .args(progress::arguments())
        .arg(args::json());
    args::when_used(command, |command| {
        let command = args::with_training_options(command, &options::names());
        UNCOMMON.iter().fold(command, |command, id| command.mut_arg(id, |arg| arg.hide_short_help(true)))
    })
}

/// Training options that the short help leaves to that of `train`.
const UNCOMMON: &[&str] = &[
    "order",
    "schedule",
    "host_budget",
    "device_budget",
    "cache_ratio",
    "cache",
    "strategy",
    "reuse",
    "precision",
];

/// Runs the sweep and prints its table.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let Some(out) = args::get_path(matches, "out") else {
        return Err(Error::usage("name the directory of the sweep with --out DIR").into());
    };
    let (plan, threads) = if matches.get_flag("resume") { resumed(matches, out)? } else { planned(matches)? };
    args::use_threads(threads)?;
    signals::catch(|| output::note("stopping after this batch; repeat to stop at once"))?;
    let form = progress::form(matches)?;
    let rungs: Vec<String> = plan.rungs().iter().map(ToString::to_string).collect();
    let trials = counted(plan.num_trials() as u64, "trial", "trials");
    progress::note(form, &format!("{trials}, compared after epochs {}", rungs.join(", ")));
    if tries_seeds(matches) {
        progress::note(form, SEEDS);
    }
    let mut observe = |config: &TrainConfig, run: &RunDir| -> Box<dyn Observer> {
        Box::new(Recorder::new(config, Some(run), progress::silent()))
    };
    let mut report = |step: Step| progress::note(form, &line(&step));
    let record = sweep(&plan, out, &mut observe, &mut report, &signals::is_stopped).map_err(|error| {
        let is_stopped = matches!(error, Error::Interrupted { .. });
        match is_stopped {
            true => {
                anyhow::anyhow!("interrupted; resume with: graphmill sweep --resume --out {}", out.display())
            }
            false => error.into(),
        }
    })?;
    write_sweep_report(out)?;
    if matches.get_flag("json") {
        return output::json(&record);
    }
    output::text(&text(&record, out))
}

/// Note about seeds as values to try.
const SEEDS: &str = "--try seed: the sweep chooses the seed with the best score, which says nothing about \
                     other seeds; --repeat N trains the best options with N seeds and prints mean and \
                     deviation";

/// Returns true if seeds are among the values to try.
fn tries_seeds(matches: &ArgMatches) -> bool {
    let mut axes = matches.get_many::<String>("try").into_iter().flatten();
    axes.any(|axis| axis.split('=').next().is_some_and(|name| name.trim() == "seed"))
}

/// Plan of a new sweep, and its number of threads.
fn planned(matches: &ArgMatches) -> anyhow::Result<(Plan, usize)> {
    let axes = matches.get_many::<String>("try").into_iter().flatten();
    let axes: Vec<Axis> = axes.map(|word| Axis::parse(word)).collect::<Result<_, _>>()?;
    let train::Configured { config, of_file, of_command_line, .. } = train::read(matches, None, false)?;
    if ranks::partition(&config)?.is_some() {
        let message =
            "a partitioned dataset trains one run at a time; sweep on the dataset that was partitioned";
        return Err(Error::usage(message).into());
    }
    let of_file = config.beyond_defaults(&of_file);
    let is_tried = |name: &&str| axes.iter().any(|axis| axis.name == *name);
    let given: Vec<&str> =
        of_file.into_iter().filter(|name| !is_tried(name)).chain(of_command_line).collect();
    let number = |name: &str, default: u64| match matches.get_one::<String>(name) {
        None => Ok(default),
        Some(word) => {
            word.parse::<u64>().map_err(|_| Error::usage(format!("--{name} {word}: pass an integer")))
        }
    };
    let default = SweepOptions::default();
    let options = SweepOptions {
        trials: number("trials", 0)? as usize,
        eta: number("sweep-eta", default.eta as u64)? as usize,
        min_epochs: number("min-epochs", 0)? as usize,
        seed: number("sweep-seed", 0)?,
        repeat: number("repeat", 1)? as usize,
    };
    let threads = config.threads;
    Ok((Plan::new(&config, &given, axes, options)?, threads))
}

/// Plan of the sweep in `out`, and its number of threads.
fn resumed(matches: &ArgMatches, out: &Path) -> anyhow::Result<(Plan, usize)> {
    let own = ["try", "trials", "sweep-eta", "min-epochs", "sweep-seed", "repeat", "config"];
    let given = options::names()
        .into_iter()
        .chain(own)
        .find(|name| matches.try_contains_id(name).is_ok_and(|is_there| is_there) && *name != "threads");
    if let Some(name) = given.or_else(|| args::get_path(matches, "dataset").map(|_| "dataset")) {
        let name = name.replace('_', "-");
        let message =
            format!("--resume takes its options from sweep.json; leave out --{name}, or start another sweep");
        return Err(Error::usage(message).into());
    }
    let threads = matches.get_one::<String>("threads").map_or(Ok(0), |word| {
        word.parse().map_err(|_| Error::usage(format!("--threads {word}: pass an integer")))
    })?;
    Ok((Plan::resume(out)?, threads))
}

/// Line about a finished step.
fn line(step: &Step) -> String {
    match step {
        Step::Trial { record, trial, rung } => {
            let epochs = counted(record.rungs[*rung] as u64, "epoch", "epochs");
            let count = record.trials.len();
            let start = format!("trial {}/{count}, {}:", trial.trial, values(trial));
            match (&trial.failed, trial.last().and_then(|score| score.valid)) {
                (Some(failed), _) => format!("{start} dropped, {failed}"),
                (None, Some(score)) => format!("{start} valid {} {score:.4} in {epochs}", record.metric),
                (None, None) => format!("{start} no validation score in {epochs}"),
            }
        }
        Step::Seed { seed, summary } => {
            let score = summary.test.score.map_or("-".to_string(), |score| format!("{score:.4}"));
            format!("best trial with seed {seed}: test {} {score}", summary.test.metric)
        }
    }
}

/// Values of a trial as the command line spells them.
fn values(trial: &TrialRecord) -> String {
    let values = trial.values.iter();
    let values: Vec<String> =
        values.map(|(name, value)| format!("{} {}", name.replace('_', "-"), options::word(value))).collect();
    values.join(", ")
}

/// Table of the trials, the best first, and the command of the best one.
fn text(record: &SweepRecord, out: &Path) -> String {
    let score = |x: Option<f64>| x.map_or("-".to_string(), |x| format!("{x:.4}"));
    let names = record.names();
    let mut table = vec![vec!["trial".to_string()]];
    table[0].extend(names.iter().map(|name| name.replace('_', "-")));
    table[0].extend(["epochs", "valid", "best epoch", "test"].map(String::from));
    for trial in record.ranked() {
        let mut cells = vec![trial.trial.to_string()];
        cells.extend(names.iter().map(|name| trial.values.get(*name).map_or("-".into(), options::word)));
        let last = trial.last().copied().unwrap_or_default();
        match &trial.failed {
            Some(_) => cells.extend(["dropped", "-", "-", "-"].map(String::from)),
            None => cells.extend([
                last.epochs.to_string(),
                score(last.valid),
                last.best_epoch.to_string(),
                score(trial.test),
            ]),
        }
        table.push(cells);
    }
    let mut text = output::columns(&table);
    if let Some(best) = record.best() {
        let last = best.last().copied().unwrap_or_default();
        text += &format!(
            "\n{} {}: trial {} is the best of {}: valid {}, test {}\nrun: {}\n",
            record.dataset,
            record.metric,
            best.trial,
            record.trials.len(),
            score(last.valid),
            score(best.test),
            out.join(&best.run).display()
        );
    }
    if let Some(repeated) = &record.repeated {
        text += &format!("\n{}", repeat::table(repeated));
    }
    if let Some(command) = &record.command {
        text += &format!("\ncommand of the best:\n  {command}\n");
    }
    text
}
