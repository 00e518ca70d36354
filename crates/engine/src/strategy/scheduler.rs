//! The line that batches move along, from worker to worker: which batch is where, and who may take
//! what next.
//!
//! ```text
//!   free ─► being sampled ─► sampled ─► being extracted ─► extracted ─► being trained on ─► trained ─► free
//!           any order        by number  in order           in the order of claims           by round
//! ```
//!
//! There are as many slots as batches may be under way: a worker that samples ahead waits for one
//! (back-pressure). A slot and the number of a batch are taken in one step, so the lowest batch
//! under way always has a slot and can go on: the line does not lock up. Batches leave `sampled` in
//! the order of their numbers, each claimed for a trainer, and reach a trainer in the order of its
//! claims.
//!
//! # Updates
//!
//! Where trainers compute gradients side by side, every `group` batches make a round, and a round
//! an update. A trainer may begin a batch of round `r` on parameters of version `v` (updates made)
//! where `r - v` is at most the staleness bound; rounds are applied in order, so the gradient is
//! used at version `r`, and its staleness is `r - v`. With bound 0 updates are synchronous. (FGNN
//! updates "asynchronously with bounded staleness", section 5.2, and leaves the rule open.)
//!
//! # Switching
//!
//! A worker that samples may have a standby trainer (FGNN, section 5.3). When all batches are
//! sampled it claims one as long as the profit is positive; where there are no other trainers, when
//! no slot is left or all is sampled.
//!
//! # Failure
//!
//! A batch that fails ends the line before its round: those of lower numbers still go all the way,
//! as they would have without workers.

use std::collections::{BTreeMap, VecDeque};

use crate::{Error, allocate::samplers::profit, machine::monitor::Monitor};

/// What moves along the line: a batch is a value of another type at each place, so no worker can
/// skip a stage.
pub trait Slots {
    /// A free slot: the memory of a batch, or the batch that was last in it.
    type Free;
    /// A sampled batch.
    type Sampled: Into<Self::Free>;
    /// An extracted batch.
    type Extracted: Into<Self::Free>;
    /// A batch with its gradient.
    type Trained: Into<Self::Free>;
}

/// What a worker does: one stage, or several in turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerRole {
    /// Samples, and so many batches at once.
    pub sample: usize,
    /// Extracts, for this trainer.
    pub extract: Option<usize>,
    /// Trains, as this trainer.
    pub train: Option<usize>,
    /// Extracts and trains only to lend a hand: the trainer is on standby.
    pub standby: bool,
    /// Applies gradients.
    pub update: bool,
}

/// What a worker is to do next.
pub enum Task<T: Slots> {
    /// Sample these batches.
    Sample(Vec<(u64, T::Free)>),
    /// Extract this batch.
    Extract(u64, T::Sampled),
    /// Train on this batch.
    Train(u64, T::Extracted),
    /// Update the model by the gradients of these batches.
    Update(Vec<(u64, T::Trained)>),
}

/// How a line is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Trainers, those on standby among them.
    pub trainers: usize,
    /// Trainers that are not on standby.
    pub normal: usize,
    /// Batches a trainer may have claimed and not begun to train on.
    pub ahead: usize,
    /// Batches of an update.
    pub group: u64,
    /// Updates that a gradient may be late.
    pub bound: u64,
    /// Whether batch `k` of a round is for trainer `k` modulo their number, not for whoever is
    /// free: what each adds up is then the same every time.
    pub dealt: bool,
}

impl Rules {
    /// One trainer, who updates the model himself.
    pub const ONE: Self =
        Self { trainers: 1, normal: 1, ahead: usize::MAX, group: 1, bound: u64::MAX, dealt: false };
}

/// Where every batch is.
pub struct SchedulerState<T: Slots> {
    rules: Rules,
    from: u64,
    /// The next batch to sample.
    next: u64,
    /// The batch behind the last.
    end: u64,
    free: Vec<T::Free>,
    sampled: BTreeMap<u64, T::Sampled>,
    /// The next batch to extract.
    unclaimed: u64,
    /// By trainer, the batches it has claimed and not begun.
    claims: Vec<VecDeque<u64>>,
    extracted: BTreeMap<u64, T::Extracted>,
    trained: BTreeMap<u64, T::Trained>,
    /// Updates made, in this epoch: the version of the parameters.
    version: u64,
    /// Whether a lone device trains until nothing waits.
    draining: bool,
    /// By trainer, whether it was on standby and has found that it does not pay to lend a hand any
    /// more.
    stood_down: Vec<bool>,
    /// Seconds a batch of trainers and of standby trainers, lately.
    pace: [Option<f64>; 2],
    /// The lowest batch that failed, and why.
    failure: Option<(u64, Error)>,
    closed: bool,
}

