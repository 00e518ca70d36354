//! What a run records, and the directory it records it in.
//!
//! ```text
//! RUN/config.toml        every option, reusable with --config
//! RUN/metrics.jsonl      an EpochRecord per line, as the epochs end
//! RUN/checkpoint/        see crate::checkpoint
//! RUN/best.safetensors   the parameters of the best epoch
//! RUN/summary.json       the Summary, at the end
//! RUN/report.html        the same for the eye
//! ```

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::Write,
    path::{Path, PathBuf},
};

use graphmill_graph::Dataset;
use graphmill_loader::Traffic;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Result, TrainConfig, checkpoint,
    disk::{self, Real},
    report,
};

/// Seconds per stage, summed over an epoch's batches. Stages that run side by side add up to
/// more than the epoch took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stages {
    /// Choosing the order of the seeds.
    pub order: f64,
    /// Drawing blocks.
    pub sample: f64,
    /// Gathering feature rows.
    pub extract: f64,
    /// Forward, loss, backward, update.
    pub train: f64,
}

impl Stages {
    /// The stages with their names, in their order.
    pub fn parts(&self) -> [(&'static str, f64); 4] {
        [("order", self.order), ("sample", self.sample), ("extract", self.extract), ("train", self.train)]
    }
}

/// Rows and bytes read from one tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierRecord {
    /// Rows.
    pub rows: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Rows and bytes read, by tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficRecord {
    /// Accelerator memory.
    pub device: TierRecord,
    /// Host memory.
    pub host: TierRecord,
    /// Files.
    pub disk: TierRecord,
    /// Other machines.
    pub remote: TierRecord,
}

impl TrafficRecord {
    /// The tiers with their names, from the nearest to the farthest.
    pub fn tiers(&self) -> [(&'static str, TierRecord); 4] {
        [("device", self.device), ("host", self.host), ("disk", self.disk), ("remote", self.remote)]
    }

    /// Rows read from any tier.
    pub fn rows(&self) -> u64 {
        self.tiers().iter().map(|(_, tier)| tier.rows).sum()
    }

    /// Rows served by the nearest tier (`device` where the run has one, else `host`) out of all;
    /// `None` where none was read.
    pub fn hit_rate(&self, has_device: bool) -> Option<f64> {
        let nearest = if has_device { self.device } else { self.host };
        (self.rows() > 0).then(|| nearest.rows as f64 / self.rows() as f64)
    }
}

impl From<[[u64; 2]; 4]> for TrafficRecord {
    /// From rows and bytes of device, host, disk and remote.
    fn from(tiers: [[u64; 2]; 4]) -> Self {
        let [device, host, disk, remote] = tiers.map(|[rows, bytes]| TierRecord { rows, bytes });
        Self { device, host, disk, remote }
    }
}

impl From<Traffic> for TrafficRecord {
    fn from(traffic: Traffic) -> Self {
        let Traffic { device, host, disk, remote } = traffic;
        [device, host, disk, remote].map(|tier| [tier.rows, tier.bytes]).into()
    }
}

/// An epoch: a line of `metrics.jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EpochRecord {
    /// From 1.
    pub epoch: usize,
    /// Mean training loss over the seeds.
    pub loss: f64,
    /// Score on the training nodes, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train_score: Option<f64>,
    /// Score on the validation nodes, where they were scored.
    pub valid_score: Option<f64>,
    /// Learning rate at the end.
    pub lr: f64,
    /// From the order to the last update; evaluation is apart.
    pub seconds: f64,
    /// Evaluation.
    pub eval_seconds: f64,
    /// Seconds by stage.
    pub stages: Stages,
    /// Seeds trained on.
    pub seeds: u64,
    /// Edges in all blocks.
    pub sampled_edges: u64,
    /// Seeds per second of `seconds`.
    pub seeds_per_second: f64,
    /// Feature rows and bytes read.
    pub traffic: TrafficRecord,
    /// Rows served by the nearest tier out of all rows read.
    pub hit_rate: Option<f64>,
    /// Largest norm of the gradient before clipping, where clipping is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grad_norm: Option<f64>,
}

/// The epoch whose parameters are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// From 1; 0 where none was trained.
    pub epoch: usize,
    /// Its score, where there are validation nodes.
    pub valid_score: Option<f64>,
}

