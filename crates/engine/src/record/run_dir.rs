//! Run directories.
//!
//! ```text
//! RUN/config.toml        all options, reusable with --config
//! RUN/dataset.json       an Origin: location and checksum of the dataset
//! RUN/metrics.jsonl      an EpochRecord per line, appended after each epoch
//! RUN/checkpoint/        see crate::checkpoint
//! RUN/checkpoint.old/    the checkpoint before it, until the run ends
//! RUN/best.safetensors   parameters of the best epoch, a copy of those in the checkpoint
//! RUN/summary.json       the Summary, written at the end
//! ```
//!
//! The crate `graphmill-report` adds `report.html`, `trace.json` and `tensorboard/`.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use graphmill_data::atomic::{self, Disk, Real};
use graphmill_nn::metric::values::is_error;

use super::{Best, DatasetRecord, EpochRecord, ScoredRows, Summary, TestScore, validate};
use crate::{Error, Result, TrainConfig, checkpoint};

/// A run directory. Removed on drop if it was created for a run that did not start.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    /// Created directories and files, the deepest last.
    created: Vec<PathBuf>,
    /// Lock of a writing process, which the system releases however the process ends.
    lock: Option<File>,
}

impl RunDir {
    /// Creates the directory of a new run. The directory may exist, but must not hold a run. Unlike
    /// a resumed run, whose checkpoint may be a symbolic link to another disk, a new run refuses
    /// links.
    ///
    /// # Errors
    /// The directory holds a run, a dataset, or a symbolic link at a name that a run writes;
    /// another process writes to it; or it cannot be created.
    pub fn create(path: &Path) -> Result<Self> {
        if path.exists() && !path.is_dir() {
            return Err(Error::run(path, "this is a file; pass a directory with --out"));
        }
        if path.join("graphmill.json").exists() {
            return Err(Error::run(path, "there is a dataset here; pass another --out for the run"));
        }
        let lock = path.join(".lock");
        let parts = path.ancestors().filter(|part| !part.as_os_str().is_empty());
        if let Some(above) = parts.clone().find(|part| part.exists()).filter(|part| !part.is_dir()) {
            let message = format!("{} above it is a file; pass another --out", above.display());
            return Err(Error::run(path, message));
        }
        let mut created: Vec<_> =
            parts.chain([&*lock]).filter(|p| !p.exists()).map(Path::to_path_buf).collect();
        created.sort();
        atomic::create_dirs(&mut Real, path)?;
        let mut run = Self::lock(path)?;
        run.created = created;
        if let Some(name) = NAMES.iter().find(|name| path.join(name).is_symlink()) {
            let message = format!(
                "{name} is a symbolic link, which a new run does not write through; remove it, or pass \
                 another --out"
            );
            return Err(Error::run(path, message));
        }
        let holds = ["config.toml", METRICS, SUMMARY, "checkpoint", "checkpoint.old"];
        if holds.iter().any(|name| path.join(name).exists()) {
            let message = "there is a run here already; continue it with --resume, or pass another --out";
            return Err(Error::run(path, message));
        }
        Ok(run)
    }

    /// Opens the directory of a run to resume.
    ///
    /// # Errors
    /// The directory holds no run, or another process writes to it.
    pub fn reopen(path: &Path) -> Result<Self> {
        Self::open(path)?;
        let run = Self::lock(path)?;
        checkpoint::tidy(&run.checkpoint())?;
        Ok(run)
    }

    /// Opens the directory of a run for reading.
    ///
    /// # Errors
    /// The directory holds no run.
    pub fn open(path: &Path) -> Result<Self> {
        if !Self::config_path(path).is_file() {
            let message = "there is no run here (no config.toml); pass a directory that train --out wrote";
            return Err(Error::run(path, message));
        }
        Ok(Self { path: path.to_path_buf(), created: Vec::new(), lock: None })
    }

