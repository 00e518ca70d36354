//! The checkpoints of a run under way, and the best model that each of them holds.

use std::{path::Path, time::Instant};

use graphmill_nn::{Model, optim::Optimizer};
use serde::Serialize;

use super::best::BestModel;
use crate::{
    Result, RunDir,
    checkpoint::{
        save,
        tensors::{Tensor, TensorRef},
    },
};

/// Least seconds between checkpoints at the ends of epochs: repeating epochs of milliseconds is
/// faster than saving them.
const EPOCH_CHECKPOINT_SECONDS: f64 = 1.0;

/// Writes the checkpoints of a run, and holds the best model for them.
pub(crate) struct CheckpointWriter<'a> {
    run: Option<&'a RunDir>,
    /// The best model so far.
    pub(crate) best: BestModel,
    /// Time of the last checkpoint, or of the run's beginning.
    saved: Instant,
    /// Epoch and batch of the last checkpoint.
    saved_at: (usize, u64),
    /// Beginning of this part of the run.
    began: Instant,
    /// Seconds that earlier parts took.
    before: f64,
}

impl<'a> CheckpointWriter<'a> {
    /// Writer of a run that began at `began` and records itself in `run`, if anywhere.
    pub(crate) fn new(run: Option<&'a RunDir>, began: Instant) -> Self {
        let best = BestModel::default();
        Self { run, best, saved: began, saved_at: (0, 0), began, before: 0.0 }
    }

    /// Continues a run from a checkpoint of epoch and batch `at` with this best model, written
    /// after `seconds` seconds.
    pub(crate) fn resume(&mut self, best: Vec<Tensor>, at: (usize, u64), seconds: f64) {
        self.best = BestModel::saved(best);
        self.saved_at = at;
        self.before = seconds;
    }

    /// Directory of the run, if it records itself.
    pub(crate) fn run(&self) -> Option<&'a RunDir> {
        self.run
    }

    /// Seconds that the run has taken, all its parts together.
    pub(crate) fn seconds(&self) -> f64 {
        self.before + self.began.elapsed().as_secs_f64()
    }

    /// Seconds since the last checkpoint.
    pub(crate) fn seconds_since_save(&self) -> f64 {
        self.saved.elapsed().as_secs_f64()
    }

    /// Returns true if a checkpoint is due at the end of an epoch.
    pub(crate) fn is_due_after_epoch(&self) -> bool {
        self.seconds_since_save() >= EPOCH_CHECKPOINT_SECONDS
    }

    /// Returns true if the last checkpoint is of this epoch and batch.
    pub(crate) fn is_saved_at(&self, epoch: usize, batch: u64) -> bool {
        self.saved_at == (epoch, batch)
    }

    /// Writes a checkpoint of epoch and batch `at`, with the best model in it.
    ///
    /// # Errors
    /// The disk is full or cannot be written.
    pub(crate) fn save<S: Serialize>(
        &mut self,
        at: (usize, u64),
        model: &Model,
        optimizer: &dyn Optimizer,
        history: &[Tensor],
        state: &S,
    ) -> Result<()> {
        self.save_by(at, |dir, best| save(dir, model, best, optimizer, history, state))
    }

    /// Writes a checkpoint of epoch and batch `at` by `write`, which gets the directory and the
    /// best model.
    ///
    /// # Errors
    /// As [`CheckpointWriter::save`].
    pub(crate) fn save_by(
        &mut self,
        at: (usize, u64),
        write: impl FnOnce(&Path, &[TensorRef]) -> Result<()>,
    ) -> Result<()> {
        let Some(run) = self.run else { return Ok(()) };
        write(&run.checkpoint(), &self.best.tensors())?;
        self.saved = Instant::now();
        self.saved_at = at;
        self.export()
    }

    /// Writes the copy of the best model for users.
    ///
    /// # Errors
    /// As [`CheckpointWriter::save`].
    pub(crate) fn export(&mut self) -> Result<()> {
        self.run.map_or(Ok(()), |run| self.best.export(run))
    }
}
