//! The position of a run with everything that a checkpoint restores, and how a run continues from
//! one.

use std::{path::Path, sync::Arc, time::Instant};

use graphmill_nn::schedule::{EarlyStop, Schedule};

use super::{
    CheckpointWriter, Inputs, Peers, RunState,
    observer::{Observer, Start},
    start::Earlier,
};
use crate::{
    Error, Result, RunDir, TrainConfig,
    checkpoint::{self, tensors::divide},
    config::{SelectBy, link_task::seeds_are},
    learner::Learner,
    link::lists,
    record::{Best, EpochRecord, Origin, partition_of_older},
    reuse::pushed,
    stage::Loader,
    tiers::{OnlineCounts, read_counts},
    timeline::Timeline,
    versions,
};

/// Everything of a run that a checkpoint holds and restores.
pub(crate) struct RunPosition<'a> {
    pub(crate) learner: Learner<'a>,
    pub(crate) state: RunState,
    pub(crate) schedule: Schedule,
    early: EarlyStop,
    /// Records of the epochs that are done.
    pub(crate) records: Vec<EpochRecord>,
    pub(crate) checkpoints: CheckpointWriter<'a>,
    /// Counts of the first epochs, if they fill caches.
    pub(crate) online: Option<OnlineCounts<'a>>,
}

impl<'a> RunPosition<'a> {
    /// Position before the first epoch of a run that begins now and records itself in `run`, if
    /// anywhere. `online` counts the reads of the first epochs, if they fill caches.
    ///
    /// # Errors
    /// The dataset's checksum cannot be computed.
    pub(crate) fn new(
        inputs: &Inputs,
        learner: Learner<'a>,
        schedule: Schedule,
        online: Option<OnlineCounts<'a>>,
        run: Option<&'a RunDir>,
        began: Instant,
    ) -> Result<Self> {
        let dataset = inputs.dataset_record(run)?;
        let partition = inputs.view.map(|view| view.partition.clone());
        let patience = u32::try_from(inputs.config.patience).unwrap_or(u32::MAX);
        Ok(Self {
            learner,
            state: RunState { partition, ..RunState::new(inputs.config, dataset) },
            schedule,
            early: EarlyStop::new(patience),
            records: Vec::new(),
            checkpoints: CheckpointWriter::new(run, began),
            online,
        })
    }

    /// Continues from the checkpoint of the run directory, the same on all ranks, if there is one;
    /// returns true if there is.
    ///
    /// # Errors
    /// It cannot be read, is of another dataset or partition, or a rank did not take part.
    pub(crate) fn resume(&mut self, peers: &Peers, observer: &mut dyn Observer) -> Result<bool> {
        let run = self.checkpoints.run();
        if run.is_none() && peers.is_alone() {
            return Ok(false);
        }
        let saved = peers.checkpoint(run)?;
        let Some(saved) = saved else {
            observer.note("there is no checkpoint yet: starting from the beginning");
            return run.map_or(Ok(false), |run| run.truncate_epochs(0).map(|_| false));
        };
        check(run, &saved.state, &self.state)?;
        saved.state.note_of_processor(&self.state).iter().for_each(|note| observer.note(note));
        let warning = saved.warning();
        warning.iter().for_each(|warning| observer.note(warning));
        saved.restore(&mut self.learner.model, &mut *self.learner.optimizer)?;
        let at = (saved.state.epoch, saved.state.batch);
        self.checkpoints.resume(saved.best, at, saved.state.seconds);
        let partition = self.state.partition.take();
        let (options, instructions) =
            (std::mem::take(&mut self.state.options), std::mem::take(&mut self.state.instructions));
        self.state = RunState { partition, options, instructions, ..saved.state };
        self.learner.step = self.state.step;
        self.schedule.set_state(self.state.schedule);
        self.early.state = self.state.patience;
        self.records = run.map_or(Ok(Vec::new()), |run| run.truncate_epochs(self.state.epoch))?;
        peers.resume(&mut self.state.sums);
        let reuse = std::mem::take(&mut self.state.reuse);
        let [hard, history] = divide(saved.history, lists::PREFIX);
        let [pushed, history] = divide(history, pushed::PREFIX);
        let [reads, history] = divide(history, read_counts::PREFIX);
        let [past, history] = divide(history, versions::PREFIX);
        let refuse =
            |what| Error::run(name(run), format!("its checkpoint cannot be resumed: {what}; train again"));
        if let Some(lists) = &self.learner.hard {
            lists::restore(lists, &hard).map_err(refuse)?;
        }
        if let Some(online) = &mut self.online {
            online.reads.restore(&reads).map_err(refuse)?;
        }
        self.learner.pushed.restore(&pushed, self.state.dataset.nodes).map_err(refuse)?;
        self.learner.past.restore(&self.learner.model, &[], &past).map_err(refuse)?;
        self.learner.history.restore(reuse, history).map_err(refuse)?;
        if let (Some(_), Some(run)) = (warning, run) {
            checkpoint::reinstate(&run.checkpoint())?;
        }
        Ok(true)
    }

    /// Starts from the model of another run.
    ///
    /// # Errors
    /// It is another model.
    pub(crate) fn start_from(&mut self, earlier: &Earlier, observer: &mut dyn Observer) -> Result<()> {
        earlier.notes(&self.state.dataset).iter().for_each(|note| observer.note(note));
        checkpoint::assign_model(&earlier.path, &earlier.tensors, &mut self.learner.model)
    }

