//! Position of a run on several types: everything that a checkpoint holds and restores.
//!
//! ```text
//! model.safetensors       dense parameters by name, and input.TYPE.rows: the learned rows of a type
//! best.safetensors        the same of the best epoch
//! optimizer.safetensors   INDEX.m, INDEX.v, ... of dense parameters, rows.TYPE.m and rows.TYPE.v
//! state.json              a RunState, and counts by type of the current epoch
//! ```

use std::time::Instant;

use graphmill_nn::{
    Matrix,
    schedule::{EarlyStop, Schedule},
    typed::TypedModel,
};
use serde::{Deserialize, Serialize};

use super::learner::TypedLearner;
use crate::{
    Error, Result, RunDir, TrainConfig,
    checkpoint::{
        self, Checkpoint,
        tensors::{Tensor, TensorRef},
    },
    observer::Observer,
    record::{Best, DatasetRecord, EpochRecord, Traffic},
    run::{CheckpointWriter, RunState},
};

/// State of a run beside its tensors.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct TypedState {
    #[serde(flatten)]
    pub(super) run: RunState,
    /// Input nodes of each node type in the current epoch so far.
    pub(super) nodes: Vec<u64>,
    /// Sampled edges of each edge type in the current epoch so far.
    pub(super) edges: Vec<u64>,
    /// Rows and bytes read of each node type in the current epoch so far.
    #[serde(default)]
    pub(super) traffic: Vec<Traffic>,
}

/// Everything of a run that a checkpoint holds and restores.
pub(super) struct TypedPosition<'a> {
    pub(super) learner: TypedLearner<'a>,
    pub(super) state: TypedState,
    pub(super) schedule: Schedule,
    early: EarlyStop,
    /// Records of the epochs that are done.
    pub(super) records: Vec<EpochRecord>,
    pub(super) checkpoints: CheckpointWriter<'a>,
}

/// Name of the learned rows of a type in files.
fn rows_name(model: &TypedModel, t: usize) -> String {
    format!("input.{}.rows", model.schema().types()[t].name)
}

/// Visits the dense parameters and the learned rows by name, always in the same order.
fn visit(model: &TypedModel, see: &mut dyn FnMut(&str, &Matrix)) {
    model.visit(&mut |name, param| see(name, &param.value));
    for (t, rows) in model.learned_rows() {
        see(&rows_name(model, t), rows.table());
    }
}

/// Copies `tensors` of the file `path` to the dense parameters and learned rows.
///
/// # Errors
/// The tensors are those of another model; the message names the first that differs.
pub(super) fn assign(path: &std::path::Path, tensors: &[Tensor], model: &mut TypedModel) -> Result<()> {
    let names: Vec<String> = model.learned_rows().map(|(t, _)| rows_name(model, t)).collect();
    checkpoint::assign(path, tensors, |see| {
        model.visit_mut(&mut |name, param| see(name, &mut param.value));
        for ((_, rows), name) in model.learned_rows_mut().zip(&names) {
            see(name, rows.table_mut());
        }
    })
}

/// Reference to a matrix for writing.
fn tensor<'m>(name: String, matrix: &'m Matrix) -> TensorRef<'m> {
    (name, [matrix.num_rows(), matrix.num_cols()], matrix.view().host())
}