    fn lock(path: &Path) -> Result<Self> {
        let at = path.join(".lock");
        let Some(file) = atomic::lock(&at).map_err(|e| Error::io(&at, "open", e))? else {
            let message = "another process is training here; wait for it to end, or pass another --out";
            return Err(Error::run(path, message));
        };
        Ok(Self { path: path.to_path_buf(), created: Vec::new(), lock: Some(file) })
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if this process holds the lock and may write.
    pub fn is_writer(&self) -> bool {
        self.lock.is_some()
    }

    /// Path of the configuration of the run in `run`.
    pub fn config_path(run: &Path) -> PathBuf {
        run.join("config.toml")
    }

    /// Path of the checkpoint directory.
    pub fn checkpoint(&self) -> PathBuf {
        self.path.join("checkpoint")
    }

    /// Path of the best epoch's parameters.
    pub fn best_model(&self) -> PathBuf {
        Self::best_model_path(&self.path)
    }

    /// Path of the best epoch's parameters of the run in `run`.
    pub fn best_model_path(run: &Path) -> PathBuf {
        run.join("best.safetensors")
    }

    /// Path of the last checkpoint's parameters of the run in `run`.
    ///
    /// # Errors
    /// The run has no checkpoint yet.
    pub fn last_model(run: &Path) -> Result<PathBuf> {
        checkpoint::model_file(&run.join("checkpoint"))?
            .ok_or_else(|| Error::run(run, "there is no checkpoint yet; wait until the run has written one"))
    }

    /// Writes `config.toml`.
    ///
    /// # Errors
    /// The disk is full or not writable.
    pub fn write_config(&self, config: &TrainConfig) -> Result<()> {
        Ok(atomic::replace(&mut Real, &Self::config_path(&self.path), config.to_toml().as_bytes())?)
    }

    /// Appends an epoch to `metrics.jsonl` and syncs the file. Must be called before the checkpoint
    /// that includes the epoch is saved.
    ///
    /// # Errors
    /// The disk is full or not writable.
    pub fn append_epoch(&self, record: &EpochRecord) -> Result<()> {
        self.append_epoch_to(&mut Real, record)
    }

    /// Appends as [`RunDir::append_epoch`] does, through `disk`.
    pub(crate) fn append_epoch_to(&self, disk: &mut impl Disk, record: &EpochRecord) -> Result<()> {
        let path = self.path.join(METRICS);
        let mut line =
            serde_json::to_string(record).map_err(|e| Error::format(&path, "new line", e.to_string()))?;
        line.push('\n');
        if path.is_symlink() && !path.exists() {
            let message =
                "it is a symbolic link to a file that does not exist; restore the file, or remove the link";
            return Err(Error::format(&path, "file", message));
        }
        Ok(atomic::append(disk, &path, line.as_bytes())?)
    }

    /// Truncates `metrics.jsonl` to its first `epochs` lines, those that the checkpoint includes,
    /// and returns them. Removes later lines of a crashed run, also an incomplete one.
    ///
    /// # Errors
    /// The file has fewer lines, one of them is damaged, or the file cannot be written.
    pub fn truncate_epochs(&self, epochs: usize) -> Result<Vec<EpochRecord>> {
        let path = self.path.join(METRICS);
        let text = read_if_there(&path)?;
        let mut records = Vec::with_capacity(epochs.min(text.len()));
        let mut end = 0;
        for line in text.split_inclusive('\n').take(epochs) {
            let place = format!("line {}", records.len() + 1);
            let record =
                serde_json::from_str(line).map_err(|e| Error::format(&path, place, e.to_string()))?;
            records.push(record);
            end += line.len();
        }
        if records.len() < epochs {
            let message = format!(
                "{} epochs, but the checkpoint includes {epochs}; restore the file, or train again",
                records.len()
            );
            return Err(Error::format(&path, "end", message));
        }
        let kept = &text[..end];
        if kept.len() < text.len() || !(kept.is_empty() || kept.ends_with('\n')) {
            let newline = if kept.is_empty() || kept.ends_with('\n') { "" } else { "\n" };
            atomic::replace(&mut Real, &path, format!("{kept}{newline}").as_bytes())?;
        }
        Ok(records)
    }

    /// Writes `summary.json`. A finished run does not keep the checkpoint before its last one.
    ///
    /// # Errors
    /// The disk is full or not writable.
    pub fn write_summary(&self, summary: &Summary) -> Result<()> {
        checkpoint::forget_previous(&self.checkpoint())?;
        let path = self.path.join(SUMMARY);
        let mut text = serde_json::to_string_pretty(summary)
            .map_err(|e| Error::format(&path, "summary", e.to_string()))?;
        text.push('\n');
        Ok(atomic::replace(&mut Real, &path, text.as_bytes())?)
    }

    /// Summary of a finished run. For an unfinished run, derives it from `config.toml` and
    /// `metrics.jsonl`, without a test score and with only the dataset's name.
    ///
    /// # Errors
    /// A file is damaged.
    pub fn summary(&self) -> Result<Summary> {
        let path = self.path.join(SUMMARY);
        let text = read_if_there(&path)?;
        let finished: Option<Summary> =
            match text.is_empty() {
                true => None,
                false => Some(serde_json::from_str(&text).map_err(|e| {
                    Error::format(&path, format!("line {}", e.line()), e.to_string() + REMEDY)
                })?),
            };
        if let Some(summary) = &finished {
            validate::summary(summary, &text)
                .map_err(|(part, message)| Error::format(&path, part, message + REMEDY))?;
        }
        let lines = read_if_there(&self.path.join(METRICS))?;
        // an incomplete last line is an epoch that is being written
        let epochs: Vec<EpochRecord> =
            (1..).zip(lines.lines()).map_while(|(at, line)| validate::epoch(line, at)).collect();
        if let Some(summary) = finished
            && summary.epochs.len() >= epochs.len()
        {
            return Ok(summary);
        }
        let mut config = TrainConfig::default();
        config.read_file(&Self::config_path(&self.path))?;
        let metric = self.metric()?.unwrap_or_else(|| config.metric.clone());
        let is_better = |a: Option<f64>, b: Option<f64>| if is_error(&metric) { a < b } else { a > b };
        let scored = epochs.iter().filter(|e| e.valid_score.is_some());
        let best = scored.fold(None, |best: Option<&EpochRecord>, e| match best {
            Some(best) if !is_better(e.valid_score, best.valid_score) => Some(best),
            _ => Some(e),
        });
        let best = best.map(|e| Best { epoch: e.epoch, valid_score: e.valid_score });
        let name = match Path::new(&config.dataset).file_name() {
            _ if config.is_in_memory() => "in memory".to_string(),
            Some(name) => name.to_string_lossy().into_owned(),
            None => "demo".to_string(),
        };
        Ok(Summary {
            graphmill: env!("CARGO_PKG_VERSION").to_string(),
            dataset: DatasetRecord { name, ..DatasetRecord::default() },
            config: config.to_json(),
            scored_rows: ScoredRows::of(&config),
            best: best.unwrap_or(Best { epoch: epochs.last().map_or(0, |e| e.epoch), valid_score: None }),
            test: TestScore { metric, score: None },
            seconds: epochs.iter().map(|e| e.seconds + e.eval_seconds).sum(),
            epochs,
            ..Summary::default()
        })
    }

    /// Metric of the scores, as `dataset.json` has it; `None` of a run of an older version.
    fn metric(&self) -> Result<Option<String>> {
        #[derive(serde::Deserialize)]
        struct Scored {
            metric: Option<String>,
        }
        let text = read_if_there(&self.path.join("dataset.json"))?;
        // a damaged file is reported by those who need its dataset
        Ok(serde_json::from_str::<Scored>(&text).ok().and_then(|scored| scored.metric))
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if self.created.is_empty() || Self::config_path(&self.path).exists() {
            return;
        }
        // removes the lock and empty directories; others are in use
        for path in self.created.iter().rev() {
            let _ = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
        }
    }
}

/// Remedy for a damaged summary.
const REMEDY: &str = "; train --resume rewrites it";
const METRICS: &str = "metrics.jsonl";
const SUMMARY: &str = "summary.json";
/// Names that a run writes.
const NAMES: [&str; 10] = [
    "config.toml",
    "dataset.json",
    METRICS,
    "checkpoint",
    "checkpoint.old",
    "best.safetensors",
    SUMMARY,
    "report.html",
    "trace.json",
    "tensorboard",
];

/// Reads a file; empty if it does not exist.
fn read_if_there(path: &Path) -> Result<String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(e) => Err(Error::io(path, "read", e)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::epoch;
    use super::*;

    fn run() -> (tempfile::TempDir, RunDir) {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(&dir.path().join("run")).unwrap();
        run.write_config(&TrainConfig::default()).unwrap();
        (dir, run)
    }

    #[test]
    fn resuming_truncates_epochs_to_those_of_the_checkpoint() {
        let (_dir, run) = run();
        assert_eq!(run.truncate_epochs(0).unwrap(), []);
        for i in 1..=3 {
            run.append_epoch(&epoch(i)).unwrap();
        }
        let path = run.path().join(METRICS);
        let whole = fs::read_to_string(&path).unwrap();
        // killed in the middle of the fourth line
        fs::write(&path, format!("{whole}{{\"epoch\":4,\"lo")).unwrap();
        assert_eq!(run.truncate_epochs(3).unwrap(), [epoch(1), epoch(2), epoch(3)]);
        assert_eq!(fs::read_to_string(&path).unwrap(), whole);
        assert_eq!(run.truncate_epochs(2).unwrap(), [epoch(1), epoch(2)]);
        run.append_epoch(&epoch(3)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), whole);

        let message = run.truncate_epochs(5).unwrap_err().to_string();
        assert!(message.contains("metrics.jsonl: end: 3 epochs, but the checkpoint includes 5"), "{message}");
        fs::write(&path, whole.replacen("loss", "lo\u{0}s", 1)).unwrap();
        assert!(run.truncate_epochs(3).unwrap_err().to_string().contains("metrics.jsonl: line 1: "));
        assert_eq!(run.truncate_epochs(0).unwrap(), []);
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
    }