    /// Writes the origin and the options of the run into its directory, if it has one.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub(crate) fn write_origin(&self, inputs: &Inputs, metric: &str) -> Result<()> {
        let Some(run) = self.checkpoints.run() else { return Ok(()) };
        let origin = Origin::new(inputs.config, &self.state.dataset, inputs.data)?.scored_by(metric);
        origin.write(run)?;
        run.write_config(&origin.config(inputs.config))
    }

    /// Start of the run from here on, for the observer.
    pub(crate) fn start(
        &self,
        config: &TrainConfig,
        loader: &Loader,
        metric: &str,
        timeline: Arc<Timeline>,
    ) -> Start {
        Start {
            epochs: config.epochs,
            batches: loader.num_batches(),
            seeds: loader.num_seeds(),
            seeds_are: seeds_are(config),
            from: (self.state.epoch, self.state.batch),
            metric: metric.to_string(),
            selects_by_loss: config.select_by == SelectBy::Loss,
            parameters: self.learner.model.num_params(),
            earlier: self.records.clone(),
            timeline,
        }
    }

    /// Reports whether all of `epochs` are done, or early stopping has seen enough.
    pub(crate) fn is_done(&self, epochs: usize) -> bool {
        self.state.epoch >= epochs || self.early.stops()
    }

    /// Learning rate of a batch of the current epoch, which has `batches` batches.
    pub(crate) fn lr(&self, batch: u64, batches: u64) -> f64 {
        self.schedule.lr(self.state.epoch as u32, batch as usize, batches as usize)
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
        self.state.best = Some(Best { epoch: self.state.epoch + 1, valid_score });
        self.checkpoints.best.keep(&self.learner.model)
    }

    /// Restores the best model, and writes its copy for users.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn restore_best(&mut self) -> Result<()> {
        self.checkpoints.export()?;
        match self.state.best {
            Some(_) => self.checkpoints.best.restore(&mut self.learner.model),
            None => Ok(()),
        }
    }

    /// Records the current epoch in the run directory and for the observer, and advances to the
    /// next.
    ///
    /// # Errors
    /// The directory cannot be written, or the observer fails.
    pub(crate) fn end_epoch(&mut self, record: EpochRecord, observer: &mut dyn Observer) -> Result<()> {
        self.state.next_epoch();
        self.learner.history.end_epoch();
        // the next epoch begins with the newest parameters
        self.learner.past.clear();
        self.state.patience = self.early.state;
        self.state.schedule = self.schedule.state();
        if let Some(run) = self.checkpoints.run() {
            run.append_epoch(&record)?;
        }
        observer.epoch(&record)?;
        self.records.push(record);
        Ok(())
    }

    /// Writes a checkpoint. All ranks call this at the same time if they
    /// [agree on checkpoints](Self::agree_to_save).
    ///
    /// # Errors
    /// The disk is full or cannot be written, or a rank did not take part.
    pub(crate) fn save(&mut self) -> Result<()> {
        self.state.save(&mut self.checkpoints, &self.learner, self.online.as_ref())
    }

    /// Returns true if a checkpoint is due at the end of an epoch. If the ranks collect counts for
    /// it, all of them follow the clock of rank 0.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(crate) fn agree_to_save(&self, peers: &Peers) -> Result<bool> {
        let is_due = self.checkpoints.is_due_after_epoch();
        match &self.online {
            Some(online) if online.reads.is_collected() => {
                Ok(peers.agree([f64::from(u8::from(is_due)), 0.0])?[0] > 0.0)
            }
            _ => Ok(is_due),
        }
    }

    /// Saves the batches trained since the last checkpoint after a failure, if the model is that of
    /// a whole update and a checkpoint needs nothing of other ranks. The first failure is the error
    /// to report, whether or not this succeeds.
    pub(crate) fn rescue(&mut self, observer: &mut dyn Observer) {
        let (epoch, batch) = (self.state.epoch, self.state.batch);
        let is_saved = self.checkpoints.run().is_none() || self.checkpoints.is_saved_at(epoch, batch);
        // the other ranks may have failed, too
        let is_alone = self.online.as_ref().is_none_or(|online| !online.reads.is_collected());
        if is_saved || !is_alone || !self.learner.is_whole {
            return;
        }
        if self.save().is_ok() {
            let epoch = epoch + 1;
            observer.note(&format!(
                "epoch {epoch} is saved after {batch} batches: --resume continues from there"
            ));
        }
    }

    /// Error of a run that was asked to stop here; an epoch has `batches` batches.
    pub(crate) fn interrupted(&self, batches: u64) -> Error {
        let (epoch, batch) = match self.state.batch {
            0 => (self.state.epoch, batches),
            batch => (self.state.epoch + 1, batch),
        };
        Error::Interrupted { epoch, batch, saved: self.checkpoints.run().is_some() }
    }
}

/// Refuses to continue the run of `saved` with other options, another dataset, or another partition
/// of it, than those of `now`.
///
/// # Errors
/// The run was trained on another dataset or partition, or with other options.
fn check(run: Option<&RunDir>, saved: &RunState, now: &RunState) -> Result<()> {
    let path = name(run);
    saved.check(now, path)?;
    let then = match (&saved.partition, run) {
        (None, Some(run)) => partition_of_older(run),
        // for an older run, the rank with the run directory checks the partition
        (None, None) => return Ok(()),
        (then, _) => then.clone(),
    };
    if then == now.partition {
        return Ok(());
    }
    let name = |partition: &Option<String>| match partition {
        Some(checksum) => format!("partition {checksum}"),
        None => "the unpartitioned dataset".to_string(),
    };
    let message = format!(
        "this run was trained on {}, {}, and cannot continue with {}, because its batches would differ; \
         resume it with the same partition, or train again",
        saved.dataset,
        name(&then),
        name(&now.partition)
    );
    Err(Error::run(path, message))
}

/// Name of the run in messages.
fn name(run: Option<&RunDir>) -> &Path {
    run.map_or(Path::new("the run"), RunDir::path)
}
