//! `graphmill train`: trains, evaluates and saves a model.

pub(super) mod repeat;

use std::{
    fs,
    path::{self, Path},
    time::{SystemTime, UNIX_EPOCH},
};

use clap::{ArgMatches, Command};
use graphmill_core::units::counted;
use graphmill_engine::{
    AnyDataset, Error, RunContext, RunDir, TrainConfig,
    observer::Observer,
    options,
    record::{Origin, Source, Summary},
    trainer::over_ranks,
    typed,
};
use graphmill_report::Recorder;

use crate::{
    args, output, progress,
    ranks::{self, Partition},
    signals,
};

/// The subcommand with its arguments.
pub(crate) fn command() -> Command {
    let command = Command::new("train")
        .about("Train and evaluate a model; without DATASET, on a demo graph")
        .long_about(
            "Train and evaluate a model; without DATASET, on a built-in demo graph.\n\n\
             Writes a run directory with the options, the metrics of each epoch, checkpoints, the best model \
             and report.html. An interrupted run resumes to the same bits.",
        )
        .after_long_help(
            "Examples:\n  \
             graphmill train                                        the demo, in seconds\n  \
             graphmill train data --model gat --fanout 10,5 --epochs 20\n  \
             graphmill train data --host-budget 8G                  features beyond memory stay on disk\n  \
             graphmill train shop --model rgat --fanout 10,5        several node and edge types\n  \
             graphmill train friends --task link --decoder dot      edges instead of labels\n  \
             graphmill train wiki --model embedding --decoder complex   a knowledge graph\n  \
             graphmill train messages --model tgn               a stream of events\n  \
             graphmill train --resume --out runs/cora --epochs 40   resume, and train longer\n  \
             graphmill train data --repeat 5 --out runs/five        five seeds, mean and deviation\n  \
             mpirun -n 4 graphmill train parts                      on several machines",
        )
        .arg(args::explain(
            args::path("dataset", "DATASET", ""),
            "Dataset directory [default: a built-in demo graph]",
            "`graphmill import`, `generate`, `reorder` and `partition` write such directories",
        ))
        .arg(args::path_option(
            "config",
            "FILE",
            "Read options from a TOML file; flags override it",
            "Each run directory has one, config.toml, so that --config runs/cora/config.toml repeats a run",
        ))
        .arg(args::path_option(
            "out",
            "DIR",
            "Run directory to write [default: runs/NAME-TIME]",
            "Name it to find the run again, such as --out runs/cora. An existing run is only continued with \
             --resume, never replaced",
        ))
        .arg(args::flag(
            "resume",
            "Resume the run in --out from its last checkpoint",
            "The results are those of a run that was never interrupted. More --epochs continue a finished \
             run; options that would change the results are refused",
        ))
        .arg(
            args::option(
                "repeat",
                "N",
                "Train N times with the seeds from --seed on",
                "Writes --out/seed-S for each seed S, and --out/repeat.json with the mean and the standard \
                 deviation of the scores. Example: --repeat 5",
            )
            .hide_short_help(true),
        )
        .args(progress::arguments())
        .arg(args::json());
    args::when_used(command, |command| args::with_training_options(command, &options::names()))
}

/// Trains on one process, or hands over to the ranks of a partitioned dataset.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let (out, resume) = (args::get_path(matches, "out"), matches.get_flag("resume"));
    let first = repeat::first(matches, out)?;
    let config = configure(matches, first.as_deref().or(out), resume)?;
    args::use_threads(ranks::threads(&config))?;
    signals::catch(|| output::note("stopping after this batch; repeat to stop at once"))?;
    if let Some(seeds) = repeat::seeds(matches, &config)? {
        return repeat::run(matches, &config, seeds);
    }
    if let Some(dir) = ranks::partition(&config)? {
        return over_ranks(matches, &config, &dir);
    }
    let (outcome, run) = train_once(matches, &config, out, resume)?;
    print_outcome(matches, outcome, &run)
}

/// Outcome of a run, and its directory.
type Trained = (Result<Summary, Error>, RunDir);

/// Trains in one process in the run directory `out`, or a new one.
fn train_once(
    matches: &ArgMatches,
    config: &TrainConfig,
    out: Option<&Path>,
    resume: bool,
) -> anyhow::Result<Trained> {
    let dataset = AnyDataset::open(config)?;
    let train = |context: RunContext| dataset.train(config, context);
    record(matches, config, (out, resume), dataset.name(), &[dataset.describe()], train)
}

/// Trains on the dataset `name` in a run directory, after `notes` for the user.
fn record(
    matches: &ArgMatches,
    config: &TrainConfig,
    (out, resume): (Option<&Path>, bool),
    name: &str,
    notes: &[String],
    train: impl FnOnce(RunContext) -> Result<Summary, Error>,
) -> anyhow::Result<Trained> {
    let run = directory(out, resume, name)?;
    let progress = progress::on_stderr(progress::form(matches)?);
    let mut observer = Recorder::new(config, Some(&run), progress);
    notes.iter().for_each(|note| observer.note(note));
    let outcome =
        train(RunContext { run: Some(&run), resume, observer: &mut observer, stop: &signals::is_stopped });
    drop(observer);
    Ok((outcome, run))
}

