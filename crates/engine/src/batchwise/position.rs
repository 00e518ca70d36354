//! Position of a run: everything that a checkpoint holds and restores.

use std::{path::Path, time::Instant};

use graphmill_data::typed::TypedDataset;
use graphmill_nn::schedule::{EarlyStop, Schedule};
use serde::{Deserialize, Serialize};

use super::learner::{BatchLearner, RestoredState, RowsOf, SavedTensors};
use crate::{
    Error, Result, RunDir, TrainConfig,
    checkpoint::{self, Checkpoint, GrownRows},
    distributed::Ranks,
    observer::Observer,
    record::{Best, DatasetRecord, EpochRecord},
    run::{CheckpointWriter, Earlier, RunState},
};

/// State of a run beside its tensors.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct State<C> {
    #[serde(flatten)]
    pub(crate) run: RunState,
    /// Counts of the current epoch so far.
    #[serde(flatten)]
    pub(crate) counts: C,
}

/// Everything of a run that a checkpoint holds and restores.
pub(crate) struct Position<'a, L: BatchLearner> {
    pub(crate) learner: L,
    pub(crate) state: State<L::Counts>,
    pub(crate) schedule: Schedule,
    early: EarlyStop,
    /// Records of the epochs that are done.
    pub(crate) records: Vec<EpochRecord>,
    pub(crate) checkpoints: CheckpointWriter<'a>,
}

impl<'a, L: BatchLearner> Position<'a, L> {
    /// Position before the first epoch of a run on `dataset` that begins now and records itself in
    /// `run`, if anywhere.
    pub(crate) fn new(
        config: &TrainConfig,
        dataset: DatasetRecord,
        learner: L,
        schedule: Schedule,
        run: Option<&'a RunDir>,
        began: Instant,
    ) -> Self {
        let patience = u32::try_from(config.patience).unwrap_or(u32::MAX);
        let run_state = RunState::new(config, dataset);
        Self {
            state: State { run: run_state, counts: L::Counts::default() },
            learner,
            schedule,
            early: EarlyStop::new(patience),
            records: Vec::new(),
            checkpoints: CheckpointWriter::new(run, began),
        }
    }

    /// Continues from the checkpoint of the run directory, the same on all ranks, if there is one;
    /// returns true if there is.
    ///
    /// # Errors
    /// It cannot be read, is of another dataset, partition or model, or other options; or a rank
    /// did not take part.
    pub(crate) fn resume(&mut self, ranks: Option<&Ranks>, observer: &mut dyn Observer) -> Result<bool> {
        let run = self.checkpoints.run();
        let saved = match (ranks, run) {
            (Some(ranks), run) => ranks.checkpoint(run)?,
            (None, Some(run)) => Checkpoint::<State<L::Counts>>::load(&run.checkpoint())?,
            (None, None) => return Ok(false),
        };
        let Some(mut saved) = saved else {
            observer.note("there is no checkpoint yet: starting from the beginning");
            return run.map_or(Ok(false), |run| run.truncate_epochs(0).map(|_| false));
        };
        let path = run.map_or_else(|| "the run of rank 0".into(), |run| run.path().to_path_buf());
        saved.state.run.check(&self.state.run, &path)?;
        saved.state.run.note_of_processor(&self.state.run).iter().for_each(|note| observer.note(note));
        let warning = saved.warning();
        warning.iter().for_each(|warning| observer.note(warning));
        if saved.state.run.partition != self.state.run.partition {
            let message = "it was trained on another partition of the dataset, or on the whole of it; resume \
                           it with the same partition, or train again";
            return Err(Error::run(&path, message));
        }
        for tensors in [&mut saved.model, &mut saved.best, &mut saved.optimizer] {
            self.learner.split(tensors);
        }
        self.restore(&path, &saved)?;
        let at = (saved.state.run.epoch, saved.state.run.batch);
        self.checkpoints.resume(saved.best, at, saved.state.run.seconds);
        let now = std::mem::take(&mut self.state.run);
        self.state = saved.state;
        (self.state.run.options, self.state.run.instructions) = (now.options, now.instructions);
        if let Some(ranks) = ranks {
            ranks.resume(&mut self.state.run.sums);
            if ranks.rank() > 0 {
                self.state.counts = L::Counts::default();
            }
        }
        self.learner.set_num_updates(self.state.run.step);
        self.schedule.set_state(self.state.run.schedule);
        self.early.state = self.state.run.patience;
        self.records = run.map_or(Ok(Vec::new()), |run| run.truncate_epochs(self.state.run.epoch))?;
        if let (Some(_), Some(run)) = (warning, run) {
            checkpoint::reinstate(&run.checkpoint())?;
        }
        Ok(true)
    }

