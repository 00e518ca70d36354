//! A worker of the [scheduler](super::scheduler): a loop around the stages of its role.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use graphmill_core::{Error as GraphError, memory};
use graphmill_loader::{Traffic, feature::Link};
use rayon::{ThreadPool, prelude::*};

use super::{
    batch_states::{BatchKind, BatchTask, MinibatchStates, Scheduler, Slot, Timed, Trained},
    interface::Flow,
    scheduler::{SchedulerState, Task, WorkerRole},
};
use crate::{
    Error, Result,
    record::Stages,
    timeline::{SampleParts, Stage, Timeline, Track},
};

/// Closes the scheduler when its thread ends, always or only by a panic, so that no other thread
/// waits for a thread that has ended.
pub(crate) struct CloseOnDrop<'l, K: BatchKind = MinibatchStates> {
    pub(crate) scheduler: &'l Scheduler<K>,
    pub(crate) always: bool,
}

impl<K: BatchKind> Drop for CloseOnDrop<'_, K> {
    fn drop(&mut self) {
        if self.always || std::thread::panicking() {
            self.scheduler.close();
        }
    }
}

/// A copy of the model on a device that trains: computes gradients, which another thread applies.
pub(crate) trait GradientSource<K: BatchKind>: Send {
    /// Computes the gradient of batch `number` of the epoch.
    ///
    /// # Errors
    /// The batch does not fit the model, or a device failed.
    fn gradient(&mut self, number: u64, batch: &mut K::Extracted) -> Result<K::Gradient>;

    /// Takes what the update does not read from a batch. Also returns the traffic of its rows.
    fn spend(&mut self, batch: K::Extracted) -> (K::Spent, Traffic);
}

/// Number of batches that a device trained on, and the traffic of their rows.
pub(crate) type Done = Mutex<(u64, Traffic)>;

/// A worker between epochs.
pub(crate) struct Worker<K: BatchKind = MinibatchStates> {
    pub(crate) name: String,
    pub(crate) role: WorkerRole,
    /// Its own sampler and tables, if it has some.
    pub(crate) tables: K::Tables,
    /// Its own threads, if it does not run on the pool of the run.
    pub(crate) pool: Option<Arc<ThreadPool>>,
    /// One workspace per batch that it samples at once.
    pub(crate) spaces: Vec<K::Workspace>,
    /// Link over which its batches travel, if any.
    pub(crate) link: Option<Arc<Link>>,
}

impl<K: BatchKind> Worker<K> {
    /// Worker of this role, on `pool` or the pool of the run. `space` makes a workspace.
    pub(crate) fn new(
        name: String,
        role: WorkerRole,
        pool: Option<Arc<ThreadPool>>,
        space: impl FnMut() -> K::Workspace,
    ) -> Self {
        let spaces = std::iter::repeat_with(space).take(role.sample).collect();
        Self { name, role, tables: K::Tables::default(), pool, spaces, link: None }
    }