    #[test]
    fn directories_hold_one_run_and_admit_one_writer() {
        let (dir, run) = run();
        let path = run.path().to_path_buf();
        let message = |result: Result<RunDir>| result.unwrap_err().to_string();
        assert!(message(RunDir::reopen(&path)).contains("another process is training here"));
        assert!(RunDir::open(&path).is_ok_and(|run| !run.is_writer()));
        drop(run);
        assert!(message(RunDir::create(&path)).contains("there is a run here already"));
        assert!(RunDir::reopen(&path).is_ok_and(|run| run.is_writer()));
        assert!(message(RunDir::reopen(dir.path())).contains("there is no run here"));
    }

    /// Links at temporary names of a run's files are replaced, and their targets are unchanged.
    #[cfg(unix)]
    #[test]
    fn links_at_temporary_names_are_replaced() {
        use std::os::unix::fs::symlink;

        let (dir, run) = run();
        let victim = dir.path().join("victim");
        fs::write(&victim, "mine").unwrap();
        let files = ["config.toml", METRICS, SUMMARY, "best.safetensors"];
        for name in files {
            symlink(&victim, run.path().join(format!("{name}.tmp"))).unwrap();
        }
        run.write_config(&TrainConfig::default()).unwrap();
        run.append_epoch(&epoch(1)).unwrap();
        run.append_epoch(&epoch(2)).unwrap();
        run.truncate_epochs(1).unwrap();
        run.write_summary(&Summary::default()).unwrap();
        checkpoint::save_params(&run.best_model(), &[]).unwrap();
        for name in files {
            assert!(fs::symlink_metadata(run.path().join(name)).unwrap().is_file(), "{name}");
            assert!(!run.path().join(format!("{name}.tmp")).exists(), "{name}");
        }
        assert_eq!(fs::read(&victim).unwrap(), b"mine");
        let path = run.path().to_path_buf();
        drop(run);
        fs::remove_file(path.join(".lock")).unwrap();
        symlink(&victim, path.join(".lock")).unwrap();
        drop(RunDir::reopen(&path).unwrap());
        assert!(fs::symlink_metadata(path.join(".lock")).unwrap().is_file());
    }