impl<'a> TypedPosition<'a> {
    /// Position before the first epoch of a run on `dataset` that begins now and records itself in
    /// `run`, if anywhere.
    pub(super) fn new(
        config: &TrainConfig,
        dataset: DatasetRecord,
        learner: TypedLearner<'a>,
        schedule: Schedule,
        run: Option<&'a RunDir>,
        began: Instant,
    ) -> Self {
        let patience = u32::try_from(config.patience).unwrap_or(u32::MAX);
        let run_state = RunState::new(config, dataset);
        Self {
            state: TypedState { run: run_state, ..TypedState::default() },
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
        let Some(saved) = Checkpoint::<TypedState>::load(&run.checkpoint())? else {
            observer.note("there is no checkpoint yet: starting from the beginning");
            return run.truncate_epochs(0).map(drop);
        };
        saved.state.run.check(&self.state.run, run.path())?;
        self.restore(run, &saved)?;
        let at = (saved.state.run.epoch, saved.state.run.batch);
        self.checkpoints.resume(saved.best, at, saved.state.run.seconds);
        let options = std::mem::take(&mut self.state.run.options);
        self.state = saved.state;
        self.state.run.options = options;
        self.learner.step = self.state.run.step;
        self.schedule.set_state(self.state.run.schedule);
        self.early.state = self.state.run.patience;
        self.records = run.truncate_epochs(self.state.run.epoch)?;
        Ok(())
    }

    /// Copies the tensors of a checkpoint to the model and the optimisers.
    fn restore(&mut self, run: &RunDir, saved: &Checkpoint<TypedState>) -> Result<()> {
        let TypedLearner { model, optimizer, sparse, .. } = &mut self.learner;
        assign(&run.checkpoint().join("model.safetensors"), &saved.model, model)?;
        let mut index = 0;
        model.visit(&mut |_, param| {
            optimizer.prepare(index, param);
            index += 1;
        });
        model.learned_rows().for_each(|(t, rows)| sparse.prepare(t, rows.table()));
        checkpoint::assign(&run.checkpoint().join("optimizer.safetensors"), &saved.optimizer, |see| {
            optimizer.visit_state_mut(see);
            sparse.visit_state_mut(&mut |name, matrix| see(&format!("rows.{name}"), matrix));
        })?;
        optimizer.set_steps(saved.optimizer_steps);
        sparse.set_steps(saved.optimizer_steps);
        Ok(())
    }

    /// Returns true if all of `epochs` are done, or early stopping has seen enough.
    pub(super) fn is_done(&self, epochs: usize) -> bool {
        self.state.run.epoch >= epochs || self.early.stops()
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
        self.state.run.best = Some(Best { epoch: self.state.run.epoch + 1, valid_score });
        let model = &self.learner.model;
        self.checkpoints.best.keep_all(|see| visit(model, see))
    }

    /// Restores the best model, and writes its copy for users.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn restore_best(&mut self) -> Result<()> {
        self.checkpoints.export()?;
        match self.state.run.best {
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
        self.state.run.next_epoch();
        (self.state.nodes, self.state.edges, self.state.traffic) = Default::default();
        self.state.run.patience = self.early.state;
        self.state.run.schedule = self.schedule.state();
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
        self.state.run.seconds = self.checkpoints.seconds();
        let Self { learner, state, checkpoints, .. } = self;
        let at = (state.run.epoch, state.run.batch);
        checkpoints.save_by(at, |dir, best| {
            let TypedLearner { model, optimizer, sparse, .. } = learner;
            // copies, because the visitors' matrices live only during the call
            let mut moments = Vec::new();
            let mut copy = |name: String, matrix: &Matrix| {
                let shape = [matrix.num_rows(), matrix.num_cols()];
                moments.push(Tensor { name, shape, data: matrix.view().host().to_vec() });
            };
            optimizer.visit_state(&mut |name, matrix| copy(name.into(), matrix));
            model.learned_rows().for_each(|(t, rows)| sparse.prepare(t, rows.table()));
            sparse.visit_state_mut(&mut |name, matrix| copy(format!("rows.{name}"), matrix));
            let moments: Vec<TensorRef> = moments.iter().map(Tensor::borrow).collect();
            let mut params = Vec::new();
            model.visit(&mut |name, param| params.push(tensor(name.into(), &param.value)));
            params.extend(model.learned_rows().map(|(t, rows)| tensor(rows_name(model, t), rows.table())));
            checkpoint::save_tensors(dir, &params, best, &moments, optimizer.steps(), &[], state)
        })
    }

    /// Saves the batches trained since the last checkpoint after a failure, if the model is that of
    /// a whole update. The first failure is the error to report, whether or not this succeeds.
    pub(super) fn rescue(&mut self, observer: &mut dyn Observer) {
        let (epoch, batch) = (self.state.run.epoch, self.state.run.batch);
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
        let RunState { epoch, batch, .. } = self.state.run;
        let (epoch, batch) = if batch == 0 { (epoch, batches) } else { (epoch + 1, batch) };
        Error::Interrupted { epoch, batch, saved: self.checkpoints.run().is_some() }
    }
}
