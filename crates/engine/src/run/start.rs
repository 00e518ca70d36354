//! Start of a run from the model of another: `--start-from`.
//!
//! The parameters are those of the best epoch of the other run. Tables with a row for each node may
//! have grown, if the dataset is the other run's with appended rows: known nodes keep their rows,
//! and new ones have those that the run drew. The optimiser and the schedule start from the
//! beginning.
//!
//! Over ranks, rank 0 reads the other run, and all ranks assign the same parameters; of tables with
//! a row for each node, each rank assigns the rows of its own nodes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use graphmill_data::typed::TypedDataset;

use crate::{
    Error, Result, RunDir, TrainConfig,
    checkpoint::{
        self, Files,
        tensors::{self, Tensor},
    },
    config::{
        link::{EdgeShares, LinkOptions},
        link_task::draws_split,
    },
    distributed::Ranks,
    record::{DatasetRecord, Origin},
};

/// Name of the record of the dataset in a message of rank 0.
const DATASET: &str = "dataset.json";
/// Name of the message of rank 0 about the other run's split.
const SPLIT: &str = "split";
/// Name of the parameters in a message of rank 0.
const PARAMS: &str = "best.safetensors";

/// Model of the run that another starts from.
pub(crate) struct Earlier {
    /// Run directory.
    dir: PathBuf,
    /// File of the parameters.
    pub(crate) path: PathBuf,
    pub(crate) tensors: Vec<Tensor>,
    /// Dataset that it was trained on, if recorded.
    dataset: Option<DatasetRecord>,
    /// True if the new run draws the edges that validate and test.
    draws_split: bool,
    /// True unless the new run draws edges that validate or test by other options than the other
    /// run did.
    is_same_split: bool,
}

impl Earlier {
    /// Reads the model that the option `start_from` names; `None` if it names none. Over `ranks`,
    /// all call this at the same time.
    ///
    /// # Errors
    /// It is no run directory, has no best model yet, or cannot be read; or a rank did not take
    /// part.
    pub(crate) fn open(config: &TrainConfig, ranks: Option<&Ranks>) -> Result<Option<Self>> {
        if config.start_from.is_empty() {
            return Ok(None);
        }
        let dir = PathBuf::from(&config.start_from);
        let path = RunDir::best_model_path(&dir);
        let draws_split = draws_split(config);
        let Some(ranks) = ranks else {
            let (dataset, is_same_split) = recorded(&dir, &path, config)?;
            let tensors = checkpoint::load_params(&path)?;
            return Ok(Some(Self { dir, path, tensors, dataset, draws_split, is_same_split }));
        };
        let read = || -> Result<Option<Files>> {
            let (dataset, is_same_split) = recorded(&dir, &path, config)?;
            let dataset = serde_json::to_vec(&dataset).map_err(|e| Error::run(&dir, e.to_string()))?;
            let params = fs::read(&path).map_err(|e| Error::io(&path, "read", e))?;
            let split = vec![u8::from(is_same_split)];
            Ok(Some(vec![(DATASET.into(), dataset), (SPLIT.into(), split), (PARAMS.into(), params)]))
        };
        let mut files = ranks.files(read)?.unwrap_or_default();
        let mut take = |name: &str| {
            let found = files.iter_mut().find(|(file, _)| file == name);
            found.map(|(_, bytes)| std::mem::take(bytes)).unwrap_or_default()
        };
        let malformed = |e: serde_json::Error| Error::run(&dir, format!("rank 0 has sent no record: {e}"));
        let dataset = serde_json::from_slice(&take(DATASET)).map_err(malformed)?;
        let is_same_split = take(SPLIT) == [1];
        let tensors = tensors::of_contents(&path, take(PARAMS))?;
        Ok(Some(Self { dir, path, tensors, dataset, draws_split, is_same_split }))
    }