    /// Runs tasks until none is left. Samples and extracts itself, and passes batches to train on
    /// and rounds to update by to `on`. Closes the scheduler if `on` fails or returns
    /// [`Flow::Stop`].
    ///
    /// # Errors
    /// `on` fails. Errors and panics of other stages go to the scheduler.
    pub(crate) fn run(
        &mut self,
        scheduler: &Scheduler<K>,
        work: K::Work<'_>,
        on: &mut dyn FnMut(BatchTask<K>) -> Result<Flow>,
    ) -> Result<()> {
        let track = K::timeline(work).track(&self.name);
        let _closing = CloseOnDrop { scheduler, always: false };
        while let Some(task) = scheduler.next(self.role) {
            depth(scheduler, K::timeline(work));
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

    /// Runs tasks until none is left. If it trains, `trainer` has the source of its gradients, and
    /// counts its batches. Gradients and failures go to the scheduler.
    pub(crate) fn run_for_updates<S: GradientSource<K>>(
        &mut self,
        scheduler: &Scheduler<K>,
        work: K::Work<'_>,
        mut trainer: Option<(&mut S, &Done)>,
    ) {
        let track = K::timeline(work).track(&self.name);
        let WorkerRole { standby, extract, .. } = self.role;
        let mut train = |task: BatchTask<K>| {
            let (Task::Train(number, Timed { mut batch, mut spent }), Some((source, done))) =
                (task, &mut trainer)
            else {
                return Ok(Flow::Continue);
            };
            let clock = Instant::now();
            let outcome = attempt(Stage::Train, number, || source.gradient(number, &mut batch));
            spent.train = K::timeline(work).done(track, Stage::Train, number, clock);
            let (batch, traffic) = source.spend(batch);
            match outcome {
                Ok(gradient) => {
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.0 += 1;
                    done.1 += traffic;
                    drop(done);
                    // one thread does both in turns, or two do them side by side
                    let pace = if extract.is_some() {
                        spent.extract + spent.train
                    } else {
                        spent.extract.max(spent.train)
                    };
                    let trained = Trained { batch, traffic, spent, gradient };
                    scheduler.trained(number, trained, pace, standby);
                }
                Err(error) => {
                    let memory: K::Memory = batch.into();
                    scheduler.fail(number, Slot(memory), error);
                }
            }
            Ok(Flow::Continue)
        };
        // its failures have gone to the scheduler
        let _ = self.run(scheduler, work, &mut train);
    }

    fn sample(
        &mut self,
        scheduler: &Scheduler<K>,
        work: K::Work<'_>,
        track: Track,
        batches: Vec<(u64, Slot<K::Memory>)>,
    ) {
        let clock = Instant::now();
        let first = batches[0].0;
        let count = batches.len();
        let (spaces, tables) = (&mut self.spaces[..count], &self.tables);
        let draw = |((number, Slot(memory)), space): ((u64, Slot<K::Memory>), &mut K::Workspace)| {
            attempt(Stage::Sample, number, || K::sample(work, tables, number, count == 1, space, memory))
        };
        let all = || -> Vec<Result<K::Drawn>> {
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
        // the batches are marked side by side
        let mut parts = SampleParts { mark: K::marking(&self.tables) / count as f64, copy: 0.0 };
        if let Some(link) = &self.link {
            let clock = Instant::now();
            let drawn = outcomes.iter().flatten();
            drawn.for_each(|drawn| link.transfer(K::bytes(work, drawn), Instant::now()));
            parts.copy = clock.elapsed().as_secs_f64();
        }
        if parts != SampleParts::default() {
            K::timeline(work).add_parts(track, parts);
        }
        let each = clock.elapsed().as_secs_f64() / count as f64;
        for (i, (number, outcome)) in (first..).zip(outcomes).enumerate() {
            let began = clock + Duration::from_secs_f64(each * i as f64);
            K::timeline(work).add(track, Stage::Sample, number, began, each);
            match outcome {
                Ok(batch) => {
                    scheduler.sampled(
                        number,
                        Timed { batch, spent: Stages { sample: each, ..Stages::default() } },
                    );
                }
                Err(error) => scheduler.fail(number, Slot::default(), error),
            }
        }
    }

    fn extract(
        &mut self,
        scheduler: &Scheduler<K>,
        work: K::Work<'_>,
        track: Track,
        number: u64,
        sampled: Timed<K::Drawn>,
    ) {
        let clock = Instant::now();
        let Timed { batch, mut spent } = sampled;
        let outcome = attempt(Stage::Extract, number, || {
            if let Some(link) = &self.link {
                link.transfer(K::bytes(work, &batch), Instant::now());
            }
            let extract = || K::extract(work, &self.tables, batch);
            match &self.pool {
                Some(pool) => pool.install(extract),
                None => extract(),
            }
        });
        spent.extract = K::timeline(work).done(track, Stage::Extract, number, clock);
        match outcome {
            Ok(batch) => scheduler.extracted(number, Timed { batch, spent }),
            Err(error) => scheduler.fail(number, Slot::default(), error),
        }
    }
}

/// Records the numbers of waiting batches in the timeline.
fn depth<K: BatchKind>(scheduler: &Scheduler<K>, timeline: &Timeline) {
    if timeline.keeps_slices() {
        let (sampled, extracted) = scheduler.inspect(SchedulerState::depths);
        timeline.depth("sampled", sampled);
        timeline.depth("extracted", extracted);
    }
}

/// Runs a stage of a batch; a panic, or a refusal of memory, becomes an error.
pub(crate) fn attempt<R>(stage: Stage, batch: u64, work: impl FnOnce() -> Result<R>) -> Result<R> {
    // values that the stage has left half written are dropped or refilled from their beginning
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let (stage, batch) = (stage.name(), batch + 1);
        Err(match memory::refusal(&*panic) {
            Some(refused) => {
                GraphError::Memory(format!("batch {batch} failed in the {stage} stage: {refused}")).into()
            }
            None => Error::Panicked { stage, batch, message: message(&*panic) },
        })
    })
}

/// Message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("the panic has no message").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_memory_of_a_stage_is_an_error_with_its_remedy() {
        let demand = || {
            memory::demand(&mut Vec::<u64>::new(), usize::MAX / 8);
            Ok(())
        };
        let error = attempt(Stage::Train, 2, demand).unwrap_err();
        assert!(matches!(error, Error::Graph(GraphError::Memory(_))), "{error}");
        let message = error.to_string();
        for part in [
            "batch 3 failed in the train stage: ",
            " bytes of memory ",
            "lower --batch-size",
            "--host-budget",
        ] {
            assert!(message.contains(part), "{part} is not in: {message}");
        }
        let panic = attempt(Stage::Sample, 0, || -> Result<()> { panic!("a fault") }).unwrap_err();
        assert!(matches!(panic, Error::Panicked { batch: 1, .. }), "{panic}");
    }
}
