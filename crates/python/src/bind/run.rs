//! Commands as functions: options and results are JSON, which the package's Python files convert to
//! objects.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::Sender,
    },
    time::Instant,
};

use graphmill_core::progress::Progress as Work;
use graphmill_data::partition::{self as parting, KnownParts};
use graphmill_engine::{
    AnyDataset, Error, LossAlarm, Result, RunContext, RunDir, TrainConfig, hotness as hot,
    observer::{Observer, Progress, Start},
    options::{key, names, suggestion},
    partition as engine_partition,
    record::EpochRecord,
    typed,
};
use graphmill_report::Recorder;
use numpy::{IntoPyArray, PyArray1};
use pyo3::{
    exceptions::{PyKeyboardInterrupt, PyTypeError},
    prelude::*,
};
use serde_json::{Map, Value as Json, json};

use super::{
    array,
    dataset::Dataset,
    error,
    given::{Data, Given},
    topology::Topology,
    typed::TypedDataset,
    wait::{self, StopFlag},
};

/// Observer that sends events as JSON, batches at most ten times a second.
struct MessageObserver {
    to: Sender<String>,
    alarm: LossAlarm,
    /// Time of the last batch event.
    last: Instant,
    /// True once the run is asked to stop.
    stop: Arc<AtomicBool>,
}

impl MessageObserver {
    /// Sends an event as JSON.
    fn send(&self, event: Json) {
        // a closed channel is ignored: the flag stops the run
        let _ = self.to.send(event.to_string());
    }
}

impl Observer for MessageObserver {
    fn preparation(&self) -> Arc<dyn Work> {
        Arc::new(StopFlag(self.stop.clone()))
    }

    fn start(&mut self, start: &Start) -> Result<()> {
        for record in &start.earlier {
            // an earlier part of the run has warned
            let _ = self.alarm.see(record);
        }
        self.send(json!({
            "event": "start", "epochs": start.epochs, "batches": start.batches, "seeds": start.seeds,
            "from_epoch": start.from.0, "from_batch": start.from.1, "metric": start.metric,
            "parameters": start.parameters,
        }));
        Ok(())
    }

    fn batch(&mut self, progress: &Progress) -> Result<()> {
        if let Some(warning) = self.alarm.see_batch(progress) {
            self.send(json!({ "event": "warning", "message": warning }));
        }
        if self.last.elapsed().as_millis() < 100 {
            return Ok(());
        }
        self.last = Instant::now();
        let Progress { epoch, batches, seeds, loss, seconds } = *progress;
        self.send(json!({
            "event": "batch", "epoch": epoch, "batches": batches, "seeds": seeds, "loss": loss,
            "seconds": seconds,
        }));
        Ok(())
    }

    fn evaluate(&mut self, nodes: usize) {
        self.send(json!({ "event": "evaluate", "nodes": nodes }));
    }

    fn epoch(&mut self, record: &EpochRecord) -> Result<()> {
        if let Ok(record) = serde_json::to_value(record) {
            self.send(json!({ "event": "epoch", "record": record }));
        }
        if let Some(warning) = self.alarm.see(record) {
            self.send(json!({ "event": "warning", "message": warning }));
        }
        Ok(())
    }

    fn note(&mut self, message: &str) {
        self.send(json!({ "event": "note", "message": message }));
    }
}

/// Sets options in `config` from a JSON object and checks them; returns the names of those given.
///
/// # Errors
/// An option is not among `allowed`, or a value is invalid.
pub(super) fn configure(
    config: &mut TrainConfig,
    options: &str,
    allowed: &[&str],
) -> PyResult<Vec<&'static str>> {
    let names = read_options(config, options, allowed)?;
    config.derive_options(&names).map_err(error::engine)?;
    config.check().map_err(error::engine)?;
    Ok(names)
}

/// Sets options as [`configure`] does, without a check of those that depend on each other.
///
/// # Errors
/// An option is not among `allowed`, or a value is invalid.
pub(super) fn read_options(
    config: &mut TrainConfig,
    options: &str,
    allowed: &[&str],
) -> PyResult<Vec<&'static str>> {
    let given: Map<String, Json> = serde_json::from_str(options).map_err(error::value)?;
    let (mut values, mut names) = (Map::new(), Vec::new());
    for (name, value) in &given {
        let Some(key) = key(name).filter(|key| allowed.contains(&key.name)) else {
            let suggestion = suggestion(name, allowed);
            return Err(PyTypeError::new_err(format!("no such option '{name}'{suggestion}")));
        };
        values.insert(key.name.into(), value.clone());
        names.push(key.name);
    }
    config.set(&values).map_err(error::value)?;
    Ok(names)
}

