//! A worker of the [scheduler](super::scheduler): a loop around the stages of its role.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use graphmill_core::{Matrix, NodeId, ObjectPool};
use graphmill_loader::{Feature, MiniBatch, MinibatchSampler, Workspace, feature::Link};
use rayon::{ThreadPool, prelude::*};

use super::{
    batch_states::{BatchTask, Scheduler, Timed},
    interface::Flow,
    scheduler::{SchedulerState, Task, WorkerRole},
};
use crate::{
    Error, Result,
    record::Stages,
    stage::{Drawn, Loader},
    timeline::{Stage, Timeline, Track},
};

/// Closes the scheduler when its thread ends, always or only by a panic, so that no other thread
/// waits for a thread that has ended.
pub(super) struct CloseOnDrop<'l> {
    pub(super) scheduler: &'l Scheduler,
    pub(super) always: bool,
}

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        if self.always || std::thread::panicking() {
            self.scheduler.close();
        }
    }
}

/// Loader, order and timeline of an epoch, read by all of its workers.
#[derive(Clone, Copy)]
pub(super) struct Work<'e, 'a> {
    pub(super) loader: &'e Loader<'a>,
    /// This epoch's order of the training nodes.
    pub(super) order: &'e [NodeId],
    /// The epoch, from 0.
    pub(super) number: u64,
    pub(super) timeline: &'e Timeline,
}

/// A worker between epochs.
pub(super) struct Worker {
    pub(super) name: String,
    pub(super) role: WorkerRole,
    /// Its own sampler, if it does not use the loader's.
    pub(super) sampler: Option<Arc<dyn MinibatchSampler>>,
    /// Its own threads, if it does not run on the pool of the run.
    pub(super) pool: Option<Arc<ThreadPool>>,
    /// One workspace per batch that it samples at once.
    pub(super) spaces: Vec<Workspace>,
    /// Its own feature rows, if it does not read the loader's.
    pub(super) rows: Option<Arc<dyn Feature>>,
    /// Cache of the trainers that will read the rows of its batches: it marks the rows held there.
    pub(super) marks: Option<Arc<dyn Feature>>,
    /// Link over which its batches travel, if any.
    pub(super) link: Option<Arc<Link>>,
    /// Pool of memory for gathered rows, for batches without such memory.
    pub(super) spare: Option<Arc<ObjectPool<Matrix>>>,
}

impl Worker {
    /// Worker of this role on a graph of `num_nodes` nodes, on `pool` or the pool of the run.
    pub(super) fn new(
        name: String,
        role: WorkerRole,
        pool: Option<Arc<ThreadPool>>,
        num_nodes: usize,
    ) -> Self {
        let spaces = (0..role.sample).map(|_| Workspace::new(num_nodes)).collect();
        Self { name, role, sampler: None, pool, spaces, rows: None, marks: None, link: None, spare: None }
    }

    /// Runs tasks until none is left. Samples and extracts itself, and passes batches to train on
    /// and rounds to update by to `on`. Closes the scheduler if `on` fails or returns
    /// [`Flow::Stop`].
    ///
    /// # Errors
    /// `on` fails. Errors and panics of other stages go to the scheduler.
    pub(super) fn run(
        &mut self,
        scheduler: &Scheduler,
        work: Work,
        on: &mut dyn FnMut(BatchTask) -> Result<Flow>,
    ) -> Result<()> {
        let track = work.timeline.track(&self.name);
        let _closing = CloseOnDrop { scheduler, always: false };
        while let Some(task) = scheduler.next(self.role) {
            depth(scheduler, work.timeline);
            match task {
                Task::Sample(batches) => self.sample(scheduler, work, track, batches),
                Task::Extract(number, batch) => self.extract(scheduler, work, track, number, batch),
                Task::Train(..) | Task::Update(_) => match on(task) {
                    Ok(Flow::Continue) => {}
                    Ok(Flow::Stop) => {
                        scheduler.close();
                        return Ok(());
                    }
                    Err(error) => {
                        scheduler.close();
                        return Err(error);
                    }
                },
            }
        }
        Ok(())
    }

