//! Workers of an allocation.

use std::{sync::Arc, time::Instant};

use graphmill_loader::MiniBatch;
use rayon::ThreadPool;

use super::{
    pace::Pace,
    stages::{EXTRACT, SAMPLE, STAGES, TRAIN},
};
use crate::{
    Error, Result,
    allocate::{Allocation, Group},
    cores,
    machine::monitor::Guarded,
    strategy::{
        batch_states::{BatchTask, Scheduler, Timed},
        interface::{CompletedBatch, Epoch, Flow},
        scheduler::{BatchScheduler, SchedulerRules, SchedulerState, Task, WorkerRole},
        worker::{CloseOnDrop, Work, Worker, attempt},
    },
    timeline::Stage,
};

/// Workers of an allocation: one that trains, and the others.
pub(super) struct WorkerSet {
    /// The worker that trains, on the thread of the strategy.
    driver: Worker,
    others: Vec<Worker>,
    pub(super) pace: Pace,
}

impl WorkerSet {
    /// Workers of an allocation, for a graph of `num_nodes` nodes.
    ///
    /// # Errors
    /// The system refuses the threads.
    pub(super) fn new(allocation: &Allocation, num_nodes: usize) -> Result<Self> {
        let mut numbers = cores::available().into_iter();
        let mut own_pool = |group: &Group, name: &str| {
            let pinned: Vec<usize> =
                if allocation.isolated { numbers.by_ref().take(group.cores).collect() } else { Vec::new() };
            cores::pool(name, group.cores, &pinned).map(Arc::new)
        };
        let (mut driver, mut others) = (None, Vec::new());
        for group in &allocation.groups {
            let has = |stage: usize| group.stages.contains(&stage);
            let role = WorkerRole {
                sample: if has(SAMPLE) { group.cores } else { 0 },
                extract: has(EXTRACT).then_some(0),
                train: has(TRAIN).then_some(0),
                ..WorkerRole::default()
            };
            let name = group.stages.iter().map(|&i| STAGES[i].name()).collect::<Vec<_>>().join(" + ");
            let worker = |name: String, role: WorkerRole, pool: Option<Arc<ThreadPool>>| {
                Worker::new(name, role, pool, num_nodes)
            };
            if has(TRAIN) {
                // the pool of the run has all cores already
                let pool = if allocation.isolated { Some(own_pool(group, &name)?) } else { None };
                driver = Some(worker(name, role, pool));
            } else if group.stages == [SAMPLE] {
                // each thread draws its own batch: no thread waits for another
                for i in 0..group.cores {
                    let one = Group { stages: vec![SAMPLE], cores: 1 };
                    let pool = own_pool(&one, &name)?;
                    others.push(worker(format!("{name} {i}"), WorkerRole { sample: 1, ..role }, Some(pool)));
                }
            } else {
                let pool = own_pool(group, &name)?;
                others.push(worker(name, role, Some(pool)));
            }
        }
        let driver = driver.ok_or_else(|| {
            Error::usage("the allocation has no group that trains; add the stage train to a group")
        })?;
        Ok(Self { driver, others, pace: Pace::default() })
    }

    /// Number of workers that only sample.
    #[cfg(test)]
    pub(super) fn num_samplers(&self) -> usize {
        self.others.iter().filter(|worker| worker.role.sample > 0 && worker.role.extract.is_none()).count()
    }

    /// Number of slots that keeps all workers busy: twice the batches that they work on at once.
    fn slots(&self) -> usize {
        let all = self.others.iter().chain([&self.driver]);
        let in_hand = all
            .map(|worker| worker.role.sample + usize::from(worker.role.extract.is_some()) + 1)
            .sum::<usize>();
        2 * in_hand
    }

    /// Runs the batches of the epoch, at most `queue` at once (0: as many as keep all workers
    /// busy).
    ///
    /// # Errors
    /// A stage or [`Epoch::after`] fails.
    pub(super) fn run(
        &mut self,
        epoch: &mut Epoch,
        queue: usize,
        slots: &mut Vec<MiniBatch>,
    ) -> Result<Flow> {
        let batches = (epoch.to - epoch.from).max(1);
        let wanted = if queue > 0 { queue } else { self.slots() };
        slots.resize_with(wanted.min(usize::try_from(batches).unwrap_or(usize::MAX)), MiniBatch::default);
        let state = SchedulerState::new(epoch.from, epoch.to, std::mem::take(slots), SchedulerRules::ONE);
        let scheduler = BatchScheduler::new(Guarded::new(state));
        let mut spent = [0.0; 3];
        let flow = self.work(&scheduler, epoch, &mut spent);
        let (failure, back) = scheduler.into_inner().into_inner().end();
        *slots = back;
        let flow = flow?;
        if let (Some(error), Flow::Continue) = (failure, flow) {
            return Err(error);
        }
        self.pace.record(batches, spent);
        Ok(flow)
    }

    /// Runs the tasks of the scheduler, on this thread and one per other worker.
    fn work(&mut self, scheduler: &Scheduler, epoch: &mut Epoch, spent: &mut [f64; 3]) -> Result<Flow> {
        let Epoch { number, order, loader, learner, lr, after, timeline, .. } = epoch;
        let work = Work { loader, order, number: *number, timeline };
        let track = timeline.track(&self.driver.name);
        let pool = self.driver.pool.clone();
        let mut flow = Flow::Continue;
        let mut train = |task: BatchTask| -> Result<Flow> {
            let Task::Train(number, Timed { batch, spent: mut of_batch }) = task else {
                return Ok(Flow::Continue);
            };
            let (clock, lr) = (Instant::now(), lr(number));
            let outcome = attempt(Stage::Train, number, || learner.train(&batch, lr))?;
            of_batch.train = timeline.done(track, Stage::Train, number, clock);
            let parts = [of_batch.sample, of_batch.extract, of_batch.train];
            spent.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
            flow = after(learner, &[CompletedBatch::of(batch.batch(), outcome, of_batch)])?;
            scheduler.free(batch.into());
            Ok(flow)
        };
        let Self { driver, others, .. } = self;
        // each worker stays on a thread of its pool from the first batch to the last, so no batch
        // waits for a switch of threads
        let drive = |driver: &mut Worker| match pool {
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
