//! Saved runs, finished or interrupted: scoring their models and predicting with them.

#![forbid(unsafe_code)]

mod as_of;
pub mod export;
mod finite;
mod infer;
pub(crate) mod keys;
pub mod links;
mod node_list;
#[cfg(feature = "tables")]
pub mod on;
pub mod predictions;
pub mod predictor;
mod propagated;
mod scores;

use std::path::{Path, PathBuf};

use graphmill_core::{ClassColumn, Graph, progress::Progress};
use graphmill_data::{Dataset, dataset::Rescaling, verification::Verify};
use graphmill_nn::{Matrix, model::Model, regression::TargetScale};
use serde::Serialize;

pub(crate) use finite::{check_outputs, numbered};
pub(crate) use infer::{ClassOutputs, first_largest, no_probabilities, values};
use node_list::ids_by_original;
#[cfg(feature = "fuzz")]
pub(crate) use node_list::read_nodes;
pub use propagated::{Propagation, PropagationRecord};
pub use scores::{PartScores, Scores};

use crate::{
    Error, Result, RunDir, TrainConfig, bottom, build, checkpoint,
    label_inputs::LabelColumns,
    link::structure,
    memory,
    predictions::{Identity, Predictions, Target},
    record::{DatasetRecord, Origin, sizes},
    run,
    tiers::AllRows,
};

/// Nodes to predict.
#[derive(Clone, Copy, Debug)]
pub enum Selection<'p> {
    /// All nodes, in order.
    All,
    /// Nodes of a list file: one id per line, or a `.npy` of integers. A list with words holds
    /// keys.
    Nodes(&'p Path),
    /// Nodes of a list of their original keys: one per line, or a CSV table with the columns of the
    /// key.
    Keys(&'p Path),
    /// Nodes of a list such as `acc-7,acc-9`: keys, or ids if the dataset has no keys.
    List(&'p str),
    /// Nodes of these keys. The parts of a key of several columns are joined by `|`.
    KeyList(&'p [String]),
}

/// Choice of embeddings.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmbedOptions<'a> {
    /// Node type, for a table of embeddings, links of several types or events; the first that the
    /// run learned by default.
    pub node_type: Option<&'a str>,
    /// True to read all edges, for a run on links, and not those of training only.
    pub all_edges: bool,
    /// Time that only earlier events, or nodes and edges, are read for; all by default. A run on
    /// links reads no times.
    pub at: Option<i64>,
}

/// A run directory that holds a model.
#[derive(Clone)]
pub struct SavedRun {
    pub(crate) dir: PathBuf,
    pub(crate) config: TrainConfig,
    /// Training dataset, if recorded; for older runs, read from the checkpoint or the summary.
    pub(crate) origin: Option<Origin>,
    /// True for the model of the last checkpoint, false for the best one.
    last: bool,
    /// Propagation after the model.
    propagation: Option<Propagation>,
    /// Time as of which nodes are predicted.
    at: Option<i64>,
}

/// Contents of the output of `predict`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `N` classes (i64), `N x K` if nodes have a class in each of `K` columns, `N x C` zeros and
    /// ones (u8) if they have several labels, or `N` or `N x C` values (f32) if the run predicts
    /// values.
    Classes,
    /// `N x C` probabilities (f32).
    Probabilities,
    /// `N x H` last hidden rows (f32), see [`crate::inference::Output::Embeddings`].
    Embeddings,
}

impl Kind {
    /// Name in the output of commands.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Classes => "classes",
            Self::Probabilities => "probabilities",
            Self::Embeddings => "embeddings",
        }
    }
}

/// Summary of the output of [`SavedRun::predict`].
#[derive(Clone, Debug, Serialize)]
pub struct Written {
    /// Path of the file.
    pub out: PathBuf,
    /// Number of nodes `N`.
    pub rows: usize,
    /// Number of values per row.
    pub cols: usize,
    /// "classes", "values", "probabilities", "embeddings" or "links".
    pub kind: &'static str,
    /// True if the dataset is the run's training dataset; `None` if the run did not record it.
    pub same_dataset: Option<bool>,
    /// Description of the conversion of another dataset's features to the scale of the run, if any.
    pub rescaled: Option<String>,
}

