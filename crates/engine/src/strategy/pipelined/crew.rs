//! The workers of an allocation.

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
        interface::{Done, Epoch, Flow},
        scheduler::{BatchScheduler, Rules, SchedulerState, Task, WorkerRole},
        slots::{BatchTask, Batches, Timed},
        worker::{Closing, Work, Worker, attempt},
    },
    timeline::Stage,
};

/// Who does what.
pub(super) struct WorkerSet {
    /// The one that trains, on the thread that runs the strategy.
    driver: Worker,
    others: Vec<Worker>,
    pub(super) pace: Pace,
}

impl WorkerSet {
    /// The crew of an allocation, for a graph of so many nodes.
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
            let can = WorkerRole {
                sample: if has(SAMPLE) { group.cores } else { 0 },
                extract: has(EXTRACT).then_some(0),
                train: has(TRAIN).then_some(0),
                ..WorkerRole::default()
            };
            let name = group.stages.iter().map(|&i| STAGES[i].name()).collect::<Vec<_>>().join(" + ");
            let worker = |name: String, can: WorkerRole, pool: Option<Arc<ThreadPool>>| {
                Worker::new(name, can, pool, num_nodes)
            };
            if has(TRAIN) {
                // the pool of the run has all cores already
                let pool = if allocation.isolated { Some(own_pool(group, &name)?) } else { None };
                driver = Some(worker(name, can, pool));
            } else if group.stages == [SAMPLE] {
                // batches are drawn side by side: no thread waits for another
                for i in 0..group.cores {
                    let one = Group { stages: vec![SAMPLE], cores: 1 };
                    let pool = own_pool(&one, &name)?;
                    others.push(worker(format!("{name} {i}"), WorkerRole { sample: 1, ..can }, Some(pool)));
                }
            } else {
                let pool = own_pool(group, &name)?;
                others.push(worker(name, can, Some(pool)));
            }
        }
        let driver = driver.ok_or_else(|| Error::usage("an allocation without training"))?;
        Ok(Self { driver, others, pace: Pace::default() })
    }

    /// Workers that only sample.
    #[cfg(test)]
    pub(super) fn num_samplers(&self) -> usize {
        self.others.iter().filter(|worker| worker.can.sample > 0 && worker.can.extract.is_none()).count()
    }

    /// Slots that keep everyone busy: what each works on, and as much again ahead of it.
    fn slots(&self) -> usize {
        let all = self.others.iter().chain([&self.driver]);
        let in_hand = all
            .map(|worker| worker.can.sample + usize::from(worker.can.extract.is_some()) + 1)
            .sum::<usize>();
        2 * in_hand
    }

    /// The epoch's batches, with so many under way at most (0 for as many as keep everyone busy).
    ///
    /// # Errors
    /// What a stage reports, or the listener.
    pub(super) fn run(
        &mut self,
        epoch: &mut Epoch,
        queue: usize,
        slots: &mut Vec<MiniBatch>,
    ) -> Result<Flow> {
        let batches = (epoch.to - epoch.from).max(1);
        let wanted = if queue > 0 { queue } else { self.slots() };
        slots.resize_with(wanted.min(usize::try_from(batches).unwrap_or(usize::MAX)), MiniBatch::default);
        let state = SchedulerState::new(epoch.from, epoch.to, std::mem::take(slots), Rules::ONE);
        let line = BatchScheduler::new(Guarded::new(state));
        let mut spent = [0.0; 3];
        let flow = self.work(&line, epoch, &mut spent);
        let (failure, back) = line.into_inner().into_inner().end();
        *slots = back;
        let flow = flow?;
        if let (Some(error), Flow::Continue) = (failure, flow) {
            return Err(error);
        }
        self.pace.see(batches, spent);
        Ok(flow)
    }

    /// The batches of a line, on this thread and one for every other worker.
    fn work(&mut self, line: &Batches, epoch: &mut Epoch, spent: &mut [f64; 3]) -> Result<Flow> {
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
            flow = after(learner, &[Done::of(batch.batch(), outcome, of_batch)])?;
            line.free(batch.into());
            Ok(flow)
        };
        let Self { driver, others, .. } = self;
        // each on a thread of its own pool from the first batch to the last: no hand-over a batch
        let drive = |driver: &mut Worker| match pool {
            Some(pool) => pool.install(|| driver.run(line, work, &mut train)),
            None => driver.run(line, work, &mut train),
        };
        let outcome = if others.is_empty() {
            drive(driver)
        } else {
            std::thread::scope(|scope| {
                // however this thread leaves, the others do not wait for it
                let _closing = Closing { line, always: true };
                for worker in others.iter_mut() {
                    scope.spawn(move || {
                        let pool = worker.pool.clone();
                        // it trains on nothing, so nothing fails but what the line is told
                        let mut run = || drop(worker.run(line, work, &mut |_| Ok(Flow::Continue)));
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
