//! Training in one call, and the trained model in memory, for programs that hold their arrays.
//! Commands write a run directory and open it again ([`crate::saved`]).

#![forbid(unsafe_code)]

use std::path::Path;

use graphmill_core::{ClassColumn, NodeId};
use graphmill_data::{Dataset, typed::TypedDataset};
use graphmill_nn::{Matrix, backend::Cpu, model::Model, regression::TargetScale, typed::TypedModel};

use crate::{
    Error, Result, RunContext, TrainConfig, bottom, build,
    config::{
        IN_MEMORY,
        link_task::{is_typed_link, learns_edge_targets},
    },
    inference::{Inference, Output},
    label_inputs::LabelColumns,
    observer::{Observer, Progress, Quiet, Start},
    options::{is_typed, names},
    record::{EpochRecord, Summary, sizes},
    saved::{ClassOutputs, first_largest},
    trainer::train,
    typed,
};

/// Model of the best epoch of a run, with the run's configuration and summary.
#[derive(Clone)]
pub struct TrainedModel {
    model: AnyModel,
    config: TrainConfig,
    summary: Summary,
    /// True if a node may have several labels.
    multilabel: bool,
    /// Columns of classes, if a node has a class in each of several.
    columns: Vec<ClassColumn>,
    /// Scale of the targets, if they are values.
    scale: Option<TargetScale>,
    /// Identity of the dataset whose nodes have learned rows, if the model has some.
    rows_of: Option<String>,
}

/// Model by the kind of graph that it reads.
#[derive(Clone)]
enum AnyModel {
    OneType(Box<Model>),
    /// Of types, on a graph of one: it may learn a row of each node.
    Types(Box<TypedModel>),
}

/// Trains a model on `data` and returns it, without writing files.
///
/// If only one of `layers` and `fanout` differs from its default, the other is derived from it. The
/// run uses `config.threads` threads, or those of the current pool if it is 0.
///
/// ```
/// use graphmill_data::generate::{GenerateOptions, generate};
/// use graphmill_engine::{TrainConfig, fit};
///
/// let data = generate("sbm", &GenerateOptions { nodes: 300, classes: 3, dim: 8, ..Default::default() })?;
/// let trained = fit(&TrainConfig { epochs: 3, hidden: 16, ..TrainConfig::default() }, &data)?;
/// let classes = trained.classes(&data, &[0, 1, 2])?;
/// assert!(classes.iter().all(|&class| class < 3));
/// # Ok::<(), graphmill_engine::Error>(())
/// ```
///
/// # Errors
/// The errors of [`train`], or an option that the run would ignore.
pub fn fit(config: &TrainConfig, data: &Dataset) -> Result<TrainedModel> {
    let mut quiet = Quiet;
    fit_with(config, data, RunContext { run: None, resume: false, observer: &mut quiet, stop: &|| false })
}

/// [`fit`] with a run directory, an observer or a stop condition.
///
/// # Errors
/// As [`fit`].
pub fn fit_with(config: &TrainConfig, data: &Dataset, context: RunContext) -> Result<TrainedModel> {
    let mut config = with_directory_of(config, data);
    let given = config.beyond_defaults(&names());
    config.derive_options(&given)?;
    config.refuse_unused(&given)?;
    if is_typed(&config) && (is_typed_link(&config) || learns_edge_targets(&config)) {
        let message = "it learns edges, and a TrainedModel of types answers for nodes; train with \
                       AnyDataset, and read the run with SavedRun";
        return Err(Error::usage(format!("--model {}: {message}", config.model)));
    }
    if !is_typed(&config) {
        let resumed = context.run.filter(|_| context.resume);
        let (chosen, note) = bottom::chosen(&config, data, None, resumed)?;
        note.iter().for_each(|note| context.observer.note(note));
        config = chosen.into_owned();
    }
    let work = || train_any(&config, data, context);
    let (summary, model) = match config.threads {
        0 => work(),
        threads => {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            pool.map_err(|e| Error::usage(format!("--threads {threads}: {e}")))?.install(work)
        }
    }?;
    let (multilabel, scale) = (data.labels.is_multi(), build::target_scale(&config, data));
    let scale = scale.filter(|_| !model.learned_links());
    let columns = data.labels.columns().to_vec();
    let learns_rows = matches!(model, AnyModel::Types(_)) && data.features.dim == 0;
    let rows_of = if learns_rows { Some(data.identity()?) } else { None };
    Ok(TrainedModel { model, config, summary, multilabel, columns, scale, rows_of })
}

