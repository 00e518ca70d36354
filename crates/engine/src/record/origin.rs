//! Origin of a run's dataset: `RUN/dataset.json`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use graphmill_data::{
    Dataset,
    atomic::{self, Real},
    dataset::Normalization,
    generate,
    partition::PartitionDir,
    typed::{TaskOn, TypedDataset},
    verification::Verify,
};
use graphmill_nn::regression::TargetScale;
use serde::{Deserialize, Serialize};

use super::{DatasetRecord, RunDir};
use crate::{
    Error, Result, TrainConfig,
    build::{self, open_graph},
    checkpoint,
    config::IN_MEMORY,
};

/// Name of the file in the run directory.
const FILE: &str = "dataset.json";

/// Hint in errors of a missing dataset: options that pass it. The Python package replaces it with
/// its own.
pub const DATASET_HINT: &str = "train DATASET --resume, eval --dataset and predict --dataset take its \
                                directory, dataset= in Python takes either";

/// [`DATASET_HINT`] for a dataset other than the run's.
pub const OTHER_DATASET_HINT: &str = "(--dataset DATASET, or dataset= in Python)";

/// Kind of a run's dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A directory of a dataset or a partitioned dataset.
    Directory,
    /// The built-in demo graph.
    Demo,
    /// Arrays in memory, which the run does not store.
    Memory,
}

/// Location of a run's dataset, and the checksum that identifies it after a move.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// Kind of the dataset.
    pub source: Source,
    /// Directory, if the dataset has one.
    pub path: Option<PathBuf>,
    /// Name, sizes and checksum.
    pub dataset: DatasetRecord,
    /// Normalisation of the features; `None` if an older version wrote the run.
    #[serde(default)]
    pub features: Option<FeatureRecord>,
    /// Mean and deviation of the targets, if they are values. The model learns them standardised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<TargetScale>,
    /// Types of a dataset of several types, and the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub typed: Option<TypedOrigin>,
    /// Metric of the scores; `None` if an older version wrote the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
}

/// Types of a run's dataset, and its task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TypedOrigin {
    /// Name of the task.
    pub task: String,
    /// Names of the classes; may be empty.
    pub classes: Vec<String>,
    /// Node types with their features.
    pub node_types: Vec<TypeFeatures>,
    /// Names of the edge types.
    pub edge_types: Vec<String>,
    /// Number of features of each edge type; empty if an older version wrote the run.
    #[serde(default)]
    pub edge_widths: Vec<usize>,
    /// True if the rows of the task are nodes.
    #[serde(default)]
    pub is_on_nodes: bool,
    /// Node type or edge type of the task's rows; empty if an older version wrote the run.
    #[serde(default)]
    pub on: String,
    /// Relations that a run on links learned, in the order of the decoder's parameters; empty for
    /// other runs, and if an older version wrote the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relations: Vec<LinkRelation>,
}

/// Relation of a run on links.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkRelation {
    /// Name of the task, or of the edge type if no task has the edges.
    pub name: String,
    /// Name of the edge type, `source:name:destination`.
    pub on: String,
}

/// Features of a node type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TypeFeatures {
    /// Name of the type.
    pub name: String,
    /// Number of features; 0 for a type with learned rows.
    pub width: usize,
    /// Method and statistics of the normalisation; `None` if the features are not normalised.
    pub normalization: Option<Normalization>,
}

impl TypedOrigin {
    /// Types of `data`, and its task `task`.
    pub fn new(data: &TypedDataset, task: &str) -> Self {
        let node_types = data.nodes.iter().map(|nodes| TypeFeatures {
            name: nodes.name.clone(),
            width: nodes.features.as_ref().map_or(0, |table| table.width),
            normalization: nodes.normalization.clone(),
        });
        Self {
            task: task.into(),
            classes: data.task(task).map(|task| task.names.clone()).unwrap_or_default(),
            node_types: node_types.collect(),
            edge_types: data.edges.iter().map(|edges| edges.edge_type.to_string()).collect(),
            edge_widths: data.edges.iter().map(|of| of.features.as_ref().map_or(0, |of| of.width)).collect(),
            is_on_nodes: data.task(task).is_ok_and(|task| matches!(task.on, TaskOn::Nodes(_))),
            on: data.task(task).map(|task| task.on.to_string()).unwrap_or_default(),
            relations: Vec::new(),
        }
    }
}

