//! What a run tells whoever watches it: a progress bar, a notebook, nobody.

use crate::{record::EpochRecord, timeline::Timeline};

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
}

/// A batch done.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
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
    /// Knows what every worker has done in these seconds: whoever shows it asks as often as it is shown.
    pub timeline: &'a Timeline,
}

/// Watches a run. Every method may be left out.
pub trait Observer: Send {
    /// The run starts.
    fn start(&mut self, _start: &Start) {}
    /// A batch is done.
    fn batch(&mut self, _progress: &Progress) {}
    /// Evaluation of `nodes` nodes starts.
    fn evaluate(&mut self, _nodes: usize) {}
    /// An epoch is done and scored.
    fn epoch(&mut self, _record: &EpochRecord) {}
    /// Something worth saying once.
    fn note(&mut self, _message: &str) {}
}

/// Watches nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Observer for Quiet {}
