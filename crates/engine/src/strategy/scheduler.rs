//! Scheduler of the batches of an epoch: the state of every batch, and the task that each worker
//! may take next.
//!
//! ```text
//!   free ─► being sampled ─► sampled ─► being extracted ─► extracted ─► being trained on ─► trained ─► free
//!           any order        by number  in order           in the order of claims           by round
//! ```
//!
//! The number of slots limits the batches under way: a worker that samples ahead waits for a free
//! slot (back-pressure). A worker takes a slot and the number of a batch in one step, so the lowest
//! batch under way always has a slot and can proceed: the scheduler cannot deadlock. Batches leave
//! `sampled` in the order of their numbers, each claimed for a trainer, and reach a trainer in the
//! order of its claims.
//!
//! # Updates
//!
//! If trainers compute gradients concurrently, every `round_size` batches form a round, and a round
//! makes one update. A trainer may start a batch of round `r` on parameters of version `v` (updates
//! made) if `r - v` is at most `max_staleness`. Rounds are applied in order, so the gradient is
//! used at version `r` and its staleness is `r - v`. A bound of 0 makes updates synchronous. FGNN
//! updates "asynchronously with bounded staleness" (Yang et al., EuroSys 2022, section 5.2) and
//! does not specify the rule. Trainers read the oldest version that the rule allows, also if newer
//! ones exist (`crates/engine/src/versions`).
//!
//! # Switching
//!
//! A worker that samples may have a standby trainer (FGNN, section 5.3). Once all batches are
//! sampled, the standby trainer claims batches while the profit is positive. Without dedicated
//! trainers it claims batches when no slot is free or all batches are sampled.
//!
//! # Failure
//!
//! A failed batch ends the epoch before its round. Batches of earlier rounds are completed, as they
//! would be without workers.

use std::collections::{BTreeMap, VecDeque};

use crate::{Error, allocate::samplers::profit, machine::monitor::Monitor};

/// Types of a batch in each of its states. They differ, so no worker can skip a stage.
///
/// ```
/// use graphmill_engine::strategy::scheduler::BatchStates;
///
/// struct Sampled(Vec<u32>);
/// struct Extracted(Vec<u32>, Vec<f32>);
/// struct Trained(Vec<u32>);
///
/// /// Batches whose memory is a vector.
/// struct Small;
///
/// impl BatchStates for Small {
///     type Free = Vec<u32>;
///     type Sampled = Sampled;
///     type Extracted = Extracted;
///     type Trained = Trained;
/// }
///
/// impl From<Sampled> for Vec<u32> {
///     fn from(batch: Sampled) -> Self {
///         batch.0
///     }
/// }
/// # impl From<Extracted> for Vec<u32> { fn from(batch: Extracted) -> Self { batch.0 } }
/// # impl From<Trained> for Vec<u32> { fn from(batch: Trained) -> Self { batch.0 } }
/// ```
pub trait BatchStates {
    /// A free slot: the memory of a batch, or the batch that was last in it.
    type Free;
    /// A sampled batch.
    type Sampled: Into<Self::Free>;
    /// An extracted batch.
    type Extracted: Into<Self::Free>;
    /// A batch with its gradient.
    type Trained: Into<Self::Free>;
}

/// Stages that a worker runs: one, or several in turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerRole {
    /// Number of batches that it samples at once; 0 if it does not sample.
    pub sample: usize,
    /// Trainer for which it extracts, if it extracts.
    pub extract: Option<usize>,
    /// Number of its trainer, if it trains.
    pub train: Option<usize>,
    /// True if its trainer is on standby: it extracts and trains only while that is profitable.
    pub standby: bool,
    /// True if it applies gradients.
    pub update: bool,
}

/// Next task of a worker.
pub enum Task<T: BatchStates> {
    /// Sample these batches.
    Sample(Vec<(u64, T::Free)>),
    /// Extract this batch.
    Extract(u64, T::Sampled),
    /// Train on this batch.
    Train(u64, T::Extracted),
    /// Update the model by the gradients of these batches.
    Update(Vec<(u64, T::Trained)>),
}

