//! Workers around a single trainer, which updates the model itself, and the scheduler of a part of
//! an epoch.

use std::ops::Range;

use super::{
    batch_states::{BatchKind, BatchTask, MinibatchStates, Scheduler, Slot, Timed},
    interface::Flow,
    scheduler::{BatchScheduler, SchedulerRules, SchedulerState, Task},
    worker::{CloseOnDrop, Worker},
};
use crate::{Result, machine::monitor::Guarded};

/// Number of slots that keeps all `workers` busy: twice the batches that they work on at once.
pub(crate) fn busy_slots<'w, K: BatchKind + 'w>(workers: impl Iterator<Item = &'w Worker<K>>) -> usize {
    let in_hand = workers
        .map(|worker| worker.role.sample + usize::from(worker.role.extract.is_some()) + 1)
        .sum::<usize>();
    2 * in_hand
}

/// Calls `run` with the scheduler of these batches by `rules`, of which at most `wanted` are under
/// way at once, in the memory of `slots`.
///
/// # Errors
/// A stage or `run` fails. Batches before a failed one are trained on.
pub(crate) fn scheduled<K: BatchKind>(
    batches: Range<u64>,
    wanted: usize,
    rules: SchedulerRules,
    slots: &mut Vec<K::Memory>,
    run: impl FnOnce(&Scheduler<K>) -> Result<Flow>,
) -> Result<Flow> {
    let count = usize::try_from(batches.end.saturating_sub(batches.start).max(1)).unwrap_or(usize::MAX);
    slots.resize_with(wanted.min(count), K::Memory::default);
    let free = std::mem::take(slots).into_iter().map(Slot).collect();
    let state = SchedulerState::new(batches.start, batches.end, free, rules);
    let scheduler: Scheduler<K> = BatchScheduler::new(Guarded::new(state));
    let flow = run(&scheduler);
    let (failure, back) = scheduler.into_inner().into_inner().end();
    *slots = back.into_iter().map(|Slot(memory)| memory).collect();
    let flow = flow?;
    if let (Some(error), Flow::Continue) = (failure, flow) {
        return Err(error);
    }
    Ok(flow)
}

/// A worker that trains, and the others.
pub(crate) struct SingleTrainer<K: BatchKind = MinibatchStates> {
    /// The worker that trains, on the thread of the strategy.
    pub(crate) driver: Worker<K>,
    pub(crate) others: Vec<Worker<K>>,
}

impl<K: BatchKind> SingleTrainer<K> {
    /// Runs these batches, at most `queue` at once (0: as many as keep all workers busy), in the
    /// memory of `slots`. `train` updates the model by a batch and returns whether to go on, and
    /// the batch's memory.
    ///
    /// # Errors
    /// A stage or `train` fails. Batches before a failed one are trained on.
    pub(crate) fn run(
        &mut self,
        work: K::Work<'_>,
        batches: Range<u64>,
        queue: usize,
        slots: &mut Vec<K::Memory>,
        train: &mut (impl FnMut(u64, Timed<K::Extracted>) -> Result<(Flow, K::Memory)> + Send),
    ) -> Result<Flow> {
        let busy = busy_slots(self.others.iter().chain([&self.driver]));
        let wanted = if queue > 0 { queue } else { busy };
        scheduled::<K>(batches, wanted, SchedulerRules::ONE, slots, |scheduler| {
            self.work(scheduler, work, train)
        })
    }

    /// Runs the tasks of the scheduler, on this thread and one per other worker.
    fn work(
        &mut self,
        scheduler: &Scheduler<K>,
        work: K::Work<'_>,
        train: &mut (impl FnMut(u64, Timed<K::Extracted>) -> Result<(Flow, K::Memory)> + Send),
    ) -> Result<Flow> {
        let pool = self.driver.pool.clone();
        let mut flow = Flow::Continue;
        let mut train = |task: BatchTask<K>| -> Result<Flow> {
            let Task::Train(number, batch) = task else { return Ok(Flow::Continue) };
            let memory;
            (flow, memory) = train(number, batch)?;
            scheduler.free(Slot(memory));
            Ok(flow)
        };
        let Self { driver, others } = self;
        // each worker stays on a thread of its pool from the first batch to the last, so no batch
        // waits for a switch of threads
        let drive = |driver: &mut Worker<K>| match pool {
            Some(pool) => pool.install(|| driver.run(scheduler, work, &mut train)),
            None => driver.run(scheduler, work, &mut train),
        };
        let outcome = if others.is_empty() {
            drive(driver)
        } else {
            std::thread::scope(|scope| {
                // the other threads do not wait for this one, even if it panics
                let _closing = CloseOnDrop { scheduler, always: true };
                for worker in others.iter_mut() {
                    scope.spawn(move || {
                        let pool = worker.pool.clone();
                        // it does not train, so its failures have gone to the scheduler
                        let mut run = || drop(worker.run(scheduler, work, &mut |_| Ok(Flow::Continue)));
                        match pool {
                            Some(pool) => pool.install(run),
                            None => run(),
                        }
                    });
                }
                drive(driver)
            })
        };
        outcome.map(|()| flow)
    }
}
