//! The line that batches move along, from worker to worker: which batch is where, and who may take what next.
//!
//! ```text
//!   free ──► being sampled ──► sampled ──► being extracted ──► extracted ──► being trained on ──► free
//!            any order         by number   in order            in the order of claims
//! ```
//!
//! There are as many slots as batches may be under way: a worker that samples ahead waits for one (back-pressure). A slot and
//! the number of a batch are taken in one step, so the lowest batch under way always has a slot and can go on: the line
//! does not lock up. Batches leave [`sampled`](State) in the order of their numbers, each claimed for a trainer, and reach a trainer
//! in the order of its claims.
//!
//! A batch that fails ends the line before it: those of lower numbers still go all the way, as they would have without workers.

use std::collections::{BTreeMap, VecDeque};

use graphmill_loader::MiniBatch;

use super::monitor::Monitor;
use crate::{Error, record::Stages};

/// A batch with its room, and what was spent on it.
#[derive(Debug, Default)]
pub struct Slot {
    /// The batch.
    pub batch: MiniBatch,
    /// Seconds of its stages so far.
    pub spent: Stages,
}

/// What a worker does: one stage, or several in turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Can {
    /// Samples, and so many batches at once.
    pub sample: usize,
    /// Extracts, for this trainer.
    pub extract: Option<usize>,
    /// Trains, as this trainer.
    pub train: Option<usize>,
}

/// What a worker is to do next.
#[derive(Debug)]
pub enum Task<T> {
    /// Sample these batches.
    Sample(Vec<(u64, T)>),
    /// Extract this batch.
    Extract(u64, T),
    /// Train on this batch.
    Train(u64, T),
}

/// Where every batch is.
#[derive(Debug)]
pub struct State<T = Slot> {
    /// The next batch to sample.
    next: u64,
    /// The batch behind the last.
    end: u64,
    free: Vec<T>,
    slots: usize,
    sampled: BTreeMap<u64, T>,
    /// The next batch to extract.
    unclaimed: u64,
    /// By trainer, the batches it has claimed and not begun.
    claims: Vec<VecDeque<u64>>,
    extracted: BTreeMap<u64, T>,
    /// Why batch `end` failed.
    failure: Option<Error>,
    closed: bool,
}

/// What a worker finds.
enum Next<T> {
    Task(Task<T>),
    Wait,
    End,
}

impl<T> State<T> {
    /// A line for batches `from..end` of an epoch, with those slots and so many trainers.
    pub fn new(from: u64, end: u64, free: Vec<T>, trainers: usize) -> Self {
        Self {
            next: from,
            end,
            slots: free.len(),
            free,
            sampled: BTreeMap::new(),
            unclaimed: from,
            claims: (0..trainers).map(|_| VecDeque::new()).collect(),
            extracted: BTreeMap::new(),
            failure: None,
            closed: false,
        }
    }

    /// Batches that are sampled, and batches that are extracted, and wait.
    pub fn depths(&self) -> (usize, usize) {
        (self.sampled.len(), self.extracted.len())
    }

    /// Batches that no trainer has claimed yet, sampled or not.
    pub fn unclaimed(&self) -> u64 {
        self.end.saturating_sub(self.unclaimed)
    }