    /// A new run must not write through a link that another user left.
    #[cfg(unix)]
    #[test]
    fn new_runs_do_not_write_through_links() {
        use std::os::unix::fs::symlink;

        let dir = tempfile::tempdir().unwrap();
        let (victim, there) = (dir.path().join("victim"), dir.path().join("there"));
        fs::create_dir(&there).unwrap();
        for name in NAMES {
            for target in [&victim, &there] {
                let path = dir.path().join(format!("run-{name}"));
                fs::create_dir_all(&path).unwrap();
                symlink(target, path.join(name)).unwrap();
                let message = RunDir::create(&path).unwrap_err().to_string();
                assert!(message.contains(&format!("{name} is a symbolic link")), "{message}");
                assert!(path.join(name).is_symlink());
                fs::remove_dir_all(&path).unwrap();
            }
        }
        // a resumed run may append through a link to an existing file, but does not create the
        // target
        let (_dir, run) = run();
        let metrics = run.path().join(METRICS);
        symlink(&victim, &metrics).unwrap();
        let message = run.append_epoch(&epoch(1)).unwrap_err().to_string();
        assert!(message.contains("a symbolic link to a file that does not exist"), "{message}");
        assert!(!victim.exists());
        fs::write(&victim, "").unwrap();
        run.append_epoch(&epoch(1)).unwrap();
        assert_eq!(run.truncate_epochs(1).unwrap(), [epoch(1)]);
        assert_eq!(fs::read_dir(&there).unwrap().count(), 0);
    }

