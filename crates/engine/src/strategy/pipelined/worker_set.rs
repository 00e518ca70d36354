//! Workers of an allocation.

use std::{sync::Arc, time::Instant};

use graphmill_loader::{Extracted, MiniBatch, Workspace};
use rayon::ThreadPool;

use super::{
    pace::Pace,
    stages::{EXTRACT, SAMPLE, STAGES, TRAIN},
};
use crate::{
    Error, Result,
    allocate::{Allocation, Group},
    cores,
    stage::Drawn,
    strategy::{
        batch_states::{Timed, Work},
        interface::{CompletedBatch, Epoch, Flow},
        scheduler::WorkerRole,
        single_trainer::SingleTrainer,
        worker::{Worker, attempt},
    },
    timeline::Stage,
};

/// Workers of an allocation: one that trains, and the others.
pub(super) struct WorkerSet {
    workers: SingleTrainer,
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
                Worker::new(name, role, pool, || Workspace::new(num_nodes))
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
        Ok(Self { workers: SingleTrainer { driver, others }, pace: Pace::default() })
    }

    /// Number of workers that only sample.
    #[cfg(test)]
    pub(super) fn num_samplers(&self) -> usize {
        self.workers
            .others
            .iter()
            .filter(|worker| worker.role.sample > 0 && worker.role.extract.is_none())
            .count()
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
        let Epoch { number, order, from, to, loader, learner, lr, after, timeline } = epoch;
        let batches = to.saturating_sub(*from).max(1);
        let work = Work { loader, order, number: *number, timeline };
        let (track, mut spent) = (timeline.track(&self.workers.driver.name), [0.0; 3]);
        let mut train = |number, Timed { batch, spent: mut of_batch }: Timed<Drawn<Extracted>>| {
            let (clock, lr) = (Instant::now(), lr(number));
            let outcome = attempt(Stage::Train, number, || learner.train(&batch, lr))?;
            of_batch.train = timeline.done(track, Stage::Train, number, clock);
            let parts = [of_batch.sample, of_batch.extract, of_batch.train];
            spent.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
            let flow = after(learner, &[CompletedBatch::of(batch.batch(), outcome, of_batch)])?;
            Ok((flow, batch.into()))
        };
        let flow = self.workers.run(work, *from..*to, queue, slots, &mut train)?;
        self.pace.record(batches, spent);
        Ok(flow)
    }
}