/// Rules of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerRules {
    /// Number of trainers, including those on standby.
    pub trainers: usize,
    /// Number of trainers that are not on standby.
    pub dedicated: usize,
    /// Largest number of batches that a trainer has claimed and not yet started.
    pub max_claims: usize,
    /// Batches per update.
    pub round_size: u64,
    /// Largest staleness of a gradient, in updates.
    pub max_staleness: u64,
    /// True if trainer `k % trainers` takes batch `k` of each round, instead of the first free
    /// trainer. Each trainer then sums the same gradients in every run.
    pub round_robin: bool,
}

impl SchedulerRules {
    /// Rules of a single trainer, which updates the model itself.
    pub const ONE: Self = Self {
        trainers: 1,
        dedicated: 1,
        max_claims: usize::MAX,
        round_size: 1,
        max_staleness: u64::MAX,
        round_robin: false,
    };
}

/// State of every batch of an epoch.
pub struct SchedulerState<T: BatchStates> {
    rules: SchedulerRules,
    from: u64,
    /// The next batch to sample.
    next: u64,
    /// End of the batches (exclusive).
    end: u64,
    free: Vec<T::Free>,
    sampled: BTreeMap<u64, T::Sampled>,
    /// The next batch to extract.
    unclaimed: u64,
    /// Batches that each trainer has claimed and not started.
    claims: Vec<VecDeque<u64>>,
    extracted: BTreeMap<u64, T::Extracted>,
    trained: BTreeMap<u64, T::Trained>,
    /// Updates made in this epoch: the version of the parameters.
    version: u64,
    /// True if a device without dedicated trainers trains until no batch waits.
    draining: bool,
    /// For each trainer, true if it is on standby and has stopped because training is not
    /// profitable.
    stood_down: Vec<bool>,
    /// Recent seconds per batch of dedicated and of standby trainers (moving averages).
    pace: [Option<f64>; 2],
    /// The lowest batch that failed, and its error.
    failure: Option<(u64, Error)>,
    closed: bool,
}

/// Answer to a worker that asks for a task.
enum NextStep<T: BatchStates> {
    Task(Task<T>),
    Wait,
    End,
}

/// Weight of the newest batch in a pace.
const PACE_WEIGHT: f64 = 0.25;

impl<T: BatchStates> SchedulerState<T> {
    /// State before batches `from..end` of an epoch, with these free slots: at least as many as a
    /// round has batches.
    pub fn new(from: u64, end: u64, free: Vec<T::Free>, rules: SchedulerRules) -> Self {
        Self {
            rules,
            from,
            next: from,
            end,
            free,
            sampled: BTreeMap::new(),
            unclaimed: from,
            claims: (0..rules.trainers).map(|_| VecDeque::new()).collect(),
            extracted: BTreeMap::new(),
            trained: BTreeMap::new(),
            version: 0,
            draining: false,
            stood_down: vec![false; rules.trainers],
            pace: [None; 2],
            failure: None,
            closed: false,
        }
    }

    /// Number of waiting batches that are sampled, and that are extracted.
    pub fn depths(&self) -> (usize, usize) {
        (self.sampled.len(), self.extracted.len())
    }

    /// Updates made in this epoch.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The round of a batch.
    fn round(&self, number: u64) -> u64 {
        (number - self.from) / self.rules.round_size
    }

    /// The batches of the round that is applied next.
    fn next_round(&self) -> std::ops::Range<u64> {
        let start = self.from.saturating_add(self.version.saturating_mul(self.rules.round_size));
        start..start.saturating_add(self.rules.round_size).min(self.end)
    }

    /// Number of batches that can be sampled at once, at most `limit`.
    fn num_samplable(&self, limit: usize) -> usize {
        let left = self.end.saturating_sub(self.next);
        limit.min(self.free.len()).min(usize::try_from(left).unwrap_or(usize::MAX))
    }

    fn sample(&mut self, count: usize) -> NextStep<T> {
        let mut batches = Vec::with_capacity(count);
        for _ in 0..count {
            if let Some(slot) = self.free.pop() {
                batches.push((self.next, slot));
                self.next += 1;
            }
        }
        NextStep::Task(Task::Sample(batches))
    }

