//! The work behind every update of the model: counting, reporting, saving, and the decision to go on.

use std::time::Instant;

use super::{
    CheckpointWriter, RunState,
    observer::{Observer, Progress},
};
use crate::{
    Error, Result, TrainConfig,
    distributed::Ranks,
    learner::Learner,
    record::{MemorySample, Samples},
    strategy::{Done, Flow},
    timeline::Timeline,
};

/// Follows the updates of an epoch.
pub(crate) struct Updates<'e, 'a> {
    pub(crate) config: &'e TrainConfig,
    pub(crate) state: &'e mut RunState,
    pub(crate) checkpoints: &'e mut CheckpointWriter<'a>,
    pub(crate) observer: &'e mut dyn Observer,
    pub(crate) ranks: Option<&'e Ranks>,
    pub(crate) stop: &'e (dyn Fn() -> bool + Sync),
    pub(crate) timeline: &'e Timeline,
    pub(crate) memory: &'e mut Samples,
    /// Batches of the epoch.
    pub(crate) batches: u64,
    /// Beginning of this part of the epoch.
    pub(crate) began: Instant,
    /// Seconds of the epoch before that.
    pub(crate) earlier: f64,
    /// Whether everything up to the last update is recorded: if not, the state is not known to be sound.
    pub(crate) is_recorded: bool,
}

impl Updates<'_, '_> {
    /// Takes in an update that was made from these batches; decides whether to go on.
    ///
    /// # Errors
    /// The loss is not finite, the observer or a checkpoint cannot be written, or a rank did not take part.
    pub(crate) fn after(&mut self, learner: &Learner, done: &[Done]) -> Result<Flow> {
        let before = self.state.batch;
        self.is_recorded = false;
        self.count(learner, done)?;
        self.report()?;
        let stopping = self.agree_to_stop()?;
        let every = self.config.checkpoint_batches as u64;
        let due = (every > 0 && self.state.batch / every > before / every)
            || self.checkpoints.seconds_since_save() >= self.config.checkpoint_seconds;
        // behind the last batch the epoch's own checkpoint follows
        if stopping || (due && self.state.batch < self.batches) {
            let clock = Instant::now();
            self.state.save(self.checkpoints, learner)?;
            self.timeline.span("checkpoint", clock);
        }
        self.is_recorded = true;
        Ok(if stopping { Flow::Stop } else { Flow::Continue })
    }

    /// Adds the batches to the epoch's totals.
    fn count(&mut self, learner: &Learner, done: &[Done]) -> Result<()> {
        let state = &mut *self.state;
        for Done { batch, traffic, outcome, spent } in done {
            state.sums.add(batch, *traffic, *outcome, spent);
            let (epoch, batch) = (state.epoch + 1, batch.seeds.number + 1);
            if !outcome.loss.is_finite() {
                return Err(Error::Diverged { epoch, batch, loss: outcome.loss });
            }
            state.batch = batch;
        }
        state.sums.seconds = self.earlier + self.began.elapsed().as_secs_f64();
        state.step = learner.step;
        state.staleness = state.staleness.max(learner.staleness);
        Ok(())
    }

    fn report(&mut self) -> Result<()> {
        let sums = &self.state.sums;
        if let Some(bytes) = self.timeline.look_at_memory() {
            self.memory.offer(MemorySample { seconds: sums.seconds, bytes });
        }
        self.observer.batch(&Progress {
            epoch: self.state.epoch,
            batches: self.state.batch,
            seeds: sums.seeds,
            loss: sums.mean_loss(),
            seconds: self.began.elapsed().as_secs_f64(),
        })
    }

    /// Whether the run is to stop here, the same on all ranks.
    fn agree_to_stop(&mut self) -> Result<bool> {
        let Some(ranks) = self.ranks else { return Ok((self.stop)()) };
        let stopping = ranks.agree_to_stop((self.stop)());
        if stopping && self.state.batch < self.batches {
            ranks.stop(&mut self.state.sums)?;
        }
        Ok(stopping)
    }
}