/// Features of a run's dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FeatureRecord {
    /// Method and statistics of the normalisation; `None` if the features are not normalised.
    pub normalization: Option<Normalization>,
}

impl Origin {
    /// Origin of a run with this configuration on `data`, whose record is `dataset`.
    ///
    /// # Errors
    /// The demo graph cannot be generated for comparison.
    pub fn new(config: &TrainConfig, dataset: &DatasetRecord, data: &Dataset) -> Result<Self> {
        let features = Some(FeatureRecord { normalization: data.normalization.clone() });
        Ok(Self { features, targets: build::target_scale(config, data), ..Self::of_record(config, dataset)? })
    }

    /// Origin of a run with this configuration on the types of `typed`.
    ///
    /// # Errors
    /// As for [`Origin::new`].
    pub fn of_types(config: &TrainConfig, dataset: &DatasetRecord, typed: TypedOrigin) -> Result<Self> {
        Ok(Self { typed: Some(typed), ..Self::of_record(config, dataset)? })
    }

    fn of_record(config: &TrainConfig, dataset: &DatasetRecord) -> Result<Self> {
        let (source, path) = if config.is_in_memory() {
            (Source::Memory, None)
        } else if config.dataset.is_empty() {
            let is_demo = dataset.name == generate::DEMO
                && DatasetRecord::identified(&generate::demo()?)?.is_same(dataset);
            (if is_demo { Source::Demo } else { Source::Memory }, None)
        } else {
            (Source::Directory, Some(PathBuf::from(&config.dataset)))
        };
        Ok(Self {
            source,
            path,
            dataset: dataset.clone(),
            features: None,
            targets: None,
            typed: None,
            metric: None,
        })
    }

    /// Origin of a run that is scored by `metric`.
    #[must_use]
    pub(crate) fn scored_by(self, metric: &str) -> Self {
        Self { metric: Some(metric.to_string()), ..self }
    }

    /// Options as the run records them: [`IN_MEMORY`] replaces the directory of a dataset in
    /// memory.
    pub(crate) fn config(&self, config: &TrainConfig) -> TrainConfig {
        match self.source {
            Source::Memory => TrainConfig { dataset: IN_MEMORY.into(), ..config.clone() },
            Source::Directory | Source::Demo => config.clone(),
        }
    }

    /// Writes the origin to a run's directory.
    ///
    /// # Errors
    /// The disk is full or not writable.
    pub fn write(&self, run: &RunDir) -> Result<()> {
        let path = run.path().join(FILE);
        let mut text =
            serde_json::to_string_pretty(self).map_err(|e| Error::format(&path, "run", e.to_string()))?;
        text.push('\n');
        Ok(atomic::replace(&mut Real, &path, text.as_bytes())?)
    }

    /// Reads the origin of the run in `dir`. For runs of older versions, derives it from the
    /// dataset record of the checkpoint or the summary; `None` if the run has neither.
    ///
    /// # Errors
    /// A file cannot be read or is damaged.
    pub fn of_run(dir: &Path, config: &TrainConfig) -> Result<Option<Self>> {
        let path = dir.join(FILE);
        match fs::read_to_string(&path) {
            Ok(text) => {
                let origin = serde_json::from_str(&text).map_err(|e| {
                    let place = format!("line {} column {}", e.line(), e.column());
                    Error::format(&path, place, format!("{e}; restore the file, or train again"))
                })?;
                Ok(Some(origin))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                older_record(dir)?.map(|record| Self::of_record(config, &record)).transpose()
            }
            Err(error) => Err(Error::io(&path, "read", error)),
        }
    }