/// Trains on a partitioned dataset, as one of several processes or as the only one.
fn over_ranks(matches: &ArgMatches, config: &TrainConfig, dir: &Partition) -> anyhow::Result<()> {
    let (out, resume) = (args::get_path(matches, "out"), matches.get_flag("resume"));
    let messenger = ranks::join(config)?;
    let run = (messenger.rank() == 0).then(|| directory(out, resume, dir.source())).transpose()?;
    let form = if run.is_some() { progress::form(matches)? } else { progress::Form::None };
    let progress = progress::on_stderr(form);
    let mut observer = Recorder::new(config, run.as_ref(), progress);
    observer.note(&format!("{}, {} ranks", dir.describe(), messenger.size()));
    let context =
        RunContext { run: run.as_ref(), resume, observer: &mut observer, stop: &signals::is_stopped };
    let outcome = match dir {
        Partition::OneType(dir) => over_ranks::train(config, dir, messenger, context),
        Partition::Typed(dir) => typed::train_over_ranks(config, dir, messenger, context),
    };
    drop(observer);
    match run {
        Some(run) => print_outcome(matches, outcome, &run),
        None => Ok(outcome.map(drop)?),
    }
}

/// Creates or reopens the run directory.
fn directory(out: Option<&Path>, resume: bool, name: &str) -> Result<RunDir, Error> {
    match out {
        Some(dir) if resume => RunDir::reopen(dir),
        Some(dir) => RunDir::create(dir),
        None => default_dir(name),
    }
}

/// Error of a run; an interruption says how to resume.
fn with_remedy(error: Error, run: &RunDir) -> anyhow::Error {
    match &error {
        Error::Interrupted { saved: false, .. } if !run.checkpoint().exists() => {
            let how = format!(
                "{error}: stopped before the first epoch, so no checkpoint is written; run the command again"
            );
            anyhow::Error::from(error).context(how)
        }
        Error::Interrupted { .. } => {
            let how =
                format!("{error}; resume with: graphmill train --resume --out {}", run.path().display());
            anyhow::Error::from(error).context(how)
        }
        _ => error.into(),
    }
}

/// Prints the summary of a run; an interruption becomes an error that says how to resume.
fn print_outcome(matches: &ArgMatches, outcome: Result<Summary, Error>, run: &RunDir) -> anyhow::Result<()> {
    let summary = outcome.map_err(|error| with_remedy(error, run))?;
    if matches.get_flag("json") {
        output::json(&summary)
    } else {
        output::text(&describe(&summary, run.path()))
    }
}

/// The options of the run: defaults, overridden by the file, overridden by the command line. A
/// resumed run starts from the file in its run directory.
fn configure(matches: &ArgMatches, out: Option<&Path>, resume: bool) -> anyhow::Result<TrainConfig> {
    let Configured { config, of_file, of_command_line, of_run } = read(matches, out, resume)?;
    config.check()?;
    config.refuse_unused(&[config.beyond_defaults(&of_file), of_command_line].concat())?;
    if let Some(before) = of_run {
        config.check_resumed(&before)?;
        if let (true, Some(out)) = (config.dataset == before.dataset, out) {
            Origin::locate_of(Origin::of_run(out, &before)?.as_ref(), out, &before)?;
        }
    }
    Ok(config)
}

/// Options of a command line.
pub(super) struct Configured {
    /// All options, with derived values, not checked yet.
    pub(super) config: TrainConfig,
    /// Names of the options that `--config` sets.
    pub(super) of_file: Vec<&'static str>,
    /// Names of the options that the command line sets.
    pub(super) of_command_line: Vec<&'static str>,
    /// Options of the run to resume.
    of_run: Option<TrainConfig>,
}

/// Reads the options of the run to resume, of the file, and of the command line.
pub(super) fn read(matches: &ArgMatches, out: Option<&Path>, resume: bool) -> anyhow::Result<Configured> {
    let mut config = TrainConfig::default();
    let mut given = Vec::new();
    let mut of_run = None;
    let mut of_file = Vec::new();
    if resume {
        let Some(out) = out else {
            return Err(Error::usage("--resume needs the run directory; pass it as --out DIR").into());
        };
        let file = RunDir::config_path(out);
        if file.exists() {
            given = config.read_file(&file)?;
            locate(&mut config);
            of_run = Some(config.clone());
        }
    }
    if let Some(file) = args::get_path(matches, "config") {
        of_file = config.read_file(file)?;
        given.extend(&of_file);
        if of_file.contains(&"dataset") && args::get_path(matches, "dataset").is_none() {
            refuse_in_memory(file, &config)?;
        }
    }
    let of_command_line = args::apply_training_options(matches, &mut config, &options::names())?;
    given.extend(&of_command_line);
    if let Some(path) = args::get_path(matches, "dataset") {
        let text = path.to_str().map(str::to_string);
        config.dataset = text.ok_or_else(|| {
            Error::usage(format!("{path:?}: a dataset's path must be valid UTF-8; rename it"))
        })?;
    }
    locate(&mut config);
    config.derive_options(&given)?;
    Ok(Configured { config, of_file, of_command_line, of_run })
}