    /// Numbers of nodes of each type in the run's dataset and in `data`, whose record is `now` and
    /// which is the same or extends it.
    ///
    /// # Errors
    /// `data` is another dataset, so that rows would belong to other nodes.
    pub(crate) fn growth(&self, now: &DatasetRecord, data: &TypedDataset) -> Result<Vec<[usize; 2]>> {
        let before = self.dataset.as_ref().filter(|before| before.is_same(now) || extends(data, before));
        let counts = before.map(|before| (counts(before), counts(now)));
        match counts.filter(|(before, now)| before.len() == now.len()) {
            Some((before, now)) => {
                Ok(before.into_iter().zip(now).map(|(before, now)| [before, now]).collect())
            }
            None => {
                let then = self.dataset.as_ref().map_or("another dataset".into(), ToString::to_string);
                Err(Error::usage(format!(
                    "--start-from {}: the model has a row for each node of {then}, and {now} is not that \
                     dataset with appended rows, so rows would belong to other nodes; add rows to the run's \
                     dataset with 'graphmill append', or leave the option out",
                    self.dir.display()
                )))
            }
        }
    }

    /// Remarks for the user. The new run is on the dataset of the record `now`.
    pub(crate) fn notes(&self, now: &DatasetRecord) -> Vec<String> {
        let dir = self.dir.display();
        let mut notes = vec![format!(
            "starts from the parameters of the best epoch of {dir}, with a fresh optimiser and schedule"
        )];
        let is_same = self.dataset.as_ref().is_some_and(|before| before.is_same(now));
        if is_same && !self.is_same_split {
            notes.push(format!(
                "{dir} drew other edges to validate and test, so it may have trained on those of this \
                 run, and scores may be too good; give both runs the same --seed, --task, --split-edges and \
                 --valid-fraction"
            ));
        }
        if self.draws_split && !is_same {
            notes.push(format!(
                "the edges that validate and test are drawn from all edges of this dataset, so {dir} may \
                 have trained on some of them, and scores may be too good; if edges have times, \
                 --split-edges time:85,5,10 in both runs tests on later ones"
            ));
        }
        notes
    }
}

/// Dataset of the run in `dir`, whose best model is the file `path`, if recorded, and true unless
/// a run with the configuration `now` draws other edges to validate or test from it.
///
/// # Errors
/// It is no run directory, or has no best model yet.
fn recorded(dir: &Path, path: &Path, now: &TrainConfig) -> Result<(Option<DatasetRecord>, bool)> {
    RunDir::open(dir)?;
    if !path.is_file() {
        let message = "--start-from: the run has no best model yet; wait until its first epoch was scored";
        return Err(Error::run(dir, message));
    }
    let mut of_run = TrainConfig::default();
    of_run.read_file(&RunDir::config_path(dir))?;
    let dataset = Origin::of_run(dir, &of_run)?.map(|origin| origin.dataset);
    let is_drawn = draws_split(now) || now.own.get::<LinkOptions>().valid_fraction > 0.0;
    Ok((dataset, !is_drawn || draws(&of_run) == draws(now)))
}

/// Options that decide which edges validate and test.
fn draws(config: &TrainConfig) -> (u64, &str, EdgeShares, f64) {
    let LinkOptions { split_edges, valid_fraction, .. } = config.own.get();
    (config.seed, &config.task, split_edges, valid_fraction)
}

/// Returns true if `data` has rows that were appended to the dataset `before`, once or several
/// times. Ids of a reordered dataset are not those of the datasets before it.
fn extends(data: &TypedDataset, before: &DatasetRecord) -> bool {
    if data.nodes.iter().any(|nodes| nodes.original_ids.is_some()) {
        return false;
    }
    let Some(checksum) = &before.checksum else { return false };
    let record = data.preprocessing.as_ref().and_then(|record| record["appended"].as_array());
    record.into_iter().flatten().any(|appended| appended["checksum"].as_str() == Some(checksum))
}

/// Numbers of nodes of the types, or of the only one.
fn counts(of: &DatasetRecord) -> Vec<usize> {
    match &of.node_types[..] {
        [] => vec![of.nodes],
        types => types.iter().map(|of| of.count as usize).collect(),
    }
}
