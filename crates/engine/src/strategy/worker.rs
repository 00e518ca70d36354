//! A worker on the [line](super::scheduler): a loop around the stages that it can do.

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
    interface::Flow,
    scheduler::{SchedulerState, Task, WorkerRole},
    slots::{BatchTask, Batches, Timed},
};
use crate::{
    Error, Result,
    record::Stages,
    stage::{Drawn, Loader},
    timeline::{Stage, Timeline, Track},
};

/// Closes the line when its thread goes, always or by a panic, so that nobody waits for a thread
/// that is no more.
pub(super) struct Closing<'l> {
    pub(super) line: &'l Batches,
    pub(super) always: bool,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        if self.always || std::thread::panicking() {
            self.line.close();
        }
    }
}

/// What all workers of an epoch read.
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
    pub(super) can: WorkerRole,
    /// What draws for it, if not what draws for everyone.
    pub(super) sampler: Option<Arc<dyn MinibatchSampler>>,
    /// Its threads; those of the pool that the run is on where there is none.
    pub(super) pool: Option<Arc<ThreadPool>>,
    /// One for each batch that it samples at once.
    pub(super) spaces: Vec<Workspace>,
    /// Where it reads rows, if not where everyone does.
    pub(super) rows: Option<Arc<dyn Feature>>,
    /// The cache of those who will read the rows of the batches that it samples: it marks what is
    /// in there.
    pub(super) marks: Option<Arc<dyn Feature>>,
    /// What batches come and go over, where they do.
    pub(super) link: Option<Arc<Link>>,
    /// Where batches that bring no room for their rows find some.
    pub(super) spare: Option<Arc<ObjectPool<Matrix>>>,
}

impl Worker {
    /// For a graph of so many nodes.
    pub(super) fn new(
        name: String,
        can: WorkerRole,
        pool: Option<Arc<ThreadPool>>,
        num_nodes: usize,
    ) -> Self {
        let spaces = (0..can.sample).map(|_| Workspace::new(num_nodes)).collect();
        Self { name, can, sampler: None, pool, spaces, rows: None, marks: None, link: None, spare: None }
    }

    /// Does what there is to do until there is nothing more. Batches to train on, and rounds to
    /// update by, are given to `on`; where it fails, or says that the run is to stop, the line is
    /// closed.
    ///
    /// # Errors
    /// What `on` reports. Errors and panics of other stages are told to the line.
    pub(super) fn run(
        &mut self,
        line: &Batches,
        work: Work,
        on: &mut dyn FnMut(BatchTask) -> Result<Flow>,
    ) -> Result<()> {
        let track = work.timeline.track(&self.name);
        let _closing = Closing { line, always: false };
        while let Some(task) = line.next(self.can) {
            depth(line, work.timeline);
            match task {
                Task::Sample(gang) => self.sample(line, work, track, gang),
                Task::Extract(number, batch) => self.extract(line, work, track, number, batch),
                Task::Train(..) | Task::Update(_) => match on(task) {
                    Ok(Flow::Continue) => {}
                    Ok(Flow::Stop) => {
                        line.close();
                        return Ok(());
                    }
                    Err(error) => {
                        line.close();
                        return Err(error);
                    }
                },
            }
        }
        Ok(())
    }

    fn sample(&mut self, line: &Batches, work: Work, track: Track, gang: Vec<(u64, MiniBatch)>) {
        let clock = Instant::now();
        let first = gang[0].0;
        let count = gang.len();
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
                gang.into_par_iter().zip(spaces.par_iter_mut()).map(draw).collect()
            } else {
                gang.into_iter().zip(spaces.iter_mut()).map(draw).collect()
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
                    line.sampled(
                        number,
                        Timed { batch, spent: Stages { sample: each, ..Stages::default() } },
                    );
                }
                Err(error) => line.fail(number, MiniBatch::default(), error),
            }
        }
    }

    fn extract(&mut self, line: &Batches, work: Work, track: Track, number: u64, sampled: Timed<Drawn>) {
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
            Ok(batch) => line.extracted(number, Timed { batch, spent }),
            Err(error) => line.fail(number, MiniBatch::default(), error),
        }
    }
}

/// Tells the timeline how many batches wait where.
fn depth(line: &Batches, timeline: &Timeline) {
    if timeline.keeps_slices() {
        let (sampled, extracted) = line.see(SchedulerState::depths);
        timeline.depth("sampled", sampled);
        timeline.depth("extracted", extracted);
    }
}

/// Does a stage of a batch, a panic in it being an error like any other.
pub(super) fn attempt<R>(stage: Stage, batch: u64, work: impl FnOnce() -> Result<R>) -> Result<R> {
    // what the stage had in hand is dropped or refilled from its beginning
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(Error::Panicked { stage: stage.name(), batch: batch + 1, message: message(&*panic) })
    })
}

/// What a panic says.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it does not say why").to_string()
}