/// Refuses the options in `file` if their run trained on a dataset in memory. Files of older
/// versions do not record that, so the records beside the file are read.
fn refuse_in_memory(file: &Path, config: &TrainConfig) -> anyhow::Result<()> {
    let run = file.parent().unwrap_or(Path::new(""));
    let is_of_run = config.dataset.is_empty() && file.file_name() == RunDir::config_path(run).file_name();
    let origin = if is_of_run { Origin::of_run(run, config)? } else { None };
    let was = match origin {
        Some(origin) if origin.source == Source::Memory => format!(", {}", origin.dataset),
        _ if config.is_in_memory() => String::new(),
        _ => return Ok(()),
    };
    Err(Error::usage(format!(
        "--config {}: its run trained on a dataset in memory{was}, which was not stored; name the dataset: \
         graphmill train DATASET --config {}",
        file.display(),
        file.display()
    ))
    .into())
}

/// Makes the paths of the dataset and of the run to start from absolute, so that the run finds them
/// from any working directory.
fn locate(config: &mut TrainConfig) {
    let is_in_memory = config.is_in_memory();
    for (name, is_path) in [(&mut config.dataset, !is_in_memory), (&mut config.start_from, true)] {
        let absolute = fs::canonicalize(&name).or_else(|_| path::absolute(&name));
        if let (false, true, Some(text)) =
            (name.is_empty(), is_path, absolute.ok().as_deref().and_then(Path::to_str))
        {
            *name = text.to_string();
        }
    }
}

/// Creates `runs/NAME-TIME`, the time in UTC; if it exists, with a number appended.
fn default_dir(name: &str) -> Result<RunDir, Error> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let name: String = name.chars().map(|c| if c.is_alphanumeric() || c == '-' { c } else { '_' }).collect();
    let base = Path::new("runs").join(format!("{name}-{}", progress::utc(seconds)));
    let mut tried = RunDir::create(&base);
    for number in 2..100 {
        match tried {
            Err(Error::Run { .. }) => {
                tried = RunDir::create(Path::new(&format!("{}-{number}", base.display())))
            }
            _ => break,
        }
    }
    tried
}

/// Line about predictions that are all of one class, although the test rows are of several.
fn of_one_class(summary: &Summary) -> Option<String> {
    let report = summary.by_class.as_ref().filter(|report| report.confusion_matrix.is_some())?;
    let rows: u64 = report.classes.iter().map(|class| class.support).sum();
    let only = report.classes.iter().find(|class| class.predicted == rows && class.support < rows)?;
    Some(format!(
        "all {rows} test {} are predicted as '{}', the class of {:.1} % of them; for rare classes try \
         --class-weights balanced and --metric f1-macro\n",
        summary.scored_rows,
        only.class,
        100.0 * only.support as f64 / rows as f64,
    ))
}

/// Summary of a finished run as text.
fn describe(summary: &Summary, dir: &Path) -> String {
    let mut text = String::new();
    let score = |x: Option<f64>| x.map_or("-".to_string(), |x| format!("{x:.4}"));
    text += &format!(
        "{} {}: test {} (best epoch {}, valid {})\n",
        summary.dataset.name,
        summary.test.metric,
        score(summary.test.score),
        summary.best.epoch,
        score(summary.best.valid_score),
    );
    text.extend(of_one_class(summary));
    let scored = summary.config["eval_nodes"].as_u64().unwrap_or(0) as usize;
    let (valid, test) = (summary.dataset.valid, summary.dataset.test);
    if scored > 0 && scored < valid.max(test) {
        let what = summary.scored_rows;
        text += &format!(
            "scored {} of {valid} validation {what} and {} of {test} test {what} (--eval-nodes)\n",
            scored.min(valid),
            scored.min(test)
        );
    }
    let seconds: f64 = summary.epochs.iter().map(|epoch| epoch.seconds).sum();
    text += &format!(
        "{} in {seconds:.1} s of training, {:.1} s in total, {:.2} GiB peak memory\n",
        counted(summary.epochs.len() as u64, "epoch", "epochs"),
        summary.seconds,
        summary.peak_rss_bytes as f64 / f64::from(1 << 30),
    );
    for nvidia in &summary.nvidia {
        text += &format!(
            "{} ({}): {:.2} GiB peak memory\n",
            nvidia.device,
            nvidia.name,
            nvidia.peak_bytes as f64 / f64::from(1 << 30)
        );
    }
    text += &format!("run: {}\n", dir.display());
    text
}