/// What a worker finds.
enum Next<T: Slots> {
    Task(Task<T>),
    Wait,
    End,
}

/// How much of a pace is the newest batch's.
const NEWEST: f64 = 0.25;

impl<T: Slots> SchedulerState<T> {
    /// A line for batches `from..end` of an epoch, with those slots: at least a round's.
    pub fn new(from: u64, end: u64, free: Vec<T::Free>, rules: Rules) -> Self {
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

    /// Batches that are sampled, and batches that are extracted, and wait.
    pub fn depths(&self) -> (usize, usize) {
        (self.sampled.len(), self.extracted.len())
    }

    /// Updates made in this epoch.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The round of a batch.
    fn round(&self, number: u64) -> u64 {
        (number - self.from) / self.rules.group
    }

    /// The batches of the round that is applied next.
    fn next_round(&self) -> std::ops::Range<u64> {
        let start = self.from.saturating_add(self.version.saturating_mul(self.rules.group));
        start..start.saturating_add(self.rules.group).min(self.end)
    }

    /// Batches that can be sampled at once.
    fn room(&self, most: usize) -> usize {
        let left = self.end.saturating_sub(self.next);
        most.min(self.free.len()).min(usize::try_from(left).unwrap_or(usize::MAX))
    }

    fn sample(&mut self, many: usize) -> Next<T> {
        let mut gang = Vec::with_capacity(many);
        for _ in 0..many {
            if let Some(slot) = self.free.pop() {
                gang.push((self.next, slot));
                self.next += 1;
            }
        }
        Next::Task(Task::Sample(gang))
    }

    /// Whether a standby trainer should take a batch.
    fn standby_pays(&self) -> bool {
        let all_sampled = self.next >= self.end;
        if self.rules.normal == 0 {
            return all_sampled || self.draining;
        }
        let remaining = usize::try_from(self.end.saturating_sub(self.unclaimed)).unwrap_or(usize::MAX);
        // before anything is known, all trainers are alike
        let normal = self.pace[0].or(self.pace[1]).unwrap_or(1.0);
        all_sampled && profit(remaining, normal, self.rules.normal, self.pace[1].unwrap_or(normal)) > 0.0
    }

    /// Whether the next batch to extract may be this trainer's.
    fn may_claim(&self, trainer: usize) -> bool {
        let place = (self.unclaimed - self.from) % self.rules.group;
        !self.rules.dealt || place % self.rules.trainers as u64 == trainer as u64
    }

    /// Whether that standby trainer takes batches. When it has once found that it does not pay,
    /// with all batches sampled, it takes no more of this epoch's: its threads may be gone.
    fn lends(&mut self, trainer: Option<usize>) -> bool {
        let pays = self.standby_pays();
        let all_sampled = self.next >= self.end;
        trainer.is_some_and(|trainer| {
            self.stood_down[trainer] |= all_sampled && !pays;
            pays && !self.stood_down[trainer]
        })
    }

    /// What that worker is to do: the latest stage first, so that slots come back; but one whose
    /// samples others extract sees to it first that they have something to do.
    fn step(&mut self, can: WorkerRole) -> Next<T> {
        if self.closed {
            return Next::End;
        }
        let round = self.next_round();
        if can.update && !round.is_empty() && round.clone().all(|number| self.trained.contains_key(&number)) {
            let behind = self.trained.split_off(&round.end);
            let gang = std::mem::replace(&mut self.trained, behind);
            return Next::Task(Task::Update(gang.into_iter().collect()));
        }
        let room = self.room(can.sample);
        let none = self.sampled.is_empty() && self.extracted.is_empty();
        let mut full = room > 0 && (room == can.sample || self.next + room as u64 == self.end);
        if self.rules.normal == 0 && can.sample > 0 {
            // where nobody else trains, a device that has no slots to go on sampling with trains
            // until nothing waits
            self.draining = !none && (self.draining || !full);
            full &= !self.draining;
        }
        if full && can.extract.is_none() && can.train.is_some() && self.sampled.is_empty() {
            return self.sample(room);
        }
        if let Some(trainer) = can.train
            && let Some(&number) = self.claims[trainer].front()
            && self.round(number).saturating_sub(self.version) <= self.rules.bound
            && let Some(slot) = self.extracted.remove(&number)
        {
            self.claims[trainer].pop_front();
            return Next::Task(Task::Train(number, slot));
        }
        let lends = !can.standby || self.lends(can.extract.or(can.train));
        if let Some(trainer) = can.extract
            && self.unclaimed < self.end
            && lends
            && self.may_claim(trainer)
            && self.claims[trainer].len() < self.rules.ahead
            && let Some(slot) = self.sampled.remove(&self.unclaimed)
        {
            let number = self.unclaimed;
            self.claims[trainer].push_back(number);
            self.unclaimed += 1;
            return Next::Task(Task::Extract(number, slot));
        }
        // fewer at once than it could, only where nothing else would bring slots back
        if full || (room > 0 && none) {
            return self.sample(room);
        }
        let claimed = |trainer: Option<usize>| {
            trainer.is_some_and(|trainer| self.claims[trainer].front().is_some_and(|&n| n < self.end))
        };
        let more = self.unclaimed < self.end && (lends || self.next < self.end);
        let may_train = claimed(can.train) || (can.train.is_some() && more);
        let may_extract = can.extract.is_some() && more;
        let may_sample = can.sample > 0 && self.next < self.end;
        let may_update = can.update && !round.is_empty();
        if may_train || may_extract || may_sample || may_update { Next::Wait } else { Next::End }
    }
}

/// A [`SchedulerState`] that workers share.
pub struct BatchScheduler<M>(M);

impl<M> BatchScheduler<M> {
    /// A line of that monitor.
    pub fn new(monitor: M) -> Self {
        Self(monitor)
    }