/// How good the best model is on the test nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TestScore {
    /// Name of the score.
    pub metric: String,
    /// The score, where there are test nodes.
    pub score: Option<f64>,
}

/// How old reused embeddings were, in updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staleness {
    /// What the strategy promises.
    pub bound: u64,
    /// What was seen.
    pub max: u64,
}

/// What was trained on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DatasetRecord {
    /// Its name.
    pub name: String,
    /// `V`.
    pub nodes: usize,
    /// `E`, as stored.
    pub edges: usize,
    /// `F`.
    pub feature_dim: usize,
    /// `C`.
    pub classes: usize,
    /// Whether a node may have several classes.
    pub multilabel: bool,
    /// Training nodes.
    pub train: usize,
    /// Validation nodes.
    pub valid: usize,
    /// Test nodes.
    pub test: usize,
}

impl From<&Dataset> for DatasetRecord {
    fn from(data: &Dataset) -> Self {
        Self {
            name: data.name.clone(),
            nodes: data.graph.num_nodes(),
            edges: data.graph.num_edges(),
            feature_dim: data.features.dim,
            classes: data.labels.classes(),
            multilabel: data.labels.is_multi(),
            train: data.split.train.len(),
            valid: data.split.valid.len(),
            test: data.split.test.len(),
        }
    }
}

/// A whole run: `summary.json`, and the output of `train --json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// Version of this program.
    pub graphmill: String,
    /// What was trained on.
    pub dataset: DatasetRecord,
    /// Every option.
    pub config: serde_json::Value,
    /// Every epoch.
    pub epochs: Vec<EpochRecord>,
    /// The epoch whose parameters are kept.
    pub best: Best,
    /// Its score.
    pub test: TestScore,
    /// How old reused embeddings were.
    pub staleness: Staleness,
    /// The most memory the process ever held; 0 where the system does not say.
    pub peak_rss_bytes: u64,
    /// From start to end, resumed parts added up.
    pub seconds: f64,
}

impl Summary {
    /// The summary of a run that ends here, in this process, without stale embeddings.
    pub fn new(
        config: &TrainConfig,
        data: &Dataset,
        epochs: Vec<EpochRecord>,
        best: Best,
        test: TestScore,
        seconds: f64,
    ) -> Self {
        Self {
            graphmill: env!("CARGO_PKG_VERSION").to_string(),
            dataset: data.into(),
            config: config.to_json(),
            epochs,
            best,
            test,
            staleness: Staleness::default(),
            peak_rss_bytes: peak_rss_bytes().unwrap_or(0),
            seconds,
        }
    }
}

/// The most memory this process ever held (`VmHWM` of `/proc/self/status`, proc_pid_status(5)), where the system says.
pub fn peak_rss_bytes() -> Option<u64> {
    parse_peak(&fs::read_to_string("/proc/self/status").ok()?)
}

fn parse_peak(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// A run's directory.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    /// Held while a run writes here; the system lets go of it however the process ends.
    lock: Option<File>,
}

impl RunDir {
    /// Makes the directory for a new run. It may exist, but hold no run.
    ///
    /// # Errors
    /// There is a run already, another process writes here, or the directory cannot be made.
    pub fn create(path: &Path) -> Result<Self> {
        fs::create_dir_all(path).map_err(|e| Error::io(path, "create", e))?;
        let run = Self::lock(path)?;
        let holds = ["config.toml", METRICS, "summary.json", "checkpoint"];
        if holds.iter().any(|name| path.join(name).exists()) {
            let message = "there is a run here already: go on with it by --resume, or name another --out";
            return Err(Error::run(path, message));
        }
        Ok(run)
    }

    /// Opens the directory of a run to go on with.
    ///
    /// # Errors
    /// There is none, or another process writes here.
    pub fn reopen(path: &Path) -> Result<Self> {
        Self::open(path)?;
        Self::lock(path)
    }