/// Trains a model of either kind.
fn train_any(config: &TrainConfig, data: &Dataset, context: RunContext) -> Result<(Summary, AnyModel)> {
    if is_typed(config) {
        let (summary, model) = typed::train_model(config, &typed_of(config, data)?, context)?;
        return Ok((summary, AnyModel::Types(Box::new(model))));
    }
    let RunContext { run, resume, observer, stop } = context;
    let mut observer = ModelCapture { observer, model: None };
    let summary = train(config, data, RunContext { run, resume, observer: &mut observer, stop })?;
    let model = observer.model.expect("a run that succeeds passes its model to the observer");
    Ok((summary, AnyModel::OneType(Box::new(model))))
}

/// The dataset as a model of types reads it: its directory, or its arrays.
fn typed_of(config: &TrainConfig, data: &Dataset) -> Result<TypedDataset> {
    let of_arrays = || TypedDataset { checksum: data.checksum.clone(), ..TypedDataset::from_dataset(data) };
    Ok(typed::open_dataset(config)?.unwrap_or_else(of_arrays))
}

impl AnyModel {
    fn learned_links(&self) -> bool {
        matches!(self, Self::OneType(model) if model.decoder().is_some())
    }
}

impl TrainedModel {
    /// Losses, scores and timings of the run.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Options of the run, with derived values filled in.
    pub fn config(&self) -> &TrainConfig {
        &self.config
    }

    /// The model with its trained weights; `None` if it is a model of types.
    pub fn model(&self) -> Option<&Model> {
        match &self.model {
            AnyModel::OneType(model) => Some(model),
            AnyModel::Types(_) => None,
        }
    }

    /// The model with its trained weights, if it is a model of types.
    pub fn typed_model(&self) -> Option<&TypedModel> {
        match &self.model {
            AnyModel::OneType(_) => None,
            AnyModel::Types(model) => Some(model),
        }
    }

    /// Number of learned values.
    pub fn num_params(&self) -> usize {
        match &self.model {
            AnyModel::OneType(model) => model.num_params(),
            AnyModel::Types(model) => model.num_params(),
        }
    }

    /// Most likely class of each of the `nodes`, computed from all neighbours. `data` may be
    /// another dataset with the same number of feature columns, if there are some: without them the
    /// model has a learned row of each node.
    ///
    /// # Errors
    /// A node outside `data`, features of another width, other nodes than those of the learned
    /// rows, or features that cannot be read. The model learned values, or several columns of
    /// classes.
    pub fn classes(&self, data: &Dataset, nodes: &[NodeId]) -> Result<Vec<usize>> {
        self.refuse_values("classes")?;
        if !self.columns.is_empty() {
            return Err(Error::usage(format!(
                "the model predicts a class in each of the columns {}; use its probabilities",
                sizes(&self.columns)
            )));
        }
        let logits = self.logits(data, nodes)?;
        let rows = logits.view().host().chunks_exact(logits.num_cols());
        Ok(rows.map(|row| first_largest(row) as usize).collect())
    }

    /// Probabilities of the classes, `nodes x classes`. Rows sum to 1 (those of each of several
    /// columns of classes), unless a node may have several labels.
    ///
    /// # Errors
    /// As [`TrainedModel::classes`].
    pub fn probabilities(&self, data: &Dataset, nodes: &[NodeId]) -> Result<Matrix> {
        self.refuse_values("probabilities")?;
        let mut rows = self.logits(data, nodes)?;
        ClassOutputs::new(self.multilabel, &self.columns).probabilities(&self.backend(), &mut rows);
        Ok(rows)
    }

    /// Refuses outputs that a model of values does not have.
    fn refuse_values(&self, what: &str) -> Result<()> {
        match &self.scale {
            None => Ok(()),
            Some(_) => Err(Error::usage(format!("the model predicts values, not {what}; use its logits"))),
        }
    }

    /// Scores of the classes before softmax or sigmoid, `nodes x classes`; of a model of values
    /// these, at the scale of its targets.
    ///
    /// # Errors
    /// As [`TrainedModel::classes`].
    pub fn logits(&self, data: &Dataset, nodes: &[NodeId]) -> Result<Matrix> {
        if self.model.learned_links() {
            return Err(Error::usage("the model learned links, so it has no classes; use its embeddings"));
        }
        let mut rows = self.infer(data, nodes, Output::Logits)?;
        if let Some(scale) = &self.scale {
            scale.undo(rows.view_mut().host());
        }
        Ok(rows)
    }