    /// Directory of the dataset; `None` for the demo graph.
    ///
    /// # Errors
    /// The dataset was in memory, or its directory no longer exists. The message asks for the
    /// dataset.
    pub fn locate(&self, run: &Path) -> Result<Option<&Path>> {
        match (self.source, &self.path) {
            (Source::Demo, _) => Ok(None),
            (Source::Directory, Some(path)) if path.exists() => Ok(Some(path)),
            (Source::Directory, Some(path)) => Err(Error::run(
                run,
                format!(
                    "its dataset {} is no longer in {}; pass its current directory: {DATASET_HINT}",
                    self.dataset,
                    path.display()
                ),
            )),
            (Source::Memory, _) | (Source::Directory, None) => Err(Error::run(
                run,
                format!(
                    "it was trained on a dataset in memory, {}, which the run does not store; pass the \
                     dataset again: {DATASET_HINT}",
                    self.dataset
                ),
            )),
        }
    }

    /// Directory of the dataset of the run in `run` with this origin and configuration; `None` for
    /// the demo graph.
    ///
    /// # Errors
    /// Those of [`Origin::locate`], or the run does not record its dataset.
    pub fn locate_of<'a>(
        origin: Option<&'a Self>,
        run: &Path,
        config: &'a TrainConfig,
    ) -> Result<Option<&'a Path>> {
        match origin {
            Some(origin) => origin.locate(run),
            None if config.dataset.is_empty() || config.is_in_memory() => Err(Error::run(
                run,
                format!(
                    "it has no checkpoint and does not record whether it was trained on the demo graph or \
                     on a dataset in memory; train again, or pass the dataset: {DATASET_HINT}"
                ),
            )),
            None => Ok(Some(Path::new(&config.dataset))),
        }
    }

    /// Opens the dataset of the run in `run`.
    ///
    /// # Errors
    /// Those of [`Origin::open`] and [`Origin::locate_of`].
    pub fn open_of(origin: Option<&Self>, run: &Path, config: &TrainConfig) -> Result<Dataset> {
        match (origin, Self::locate_of(origin, run, config)?) {
            (Some(origin), _) => origin.open(run),
            (None, Some(path)) => open_graph(path, Verify::Once),
            (None, None) => Ok(generate::demo()?),
        }
    }

    /// Opens the run's dataset.
    ///
    /// # Errors
    /// Those of [`Origin::locate`], the dataset cannot be read, or its directory holds other data.
    pub fn open(&self, run: &Path) -> Result<Dataset> {
        let path = self.locate(run)?;
        let data = match path {
            Some(path) => open_graph(path, Verify::Once)?,
            None => generate::demo()?,
        };
        let now = DatasetRecord::identified(&data)?;
        if now.is_same(&self.dataset) {
            return Ok(data);
        }
        let place = path.map_or("the demo graph of this version".into(), |path| path.display().to_string());
        Err(Error::run(
            run,
            format!(
                "it was trained on {}, but {place} is {now}; restore the dataset, or pass one explicitly \
                 to use it anyway {OTHER_DATASET_HINT}",
                self.dataset
            ),
        ))
    }
}

/// Dataset record of the run in `dir` without `dataset.json`, from its checkpoint or else its
/// summary.
fn older_record(dir: &Path) -> Result<Option<DatasetRecord>> {
    #[derive(Deserialize)]
    struct Recorded {
        dataset: DatasetRecord,
    }
    let run = RunDir::open(dir)?;
    let saved = checkpoint::state::<Recorded>(&run.checkpoint());
    if let Ok(Some(saved)) = saved {
        return Ok(Some(saved.dataset));
    }
    let recorded = run.summary()?.dataset;
    match saved {
        // the summary of an unfinished run has only a name
        Err(error) if recorded.nodes == 0 => Err(error),
        _ => Ok((recorded.nodes > 0).then_some(recorded)),
    }
}

/// Checksum of the partition that the options of the run in `run` name, if any. Checkpoints of
/// older versions do not record it.
pub(crate) fn partition_of_older(run: &RunDir) -> Option<String> {
    let mut config = TrainConfig::default();
    config.read_file(&RunDir::config_path(run.path())).ok()?;
    let dir = Path::new(&config.dataset);
    let is_partition = !config.dataset.is_empty() && dir.join("partition.json").is_file();
    is_partition.then(|| PartitionDir::open(dir).ok()).flatten().map(|dir| dir.checksum().to_string())
}