    /// Opens the directory of a run to read.
    ///
    /// # Errors
    /// There is none.
    pub fn open(path: &Path) -> Result<Self> {
        if !Self::config_path(path).is_file() {
            let message = "there is no run here (no config.toml): name the directory that train --out wrote";
            return Err(Error::run(path, message));
        }
        Ok(Self { path: path.to_path_buf(), lock: None })
    }

    fn lock(path: &Path) -> Result<Self> {
        let at = path.join(".lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&at)
            .map_err(|e| Error::io(&at, "open", e))?;
        match file.try_lock() {
            // some network file systems know no locks: there, the user has to take care
            Ok(()) | Err(TryLockError::Error(_)) => {}
            Err(TryLockError::WouldBlock) => {
                let message = "another process is training here: wait for it, or name another --out";
                return Err(Error::run(path, message));
            }
        }
        Ok(Self { path: path.to_path_buf(), lock: Some(file) })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this value may write: it does not only read.
    pub fn is_writer(&self) -> bool {
        self.lock.is_some()
    }

    /// Where the configuration of the run in `run` is.
    pub fn config_path(run: &Path) -> PathBuf {
        run.join("config.toml")
    }

    /// The checkpoint's directory.
    pub fn checkpoint(&self) -> PathBuf {
        self.path.join("checkpoint")
    }

    /// The file of the best epoch's parameters.
    pub fn best_model(&self) -> PathBuf {
        Self::best_model_path(&self.path)
    }

    /// The file of the best epoch's parameters of the run in `run`.
    pub fn best_model_path(run: &Path) -> PathBuf {
        run.join("best.safetensors")
    }

    /// The file of the last checkpoint's parameters of the run in `run`.
    ///
    /// # Errors
    /// There is no checkpoint yet.
    pub fn last_model(run: &Path) -> Result<PathBuf> {
        checkpoint::model_file(&run.join("checkpoint"))
            .ok_or_else(|| Error::run(run, "there is no checkpoint yet: let the run go on for a while"))
    }

    /// Where a trace goes, when asked for.
    pub fn trace(&self) -> PathBuf {
        self.path.join("trace.json")
    }

    /// Writes `config.toml`.
    ///
    /// # Errors
    /// The disk is full or not to be written.
    pub fn write_config(&self, config: &TrainConfig) -> Result<()> {
        disk::write_atomic(&mut Real, &Self::config_path(&self.path), config.to_toml().as_bytes())
    }

    /// Adds an epoch to `metrics.jsonl` and waits until it is on the disk. Before the checkpoint that knows of it.
    ///
    /// # Errors
    /// The disk is full or not to be written.
    pub fn append_epoch(&self, record: &EpochRecord) -> Result<()> {
        let path = self.path.join(METRICS);
        let mut line =
            serde_json::to_string(record).map_err(|e| Error::format(&path, "new line", e.to_string()))?;
        line.push('\n');
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(|e| Error::io(&path, "open", e))?;
        file.write_all(line.as_bytes())
            .and_then(|()| file.sync_data())
            .map_err(|e| Error::io(&path, "write", e))
    }

    /// Cuts `metrics.jsonl` down to its first `epochs` lines, those that a checkpoint knows of, and returns them. What a crash
    /// left behind them, a torn line included, goes.
    ///
    /// # Errors
    /// There are fewer, one of them is damaged, or the file cannot be written.
    pub fn keep_epochs(&self, epochs: usize) -> Result<Vec<EpochRecord>> {
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
                "{} epochs, but the checkpoint knows of {epochs}: restore the file, or train again",
                records.len()
            );
            return Err(Error::format(&path, "end", message));
        }
        let kept = &text[..end];
        if kept.len() < text.len() || !(kept.is_empty() || kept.ends_with('\n')) {
            let newline = if kept.is_empty() || kept.ends_with('\n') { "" } else { "\n" };
            disk::write_atomic(&mut Real, &path, format!("{kept}{newline}").as_bytes())?;
        }
        Ok(records)
    }