    /// The monitor.
    pub fn into_inner(self) -> M {
        self.0
    }

    /// Waits for something to do; `None` when there is nothing more, ever.
    pub fn next<T: Slots>(&self, can: WorkerRole) -> Option<Task<T>>
    where
        M: Monitor<SchedulerState<T>>,
    {
        self.0.until(|state| match state.step(can) {
            Next::Task(task) => Some(Some(task)),
            Next::End => Some(None),
            Next::Wait => None,
        })
    }

    /// A batch is sampled.
    pub fn sampled<T: Slots>(&self, number: u64, slot: T::Sampled)
    where
        M: Monitor<SchedulerState<T>>,
    {
        self.0.now(|state| state.put(number, slot, |state| &mut state.sampled));
    }

    /// A batch is extracted.
    pub fn extracted<T: Slots>(&self, number: u64, slot: T::Extracted)
    where
        M: Monitor<SchedulerState<T>>,
    {
        self.0.now(|state| state.put(number, slot, |state| &mut state.extracted));
    }

    /// A batch's gradient is there, `seconds` after its trainer began with it.
    pub fn trained<T: Slots>(&self, number: u64, slot: T::Trained, seconds: f64, standby: bool)
    where
        M: Monitor<SchedulerState<T>>,
    {
        self.0.now(|state| {
            let pace = &mut state.pace[usize::from(standby)];
            *pace = Some(pace.map_or(seconds, |pace| pace + NEWEST * (seconds - pace)));
            state.put(number, slot, |state| &mut state.trained);
        });
    }

    /// The model is updated by the round that was given out.
    pub fn updated<T: Slots>(&self)
    where
        M: Monitor<SchedulerState<T>>,
    {
        self.0.now(|state| state.version += 1);
    }

    /// This batch has gone all its way: its slot is free.
    pub fn free<T: Slots>(&self, slot: T::Free)
    where
        M: Monitor<SchedulerState<T>>,
    {
        self.0.now(|state| state.free.push(slot));
    }

    /// A stage of this batch failed: the epoch ends before its round. Of several, the lowest
    /// batch's error is kept.
    pub fn fail<T: Slots>(&self, number: u64, slot: T::Free, error: Error)
    where
        M: Monitor<SchedulerState<T>>,
    {
        self.0.now(|state| {
            state.free.push(slot);
            let end = state.from + state.round(number) * state.rules.group;
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

    /// Ends the line where it stands: nobody gets anything more.
    pub fn close<T: Slots>(&self)
    where
        M: Monitor<SchedulerState<T>>,
    {
        self.0.now(|state| state.closed = true);
    }

    /// Looks at the line.
    pub fn see<T: Slots, R>(&self, look: impl FnOnce(&SchedulerState<T>) -> R) -> R
    where
        M: Monitor<SchedulerState<T>>,
    {
        self.0.look(look)
    }
}

impl<T: Slots> SchedulerState<T> {
    /// Puts a batch where it waits, or back to the free slots where the line has ended before it.
    fn put<S: Into<T::Free>>(&mut self, number: u64, slot: S, place: fn(&mut Self) -> &mut BTreeMap<u64, S>) {
        if number < self.end {
            place(self).insert(number, slot);
        } else {
            self.free.push(slot.into());
        }
    }

    /// When all workers are gone: the error that ended the line, and the slots that came back.
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
