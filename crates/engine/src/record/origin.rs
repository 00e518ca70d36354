//! What a run was trained on: `RUN/dataset.json`.

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
};
use serde::{Deserialize, Serialize};

use super::{DatasetRecord, RunDir};
use crate::{Error, Result, TrainConfig, checkpoint, config::IN_MEMORY};

/// Name of the file in the run directory.
const FILE: &str = "dataset.json";

/// How commands take a dataset that a run does not find; the Python package names its own way in
/// its place.
pub const PLACE: &str = "train DATASET --resume, eval --dataset and predict --dataset take its directory, \
                         dataset= in Python takes either";

/// [`PLACE`] where the dataset need not be that of the run.
pub const ANY_PLACE: &str = "(--dataset DATASET, or dataset= in Python)";

/// Where a run's dataset was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A directory, of a dataset or of a partitioned one.
    Directory,
    /// The built-in demo graph.
    Demo,
    /// Arrays in memory, which are not stored with the run.
    Memory,
}

/// A run's dataset: where it was, and by which checksum it is known wherever it is now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// Where it was.
    pub source: Source,
    /// The directory.
    pub path: Option<PathBuf>,
    /// What it was.
    pub dataset: DatasetRecord,
    /// Its features; `None` of a run of a version that did not record them.
    #[serde(default)]
    pub features: Option<FeatureRecord>,
}

/// The features that a run was trained on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FeatureRecord {
    /// How they were normalized, with the statistics; `None` if they are as in the source.
    pub normalization: Option<Normalization>,
}

impl Origin {
    /// Of a run with this configuration on `data`, the dataset of that record.
    ///
    /// # Errors
    /// The demo graph cannot be generated to compare with.
    pub fn new(config: &TrainConfig, dataset: &DatasetRecord, data: &Dataset) -> Result<Self> {
        let features = Some(FeatureRecord { normalization: data.normalization.clone() });
        Ok(Self { features, ..Self::of_record(config, dataset)? })
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
        Ok(Self { source, path, dataset: dataset.clone(), features: None })
    }

    /// Options as the run records them: a dataset in memory has no directory.
    pub(crate) fn config(&self, config: &TrainConfig) -> TrainConfig {
        match self.source {
            Source::Memory => TrainConfig { dataset: IN_MEMORY.into(), ..config.clone() },
            Source::Directory | Source::Demo => config.clone(),
        }
    }

    /// Writes it into a run's directory.
    ///
    /// # Errors
    /// The disk is full or not to be written.
    pub fn write(&self, run: &RunDir) -> Result<()> {
        let path = run.path().join(FILE);
        let mut text =
            serde_json::to_string_pretty(self).map_err(|e| Error::format(&path, "run", e.to_string()))?;
        text.push('\n');
        Ok(atomic::replace(&mut Real, &path, text.as_bytes())?)
    }

    /// That of the run in `dir`. A run of a version that did not write it is known by the record of
    /// its dataset in its checkpoint or its summary; `None` if it has neither.
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

    /// The directory that the dataset was in; none of the demo graph.
    ///
    /// # Errors
    /// It was in memory, or there is nothing in its place any more: the message asks for it.
    pub fn locate(&self, run: &Path) -> Result<Option<&Path>> {
        match (self.source, &self.path) {
            (Source::Demo, _) => Ok(None),
            (Source::Directory, Some(path)) if path.exists() => Ok(Some(path)),
            (Source::Directory, Some(path)) => Err(Error::run(
                run,
                format!(
                    "its dataset {} is no longer in {}; give the directory where it is now: {PLACE}",
                    self.dataset,
                    path.display()
                ),
            )),
            (Source::Memory, _) | (Source::Directory, None) => Err(Error::run(
                run,
                format!(
                    "it was trained on a dataset in memory, {}, which is not stored with it; give the dataset \
                     again: {PLACE}",
                    self.dataset
                ),
            )),
        }
    }

    /// The directory of the dataset of the run in `run`, whose origin and configuration these are;
    /// `None` of the demo graph.
    ///
    /// # Errors
    /// As [`Origin::locate`]; nothing records what the run was trained on.
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
                    "it has no checkpoint and does not record whether it was trained on the demo graph or on a \
                     dataset in memory; train again, or give the dataset: {PLACE}"
                ),
            )),
            None => Ok(Some(Path::new(&config.dataset))),
        }
    }

    /// The dataset of the run in `run`, opened again.
    ///
    /// # Errors
    /// As [`Origin::open`] and [`Origin::locate_of`].
    pub fn open_of(origin: Option<&Self>, run: &Path, config: &TrainConfig) -> Result<Dataset> {
        match (origin, Self::locate_of(origin, run, config)?) {
            (Some(origin), _) => origin.open(run),
            (None, Some(path)) => Ok(Dataset::open(path)?),
            (None, None) => Ok(generate::demo()?),
        }
    }

    /// The run's dataset, opened again.
    ///
    /// # Errors
    /// As [`Origin::locate`]; it cannot be read; or other data lies in its place.
    pub fn open(&self, run: &Path) -> Result<Dataset> {
        let path = self.locate(run)?;
        let data = match path {
            Some(path) => Dataset::open(path)?,
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
                "it was trained on {}, but {place} is {now}; restore the dataset, or give one explicitly to use \
                 it all the same {ANY_PLACE}",
                self.dataset
            ),
        ))
    }
}

/// What the run in `dir`, which has no `dataset.json`, was trained on: by its checkpoint, or else
/// by its summary.
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
    let told = run.summary()?.dataset;
    match saved {
        // an unfinished run tells a name alone
        Err(error) if told.nodes == 0 => Err(error),
        _ => Ok((told.nodes > 0).then_some(told)),
    }
}

/// The checksum of the partition in the directory that the options of the run in `run` name, where
/// it is one: checkpoints of older versions do not record it.
pub(crate) fn partition_of_older(run: &RunDir) -> Option<String> {
    let mut config = TrainConfig::default();
    config.read_file(&RunDir::config_path(run.path())).ok()?;
    let dir = Path::new(&config.dataset);
    let is_partition = !config.dataset.is_empty() && dir.join("partition.json").is_file();
    is_partition.then(|| PartitionDir::open(dir).ok()).flatten().map(|dir| dir.checksum().to_string())
}