/// Runs `work` on a pool of `threads` threads, or on the current pool if 0.
pub(super) fn on_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> Result<T> {
    if threads == 0 {
        return Ok(work());
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.map_err(|e| graphmill_engine::Error::Usage(format!("--threads {threads}: {e}")))?;
    Ok(pool.install(work))
}

/// Returns true if a run with these options, or that of the directory `like` without them, reads a
/// dataset of one type from its directory.
#[pyfunction]
#[pyo3(signature = (options, like = None))]
pub(super) fn needs_directory(options: &str, like: Option<PathBuf>) -> PyResult<bool> {
    let mut config = TrainConfig::default();
    let like = like.map(|dir| RunDir::config_path(&dir)).filter(|file| file.exists());
    if let Some(file) = like {
        config.read_file(&file).map_err(error::engine)?;
    }
    read_options(&mut config, options, &names())?;
    Ok(AnyDataset::needs_directory(&config))
}

/// Trains and returns the summary as JSON. Without a dataset, a resumed run takes its own, and a
/// new run takes the demo; with `like`, its options and its dataset are those of that run.
#[pyfunction]
#[pyo3(signature = (dataset, options, out, resume, like, observe))]
pub(super) fn train(
    py: Python<'_>,
    dataset: Option<Given<'_>>,
    options: &str,
    out: Option<PathBuf>,
    resume: bool,
    like: Option<PathBuf>,
    observe: Option<Py<PyAny>>,
) -> PyResult<String> {
    let mut config = TrainConfig::default();
    // the run whose options and dataset this one takes
    let source = if resume { out.as_deref() } else { like.as_deref() };
    let source = source.filter(|dir| RunDir::config_path(dir).exists());
    if let Some(dir) = source {
        config.read_file(&RunDir::config_path(dir)).map_err(error::engine)?;
    }
    let before = source.filter(|_| resume).map(|_| config.clone());
    let data = match (dataset, source) {
        (Some(dataset), _) => {
            dataset.locate(&mut config).map_err(error::engine)?;
            dataset.data()
        }
        (None, Some(dir)) => py.detach(|| Data::of_run(dir, &config)).map_err(error::engine)?,
        (None, None) => Data::One(Arc::new(py.detach(graphmill_data::generate::demo).map_err(error::graph)?)),
    };
    let given = configure(&mut config, options, &names())?;
    config.refuse_unused(&given).map_err(error::engine)?;
    before.map_or(Ok(()), |before| config.check_resumed(&before)).map_err(error::engine)?;
    let run = match &out {
        Some(dir) if resume => Some(RunDir::reopen(dir).map_err(error::engine)?),
        Some(dir) => Some(RunDir::create(dir).map_err(error::engine)?),
        None => None,
    };
    let report = |py: Python<'_>, message: &str| {
        observe.as_ref().map_or(Ok(()), |observe| observe.call1(py, (message,)).map(drop))
    };
    let work = move |stop: Arc<AtomicBool>, to| {
        let train = || {
            let (alarm, last) = (LossAlarm::default(), Instant::now());
            let messages = MessageObserver { to, alarm, last, stop: stop.clone() };
            let mut observer = Recorder::new(&config, run.as_ref(), Box::new(messages));
            let stop = || stop.load(Relaxed);
            let context = RunContext { run: run.as_ref(), resume, observer: &mut observer, stop: &stop };
            data.train(&config, context)
        };
        on_threads(config.threads, train)?
    };
    let summary = match wait::run_to_end(py, work, report)? {
        (summary, None) => summary.map_err(error::engine)?,
        // the run's own error has its epoch and batch
        (Err(stopped @ Error::Interrupted { .. }), Some(raised)) if is_signal(py, &raised) => {
            return Err(error::engine(stopped));
        }
        (_, Some(raised)) => return Err(raised),
    };
    serde_json::to_string(&summary).map_err(error::value)
}

/// Returns true for the `KeyboardInterrupt` that Python raises on Ctrl-C, which has no message.
fn is_signal(py: Python<'_>, raised: &PyErr) -> bool {
    let is_empty = || raised.value(py).str().is_ok_and(|text| text.is_empty().unwrap_or(false));
    raised.is_instance_of::<PyKeyboardInterrupt>(py) && is_empty()
}