    #[test]
    fn directories_of_runs_that_did_not_start_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        drop(RunDir::create(&path).unwrap());
        assert!(!dir.path().join("a").exists());
        fs::create_dir_all(&path).unwrap();
        drop(RunDir::create(&path).unwrap());
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "an existing directory stays");
        let run = RunDir::create(&path).unwrap();
        run.write_config(&TrainConfig::default()).unwrap();
        drop(run);
        assert!(RunDir::open(&path).is_ok());
    }

    #[test]
    fn last_model_is_that_of_the_checkpoint() {
        let (_dir, run) = run();
        assert!(RunDir::last_model(run.path()).unwrap_err().to_string().contains("no checkpoint yet"));
        checkpoint::save_tensors(&run.checkpoint(), &[], &[], &[], 0, &[], &()).unwrap();
        assert!(RunDir::last_model(run.path()).unwrap().is_file());
    }

    #[test]
    fn unfinished_runs_have_a_summary_without_test_score() {
        let (_dir, run) = run();
        for i in 1..=3 {
            run.append_epoch(&epoch(i)).unwrap();
        }
        let summary = run.summary().unwrap();
        assert_eq!((summary.best.epoch, summary.epochs.len(), summary.test.score), (2, 3, None));
        assert_eq!(summary.config["model"], "sage");
        let finished = Summary { test: TestScore { metric: "accuracy".into(), score: Some(0.9) }, ..summary };
        run.write_summary(&finished).unwrap();
        assert_eq!(run.summary().unwrap(), finished);
    }

    #[test]
    fn epochs_out_of_order_are_rejected() {
        let (_dir, run) = run();
        for i in [1, 2, usize::MAX] {
            run.append_epoch(&epoch(i)).unwrap();
        }
        let mut summary = run.summary().unwrap();
        assert_eq!(summary.epochs.len(), 2, "lines after a damaged one are not read");
        summary.epochs.push(epoch(usize::MAX));
        run.write_summary(&summary).unwrap();
        let error = run.summary().unwrap_err().to_string();
        assert!(error.contains("epoch 3 is recorded as epoch 18446744073709551615"), "{error}");
    }

    #[test]
    fn implausibly_large_counters_are_rejected() {
        let (_dir, run) = run();
        let mut many = epoch(2);
        many.traffic.disk.rows = u64::MAX;
        run.append_epoch(&epoch(1)).unwrap();
        run.append_epoch(&many).unwrap();
        let mut summary = run.summary().unwrap();
        assert_eq!(summary.epochs.len(), 1);
        summary.epochs.push(many);
        fs::write(run.path().join(SUMMARY), serde_json::to_string(&summary).unwrap()).unwrap();
        let error = run.summary().unwrap_err().to_string();
        assert!(error.contains("counter 18446744073709551615 exceeds the maximum"), "{error}");
        summary.epochs.pop();
        summary.config["seed"] = u64::MAX.into();
        run.write_summary(&summary).unwrap();
        assert_eq!(run.summary().unwrap(), summary, "a seed may be any number");
    }
}
