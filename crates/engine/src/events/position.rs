//! Position of a run on a stream of events: everything that a checkpoint holds and restores.
//!
//! ```text
//! model.safetensors       parameters by name: memory.NAME, layers.N.NAME, head.NAME
//! best.safetensors        the same of the best epoch
//! optimizer.safetensors   N.KIND of each parameter
//! history.safetensors     memory: the bytes of the nodes' memory, within an epoch
//! state.json              a RunState
//! ```

use std::time::Instant;

use graphmill_nn::{
    Matrix,
    schedule::{EarlyStop, Schedule},
};

use super::{learner::EventLearner, model::EventModel};
use crate::{
    Error, Result, RunDir, TrainConfig,
    checkpoint::{
        self, Checkpoint,
        tensors::{Tensor, TensorRef},
    },
    observer::Observer,
    record::{Best, DatasetRecord, EpochRecord},
    run::{CheckpointWriter, RunState},
};

/// Name of the tensor of the memory.
const MEMORY: &str = "memory";

/// Everything of a run that a checkpoint holds and restores.
pub(super) struct EventPosition<'a> {
    pub(super) learner: EventLearner<'a>,
    pub(super) state: RunState,
    pub(super) schedule: Schedule,
    early: EarlyStop,
    /// Records of the epochs that are done.
    pub(super) records: Vec<EpochRecord>,
    pub(super) checkpoints: CheckpointWriter<'a>,
}

/// Copies `tensors` of the file `path` to the model.
///
/// # Errors
/// The tensors are those of another model; the message names the first that differs.
pub(super) fn assign(path: &std::path::Path, tensors: &[Tensor], model: &mut EventModel) -> Result<()> {
    checkpoint::assign(path, tensors, |see| model.visit_mut(&mut |name, param| see(name, &mut param.value)))
}

/// Bytes as a tensor: four in each value, the last padded by zeros, after their number modulo four.
fn tensor_of(bytes: &[u8]) -> Tensor {
    let mut data = vec![(bytes.len() % 4) as f32];
    data.extend(bytes.chunks(4).map(|part| {
        let mut word = [0; 4];
        word[..part.len()].copy_from_slice(part);
        f32::from_bits(u32::from_le_bytes(word))
    }));
    Tensor { name: MEMORY.into(), shape: [data.len(), 1], data }
}

/// Bytes of a tensor of [`tensor_of`].
fn bytes_of(tensor: &Tensor) -> Vec<u8> {
    let Some((rest, words)) = tensor.data.split_first() else { return Vec::new() };
    let mut bytes: Vec<u8> = words.iter().flat_map(|x| x.to_bits().to_le_bytes()).collect();
    let padding = (4 - *rest as usize % 4) % 4;
    bytes.truncate(bytes.len().saturating_sub(padding));
    bytes
}

/// Copies of the matrices that `visit` passes, which live only during its call.
fn copies(visit: impl FnOnce(&mut dyn FnMut(&str, &Matrix))) -> Vec<Tensor> {
    let mut all = Vec::new();
    visit(&mut |name, matrix| {
        let shape = [matrix.num_rows(), matrix.num_cols()];
        all.push(Tensor { name: name.into(), shape, data: matrix.view().host().to_vec() });
    });
    all
}

impl<'a> EventPosition<'a> {
    /// Position before the first epoch of a run on `dataset` that begins now and records itself in
    /// `run`, if anywhere.
    pub(super) fn new(
        config: &TrainConfig,
        dataset: DatasetRecord,
        learner: EventLearner<'a>,
        schedule: Schedule,
        run: Option<&'a RunDir>,
        began: Instant,
    ) -> Self {
        let patience = u32::try_from(config.patience).unwrap_or(u32::MAX);
        let run_state = RunState::new(config, dataset);
        Self {
            state: run_state,
            learner,
            schedule,
            early: EarlyStop::new(patience),
            records: Vec::new(),
            checkpoints: CheckpointWriter::new(run, began),
        }
    }

    /// Continues from the checkpoint of the run directory, if there is one.
    ///
    /// # Errors
    /// It cannot be read, or is of another dataset or model, or other options.
    pub(super) fn resume(&mut self, observer: &mut dyn Observer) -> Result<()> {
        let Some(run) = self.checkpoints.run() else { return Ok(()) };
        let Some(saved) = Checkpoint::<RunState>::load(&run.checkpoint())? else {
            observer.note("there is no checkpoint yet: starting from the beginning");
            return run.truncate_epochs(0).map(drop);
        };
        saved.state.check(&self.state, run.path())?;
        self.restore(run, &saved)?;
        let at = (saved.state.epoch, saved.state.batch);
        self.checkpoints.resume(saved.best, at, saved.state.seconds);
        let options = std::mem::take(&mut self.state.options);
        self.state = saved.state;
        self.state.options = options;
        self.learner.step = self.state.step;
        self.schedule.set_state(self.state.schedule);
        self.early.state = self.state.patience;
        self.records = run.truncate_epochs(self.state.epoch)?;
        Ok(())
    }