impl Written {
    /// Summary of a file of the run's own dataset.
    pub(crate) fn of_own(out: &Path, [rows, cols]: [usize; 2], kind: &'static str) -> Self {
        Self { out: out.to_path_buf(), rows, cols, kind, same_dataset: Some(true), rescaled: None }
    }
}

impl SavedRun {
    /// Opens the run in `dir`, with its best model or, if `last`, its last checkpoint.
    ///
    /// # Errors
    /// The directory is not a run, or its configuration cannot be read.
    pub fn open(dir: &Path, last: bool) -> Result<Self> {
        let file = RunDir::config_path(dir);
        if !file.exists() {
            return Err(Error::format(
                dir,
                "config.toml",
                "the file is missing, so this is not a run directory; pass a directory that train --out \
                 wrote",
            ));
        }
        let mut config = TrainConfig::default();
        config.read_file(&file)?;
        config.check().map_err(|error| Error::format(&file, "options", error.to_string()))?;
        run::check_recorded(dir, &config)?;
        let origin = Origin::of_run(dir, &config)?;
        Ok(Self { dir: dir.to_path_buf(), config, origin, last, propagation: None, at: None })
    }

    /// The run's configuration.
    pub fn config(&self) -> &TrainConfig {
        &self.config
    }

    /// Opens the run's dataset, or the `other` one.
    ///
    /// # Errors
    /// The dataset cannot be read; the run's own dataset was in memory, has moved or has changed.
    pub fn dataset(&self, other: Option<&Path>) -> Result<Dataset> {
        let special = if self.learns_events() {
            Some(format!("a stream of events (--model {})", self.config.model))
        } else {
            self.learns_typed_links().then(|| "links of several types or with edge features".to_string())
        };
        if let Some(special) = special {
            return Err(Error::usage(format!(
                "{}: the run learned {special}, which only graphmill eval, embed and predict --top-k read",
                self.dir.display()
            )));
        }
        match other {
            Some(path) if self.learns_links() => build::open_graph(path, Verify::Once),
            Some(path) => Ok(Dataset::open(path)?),
            None => Origin::open_of(self.origin.as_ref(), &self.dir, &self.config),
        }
    }

    /// Returns true if `data` is the run's training dataset, by its checksum; `None` if the run did
    /// not record it.
    ///
    /// # Errors
    /// The checksum cannot be computed.
    pub fn is_own(&self, data: &Dataset) -> Result<Option<bool>> {
        let Some(origin) = &self.origin else { return Ok(None) };
        Ok(Some(DatasetRecord::identified(data)?.is_same(&origin.dataset)))
    }

    /// Directory of the run's dataset: that of `data`, or the recorded one if it still holds it.
    /// The names of its classes are those of the model's, whatever the classes of `data` are
    /// called.
    fn trained_on(&self, data: &Dataset) -> Result<Option<PathBuf>> {
        if self.is_own(data)? == Some(true) {
            return Ok(data.directory.clone());
        }
        let recorded = self.origin.as_ref().and_then(|origin| origin.path.clone());
        let Some(dir) = recorded.filter(|dir| dir.join("nodes").is_dir()) else { return Ok(None) };
        let own = Dataset::open(&dir).ok().map(|data| self.is_own(&data)).transpose()?.flatten();
        Ok((own == Some(true)).then_some(dir))
    }

    /// The configuration for inference on `data`: features beyond the host budget are read from the
    /// directory of `data`; without a directory, tiers are disabled.
    fn config_for(&self, data: &Dataset) -> TrainConfig {
        let mut config = self.config.clone();
        match data.directory.as_deref().and_then(Path::to_str) {
            Some(path) => config.dataset = path.into(),
            None => {
                config.dataset.clear();
                (config.host_budget, config.cache_ratio) = Default::default();
            }
        }
        config
    }

    /// Conversion of rows of `data` to the scale of the run's training features; `None` if the
    /// scales are equal or the run did not record its scale.
    fn rescaling(&self, data: &Dataset) -> Result<Option<Rescaling>> {
        let Some(of_run) = self.origin.as_ref().and_then(|origin| origin.features.as_ref()) else {
            return Ok(None);
        };
        let (from, to) = (data.normalization.as_ref(), of_run.normalization.as_ref());
        Rescaling::between(from, to).map_err(|error| Error::dataset(&data.name, error.to_string()))
    }