    fn sample(&mut self, scheduler: &Scheduler, work: Work, track: Track, batches: Vec<(u64, MiniBatch)>) {
        let clock = Instant::now();
        let first = batches[0].0;
        let count = batches.len();
        let spaces = &mut self.spaces[..count];
        let cache = self.marks.as_ref().and_then(|cache| cache.capabilities().marked);
        let own = self.sampler.as_ref().map(|sampler| Loader { sampler: &**sampler, ..work.loader.clone() });
        let loader = own.as_ref().unwrap_or(work.loader);
        let draw = |((number, batch), space): ((u64, MiniBatch), &mut Workspace)| {
            space.set_parallel(count == 1);
            attempt(Stage::Sample, number, || {
                let mut drawn = loader.draw(work.order, work.number, number, space, batch)?;
                if let (Some(cache), Drawn::New(batch)) = (cache, &mut drawn) {
                    batch.mark(cache);
                }
                Ok(drawn)
            })
        };
        let all = || -> Vec<Result<Drawn>> {
            if count > 1 {
                batches.into_par_iter().zip(spaces.par_iter_mut()).map(draw).collect()
            } else {
                batches.into_iter().zip(spaces.iter_mut()).map(draw).collect()
            }
        };
        let outcomes = match &self.pool {
            Some(pool) => pool.install(all),
            None => all(),
        };
        if let Some(link) = &self.link {
            let drawn = outcomes.iter().flatten();
            drawn.for_each(|drawn| link.transfer(loader.bytes(drawn.sampled()), Instant::now()));
        }
        let each = clock.elapsed().as_secs_f64() / count as f64;
        for (i, (number, outcome)) in (first..).zip(outcomes).enumerate() {
            let began = clock + Duration::from_secs_f64(each * i as f64);
            work.timeline.add(track, Stage::Sample, number, began, each);
            match outcome {
                Ok(batch) => {
                    scheduler.sampled(
                        number,
                        Timed { batch, spent: Stages { sample: each, ..Stages::default() } },
                    );
                }
                Err(error) => scheduler.fail(number, MiniBatch::default(), error),
            }
        }
    }

    fn extract(
        &mut self,
        scheduler: &Scheduler,
        work: Work,
        track: Track,
        number: u64,
        sampled: Timed<Drawn>,
    ) {
        let clock = Instant::now();
        let Timed { mut batch, mut spent } = sampled;
        let outcome = attempt(Stage::Extract, number, || {
            if let (Some(spare), Drawn::New(batch)) = (&self.spare, &mut batch) {
                batch.seeds.set_row_memory(spare.take_or_default());
            }
            if let Some(link) = &self.link {
                link.transfer(work.loader.bytes(batch.sampled()), Instant::now());
            }
            let extract = || match &self.rows {
                Some(rows) => work.loader.extract_from(&**rows, batch),
                None => work.loader.extract(batch),
            };
            match &self.pool {
                Some(pool) => pool.install(extract),
                None => extract(),
            }
        });
        spent.extract = work.timeline.done(track, Stage::Extract, number, clock);
        match outcome {
            Ok(batch) => scheduler.extracted(number, Timed { batch, spent }),
            Err(error) => scheduler.fail(number, MiniBatch::default(), error),
        }
    }
}

/// Records the numbers of waiting batches in the timeline.
fn depth(scheduler: &Scheduler, timeline: &Timeline) {
    if timeline.keeps_slices() {
        let (sampled, extracted) = scheduler.inspect(SchedulerState::depths);
        timeline.depth("sampled", sampled);
        timeline.depth("extracted", extracted);
    }
}

/// Runs a stage of a batch; a panic becomes an error.
pub(crate) fn attempt<R>(stage: Stage, batch: u64, work: impl FnOnce() -> Result<R>) -> Result<R> {
    // values that the stage has left half written are dropped or refilled from their beginning
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(Error::Panicked { stage: stage.name(), batch: batch + 1, message: message(&*panic) })
    })
}

/// Message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("the panic has no message").to_string()
}