    /// Copies the tensors of a checkpoint to the model and the optimisers.
    fn restore(&mut self, run: &RunDir, saved: &Checkpoint<RunState>) -> Result<()> {
        let learner = &mut self.learner;
        assign(&run.checkpoint().join("model.safetensors"), &saved.model, &mut learner.model)?;
        learner.prepare();
        let path = run.checkpoint().join("optimizer.safetensors");
        checkpoint::assign(&path, &saved.optimizer, |see| learner.optimizer.visit_state_mut(see))?;
        learner.optimizer.set_steps(saved.optimizer_steps);
        let stored = saved.history.iter().find(|tensor| tensor.name == MEMORY);
        match learner.memory.as_mut().zip(stored) {
            Some((memory, stored)) => Ok(memory.restore(&bytes_of(stored))?),
            None => Ok(()),
        }
    }

    /// Returns true if all of `epochs` are done, or early stopping has seen enough.
    pub(super) fn is_done(&self, epochs: usize) -> bool {
        self.state.epoch >= epochs || self.early.stops()
    }

    /// Records the validation of the current epoch; returns true if it is the best so far.
    pub(super) fn observe(&mut self, judged: f64, loss: f64) -> bool {
        self.schedule.observe(judged);
        self.early.observe(judged, loss)
    }

    /// Takes the model, with this validation score, as the best so far.
    ///
    /// # Errors
    /// A parameter is not finite.
    pub(super) fn keep_best(&mut self, valid_score: Option<f64>) -> Result<()> {
        self.state.best = Some(Best { epoch: self.state.epoch + 1, valid_score });
        let model = &self.learner.model;
        self.checkpoints.best.keep_all(|see| model.visit(&mut |name, param| see(name, &param.value)))
    }

    /// Restores the best model, and writes its copy for users.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn restore_best(&mut self) -> Result<()> {
        self.checkpoints.export()?;
        match self.state.best {
            Some(_) => {
                let best = self.checkpoints.best.params();
                assign("best.safetensors".as_ref(), best, &mut self.learner.model)
            }
            None => Ok(()),
        }
    }

    /// Records the current epoch in the run directory and for the observer, and advances to the
    /// next.
    ///
    /// # Errors
    /// The directory cannot be written, or the observer fails.
    pub(super) fn end_epoch(&mut self, record: EpochRecord, observer: &mut dyn Observer) -> Result<()> {
        self.state.next_epoch();
        self.state.patience = self.early.state;
        self.state.schedule = self.schedule.state();
        if let Some(run) = self.checkpoints.run() {
            run.append_epoch(&record)?;
        }
        observer.epoch(&record)?;
        self.records.push(record);
        Ok(())
    }

    /// Writes a checkpoint, if the run records itself.
    ///
    /// # Errors
    /// The disk is full or cannot be written.
    pub(super) fn save(&mut self) -> Result<()> {
        self.state.seconds = self.checkpoints.seconds();
        let Self { learner, state, checkpoints, .. } = self;
        let at = (state.epoch, state.batch);
        checkpoints.save_by(at, |dir, best| {
            learner.prepare();
            let moments = copies(|see| learner.optimizer.visit_state(see));
            let params = copies(|see| learner.model.visit(&mut |name, param| see(name, &param.value)));
            // memory is empty at the begin of an epoch
            let memory = learner.memory.as_ref().filter(|_| state.batch > 0);
            let memory: Vec<Tensor> = memory.map(|memory| tensor_of(&memory.save())).into_iter().collect();
            let [moments, params, memory] = [&moments, &params, &memory]
                .map(|of| of.iter().map(Tensor::borrow).collect::<Vec<TensorRef>>());
            checkpoint::save_tensors(dir, &params, best, &moments, learner.optimizer.steps(), &memory, state)
        })
    }

    /// Saves the batches trained since the last checkpoint after a failure, if the model is that of
    /// a whole update. The first failure is the error to report, whether or not this succeeds.
    pub(super) fn rescue(&mut self, observer: &mut dyn Observer) {
        let (epoch, batch) = (self.state.epoch, self.state.batch);
        let is_saved = self.checkpoints.run().is_none() || self.checkpoints.is_saved_at(epoch, batch);
        if !is_saved && self.learner.is_whole && self.save().is_ok() {
            let epoch = epoch + 1;
            observer.note(&format!(
                "epoch {epoch} is saved after {batch} batches: --resume continues from there"
            ));
        }
    }

    /// Error of a run that was asked to stop here; an epoch has `batches` batches.
    pub(super) fn interrupted(&self, batches: u64) -> Error {
        let RunState { epoch, batch, .. } = self.state;
        let (epoch, batch) = if batch == 0 { (epoch, batches) } else { (epoch + 1, batch) };
        Error::Interrupted { epoch, batch, saved: self.checkpoints.run().is_some() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_restored_from_tensors() {
        for count in 0..9u8 {
            let bytes: Vec<u8> = (0..count).map(|i| 255 - i).collect();
            assert_eq!(bytes_of(&tensor_of(&bytes)), bytes);
        }
    }
}
