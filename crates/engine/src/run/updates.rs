//! The work after every update of the model: counting, reporting, saving, and the decision to go
//! on.

use std::time::Instant;

use super::{
    CheckpointWriter, Meter, Peers, RunState,
    observer::{Observer, Progress},
};
use crate::{
    Error, Result, TrainConfig,
    learner::Learner,
    strategy::{CompletedBatch, Flow},
    tiers::OnlineCounts,
};

/// Follows the updates of an epoch.
pub(crate) struct Updates<'e, 'a> {
    pub(crate) config: &'e TrainConfig,
    pub(crate) state: &'e mut RunState,
    pub(crate) checkpoints: &'e mut CheckpointWriter<'a>,
    pub(crate) observer: &'e mut dyn Observer,
    pub(crate) peers: &'e Peers,
    pub(crate) meter: &'e mut Meter,
    /// Counts of minibatches that fill caches, if some are filled during the run.
    pub(crate) online: Option<&'e mut OnlineCounts<'a>>,
    /// Reports whether the run is asked to stop.
    pub(crate) stop: &'e (dyn Fn() -> bool + Sync),
    /// Batches of the epoch.
    pub(crate) batches: u64,
    /// True if everything up to the last update is recorded. If not, the state may not be
    /// sound.
    pub(crate) is_recorded: bool,
}

impl Updates<'_, '_> {
    /// Records an update by these batches; decides whether to continue.
    ///
    /// # Errors
    /// The loss is not finite, the observer or a checkpoint cannot be written, or a rank did not
    /// take part.
    pub(crate) fn after(&mut self, learner: &Learner, done: &[CompletedBatch]) -> Result<Flow> {
        let before = self.state.batch;
        self.is_recorded = false;
        self.count(learner, done)?;
        self.report()?;
        let wants = (self.stop)();
        let is_in_epoch = self.state.batch < self.batches;
        let stopping = self.peers.agree_to_stop(wants);
        let every = self.config.checkpoint_batches as u64;
        let is_late = self.checkpoints.seconds_since_save() >= self.config.checkpoint_seconds;
        let due = self.peers.agree_to_save(is_late) || every > 0 && self.state.batch / every > before / every;
        // after the last batch the checkpoint of the epoch follows
        if stopping || (due && is_in_epoch) {
            let (clock, own) = (Instant::now(), self.state.sums);
            if is_in_epoch {
                self.peers.total(&mut self.state.sums)?;
            }
            self.state.save(self.checkpoints, learner, self.online.as_deref())?;
            self.state.sums = own;
            self.meter.span("checkpoint", clock);
        }
        self.is_recorded = true;
        Ok(if stopping { Flow::Stop } else { Flow::Continue })
    }

    /// Adds the batches to the epoch's totals.
    fn count(&mut self, learner: &Learner, done: &[CompletedBatch]) -> Result<()> {
        let state = &mut *self.state;
        for CompletedBatch { batch, traffic, outcome, spent } in done {
            state.sums.add(batch, *traffic, *outcome, spent);
            if let Some(online) = &mut self.online {
                online.see(state.epoch as u64, &batch.input_nodes);
            }
            let (epoch, batch) = (state.epoch + 1, batch.seeds.number + 1);
            if !outcome.loss.is_finite() {
                return Err(Error::Diverged { epoch, batch, loss: outcome.loss });
            }
            state.batch = batch;
        }
        state.sums.seconds = self.meter.seconds();
        state.step = learner.step;
        state.staleness = state.staleness.max(learner.staleness);
        Ok(())
    }

    /// Reports the batches to the observer.
    fn report(&mut self) -> Result<()> {
        let sums = &self.state.sums;
        self.meter.sample_memory(sums.seconds);
        self.observer.batch(&Progress {
            epoch: self.state.epoch,
            batches: self.state.batch,
            seeds: sums.seeds,
            loss: sums.mean_loss(),
            seconds: self.meter.seconds_here(),
        })
    }
}