/// Scores every node by a hotness metric.
#[pyfunction]
#[pyo3(signature = (dataset, metric, options))]
pub(super) fn hotness<'py>(
    py: Python<'py>,
    dataset: &Dataset,
    metric: String,
    options: &str,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let mut config = TrainConfig::default();
    let given = configure(&mut config, options, &hot::options_of_scores())?;
    hot::refuse_unused(&metric, &config, &given).map_err(error::engine)?;
    let data = dataset.data.clone();
    let scores = wait::quietly(py, move |progress| {
        on_threads(config.threads, || hot::scores(&metric, &config, &data, progress))?
    })?;
    Ok(scores.map_err(error::engine)?.into_pyarray(py))
}

/// Options of a run that [`hotness_report`] takes; `task` chooses one of a dataset of several
/// types.
pub(super) fn options_of_hotness_report() -> Vec<&'static str> {
    [hot::options(), vec!["task"]].concat()
}

/// Hit rates of caches, as JSON. `policies` has names, and true if they are defaults, of which a
/// dataset of several types takes those that it defines.
#[pyfunction]
#[pyo3(signature = (dataset, policies, samplers, ratios, epochs, options))]
pub(super) fn hotness_report(
    py: Python<'_>,
    dataset: Given<'_>,
    policies: (Vec<String>, bool),
    samplers: Vec<String>,
    ratios: Vec<f64>,
    epochs: u64,
    options: &str,
) -> PyResult<String> {
    let (mut train, (mut policies, is_default)) = (TrainConfig::default(), policies);
    let data = dataset.data();
    if matches!(data, Data::Several(_)) {
        dataset.locate(&mut train).map_err(error::engine)?;
        policies.retain(|name| !is_default || typed::hotness::is_defined(name));
    }
    let given = configure(&mut train, options, &options_of_hotness_report())?;
    let options = hot::Options { train, policies, samplers, ratios, epochs };
    options.refuse_unused(&given).map_err(error::engine)?;
    let threads = options.train.threads;
    let report = wait::quietly(py, move |progress| {
        on_threads(threads, || match &data {
            Data::One(data) => Ok(serde_json::to_value(hot::run(&options, data, progress)?)),
            Data::Several(data) => Ok(serde_json::to_value(typed::hotness::run(&options, data, progress)?)),
            Data::Directory(path) => Err(Error::usage(format!("{}: open the dataset first", path.display()))),
        })?
    })?;
    Ok(report.map_err(error::engine)?.map_err(error::value)?.to_string())
}

/// Assigns the nodes of a dataset of several types to parts; returns the part of each node by type.
/// The training nodes of `task` are balanced, or with an empty name those of all tasks.
#[pyfunction]
#[pyo3(signature = (dataset, *, task, method, **options))]
pub(super) fn partition_types<'py>(
    py: Python<'py>,
    dataset: &TypedDataset,
    task: String,
    method: String,
    options: Option<PartitionOptions>,
) -> PyResult<Vec<(String, Bound<'py, PyArray1<u32>>)>> {
    let (options, data) = (checked(std::slice::from_ref(&method), options)?, dataset.data.clone());
    let made = wait::quietly(py, move |progress| {
        typed::partition::assign(&method, &options, &data, &task, progress)
    })?;
    let parts = made.map_err(error::engine)?.into_iter().map(|(name, parts)| {
        let parts: Vec<u32> = parts.into_iter().map(u32::from).collect();
        (name, parts.into_pyarray(py))
    });
    Ok(parts.collect())
}

/// Assigns the nodes of a graph to parts; returns the part of each node.
#[pyfunction]
#[pyo3(signature = (topology, train, *, method, **options))]
pub(super) fn partition<'py>(
    py: Python<'py>,
    topology: &Topology,
    train: &Bound<'py, PyAny>,
    method: &str,
    options: Option<PartitionOptions>,
) -> PyResult<Bound<'py, PyArray1<u32>>> {
    let entry = parting::TABLE.find(method).map_err(error::graph)?;
    let graph = topology.0.graph().clone();
    let mut train = array::nodes("train", train, graph.num_nodes())?;
    train.sort_unstable();
    let options = checked(&[method.to_string()], options)?;
    let made = wait::quietly(py, move |progress| {
        let book = (entry.make.make)(&options)?.partition(&graph, &train, progress)?;
        Ok(book.of().iter().map(|&part| part.into()).collect::<Vec<u32>>())
    })?;
    Ok(made.map_err(error::graph)?.into_pyarray(py))
}