    /// Returns true if it is profitable for a standby trainer to take a batch.
    fn standby_pays(&self) -> bool {
        let all_sampled = self.next >= self.end;
        if self.rules.dedicated == 0 {
            return all_sampled || self.draining;
        }
        let remaining = usize::try_from(self.end.saturating_sub(self.unclaimed)).unwrap_or(usize::MAX);
        // all trainers are assumed to be equally fast until they are timed
        let dedicated = self.pace[0].or(self.pace[1]).unwrap_or(1.0);
        let standby = self.pace[1].unwrap_or(dedicated);
        all_sampled && profit(remaining, dedicated, self.rules.dedicated, standby) > 0.0
    }

    /// Returns true if this trainer may claim the next batch to extract.
    fn may_claim(&self, trainer: usize) -> bool {
        let index = (self.unclaimed - self.from) % self.rules.round_size;
        !self.rules.round_robin || index % self.rules.trainers as u64 == trainer as u64
    }

    /// Returns true if this standby trainer takes batches. Once all batches are sampled and
    /// training is not profitable, it takes no more batches of this epoch: its threads may have
    /// ended.
    fn standby_takes(&mut self, trainer: Option<usize>) -> bool {
        let pays = self.standby_pays();
        let all_sampled = self.next >= self.end;
        trainer.is_some_and(|trainer| {
            self.stood_down[trainer] |= all_sampled && !pays;
            pays && !self.stood_down[trainer]
        })
    }

    /// Next task of a worker: the latest stage first, so that slots are freed. A worker that
    /// samples for others to extract samples first if they have nothing to do.
    fn step(&mut self, role: WorkerRole) -> NextStep<T> {
        if self.closed {
            return NextStep::End;
        }
        let round = self.next_round();
        if role.update && !round.is_empty() && round.clone().all(|number| self.trained.contains_key(&number))
        {
            let later = self.trained.split_off(&round.end);
            let batches = std::mem::replace(&mut self.trained, later);
            return NextStep::Task(Task::Update(batches.into_iter().collect()));
        }
        let samplable = self.num_samplable(role.sample);
        let none = self.sampled.is_empty() && self.extracted.is_empty();
        let mut full =
            samplable > 0 && (samplable == role.sample || self.next + samplable as u64 == self.end);
        if self.rules.dedicated == 0 && role.sample > 0 {
            // without dedicated trainers, a device that has no free slot to sample into trains
            // until no batch waits
            self.draining = !none && (self.draining || !full);
            full &= !self.draining;
        }
        if full && role.extract.is_none() && role.train.is_some() && self.sampled.is_empty() {
            return self.sample(samplable);
        }
        if let Some(trainer) = role.train
            && let Some(&number) = self.claims[trainer].front()
            && self.round(number).saturating_sub(self.version) <= self.rules.max_staleness
            && let Some(slot) = self.extracted.remove(&number)
        {
            self.claims[trainer].pop_front();
            return NextStep::Task(Task::Train(number, slot));
        }
        let may_take = !role.standby || self.standby_takes(role.extract.or(role.train));
        if let Some(trainer) = role.extract
            && self.unclaimed < self.end
            && may_take
            && self.may_claim(trainer)
            && self.claims[trainer].len() < self.rules.max_claims
            && let Some(slot) = self.sampled.remove(&self.unclaimed)
        {
            let number = self.unclaimed;
            self.claims[trainer].push_back(number);
            self.unclaimed += 1;
            return NextStep::Task(Task::Extract(number, slot));
        }
        // it samples fewer batches than it could only if no other task would free a slot
        if full || (samplable > 0 && none) {
            return self.sample(samplable);
        }
        let claimed = |trainer: Option<usize>| {
            trainer.is_some_and(|trainer| self.claims[trainer].front().is_some_and(|&n| n < self.end))
        };
        let more = self.unclaimed < self.end && (may_take || self.next < self.end);
        let may_train = claimed(role.train) || (role.train.is_some() && more);
        let may_extract = role.extract.is_some() && more;
        let may_sample = role.sample > 0 && self.next < self.end;
        let may_update = role.update && !round.is_empty();
        if may_train || may_extract || may_sample || may_update { NextStep::Wait } else { NextStep::End }
    }
}

/// A [`SchedulerState`] that workers share.
pub struct BatchScheduler<M>(M);

impl<M> BatchScheduler<M> {
    /// Scheduler with its state in this monitor.
    pub fn new(monitor: M) -> Self {
        Self(monitor)
    }

    /// Returns the monitor.
    pub fn into_inner(self) -> M {
        self.0
    }

