//! The part of a run that a batch sees: learning rates, counts, signals and checkpoints.

use std::{sync::Arc, time::Instant};

use super::{
    learner::{BatchLearner, EpochCounts},
    position::Position,
};
use crate::{
    Error, Result, TrainConfig,
    distributed::Ranks,
    observer::{Observer, Progress},
    record::{BatchOutcome, EpochTotals, Stages, Traffic},
    reuse::ReusePosition,
    run::Meter,
    strategy::Flow,
};

/// Run in progress.
pub(crate) struct Session<'a, 'o, L: BatchLearner> {
    pub(super) config: &'a TrainConfig,
    /// Number of batches of an epoch.
    pub(super) batches: u64,
    /// The model and everything else that a checkpoint holds.
    pub(super) position: Position<'a, L>,
    pub(super) meter: Meter,
    pub(super) observer: &'o mut dyn Observer,
    /// Returns true once the run is asked to stop.
    pub(super) stop: &'o (dyn Fn() -> bool + Sync),
    /// True while a trained batch is reported, whose failure loses no batch.
    pub(super) is_reporting: bool,
    /// The ranks that train together, if there are several.
    pub(super) ranks: Option<Arc<Ranks>>,
}

/// Result of a batch.
pub(crate) struct Completed {
    /// Number of the batch, from 0.
    pub(crate) number: u64,
    pub(crate) outcome: BatchOutcome,
    pub(crate) traffic: Traffic,
    /// Seconds of its stages.
    pub(crate) spent: Stages,
}

impl<L: BatchLearner> Session<'_, '_, L> {
    /// Model and optimisers.
    pub(crate) fn learner(&mut self) -> &mut L {
        &mut self.position.learner
    }

    /// Totals and counts of the current epoch so far.
    pub(crate) fn totals(&mut self) -> (&mut EpochTotals, &mut L::Counts) {
        let state = &mut self.position.state;
        (&mut state.run.sums, &mut state.counts)
    }

    /// Position of the reuse of rows, which a checkpoint holds.
    pub(crate) fn reuse(&mut self) -> &mut ReusePosition {
        &mut self.position.state.run.reuse
    }

    /// Number of batches of the current epoch that are done.
    pub(crate) fn num_done(&self) -> u64 {
        self.position.state.run.batch
    }

    /// Current epoch, from 0.
    pub(crate) fn epoch(&self) -> u64 {
        self.position.state.run.epoch as u64
    }

    /// Time and memory of the current epoch.
    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Learning rate of batch `number` of the current epoch.
    pub(crate) fn lr(&self, number: u64) -> f64 {
        self.position.schedule.lr(self.epoch() as u32, number as usize, self.batches as usize)
    }

    /// Counts a batch that was trained on, reports it, and writes a checkpoint if one is due. `add`
    /// adds what the learner counts besides.
    ///
    /// # Errors
    /// The loss is not finite, the observer fails, or the checkpoint cannot be written.
    pub(crate) fn complete(
        &mut self,
        done: Completed,
        add: impl FnOnce(&mut EpochTotals, &mut L::Counts),
    ) -> Result<Flow> {
        self.check(&done)?;
        let before = self.num_done();
        self.count(done, add);
        self.end_update(before)
    }

    /// Refuses a batch whose loss is not finite.
    ///
    /// # Errors
    /// It is not.
    pub(crate) fn check(&self, done: &Completed) -> Result<()> {
        let (epoch, batch, loss) = (self.position.state.run.epoch + 1, done.number + 1, done.outcome.loss);
        if loss.is_finite() { Ok(()) } else { Err(Error::Diverged { epoch, batch, loss }) }
    }

    /// Records the staleness of the gradients of an update, in updates.
    pub(crate) fn see_staleness(&mut self, updates: u64) {
        let state = &mut self.position.state.run;
        state.staleness = state.staleness.max(updates);
    }

    /// Counts a batch of an update, in the order of their numbers; [`Session::end_update`] follows
    /// the last one.
    pub(crate) fn count(&mut self, done: Completed, add: impl FnOnce(&mut EpochTotals, &mut L::Counts)) {
        let Completed { number, outcome, traffic, spent } = done;
        let state = &mut self.position.state;
        state.run.sums.add_counts(outcome, traffic, &spent);
        state.run.sums.seconds = self.meter.seconds();
        add(&mut state.run.sums, &mut state.counts);
        (state.run.batch, state.run.step) = (number + 1, self.position.learner.num_updates());
    }

    /// Reports the batches of an update, before which `before` batches of the epoch were done, and
    /// writes a checkpoint if one is due.
    ///
    /// # Errors
    /// The observer fails, or the checkpoint cannot be written.
    pub(crate) fn end_update(&mut self, before: u64) -> Result<Flow> {
        self.is_reporting = true;
        let flow = self.report(before)?;
        self.is_reporting = false;
        Ok(flow)
    }

    fn report(&mut self, before: u64) -> Result<Flow> {
        let state = &self.position.state.run;
        self.meter.sample_memory(state.sums.seconds);
        self.observer.batch(&Progress {
            epoch: state.epoch,
            batches: state.batch,
            seeds: state.sums.seeds,
            loss: state.sums.mean_loss(),
            seconds: self.meter.seconds_here(),
        })?;
        let is_stopping = (self.stop)();
        let every = self.config.checkpoint_batches as u64;
        let is_late = self.position.checkpoints.seconds_since_save() >= self.config.checkpoint_seconds;
        let is_late = match &self.ranks {
            None => is_late,
            // ranks follow the clock of rank 0
            Some(ranks) => ranks.agree_to_save(is_late && ranks.rank() == 0),
        };
        let is_due = is_late || every > 0 && state.batch / every > before / every;
        // after the last batch the checkpoint of the epoch follows
        if is_stopping || is_due && state.batch < self.batches {
            self.save()?;
        }
        Ok(if is_stopping { Flow::Stop } else { Flow::Continue })
    }

    /// Returns true if a checkpoint is due at the end of an epoch, the same on all ranks.
    pub(super) fn is_due_after_epoch(&self) -> Result<bool> {
        let is_due = self.position.checkpoints.is_due_after_epoch();
        let agreed = self.ranks.as_ref().map(|ranks| ranks.agree([f64::from(u8::from(is_due)), 0.0]));
        Ok(agreed.transpose()?.map_or(is_due, |[is_due, _]| is_due > 0.0))
    }

    /// Writes a checkpoint. All ranks call this at the same time.
    pub(super) fn save(&mut self) -> Result<()> {
        let clock = Instant::now();
        let state = &mut self.position.state;
        let own = (state.run.sums, state.counts.clone());
        if let Some(ranks) = &self.ranks {
            // a checkpoint has the totals of all ranks
            ranks.total(&mut state.run.sums)?;
            state.counts.add_up(ranks)?;
        }
        self.position.save()?;
        let state = &mut self.position.state;
        (state.run.sums, state.counts) = own;
        self.meter.span("checkpoint", clock);
        Ok(())
    }
}