    /// Input rows of `data`: its features at the scale of the run, followed by the labels of its
    /// training nodes if the run reads labels.
    fn rows(&self, data: &Dataset, rescaling: Option<&Rescaling>) -> Result<AllRows> {
        Ok(self.feature_rows(data, rescaling)?.with_labels(self.label_columns(data)?))
    }

    /// Feature rows of `data` at the scale of the run.
    fn feature_rows(&self, data: &Dataset, rescaling: Option<&Rescaling>) -> Result<AllRows> {
        let config = &self.config_for(data);
        self.blame_config(match rescaling {
            Some(rescaling) => AllRows::rescaled(config, data, rescaling.clone()),
            None => bottom::all_rows(config, data),
        })
    }

    /// Labels of the training nodes of `data` as columns, if the run reads labels.
    fn label_columns(&self, data: &Dataset) -> Result<Option<LabelColumns>> {
        self.blame_config(match &self.origin {
            Some(origin) => {
                LabelColumns::for_model(&self.config, data, &origin.dataset, origin.targets.as_ref())
            }
            None => LabelColumns::new(&self.config, data, self.num_classes(data)),
        })
    }

    /// Number of classes or targets of the run, or of `data` if the run did not record it.
    fn num_classes(&self, data: &Dataset) -> usize {
        self.origin.as_ref().map_or(data.labels.classes(), |origin| origin.dataset.classes)
    }

    /// Refuses data whose feature width, or with `scored` whose classes, differ from those of the
    /// run's training dataset.
    fn check_fit(&self, data: &Dataset, scored: bool) -> Result<()> {
        let Some(Origin { dataset: own, .. }) = &self.origin else { return Ok(()) };
        let refuse = |what: String| {
            Err(Error::dataset(&data.name, format!("{what}; pass a dataset with the shape of {own}")))
        };
        if data.features.dim > 0 && data.features.dim != own.feature_dim {
            return refuse(format!(
                "its features have {} columns, but the model was trained on {}",
                data.features.dim, own.feature_dim
            ));
        }
        let columns = data.labels.columns();
        if scored && columns != own.columns {
            let named = |columns: &[ClassColumn]| match columns {
                [] => "no columns of classes".to_string(),
                columns => format!("the columns of classes {}", sizes(columns)),
            };
            return refuse(format!(
                "its nodes have {}, but the model was trained on {}",
                named(columns),
                named(&own.columns)
            ));
        }
        let now = (data.labels.classes(), data.labels.is_multi(), data.labels.is_values());
        if scored && now != (own.classes, own.multilabel, own.values) {
            let kind = |multi, values| match (multi, values) {
                (true, _) => "labels at once",
                (false, true) => "values",
                (false, false) => "classes",
            };
            return refuse(format!(
                "its nodes have {} {}, but the model was trained on {} {}",
                data.labels.classes(),
                kind(data.labels.is_multi(), data.labels.is_values()),
                own.classes,
                kind(own.multilabel, own.values)
            ));
        }
        Ok(())
    }