    /// Writes `summary.json` and `report.html`.
    ///
    /// # Errors
    /// The disk is full or not to be written.
    pub fn write_summary(&self, summary: &Summary) -> Result<()> {
        let path = self.path.join(SUMMARY);
        let mut text = serde_json::to_string_pretty(summary)
            .map_err(|e| Error::format(&path, "summary", e.to_string()))?;
        text.push('\n');
        disk::write_atomic(&mut Real, &path, text.as_bytes())?;
        disk::write_atomic(&mut Real, &self.path.join(REPORT), report::html(summary).as_bytes())
    }

    /// Writes the `report.html` of the run in `run` anew from what it recorded, finished or not; where it is.
    ///
    /// # Errors
    /// There is no run, a file of it is damaged, or the disk is full or not to be written.
    pub fn write_report(run: &Path) -> Result<PathBuf> {
        let path = run.join(REPORT);
        let html = report::html(&Self::open(run)?.summary()?);
        disk::write_atomic(&mut Real, &path, html.as_bytes())?;
        Ok(path)
    }

    /// The summary of a finished run, or as much of it as `config.toml` and `metrics.jsonl` tell of one that
    /// is not (no score on the test nodes, and of the dataset the name alone).
    ///
    /// # Errors
    /// A file is damaged.
    pub fn summary(&self) -> Result<Summary> {
        let path = self.path.join(SUMMARY);
        let text = read_if_there(&path)?;
        let finished: Option<Summary> = match text.is_empty() {
            true => None,
            false => Some(serde_json::from_str(&text).map_err(|e| {
                Error::format(
                    &path,
                    format!("line {}", e.line()),
                    format!("{e}: train --resume writes it anew"),
                )
            })?),
        };
        let lines = read_if_there(&self.path.join(METRICS))?;
        // a torn line at the end is an epoch that is being written
        let epochs: Vec<EpochRecord> =
            lines.lines().map_while(|line| serde_json::from_str(line).ok()).collect();
        if let Some(summary) = finished
            && summary.epochs.len() >= epochs.len()
        {
            return Ok(summary);
        }
        let mut config = TrainConfig::default();
        config.read_file(&Self::config_path(&self.path))?;
        let scored = epochs.iter().filter(|e| e.valid_score.is_some());
        let best = scored.fold(None, |best: Option<&EpochRecord>, e| match best {
            Some(best) if best.valid_score >= e.valid_score => Some(best),
            _ => Some(e),
        });
        let best = best.map(|e| Best { epoch: e.epoch, valid_score: e.valid_score });
        let name = match Path::new(&config.dataset).file_name() {
            Some(name) => name.to_string_lossy().into_owned(),
            None => "demo".to_string(),
        };
        Ok(Summary {
            graphmill: env!("CARGO_PKG_VERSION").to_string(),
            dataset: DatasetRecord { name, ..DatasetRecord::default() },
            config: config.to_json(),
            best: best.unwrap_or(Best { epoch: epochs.last().map_or(0, |e| e.epoch), valid_score: None }),
            test: TestScore { metric: config.metric.clone(), score: None },
            seconds: epochs.iter().map(|e| e.seconds + e.eval_seconds).sum(),
            epochs,
            ..Summary::default()
        })
    }
}

const METRICS: &str = "metrics.jsonl";
const SUMMARY: &str = "summary.json";
const REPORT: &str = "report.html";