    /// Starts from the model of another run. The run is on `data`.
    ///
    /// # Errors
    /// It is another model, or has rows for nodes of another dataset.
    pub(crate) fn start_from(
        &mut self,
        earlier: &mut Earlier,
        data: &TypedDataset,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let mut tables = Vec::new();
        let learner = &self.learner;
        learner.visit(&mut |name, _| tables.extend(learner.rows_of(name).map(|of| (name.to_string(), of))));
        let growth = match tables.is_empty() {
            true => Vec::new(),
            false => earlier.growth(&self.state.run.dataset, data)?,
        };
        let own = self.learner.split_known(&mut earlier.tensors, &growth);
        let rows = |of| match of {
            RowsOf::All => own.clone(),
            RowsOf::Type(t) => own.get(t).copied().into_iter().collect(),
        };
        let grown: GrownRows = tables.into_iter().map(|(name, of)| (name, rows(of))).collect();
        earlier.notes(&self.state.run.dataset).iter().for_each(|note| observer.note(note));
        let new: usize = growth.iter().map(|[before, now]| now - before).sum();
        if new > 0 {
            observer.note(&format!("{new} nodes are new; those with learned rows start at random"));
        }
        self.learner.assign_grown(&earlier.path, &earlier.tensors, &grown)
    }

    /// Copies the tensors of the checkpoint of the run in `run` to the model and the optimisers.
    fn restore(&mut self, run: &Path, saved: &Checkpoint<State<L::Counts>>) -> Result<()> {
        let dir = run.join("checkpoint");
        self.learner.assign(&dir.join("model.safetensors"), &saved.model)?;
        let state = RestoredState {
            moments: &saved.optimizer,
            steps: saved.optimizer_steps,
            history: &saved.history,
        };
        self.learner.restore(&dir.join("optimizer.safetensors"), &state)
    }

    /// Returns true if all of `epochs` are done, or early stopping has seen enough.
    pub(crate) fn is_done(&self, epochs: usize) -> bool {
        self.state.run.epoch >= epochs || self.early.stops()
    }

    /// Records the validation of the current epoch; returns true if it is the best so far.
    pub(crate) fn observe(&mut self, judged: f64, loss: f64) -> bool {
        self.schedule.observe(judged);
        self.early.observe(judged, loss)
    }

    /// Takes the model, with this validation score, as the best so far.
    ///
    /// # Errors
    /// A parameter is not finite.
    pub(crate) fn keep_best(&mut self, valid_score: Option<f64>) -> Result<()> {
        self.state.run.best = Some(Best { epoch: self.state.run.epoch + 1, valid_score });
        let learner = &self.learner;
        self.checkpoints.best.keep_all(|see| learner.visit(see))
    }

    /// Restores the best model, and writes its copy for users.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn restore_best(&mut self) -> Result<()> {
        self.learner.join(self.checkpoints.best.params_mut())?;
        self.checkpoints.export()?;
        self.learner.split(self.checkpoints.best.params_mut());
        match self.state.run.best {
            Some(_) => {
                let best = self.checkpoints.best.params();
                self.learner.assign("best.safetensors".as_ref(), best)
            }
            None => Ok(()),
        }
    }

    /// Records the current epoch in the run directory and for the observer, and advances to the
    /// next.
    ///
    /// # Errors
    /// The directory cannot be written, or the observer fails.
    pub(crate) fn end_epoch(&mut self, record: EpochRecord, observer: &mut dyn Observer) -> Result<()> {
        self.state.run.next_epoch();
        self.state.counts = L::Counts::default();
        self.state.run.patience = self.early.state;
        self.state.run.schedule = self.schedule.state();
        if let Some(run) = self.checkpoints.run() {
            run.append_epoch(&record)?;
        }
        observer.epoch(&record)?;
        self.records.push(record);
        Ok(())
    }

    /// Writes a checkpoint, if the run records itself. All ranks call this at the same time.
    ///
    /// # Errors
    /// The disk is full or cannot be written, or a rank did not take part.
    pub(crate) fn save(&mut self) -> Result<()> {
        self.state.run.seconds = self.checkpoints.seconds();
        let Self { learner, state, checkpoints, .. } = self;
        let at = (state.run.epoch, state.run.batch);
        learner.begin_save()?;
        learner.join(checkpoints.best.params_mut())?;
        let saved = checkpoints.save_by(at, |dir, best| {
            learner.save(&mut |SavedTensors { params, moments, steps, history }| {
                checkpoint::save_tensors(dir, params, best, moments, steps, history, state)
            })
        });
        learner.split(checkpoints.best.params_mut());
        saved
    }

    /// Saves the batches trained since the last checkpoint after a failure, if the model is that of
    /// a whole update. The first failure is the error to report, whether or not this succeeds.
    pub(crate) fn rescue(&mut self, observer: &mut dyn Observer) {
        let (epoch, batch) = (self.state.run.epoch, self.state.run.batch);
        let is_saved = self.checkpoints.run().is_none() || self.checkpoints.is_saved_at(epoch, batch);
        if !is_saved && self.learner.is_whole() && self.save().is_ok() {
            let epoch = epoch + 1;
            observer.note(&format!(
                "epoch {epoch} is saved after {batch} batches: --resume continues from there"
            ));
        }
    }

    /// Error of a run that was asked to stop here; an epoch has `batches` batches.
    pub(crate) fn interrupted(&self, batches: u64) -> Error {
        let RunState { epoch, batch, .. } = self.state.run;
        let (epoch, batch) = if batch == 0 { (epoch, batches) } else { (epoch + 1, batch) };
        Error::Interrupted { epoch, batch, saved: self.checkpoints.run().is_some() }
    }
}