    /// Name of the predictions of a kind in the output of commands.
    pub(crate) fn name_of(&self, kind: Kind) -> &'static str {
        if kind == Kind::Classes && self.target_scale().is_some() { "values" } else { kind.name() }
    }

    /// Scale of the run's targets, if they are values.
    pub(crate) fn target_scale(&self) -> Option<&TargetScale> {
        self.origin.as_ref().and_then(|origin| origin.targets.as_ref())
    }

    /// Returns the outputs of the model to the scale of the targets, if they are values.
    pub(crate) fn undo_scale(&self, rows: &mut Matrix) {
        if let Some(scale) = self.target_scale() {
            scale.undo(rows.view_mut().host());
        }
    }

    /// Loads the model with its saved weights, for a dataset of the same widths.
    ///
    /// # Errors
    /// The weights cannot be read or do not fit the dataset.
    pub fn model(&self, data: &Dataset) -> Result<Model> {
        self.model_around(data, &data.graph)
    }

    /// [`SavedRun::model`] whose decoder reads the structure of this graph, if it reads one.
    fn model_around(&self, data: &Dataset, graph: &Graph) -> Result<Model> {
        let structure = || structure::of_graph(&self.config, graph);
        let classes = self.num_classes(data);
        let mut model = self.blame_config(build::model_of(&self.config, data, classes, structure))?;
        checkpoint::load_model(&self.model_file()?, &mut model)?;
        Ok(model)
    }

    /// File of the weights.
    ///
    /// # Errors
    /// The run has not saved a model yet.
    pub(crate) fn model_file(&self) -> Result<PathBuf> {
        let file =
            if self.last { RunDir::last_model(&self.dir)? } else { RunDir::best_model_path(&self.dir) };
        if file.try_exists().map_err(|e| Error::io(&file, "look for", e))? {
            return Ok(file);
        }
        let message = "this run has no best model yet, because it has not finished an epoch; continue it \
                       with train --resume";
        Err(Error::format(file, "file", message))
    }

    /// Writes predictions to `out` in the format of its ending.
    ///
    /// `nodes` is a list file, with one id per line or a `.npy` of integers; `None` selects all
    /// nodes. Ids are those of `data`, or with `original` those from before reordering, which also
    /// order the rows if all nodes are selected. As of a time ([`SavedRun::as_of`]), all nodes are
    /// those that exist then.
    ///
    /// # Errors
    /// The model or the list cannot be read, a node is outside the graph, the dataset has no
    /// `original` ids, `out` cannot be written, or `watch` stops the work.
    pub fn predict(
        &self,
        data: &Dataset,
        nodes: Option<&Path>,
        original: bool,
        kind: Kind,
        out: &Path,
        watch: &dyn Progress,
    ) -> Result<Written> {
        let selection = nodes.map_or(Selection::All, Selection::Nodes);
        self.predict_selection(data, selection, original, kind, out, watch)
    }

    /// Writes predictions as [`SavedRun::predict`] does. If the dataset has keys, tables have their
    /// columns instead of ids, and the names of the classes.
    ///
    /// # Errors
    /// As for [`SavedRun::predict`]; a key is unknown.
    pub fn predict_selection(
        &self,
        data: &Dataset,
        selection: Selection,
        original: bool,
        kind: Kind,
        out: &Path,
        watch: &dyn Progress,
    ) -> Result<Written> {
        if self.learns_links() {
            return match kind {
                Kind::Embeddings if !original => {
                    self.embed_links(data, selection, links::Reading::Training, out, watch)
                }
                _ => Err(Error::usage(
                    "the run learned links, so it predicts no classes and knows no original ids; write its \
                     embeddings, or the best candidates of nodes (graphmill predict --top-k)",
                )),
            };
        }
        let target = Target::new(out)?;
        self.check_fit(data, false)?;
        let past = self.past_of(data)?;
        let data = past.as_ref().map_or(data, |past| &past.data);
        let mut names = keys::Names::of(data, self.trained_on(data)?.as_deref())?;
        names.columns = self.columns().to_vec();
        let original = original.then(|| ids_by_original(data)).transpose()?;
        let is_all = matches!(selection, Selection::All);
        if is_all {
            let all = TrainConfig { eval_nodes: 0, ..self.config.clone() };
            self.blame_config(memory::check(&all, data))?;
        }
        let (mut nodes, by_key) = names.find(selection, data.num_nodes(), &data.name)?;
        let mut requested = nodes.clone();
        if let Some(new) = original.filter(|_| !by_key) {
            nodes.iter_mut().for_each(|v| *v = new[*v as usize]);
        }
        let time = past.as_ref().and_then(as_of::Past::time);
        self.keep_existing(time, is_all, (&mut requested, &mut nodes))?;
        let rescaling = self.rescaling(data)?;
        let features = self.rows(data, rescaling.as_ref())?;
        let identity = Identity { ids: requested.clone(), ..names.identity(&nodes) };
        let inferred = self.infer(data, &features, &nodes, kind, watch);
        let (cols, values) = inferred.map_err(|error| error.with_row_name(|row| identity.row_name(row)))?;
        target.write(&Predictions { nodes: requested.clone(), cols, values, identity: Some(identity) })?;
        Ok(Written {
            out: out.to_path_buf(),
            rows: requested.len(),
            cols,
            kind: self.name_of(kind),
            same_dataset: self.is_own(data)?,
            rescaled: rescaling.as_ref().map(Rescaling::description),
        })
    }

    /// Attributes an invalid option to the run's configuration, because it was not on the command
    /// line.
    pub(crate) fn blame_config<T>(&self, built: Result<T>) -> Result<T> {
        built.map_err(|error| match error {
            Error::Usage(message) => Error::format(RunDir::config_path(&self.dir), "options", message),
            other => other,
        })
    }
}
