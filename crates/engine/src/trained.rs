//! Training in one call, and the trained model in memory: what a program uses that has its arrays
//! at hand. Commands write a run directory and open it again ([`crate::saved`]).

use std::path::Path;

use graphmill_core::NodeId;
use graphmill_data::Dataset;
use graphmill_nn::{
    Matrix,
    backend::{Cpu, LossOps},
    model::Model,
};

use crate::{
    Error, Result, RunContext, TrainConfig, build,
    inference::{Inference, Output},
    observer::{Observer, Progress, Quiet, Start},
    options::names,
    record::{EpochRecord, Summary},
    saved::first_largest,
    tiers::Whole,
    trainer::train,
};

/// Model of the best epoch of a run, with the run's configuration and summary.
#[derive(Clone)]
pub struct TrainedModel {
    model: Model,
    config: TrainConfig,
    summary: Summary,
    /// Whether a node may have several labels.
    multilabel: bool,
}

/// Trains a model on `data` and returns it. Nothing is written.
///
/// `layers` and `fanout` follow each other if only one of them differs from its default. The run
/// uses `config.threads` threads, or those of the current pool if it is 0.
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
/// Those of [`train`], and an option that the run would ignore.
pub fn fit(config: &TrainConfig, data: &Dataset) -> Result<TrainedModel> {
    let mut quiet = Quiet;
    fit_with(config, data, RunContext { run: None, resume: false, observer: &mut quiet, stop: &|| false })
}

/// [`fit`] with a run directory, an observer or a way to stop.
///
/// # Errors
/// As [`fit`].
pub fn fit_with(config: &TrainConfig, data: &Dataset, job: RunContext) -> Result<TrainedModel> {
    let mut config = located(config, data);
    let given = config.beyond_defaults(&names());
    config.settle(&given)?;
    config.refuse_unused(&given)?;
    let RunContext { run, resume, observer, stop } = job;
    let mut observer = Keeps { observer, model: None };
    let mut work = || {
        let job = RunContext { run, resume, observer: &mut observer, stop };
        train(&config, data, job)
    };
    let summary = match config.threads {
        0 => work(),
        threads => {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            pool.map_err(|e| Error::usage(format!("--threads {threads}: {e}")))?.install(work)
        }
    }?;
    let model = observer.model.expect("a run that ends well shows its model");
    Ok(TrainedModel { model, config, summary, multilabel: data.labels.is_multi() })
}

impl TrainedModel {
    /// Losses, scores and timings of the run.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Options of the run, with those that follow from others filled in.
    pub fn config(&self) -> &TrainConfig {
        &self.config
    }

    /// The network with its weights.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Most likely class of each of the `nodes`, from all their neighbours. `data` may be another
    /// dataset with features of the same width.
    ///
    /// # Errors
    /// A node that `data` does not have, features of another width, or features that cannot be
    /// read.
    pub fn classes(&self, data: &Dataset, nodes: &[NodeId]) -> Result<Vec<usize>> {
        let logits = self.logits(data, nodes)?;
        let rows = logits.view().host().chunks_exact(logits.num_cols());
        Ok(rows.map(|row| first_largest(row) as usize).collect())
    }

    /// Probabilities of the classes, a row for each of the `nodes`: they sum to 1, unless a node
    /// may have several labels.
    ///
    /// # Errors
    /// As [`TrainedModel::classes`].
    pub fn probabilities(&self, data: &Dataset, nodes: &[NodeId]) -> Result<Matrix> {
        let mut rows = self.logits(data, nodes)?;
        let backend = self.backend();
        if self.multilabel {
            backend.sigmoid(rows.view_mut())
        } else {
            backend.softmax(rows.view_mut())
        }
        Ok(rows)
    }

    /// Scores of the classes before softmax or sigmoid, a row for each of the `nodes`.
    ///
    /// # Errors
    /// As [`TrainedModel::classes`].
    pub fn logits(&self, data: &Dataset, nodes: &[NodeId]) -> Result<Matrix> {
        self.infer(data, nodes, Output::Logits)
    }

    /// Last hidden row of each of the `nodes` ([`Output::Embeddings`]).
    ///
    /// # Errors
    /// As [`TrainedModel::classes`].
    pub fn embeddings(&self, data: &Dataset, nodes: &[NodeId]) -> Result<Matrix> {
        self.infer(data, nodes, Output::Embeddings)
    }

    fn infer(&self, data: &Dataset, nodes: &[NodeId], output: Output) -> Result<Matrix> {
        let (own, width) = (self.summary.dataset.feature_dim, data.features.dim);
        if own != width {
            let message = format!(
                "its features have {width} columns, and the model reads {own}; give a dataset like {}, which the model was trained on",
                self.summary.dataset
            );
            return Err(Error::dataset(&data.name, message));
        }
        let count = data.num_nodes();
        if let Some(node) = nodes.iter().find(|&&v| v as usize >= count) {
            let message = format!("node {node} is outside its {count} nodes; ask for nodes below {count}");
            return Err(Error::dataset(&data.name, message));
        }
        let config = located(&self.config, data);
        let backend = self.backend();
        let whole = Whole::of(&config, data)?;
        let symmetric = build::symmetric(&self.model, data);
        let mut inference =
            Inference::new(&data.graph, &whole, symmetric.as_deref(), &backend, config.eval_chunk)
                .taking(build::exact(&config, data)?);
        let mut rows = Matrix::default();
        inference.run(&self.model, nodes, output, &mut rows)?;
        Ok(rows)
    }

    fn backend(&self) -> Cpu {
        Cpu { precision: build::precision(&self.config) }
    }
}

/// The configuration with the directory of `data`, or none if it is in memory.
fn located(config: &TrainConfig, data: &Dataset) -> TrainConfig {
    let directory = data.directory.as_deref().and_then(|path| std::path::absolute(path).ok());
    let dataset = directory.as_deref().and_then(Path::to_str).unwrap_or_default().to_string();
    TrainConfig { dataset, ..config.clone() }
}

/// Keeps the run's model, and passes everything on.
struct Keeps<'o> {
    observer: &'o mut dyn Observer,
    model: Option<Model>,
}

impl Observer for Keeps<'_> {
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