/// A file's text, nothing where it is not there.
fn read_if_there(path: &Path) -> Result<String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(e) => Err(Error::io(path, "read", e)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn epoch(epoch: usize) -> EpochRecord {
        EpochRecord {
            epoch,
            loss: 1.0 / epoch as f64,
            valid_score: Some(0.5 + 0.1 * (epoch % 3) as f64),
            stages: Stages { train: 0.25, ..Stages::default() },
            traffic: [[0, 0], [30, 120], [10, 40], [0, 0]].into(),
            ..EpochRecord::default()
        }
    }

    fn run() -> (tempfile::TempDir, RunDir) {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(&dir.path().join("run")).unwrap();
        run.write_config(&TrainConfig::default()).unwrap();
        (dir, run)
    }

    #[test]
    fn a_summary_holds_the_promised_fields() {
        let summary = Summary { epochs: vec![epoch(1)], config: json!({"lr": 0.1}), ..Summary::default() };
        let json = serde_json::to_value(&summary).unwrap();
        let keys = |json: &serde_json::Value| json.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let top = [
            "graphmill",
            "dataset",
            "config",
            "epochs",
            "best",
            "test",
            "staleness",
            "peak_rss_bytes",
            "seconds",
        ];
        assert_eq!(keys(&json), top);
        for key in ["name", "nodes", "edges", "feature_dim", "classes", "multilabel"] {
            assert!(json["dataset"].get(key).is_some(), "{key}");
        }
        for key in ["epoch", "loss", "valid_score", "seconds", "seeds", "sampled_edges", "hit_rate"] {
            assert!(json["epochs"][0].get(key).is_some(), "{key}");
        }
        assert_eq!(keys(&json["epochs"][0]["stages"]), ["order", "sample", "extract", "train"]);
        assert_eq!(json["epochs"][0]["traffic"]["disk"], json!({"rows": 10, "bytes": 40}));
        assert_eq!(keys(&json["epochs"][0]["traffic"]), ["device", "host", "disk", "remote"]);
        assert_eq!(json["best"], json!({"epoch": 0, "valid_score": null}));
        assert_eq!(json["test"], json!({"metric": "", "score": null}));
        assert_eq!(json["staleness"], json!({"bound": 0, "max": 0}));
        assert_eq!(serde_json::from_value::<Summary>(json).unwrap(), summary);
    }

    #[test]
    fn hit_rates_are_of_the_nearest_tier() {
        let traffic = epoch(1).traffic;
        assert_eq!((traffic.hit_rate(false), traffic.hit_rate(true)), (Some(0.75), Some(0.0)));
        assert_eq!(TrafficRecord::default().hit_rate(false), None);
    }

    #[test]
    fn a_resumed_run_keeps_the_epochs_its_checkpoint_knows() {
        let (_dir, run) = run();
        assert_eq!(run.keep_epochs(0).unwrap(), []);
        for i in 1..=3 {
            run.append_epoch(&epoch(i)).unwrap();
        }
        let path = run.path().join(METRICS);
        let whole = fs::read_to_string(&path).unwrap();
        // killed in the middle of the fourth line
        fs::write(&path, format!("{whole}{{\"epoch\":4,\"lo")).unwrap();
        assert_eq!(run.keep_epochs(3).unwrap(), [epoch(1), epoch(2), epoch(3)]);
        assert_eq!(fs::read_to_string(&path).unwrap(), whole);
        assert_eq!(run.keep_epochs(2).unwrap(), [epoch(1), epoch(2)]);
        run.append_epoch(&epoch(3)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), whole);

        let message = run.keep_epochs(5).unwrap_err().to_string();
        assert!(message.contains("metrics.jsonl: end: 3 epochs, but the checkpoint knows of 5"), "{message}");
        fs::write(&path, whole.replacen("loss", "lo\u{0}s", 1)).unwrap();
        assert!(run.keep_epochs(3).unwrap_err().to_string().contains("metrics.jsonl: line 1: "));
        assert_eq!(run.keep_epochs(0).unwrap(), []);
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
    }

    #[test]
    fn a_directory_takes_one_run_and_one_writer() {
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

    #[test]
    fn the_last_model_is_the_checkpoints() {
        let (_dir, run) = run();
        assert!(RunDir::last_model(run.path()).unwrap_err().to_string().contains("no checkpoint yet"));
        checkpoint::save_tensors(&run.checkpoint(), &[], &[], 0, &()).unwrap();
        assert!(RunDir::last_model(run.path()).unwrap().is_file());
    }

    #[test]
    fn an_unfinished_run_reports_what_there_is() {
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
        let report = RunDir::write_report(run.path()).unwrap();
        assert!(fs::read_to_string(report).unwrap().contains("accuracy"));
    }

    #[test]
    fn the_peak_is_read_from_the_status() {
        assert_eq!(parse_peak("Name:\tx\nVmHWM:\t   12340 kB\nVmRSS:\t 1 kB\n"), Some(12_636_160));
        assert_eq!(parse_peak("Name:\tx\n"), None);
        if cfg!(target_os = "linux") {
            assert!(peak_rss_bytes().unwrap() > 1 << 20);
        }
    }
}