    /// Last hidden row of each of the `nodes`, `nodes x width` ([`Output::Embeddings`]); of a model
    /// of links, the row that its decoder scores.
    ///
    /// # Errors
    /// As [`TrainedModel::classes`].
    pub fn embeddings(&self, data: &Dataset, nodes: &[NodeId]) -> Result<Matrix> {
        // the output rows of a model of links are its embeddings
        let output = if self.model.learned_links() { Output::Logits } else { Output::Embeddings };
        self.infer(data, nodes, output)
    }

    fn infer(&self, data: &Dataset, nodes: &[NodeId], output: Output) -> Result<Matrix> {
        let (own, width) = (self.summary.dataset.feature_dim, data.features.dim);
        if own != width {
            let message = format!(
                "its features have {width} columns, but the model was trained on {own}; pass a dataset \
                 with the features of {}",
                self.summary.dataset
            );
            return Err(Error::dataset(&data.name, message));
        }
        let count = data.num_nodes();
        if let Some(node) = nodes.iter().find(|&&v| v as usize >= count) {
            let message = format!("node {node} is outside its {count} nodes; pass nodes below {count}");
            return Err(Error::dataset(&data.name, message));
        }
        let config = with_directory_of(&self.config, data);
        let own = &self.summary.dataset;
        let model = match &self.model {
            AnyModel::OneType(model) => model,
            AnyModel::Types(model) => {
                if self.rows_of.is_some() && self.rows_of != Some(data.identity()?) {
                    let message = format!(
                        "the model has a learned row of each node of {own}, and this dataset has other \
                         nodes; pass that dataset"
                    );
                    return Err(Error::dataset(&data.name, message));
                }
                return typed::infer(&config, &typed_of(&config, data)?, model, (nodes, output));
            }
        };
        let backend = self.backend();
        let labels = LabelColumns::for_model(&config, data, own, self.scale.as_ref())?;
        let features = bottom::all_rows(&config, data)?.with_labels(labels);
        let symmetric = build::symmetric(model, data);
        let mut inference =
            Inference::new(&data.graph, &features, symmetric.as_deref(), &backend, config.eval_chunk)
                .with_neighbors(build::inference_neighbors(&config, data)?);
        let mut rows = Matrix::default();
        inference.run(model, nodes, output, &mut rows)?;
        Ok(rows)
    }

    fn backend(&self) -> Cpu {
        Cpu { precision: build::precision(&self.config) }
    }
}

/// The configuration with the directory of `data`. If the dataset is in memory, it is empty, or for
/// a model of types [`IN_MEMORY`], because a run without a dataset is by one type.
fn with_directory_of(config: &TrainConfig, data: &Dataset) -> TrainConfig {
    let directory = data.directory.as_deref().and_then(|path| std::path::absolute(path).ok());
    let in_memory = if is_typed(config) { IN_MEMORY } else { "" };
    let dataset = directory.as_deref().and_then(Path::to_str).unwrap_or(in_memory).to_string();
    TrainConfig { dataset, ..config.clone() }
}

/// Observer that clones the run's model and forwards every event.
struct ModelCapture<'o> {
    observer: &'o mut dyn Observer,
    model: Option<Model>,
}

impl Observer for ModelCapture<'_> {
    fn preparation(&self) -> std::sync::Arc<dyn graphmill_core::progress::Progress> {
        self.observer.preparation()
    }

    fn start(&mut self, start: &Start) -> Result<()> {
        self.observer.start(start)
    }

    fn batch(&mut self, progress: &Progress) -> Result<()> {
        self.observer.batch(progress)
    }

    fn evaluate(&mut self, nodes: usize) {
        self.observer.evaluate(nodes);
    }

    fn epoch(&mut self, record: &EpochRecord) -> Result<()> {
        self.observer.epoch(record)
    }

    fn model(&mut self, model: &Model) {
        self.model = Some(model.clone());
        self.observer.model(model);
    }

    fn note(&mut self, message: &str) {
        self.observer.note(message);
    }

    fn end(&mut self, outcome: Result<&Summary, &Error>) -> Result<()> {
        self.observer.end(outcome)
    }
}