    /// Whether all batches are sampled.
    pub fn all_sampled(&self) -> bool {
        self.next >= self.end
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

    /// What that worker is to do: the latest stage first, so that slots come back; but one whose samples others extract sees
    /// to it first that they have something to do.
    fn step(&mut self, can: Can) -> Next<T> {
        if self.closed {
            return Next::End;
        }
        let room = self.room(can.sample);
        let full = room > 0 && (room == can.sample || self.next + room as u64 == self.end);
        if full && can.extract.is_none() && can.train.is_some() && self.sampled.is_empty() {
            return self.sample(room);
        }
        if let Some(trainer) = can.train
            && let Some(&number) = self.claims[trainer].front()
            && let Some(slot) = self.extracted.remove(&number)
        {
            self.claims[trainer].pop_front();
            return Next::Task(Task::Train(number, slot));
        }
        if let Some(trainer) = can.extract
            && self.unclaimed < self.end
            && let Some(slot) = self.sampled.remove(&self.unclaimed)
        {
            let number = self.unclaimed;
            self.claims[trainer].push_back(number);
            self.unclaimed += 1;
            return Next::Task(Task::Extract(number, slot));
        }
        if full || (room > 0 && self.free.len() == self.slots) {
            return self.sample(room);
        }
        let may_train = can.train.is_some_and(|trainer| {
            self.claims[trainer].front().is_some_and(|&number| number < self.end) || self.unclaimed < self.end
        });
        let may_extract = can.extract.is_some() && self.unclaimed < self.end;
        let may_sample = can.sample > 0 && self.next < self.end;
        if may_train || may_extract || may_sample { Next::Wait } else { Next::End }
    }
}

/// A [`State`] that workers share.
pub struct Line<M>(M);

impl<M> Line<M> {
    /// A line of that monitor.
    pub fn new(monitor: M) -> Self {
        Self(monitor)
    }

    /// The monitor.
    pub fn into_inner(self) -> M {
        self.0
    }
}

impl<M> Line<M> {
    /// Waits for something to do; `None` when there is nothing more, ever.
    pub fn next<T>(&self, can: Can) -> Option<Task<T>>
    where
        M: Monitor<State<T>>,
    {
        self.0.until(|state| match state.step(can) {
            Next::Task(task) => Some(Some(task)),
            Next::End => Some(None),
            Next::Wait => None,
        })
    }

    /// A batch is sampled. Returns how many wait to be extracted.
    pub fn sampled<T>(&self, number: u64, slot: T) -> usize
    where
        M: Monitor<State<T>>,
    {
        self.0.now(|state| {
            state.put(number, slot, |state| &mut state.sampled);
            state.sampled.len()
        })
    }

    /// A batch is extracted. Returns how many wait for a trainer.
    pub fn extracted<T>(&self, number: u64, slot: T) -> usize
    where
        M: Monitor<State<T>>,
    {
        self.0.now(|state| {
            state.put(number, slot, |state| &mut state.extracted);
            state.extracted.len()
        })
    }

    /// A batch was trained on: its slot is free.
    pub fn trained<T>(&self, slot: T)
    where
        M: Monitor<State<T>>,
    {
        self.0.now(|state| state.free.push(slot));
    }

    /// A stage of this batch failed: the epoch ends before it. Of several, the lowest batch's error is kept.
    pub fn fail<T>(&self, number: u64, slot: T, error: Error)
    where
        M: Monitor<State<T>>,
    {
        self.0.now(|state| {
            state.free.push(slot);
            if number < state.end {
                state.end = number;
                state.failure = Some(error);
                let State { sampled, extracted, free, .. } = state;
                free.extend(sampled.split_off(&number).into_values());
                free.extend(extracted.split_off(&number).into_values());
            }
        });
    }

    /// Ends the line where it stands: nobody gets anything more.
    pub fn close<T>(&self)
    where
        M: Monitor<State<T>>,
    {
        self.0.now(|state| state.closed = true);
    }

    /// Looks at the line.
    pub fn see<T, R>(&self, look: impl FnOnce(&State<T>) -> R) -> R
    where
        M: Monitor<State<T>>,
    {
        self.0.now(|state| look(state))
    }
}

impl<T> State<T> {
    /// Puts a batch where it waits, or back to the free slots where the line has ended before it.
    fn put(&mut self, number: u64, slot: T, place: fn(&mut Self) -> &mut BTreeMap<u64, T>) {
        if number < self.end {
            place(self).insert(number, slot);
        } else {
            self.free.push(slot);
        }
    }

    /// When all workers are gone: the error that ended the line, and the slots that came back.
    pub fn end(self) -> (Option<Error>, Vec<T>) {
        let Self { mut free, sampled, extracted, failure, .. } = self;
        free.extend(sampled.into_values());
        free.extend(extracted.into_values());
        (failure, free)
    }
}

#[cfg(test)]
mod tests;
