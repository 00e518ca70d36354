//! The dataset of a command: of one type, or of several.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use graphmill_core::progress::Progress;
use graphmill_data::{
    self as data,
    typed::{self, Verify, has_several_types},
};
use graphmill_engine::{
    AnyDataset, CandidateOptions, EmbedOptions, Error, Result, RunContext, TrainConfig,
    config::link_task::learns_edge_targets,
    embedding::SavedEmbedding,
    events::SavedEvents,
    predictor::LinkPredictor,
    record::{Origin, Summary},
    saved::{
        Kind, SavedRun, Scores, Selection, Written,
        links::{BestLinks, Reading},
        on::{BestOfNew, NewTables, WrittenNew},
    },
    typed::{SavedTypedRun, links::SavedTypedLinks, open_dataset as open_typed},
};
use pyo3::prelude::*;

use super::{dataset::Dataset, typed::TypedDataset};

/// Dataset that a caller passes.
#[derive(FromPyObject)]
pub(super) enum Given<'py> {
    One(PyRef<'py, Dataset>),
    Several(PyRef<'py, TypedDataset>),
    Directory(PathBuf),
}

/// Its data, for threads without Python.
pub(super) enum Data {
    One(Arc<data::Dataset>),
    Several(Arc<data::TypedDataset>),
    /// A dataset of any kind, which is opened as a run needs it.
    Directory(PathBuf),
}

/// Source of the dataset of a command on a run.
enum Source<'d> {
    One(&'d data::Dataset),
    Several(&'d data::TypedDataset, SavedTypedRun<'d>),
    /// A directory; `None` for that of the run's dataset.
    Directory(Option<&'d Path>),
}

impl Given<'_> {
    /// The data.
    pub(super) fn data(&self) -> Data {
        match self {
            Self::One(dataset) => Data::One(dataset.data.clone()),
            Self::Several(dataset) => Data::Several(dataset.data.clone()),
            Self::Directory(path) => Data::Directory(path.clone()),
        }
    }

    /// Directory of the dataset, if it has one.
    fn path(&self) -> Option<&PathBuf> {
        match self {
            Self::One(dataset) => dataset.path.as_ref(),
            Self::Several(dataset) => dataset.path.as_ref(),
            Self::Directory(path) => Some(path),
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
    /// The dataset of the run in `dir`.
    ///
    /// # Errors
    /// It cannot be read, or has changed.
    pub(super) fn of_run(dir: &Path, config: &TrainConfig) -> Result<Self> {
        let origin = Origin::of_run(dir, config)?;
        Ok(match Origin::locate_of(origin.as_ref(), dir, config)? {
            Some(path) => Self::Directory(path.to_path_buf()),
            None => Self::One(Arc::new(Origin::open_of(origin.as_ref(), dir, config)?)),
        })
    }

    /// Trains on the dataset, whose directory, if it has one, is that of `config`.
    ///
    /// # Errors
    /// Those of training.
    pub(super) fn train(&self, config: &TrainConfig, context: RunContext) -> Result<Summary> {
        match self {
            // a model of types reads the directory
            Self::One(data) => match open_typed(config)? {
                Some(_) => AnyDataset::open(config)?.train(config, context),
                None => graphmill_engine::train(config, data, context),
            },
            Self::Several(_) | Self::Directory(_) => AnyDataset::open(config)?.train(config, context),
        }
    }

    /// Source of the dataset for a command on `run`: `given`, or the run's dataset.
    ///
    /// # Errors
    /// The run has another number of types.
    fn source<'d>(given: Option<&'d Self>, run: &'d SavedRun) -> Result<Source<'d>> {
        let typed = SavedTypedRun::of(run);
        let reads_directory = SavedEmbedding::of(run).is_some()
            || SavedEvents::of(run).is_some()
            || SavedTypedLinks::of(run).is_some()
            // such edges become nodes as the dataset is opened
            || learns_edge_targets(run.config());
        Ok(match (given, typed) {
            (None, _) => Source::Directory(None),
            (Some(Self::Directory(path)), _) => Source::Directory(Some(path)),
            (Some(Self::Several(data)), of_run) if reads_directory || run.ranks_links() => {
                let path = data.directory.as_deref().ok_or_else(|| other_types(of_run.is_some()))?;
                Source::Directory(Some(path))
            }
            (Some(Self::Several(data)), Some(typed)) => {
                // rows of the task become nodes as the dataset is opened
                match data.directory.as_deref().filter(|_| typed.adds_rows(data)) {
                    Some(path) => Source::Directory(Some(path)),
                    None => Source::Several(data, typed),
                }
            }
            (Some(Self::One(data)), of_run) if reads_directory || of_run.is_some() => {
                let path = data.directory.as_deref().ok_or_else(|| other_types(true))?;
                Source::Directory(Some(path))
            }
            (Some(Self::One(data)), None) => Source::One(data),
            (Some(Self::One(_) | Self::Several(_)), of_run) => return Err(other_types(of_run.is_some())),
        })
    }

    /// Scores the model of `run` on `given`, or on the run's dataset.
    ///
    /// # Errors
    /// Those of scoring, or the run has another number of types.
    pub(super) fn scores(given: Option<&Self>, run: &SavedRun, watch: &dyn Progress) -> Result<Scores> {
        match Self::source(given, run)? {
            Source::One(data) => run.scores(data, watch),
            Source::Several(data, typed) => typed.scores(data, watch),
            Source::Directory(other) => run.scores_on(other, watch),
        }
    }

    /// Writes predictions of the model of `run` for nodes of `given`, or of the run's dataset.
    ///
    /// # Errors
    /// Those of predictions, or the run has another number of types.
    pub(super) fn predict(
        given: Option<&Self>,
        run: &SavedRun,
        (nodes, original): (Selection, bool),
        (kind, out): (Kind, &Path),
        watch: &dyn Progress,
    ) -> Result<Written> {
        match Self::source(given, run)? {
            Source::One(data) => run.predict_selection(data, nodes, original, kind, out, watch),
            Source::Several(data, typed) => typed.predict(data, nodes, original, kind, out, watch),
            Source::Directory(other) => Ok(run.predict_on(other, (nodes, original), (kind, out), watch)?.1),
        }
    }

    /// Writes embeddings of nodes of `given`, or of the run's dataset.
    ///
    /// # Errors
    /// Those of embeddings, or the run has another number of types.
    pub(super) fn embed(
        given: Option<&Self>,
        run: &SavedRun,
        (nodes, options): (Selection, EmbedOptions),
        out: &Path,
        watch: &dyn Progress,
    ) -> Result<Written> {
        match Self::source(given, run)? {
            Source::One(data) => run.embed(data, nodes, options, out, watch),
            Source::Several(data, typed) => typed.embed(data, nodes, options, out, watch),
            Source::Directory(other) => Ok(run.embed_on(other, nodes, options, out, watch)?.1),
        }
    }

    /// Best candidates of nodes of `given`, or of the run's dataset.
    ///
    /// # Errors
    /// Those of candidates, or the run has another number of types.
    pub(super) fn candidates(
        given: Option<&Self>,
        run: &SavedRun,
        nodes: Selection,
        options: CandidateOptions,
        watch: &dyn Progress,
    ) -> Result<BestLinks> {
        match Self::source(given, run)? {
            Source::One(data) => run.candidates(data, nodes, options, watch),
            Source::Several(..) => run.candidates_on(None, nodes, options, watch),
            Source::Directory(other) => run.candidates_on(other, nodes, options, watch),
        }
    }

    /// Best candidates of new nodes, which `given` or the run's dataset does not hold.
    ///
    /// # Errors
    /// Those of candidates, or the run has another number of types.
    pub(super) fn candidates_of_new(
        given: Option<&Self>,
        run: &SavedRun,
        new: &NewTables,
        options: CandidateOptions,
        watch: &Arc<dyn Progress>,
    ) -> Result<BestOfNew> {
        let found = match Self::source(given, run)? {
            Source::One(data) => run.new_candidates_on(data.directory.as_deref(), new, options, watch),
            Source::Several(..) => run.new_candidates_on(None, new, options, watch),
            Source::Directory(other) => run.new_candidates_on(other, new, options, watch),
        };
        Ok(found?.1)
    }

    /// Opens `run`, which learned links, for `given` or the run's dataset.
    ///
    /// # Errors
    /// Those of opening, or the run has another number of types.
    pub(super) fn links(
        given: Option<&Self>,
        run: &SavedRun,
        reading: Reading,
        watch: &dyn Progress,
    ) -> Result<LinkPredictor> {
        match Self::source(given, run)? {
            Source::One(data) => LinkPredictor::new(run.clone(), data, reading, watch),
            Source::Several(..) => LinkPredictor::of(run.clone(), None, reading, watch),
            Source::Directory(other) => LinkPredictor::of(run.clone(), other, reading, watch),
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
        match (Self::source(given, run)?, SavedTypedRun::of(run)) {
            (Source::One(data), _) => run.predict_new(data, new, kind, out, watch),
            (Source::Several(data, typed), _) => typed.predict_new(data, new, kind, out, watch),
            (Source::Directory(other), Some(typed)) => {
                typed.predict_new(&typed.dataset(other)?, new, kind, out, watch)
            }
            (Source::Directory(other), None) => run.predict_new(&run.dataset(other)?, new, kind, out, watch),
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

/// Returns true if the directory holds a dataset of several node types, edge types or tasks, or of
/// another task than the classification of nodes.
#[pyfunction]
pub(super) fn is_typed(py: Python<'_>, path: PathBuf) -> bool {
    let is_other = || typed::open(&path, Verify::Once).is_ok_and(|data| !data.is_one_type());
    has_several_types(&path) || typed::is_typed(&path) && py.detach(is_other)
}
