//! Kinds of batches that the workers of a [scheduler](super::scheduler) make, and the states of a
//! batch with the data that workers add to it.

use std::{
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use graphmill_core::{Matrix, NodeId, ObjectPool};
use graphmill_loader::{Extracted, Feature, MiniBatch, MinibatchSampler, Sampled, Traffic, Workspace};

use super::scheduler::{BatchScheduler, BatchStates, SchedulerState, Task};
use crate::{
    Result,
    machine::monitor::Guarded,
    record::Stages,
    stage::{Drawn, Loader},
    timeline::Timeline,
};

/// Scheduler of the batches of an epoch.
pub(crate) type Scheduler<K = MinibatchStates> = BatchScheduler<Guarded<SchedulerState<StatesOf<K>>>>;
/// Task of a worker.
pub(crate) type BatchTask<K = MinibatchStates> = Task<StatesOf<K>>;

/// Kind of batches: the stages before training, and the values that a batch has after each.
pub(crate) trait BatchKind: Sized {
    /// Memory of a batch that is not under way, or the batch that was last in it.
    type Memory: Default + Send;
    /// Batch with its blocks.
    type Drawn: Into<Self::Memory> + Send;
    /// Batch with its feature rows.
    type Extracted: Into<Self::Memory> + Send;
    /// Batch after the backward pass, for the update by its gradient.
    type Spent: Into<Self::Memory> + Send;
    /// Gradient of a batch.
    type Gradient: Send;
    /// Workspace of one draw at a time.
    type Workspace: Send;
    /// Sampler and tables of a worker, if it does not use those of the epoch.
    type Tables: Default + Send + Sync;
    /// Batches of an epoch, read by all of its workers.
    type Work<'w>: Copy + Send + Sync;

    /// Timeline of the epoch.
    fn timeline(work: Self::Work<'_>) -> &Timeline;

    /// Draws a batch into `memory`. If `alone` is true, no other thread draws a batch of the same
    /// task.
    ///
    /// # Errors
    /// Those of the sampler.
    fn sample(
        work: Self::Work<'_>,
        tables: &Self::Tables,
        number: u64,
        alone: bool,
        space: &mut Self::Workspace,
        memory: Self::Memory,
    ) -> Result<Self::Drawn>;

    /// Gathers the feature rows of a batch.
    ///
    /// # Errors
    /// A tier cannot be read.
    fn extract(work: Self::Work<'_>, tables: &Self::Tables, batch: Self::Drawn) -> Result<Self::Extracted>;

    /// Seconds that draws have spent on marks of the rows that trainers hold, since the last call.
    fn marking(_tables: &Self::Tables) -> f64 {
        0.0
    }

    /// Bytes of a drawn batch on its way to a trainer.
    fn bytes(work: Self::Work<'_>, batch: &Self::Drawn) -> u64;
}

/// States of the batches of a kind.
pub(crate) struct StatesOf<K>(PhantomData<K>);

impl<K: BatchKind> BatchStates for StatesOf<K> {
    type Free = Slot<K::Memory>;
    type Sampled = Timed<K::Drawn>;
    type Extracted = Timed<K::Extracted>;
    type Trained = Trained<K::Spent, K::Gradient>;
}

/// Slot of the scheduler that no batch uses.
#[derive(Default)]
pub(crate) struct Slot<M>(pub(crate) M);

/// Batch with the seconds of its stages so far.
pub(crate) struct Timed<B> {
    pub(crate) batch: B,
    pub(crate) spent: Stages,
}

impl<M, B: Into<M>> From<Timed<B>> for Slot<M> {
    fn from(timed: Timed<B>) -> Self {
        Self(timed.batch.into())
    }
}

/// Minibatches of a graph of one type.
pub(crate) enum MinibatchStates {}

/// Loader, order and timeline of an epoch, read by all of its workers.
#[derive(Clone, Copy)]
pub(crate) struct Work<'w> {
    pub(crate) loader: &'w Loader<'w>,
    /// This epoch's order of the training nodes.
    pub(crate) order: &'w [NodeId],
    /// The epoch, from 0.
    pub(crate) number: u64,
    pub(crate) timeline: &'w Timeline,
}

/// Sampler, rows and memory of a worker.
#[derive(Default)]
pub(crate) struct WorkerTables {
    /// Its own sampler, if it does not use the loader's.
    pub(crate) sampler: Option<Arc<dyn MinibatchSampler>>,
    /// Its own feature rows, if it does not read the loader's.
    pub(crate) rows: Option<Arc<dyn Feature>>,
    /// Cache of the trainers that will read the rows of its batches: it marks the rows held there.
    pub(crate) marks: Option<Arc<dyn Feature>>,
    /// Nanoseconds of these marks that no record holds yet.
    pub(crate) marking: AtomicU64,
    /// Pool of memory for gathered rows, for batches without such memory.
    pub(crate) spare: Option<Arc<ObjectPool<Matrix>>>,
}

impl BatchKind for MinibatchStates {
    type Memory = MiniBatch;
    type Drawn = Drawn;
    type Extracted = Drawn<Extracted>;
    type Spent = Sampled;
    type Gradient = Gradient;
    type Workspace = Workspace;
    type Tables = WorkerTables;
    type Work<'w> = Work<'w>;

    fn timeline(work: Self::Work<'_>) -> &Timeline {
        work.timeline
    }

    fn sample(
        work: Work<'_>,
        tables: &WorkerTables,
        number: u64,
        alone: bool,
        space: &mut Workspace,
        memory: MiniBatch,
    ) -> Result<Drawn> {
        space.set_parallel(alone);
        let own =
            tables.sampler.as_ref().map(|sampler| Loader { sampler: &**sampler, ..work.loader.clone() });
        let loader = own.as_ref().unwrap_or(work.loader);
        let mut drawn = loader.draw(work.order, work.number, number, space, memory)?;
        let cache = tables.marks.as_ref().and_then(|cache| cache.capabilities().marked);
        if let (Some(cache), Drawn::New(batch)) = (cache, &mut drawn) {
            let clock = Instant::now();
            batch.mark(cache);
            tables.marking.fetch_add(clock.elapsed().as_nanos() as u64, Relaxed);
        }
        Ok(drawn)
    }

    fn marking(tables: &WorkerTables) -> f64 {
        1e-9 * tables.marking.swap(0, Relaxed) as f64
    }

    fn extract(work: Work<'_>, tables: &WorkerTables, mut batch: Drawn) -> Result<Drawn<Extracted>> {
        if let (Some(spare), Drawn::New(batch)) = (&tables.spare, &mut batch) {
            batch.seeds.set_row_memory(spare.take_or_default());
        }
        match &tables.rows {
            Some(rows) => work.loader.extract_from(&**rows, batch),
            None => work.loader.extract(batch),
        }
    }

    fn bytes(work: Work<'_>, batch: &Drawn) -> u64 {
        work.loader.bytes(batch.sampled())
    }
}

/// Batch after the backward pass; a minibatch, without its feature rows.
pub(crate) struct Trained<B = Sampled, G = Gradient> {
    pub(crate) batch: B,
    pub(crate) traffic: Traffic,
    pub(crate) spent: Stages,
    pub(crate) gradient: G,
}

impl<M, B: Into<M>, G> From<Trained<B, G>> for Slot<M> {
    fn from(trained: Trained<B, G>) -> Self {
        Self(trained.batch.into())
    }
}

/// The gradient of a batch.
pub(crate) struct Gradient {
    /// One matrix per parameter of the model, in the visiting order; for running statistics, their
    /// new values.
    pub(crate) values: Vec<Matrix>,
    /// The batch's mean loss.
    pub(crate) loss: f64,
    /// The version of the parameters it was computed from: updates of the epoch.
    pub(crate) version: u64,
    /// Age in updates of the oldest row that the batch reused.
    pub(crate) reused: u64,
}
