//! The dataset of a command: of one type, or of several.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use graphmill_core::progress::Progress;
use graphmill_data::{self as data, typed::has_several_types};
use graphmill_engine::{
    Error, Result, RunContext, TrainConfig,
    record::{Origin, Summary},
    saved::{
        Kind, SavedRun, Scores, Selection, Written,
        on::{NewTables, WrittenNew},
    },
    typed::{self, SavedTypedRun},
};
use pyo3::prelude::*;

use super::{dataset::Dataset, typed::TypedDataset};

/// Dataset that a caller passes.
#[derive(FromPyObject)]
pub(super) enum Given<'py> {
    One(PyRef<'py, Dataset>),
    Several(PyRef<'py, TypedDataset>),
}

/// Its data, for threads without Python.
pub(super) enum Data {
    One(Arc<data::Dataset>),
    Several(Arc<data::TypedDataset>),
}

impl Given<'_> {
    /// The data.
    pub(super) fn data(&self) -> Data {
        match self {
            Self::One(dataset) => Data::One(dataset.data.clone()),
            Self::Several(dataset) => Data::Several(dataset.data.clone()),
        }
    }

    /// Directory of the dataset, if it has one.
    fn path(&self) -> Option<&PathBuf> {
        match self {
            Self::One(dataset) => dataset.path.as_ref(),
            Self::Several(dataset) => dataset.path.as_ref(),
        }
    }

    /// Records the directory of the dataset in `config`, or that it has none.
    ///
    /// # Errors
    /// A dataset of several types has none.
    pub(super) fn locate(&self, config: &mut TrainConfig) -> Result<()> {
        if let (Self::Several(dataset), None) = (self, self.path()) {
            return Err(Error::Usage(format!(
                "{}: training on several types reads the dataset from its directory; call save(path) and \
                 pass the path",
                dataset.data.name
            )));
        }
        locate(config, self.path().map(PathBuf::as_path));
        Ok(())
    }
}

/// Records the directory of a dataset in `config`, or that it has none.
pub(super) fn locate(config: &mut TrainConfig, path: Option<&Path>) {
    let path = path.and_then(|path| std::path::absolute(path).ok());
    config.dataset = path.as_deref().and_then(Path::to_str).unwrap_or_default().to_string();
}

impl Data {
    /// Opens the dataset of the run in `dir`.
    ///
    /// # Errors
    /// It cannot be read, or has changed.
    pub(super) fn of_run(dir: &Path, config: &TrainConfig) -> Result<Self> {
        if let Some(data) = typed::open_dataset(config)? {
            return Ok(Self::Several(Arc::new(data)));
        }
        Ok(Self::One(Arc::new(Origin::open_of(Origin::of_run(dir, config)?.as_ref(), dir, config)?)))
    }

    /// Trains on the dataset.
    ///
    /// # Errors
    /// Those of training.
    pub(super) fn train(&self, config: &TrainConfig, context: RunContext) -> Result<Summary> {
        match self {
            // the features of edges are not part of a dataset of one type
            Self::One(data) => match typed::open_dataset(config)? {
                Some(typed) => typed::train(config, &typed, context),
                None => graphmill_engine::train(config, data, context),
            },
            Self::Several(data) => typed::train(config, data, context),
        }
    }

    /// Scores the model of `run` on `given`, or on the run's dataset.
    ///
    /// # Errors
    /// Those of scoring, or the run has another number of types.
    pub(super) fn scores(given: Option<&Self>, run: &SavedRun, watch: &dyn Progress) -> Result<Scores> {
        match (SavedTypedRun::of(run), given) {
            (Some(typed), Some(Self::Several(data))) => typed.scores(data, watch),
            (Some(typed), None) => typed.scores(&typed.dataset(None)?, watch),
            (None, Some(Self::One(data))) => run.scores(data, watch),
            (None, None) => run.scores(&run.dataset(None)?, watch),
            (of_run, _) => Err(other_types(of_run.is_some())),
        }
    }

    /// Writes predictions of the model of `run` for nodes of `given`, or of the run's dataset.
    ///
    /// # Errors
    /// Those of predictions, or the run has another number of types.
    pub(super) fn predict(
        given: Option<&Self>,
        run: &SavedRun,
        (nodes, original): (Option<&Path>, bool),
        (kind, out): (Kind, &Path),
        watch: &dyn Progress,
    ) -> Result<Written> {
        let selection = nodes.map_or(Selection::All, Selection::Nodes);
        match (SavedTypedRun::of(run), given) {
            (Some(_), _) if original => Err(Error::Usage(
                "original_ids: datasets of several types are not reordered; leave it out".into(),
            )),
            (Some(typed), Some(Self::Several(data))) => typed.predict(data, selection, kind, out, watch),
            (Some(typed), None) => typed.predict(&typed.dataset(None)?, selection, kind, out, watch),
            (None, Some(Self::One(data))) => run.predict(data, nodes, original, kind, out, watch),
            (None, None) => run.predict(&run.dataset(None)?, nodes, original, kind, out, watch),
            (of_run, _) => Err(other_types(of_run.is_some())),
        }
    }

    /// Writes predictions of the model of `run` for new nodes, which `given` or the run's dataset
    /// does not hold.
    ///
    /// # Errors
    /// Those of predictions, or the run has another number of types.
    pub(super) fn predict_new(
        given: Option<&Self>,
        run: &SavedRun,
        new: &NewTables,
        (kind, out): (Kind, &Path),
        watch: &Arc<dyn Progress>,
    ) -> Result<WrittenNew> {
        match (SavedTypedRun::of(run), given) {
            (Some(typed), Some(Self::Several(data))) => typed.predict_new(data, new, kind, out, watch),
            (Some(typed), None) => typed.predict_new(&typed.dataset(None)?, new, kind, out, watch),
            (None, Some(Self::One(data))) => run.predict_new(data, new, kind, out, watch),
            (None, None) => run.predict_new(&run.dataset(None)?, new, kind, out, watch),
            (of_run, _) => Err(other_types(of_run.is_some())),
        }
    }
}

/// Error of a dataset with another number of types than that of a run.
fn other_types(run_has_several: bool) -> Error {
    Error::Usage(
        if run_has_several {
            "dataset: the run was trained on several types; pass a TypedDataset, or leave it out"
        } else {
            "dataset: the run was trained on one type; pass a Dataset, or leave it out"
        }
        .into(),
    )
}

/// Returns true if the directory holds a dataset of several node types, edge types or tasks.
#[pyfunction]
pub(super) fn is_typed(path: PathBuf) -> bool {
    has_several_types(path)
}