/// Options of a run that [`partition_report`] takes; `task` chooses one of a dataset of several
/// types.
pub(super) fn options_of_partition_report() -> Vec<&'static str> {
    [engine_partition::options(), vec!["threads", "task"]].concat()
}

/// Statistics of partitions by several methods, as JSON, or of one that keeps the parts of the
/// partition in `like`. The only one is written to `out`.
#[pyfunction]
#[pyo3(signature = (dataset, *, methods, batches, options, paths, **partition))]
pub(super) fn partition_report(
    py: Python<'_>,
    dataset: Given<'_>,
    methods: Vec<String>,
    batches: u64,
    options: &str,
    paths: (Option<PathBuf>, Option<PathBuf>),
    partition: Option<PartitionOptions>,
) -> PyResult<String> {
    let (out, like) = paths;
    let partition = checked(&methods, partition)?;
    let mut train = TrainConfig { seed: partition.seed, ..TrainConfig::default() };
    let data = dataset.data();
    if matches!(data, Data::Several(_)) {
        dataset.locate(&mut train).map_err(error::engine)?;
    }
    let given = configure(&mut train, options, &options_of_partition_report())?;
    train.refuse_unused(&given).map_err(error::engine)?;
    let report = wait::quietly(py, move |progress| {
        let (threads, out) = (train.threads, out.as_deref());
        let like = like.map(|like| known_parts(&like, &data, partition.slack)).transpose()?;
        let options = engine_partition::Options { methods, like, partition, train, batches };
        on_threads(threads, || match &data {
            Data::One(data) => Ok(json!(engine_partition::run(&options, data, out, progress)?)),
            Data::Several(data) => Ok(json!(typed::partition::run(&options, data, out, progress)?)),
            Data::Directory(path) => Err(Error::usage(format!("{}: open the dataset first", path.display()))),
        })?
    })?;
    Ok(report.map_err(error::engine)?.to_string())
}

/// Parts of the partition in `like`, for `data`.
fn known_parts(like: &Path, data: &Data, slack: f64) -> Result<KnownParts, Error> {
    // ids of a reordered dataset are not those of the datasets that it extends
    let (types, of) = match data {
        Data::One(data) => {
            let directory = data.directory.as_deref().filter(|_| data.original_ids.is_none());
            (vec![(String::new(), data.num_nodes())], (data.identity()?, directory))
        }
        Data::Several(data) => {
            let types = data.nodes.iter().map(|nodes| (nodes.name.clone(), nodes.count)).collect();
            let is_in_order = data.nodes.iter().all(|nodes| nodes.original_ids.is_none());
            (types, (data.identity()?, data.directory.as_deref().filter(|_| is_in_order)))
        }
        Data::Directory(path) => {
            return Err(Error::usage(format!("{}: open the dataset first", path.display())));
        }
    };
    engine_partition::known_parts(like, &types, of, slack)
}

/// Keyword arguments of partitioners.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct PartitionOptions {
    parts: u16,
    seed: u64,
    slack: Option<f64>,
    train_slack: Option<f64>,
    refine: Option<bool>,
}

/// Checks the options of partitioners; an option that none of the `methods` uses is refused.
fn checked(methods: &[String], options: Option<PartitionOptions>) -> PyResult<parting::Options> {
    let missing = || PyTypeError::new_err("parts, seed, slack, train_slack and refine are needed");
    let PartitionOptions { parts, seed, slack, train_slack, refine } = options.ok_or_else(missing)?;
    let given =
        [("slack", slack.is_some()), ("train_slack", train_slack.is_some()), ("refine", refine.is_some())];
    let given: Vec<&str> = given.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect();
    engine_partition::refuse_unused(methods, &given).map_err(error::engine)?;
    let default = parting::Options::default();
    let slack = slack.unwrap_or(default.slack);
    let train_slack = train_slack.unwrap_or(default.train_slack);
    if parts == 0 || !(slack >= 0.0 && train_slack >= 0.0) {
        let message =
            format!("parts {parts}, slack {slack}, train_slack {train_slack}: use at least 1, 0 and 0");
        return Err(error::value(message));
    }
    let refine = refine.unwrap_or(default.refine);
    Ok(parting::Options { parts, seed, slack, train_slack, refine })
}