    /// Waits for a task; returns `None` once no task will ever follow.
    pub fn next<T: BatchStates>(&self, role: WorkerRole) -> Option<Task<T>>
    where
        M: Monitor<SchedulerState<T>>,
    {
        self.0.until(|state| match state.step(role) {
            NextStep::Task(task) => Some(Some(task)),
            NextStep::End => Some(None),
            NextStep::Wait => None,
        })
    }

    /// Takes a sampled batch.
    pub fn sampled<T: BatchStates>(&self, number: u64, slot: T::Sampled)
    where
        M: Monitor<SchedulerState<T>>,
    {
        self.0.now(|state| state.put(number, slot, |state| &mut state.sampled));
    }

    /// Takes an extracted batch.
    pub fn extracted<T: BatchStates>(&self, number: u64, slot: T::Extracted)
    where
        M: Monitor<SchedulerState<T>>,
    {
        self.0.now(|state| state.put(number, slot, |state| &mut state.extracted));
    }

    /// Takes a batch with its gradient, `seconds` after its trainer started it.
    pub fn trained<T: BatchStates>(&self, number: u64, slot: T::Trained, seconds: f64, standby: bool)
    where
        M: Monitor<SchedulerState<T>>,
    {
        self.0.now(|state| {
            let pace = &mut state.pace[usize::from(standby)];
            *pace = Some(pace.map_or(seconds, |pace| pace + PACE_WEIGHT * (seconds - pace)));
            state.put(number, slot, |state| &mut state.trained);
        });
    }

    /// Counts the update by the round of the last [`Task::Update`].
    pub fn updated<T: BatchStates>(&self)
    where
        M: Monitor<SchedulerState<T>>,
    {
        self.0.now(|state| state.version += 1);
    }

    /// Frees the slot of a completed batch.
    pub fn free<T: BatchStates>(&self, slot: T::Free)
    where
        M: Monitor<SchedulerState<T>>,
    {
        self.0.now(|state| state.free.push(slot));
    }

    /// Ends the epoch before the round of this batch, a stage of which failed. If several batches
    /// fail, the error of the lowest remains.
    pub fn fail<T: BatchStates>(&self, number: u64, slot: T::Free, error: Error)
    where
        M: Monitor<SchedulerState<T>>,
    {
        self.0.now(|state| {
            state.free.push(slot);
            let end = state.from + state.round(number) * state.rules.round_size;
            let lowest = state.failure.as_ref().is_none_or(|(lowest, _)| number < *lowest);
            if lowest {
                state.end = state.end.min(end);
                state.failure = Some((number, error));
                let SchedulerState { sampled, extracted, trained, free, .. } = state;
                free.extend(sampled.split_off(&end).into_values().map(Into::into));
                free.extend(extracted.split_off(&end).into_values().map(Into::into));
                free.extend(trained.split_off(&end).into_values().map(Into::into));
            }
        });
    }

    /// Ends the epoch at once: no worker gets another task.
    pub fn close<T: BatchStates>(&self)
    where
        M: Monitor<SchedulerState<T>>,
    {
        self.0.now(|state| state.closed = true);
    }

    /// Reads the state.
    pub fn inspect<T: BatchStates, R>(&self, look: impl FnOnce(&SchedulerState<T>) -> R) -> R
    where
        M: Monitor<SchedulerState<T>>,
    {
        self.0.look(look)
    }
}

impl<T: BatchStates> SchedulerState<T> {
    /// Adds a batch to the waiting ones of its state, or frees its slot if the epoch ends before
    /// it.
    fn put<S: Into<T::Free>>(&mut self, number: u64, slot: S, queue: fn(&mut Self) -> &mut BTreeMap<u64, S>) {
        if number < self.end {
            queue(self).insert(number, slot);
        } else {
            self.free.push(slot.into());
        }
    }

    /// Returns the error that ended the epoch, if any, and all slots. Call it after all workers
    /// have ended.
    pub fn end(self) -> (Option<Error>, Vec<T::Free>) {
        let Self { mut free, sampled, extracted, trained, failure, .. } = self;
        free.extend(sampled.into_values().map(Into::into));
        free.extend(extracted.into_values().map(Into::into));
        free.extend(trained.into_values().map(Into::into));
        (failure.map(|(_, error)| error), free)
    }
}

#[cfg(test)]
mod tests;
