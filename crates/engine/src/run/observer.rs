//! The events of a run, for an observer: a progress bar, a notebook, a report.

use std::sync::Arc;

use graphmill_core::progress::Progress as Work;
pub use graphmill_core::progress::Quiet;
use graphmill_nn::model::Model;

use crate::{
    Error, Result,
    record::{EpochRecord, Summary},
    timeline::Timeline,
};

/// Start of a run, or of the rest of a resumed one.
#[derive(Clone, Debug)]
pub struct Start {
    /// Number of epochs.
    pub epochs: usize,
    /// Batches per epoch.
    pub batches: u64,
    /// Number of seeds of an epoch.
    pub seeds: usize,
    /// Name of the seeds: `nodes`, `edges`, `walks` or `events`.
    pub seeds_are: &'static str,
    /// Epoch and batch that it starts from; zeros unless resumed.
    pub from: (usize, u64),
    /// Name of the score.
    pub metric: String,
    /// The smallest validation loss selects the best epoch; otherwise the best score, and of equal
    /// scores that with the smaller loss.
    pub selects_by_loss: bool,
    /// Parameters of the model.
    pub parameters: usize,
    /// Records of the epochs before `from`.
    pub earlier: Vec<EpochRecord>,
    /// Stages of every worker, updated during the run.
    pub timeline: Arc<Timeline>,
}

/// Progress after a batch.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Epoch, from 0.
    pub epoch: usize,
    /// Batches done in this epoch.
    pub batches: u64,
    /// Seeds done in this epoch.
    pub seeds: u64,
    /// Mean loss of the epoch so far.
    pub loss: f64,
    /// Seconds of this epoch so far; after a resume, since then.
    pub seconds: f64,
}

/// Observes a run. Every method has a default that does nothing; an error ends the run.
///
/// ```
/// use graphmill_data::generate::{GenerateOptions, generate};
/// use graphmill_engine::{RunContext, Result, TrainConfig, observer::Observer, record::EpochRecord, train};
///
/// /// Collects the loss of each epoch.
/// struct Losses(Vec<f64>);
///
/// impl Observer for Losses {
///     fn epoch(&mut self, record: &EpochRecord) -> Result<()> {
///         self.0.push(record.loss);
///         Ok(())
///     }
/// }
///
/// let data = generate("sbm", &GenerateOptions { nodes: 200, dim: 8, ..Default::default() })?;
/// let config = TrainConfig { epochs: 2, hidden: 8, ..TrainConfig::default() };
/// let mut losses = Losses(Vec::new());
/// train(&config, &data, RunContext { run: None, resume: false, observer: &mut losses, stop: &|| false })?;
/// assert_eq!(losses.0.len(), 2);
/// # Ok::<(), graphmill_engine::Error>(())
/// ```
pub trait Observer: Send {
    /// Progress of the work before the first epoch, such as counting minibatches for a cache. It
    /// gets the stages that take more than a second, and may stop the work, from any thread.
    fn preparation(&self) -> Arc<dyn Work> {
        Arc::new(Quiet)
    }
    /// The run starts.
    ///
    /// # Errors
    /// The observer cannot write its files.
    fn start(&mut self, _start: &Start) -> Result<()> {
        Ok(())
    }
    /// A batch is done.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    fn batch(&mut self, _progress: &Progress) -> Result<()> {
        Ok(())
    }
    /// Evaluation of `rows` nodes, edges or events starts.
    fn evaluate(&mut self, _rows: usize) {}
    /// An epoch is done, scored and recorded; its checkpoint follows.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    fn epoch(&mut self, _record: &EpochRecord) -> Result<()> {
        Ok(())
    }
    /// The best model is restored; its score on the test nodes follows.
    fn model(&mut self, _model: &Model) {}
    /// A note for the user.
    fn note(&mut self, _message: &str) {}
    /// The run ends: its summary is recorded, or it failed. Also called when the run failed before
    /// [`start`](Self::start).
    ///
    /// # Errors
    /// As [`start`](Self::start). An error of the run itself takes precedence.
    fn end(&mut self, _outcome: Result<&Summary, &Error>) -> Result<()> {
        Ok(())
    }
}

impl Observer for Quiet {}
