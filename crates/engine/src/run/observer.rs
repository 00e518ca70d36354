//! What a run tells whoever watches it: a progress bar, a notebook, a report, nobody.

use std::sync::Arc;

pub use graphmill_core::progress::Quiet;
use graphmill_nn::model::Model;

use crate::{
    Error, Result,
    record::{EpochRecord, Summary},
    timeline::Timeline,
};

/// A run about to start, or to go on.
#[derive(Clone, Debug)]
pub struct Start {
    /// Epochs in all.
    pub epochs: usize,
    /// Batches per epoch.
    pub batches: u64,
    /// Training nodes.
    pub seeds: usize,
    /// Where it starts: epoch, batch. Zeros unless resumed.
    pub from: (usize, u64),
    /// The name of the score.
    pub metric: String,
    /// Parameters of the model.
    pub parameters: usize,
    /// Records of the epochs before `from`.
    pub earlier: Vec<EpochRecord>,
    /// Times of every worker, as the run goes on.
    pub timeline: Arc<Timeline>,
}

/// A batch done.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Its epoch, from 0.
    pub epoch: usize,
    /// Batches done in this epoch.
    pub batches: u64,
    /// Seeds done in this epoch.
    pub seeds: u64,
    /// Mean loss of the epoch so far.
    pub loss: f64,
    /// Seconds of this epoch so far; after a resume, from where it was taken up.
    pub seconds: f64,
}

/// Watches a run. Every method may be left out; an error ends the run.
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
    /// The run starts.
    ///
    /// # Errors
    /// The observer cannot write what it keeps of the run.
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
    /// Evaluation of `nodes` nodes starts.
    fn evaluate(&mut self, _nodes: usize) {}
    /// An epoch is done, scored and recorded; its checkpoint follows.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    fn epoch(&mut self, _record: &EpochRecord) -> Result<()> {
        Ok(())
    }
    /// The run has its model, that of the best epoch: its score on the test nodes follows.
    fn model(&mut self, _model: &Model) {}
    /// Something worth saying once.
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
