//! A device with its workers: its memory, and the threads of an epoch.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::Scope,
    time::Instant,
};

use graphmill_core::{Matrix, ObjectPool};
use graphmill_loader::Extracted;

use super::replica::{PublishedParameters, Replica};
use crate::{
    device::{Device, MemoryReservation},
    learner::StepContext,
    record::Traffic,
    strategy::{
        batch_states::{BatchTask, Scheduler, Slot, Timed, Trained, Work},
        interface::{Flow, Nvidia},
        scheduler::{Task, WorkerRole},
        worker::{Worker, attempt},
    },
    tiers::DeviceCache,
    timeline::Stage,
};

/// Values that the workers of an epoch share.
#[derive(Clone, Copy)]
pub(super) struct EpochContext<'s> {
    pub(super) scheduler: &'s Scheduler,
    pub(super) work: Work<'s>,
    pub(super) published: &'s PublishedParameters,
    /// Memory of gathered rows, and of gradients, that no batch uses.
    pub(super) rows: &'s ObjectPool<Matrix>,
    pub(super) gradients: &'s ObjectPool<Vec<Matrix>>,
    /// Number of the epoch's batch 0 in the whole run.
    pub(super) first: u64,
}

/// A device with its workers.
pub(super) struct DeviceWorkers {
    pub(super) device: Arc<Device>,
    pub(super) role: &'static str,
    /// One worker for all stages in turns, or one that samples or extracts and one that trains.
    pub(super) workers: Vec<Worker>,
    pub(super) replica: Option<Replica>,
    pub(super) cache: Option<DeviceCache>,
    /// Number of batches trained on in this epoch, and the traffic of their rows.
    pub(super) done: Mutex<(u64, Traffic)>,
    pub(super) reservations: Vec<MemoryReservation>,
}

impl DeviceWorkers {
    pub(super) fn new(device: &Arc<Device>, role: &'static str) -> Self {
        Self {
            device: device.clone(),
            role,
            workers: Vec::new(),
            replica: None,
            cache: None,
            done: Mutex::default(),
            reservations: Vec::new(),
        }
    }
}

impl DeviceWorkers {
    /// Step context of its Trainer, if any, with the scratch memory of the last epoch.
    pub(super) fn context<'a>(
        &mut self,
        like: &StepContext<'a>,
        nvidia: Option<Nvidia<'a>>,
    ) -> Option<StepContext<'a>> {
        let replica = self.replica.as_mut()?;
        let mut context = like.with_scratch(std::mem::take(&mut replica.scratch));
        if let (Some(gpu), Some(Nvidia { devices, .. })) = (self.device.gpu, nvidia) {
            context.backend = devices.gpus()[gpu].backend();
        }
        Some(context)
    }

    /// Starts its workers, one thread each.
    pub(super) fn start<'s>(
        &'s mut self,
        scope: &'s Scope<'s, '_>,
        shared: EpochContext<'s>,
        context: Option<StepContext<'s>>,
    ) {
        let EpochContext { scheduler, work, published, rows, gradients, first } = shared;
        let Self { device, workers, replica, done, .. } = self;
        let (device, done): (&Device, &Mutex<(u64, Traffic)>) = (device, done);
        let mut trains = replica.as_mut().zip(context);
        for worker in workers {
            let mut trainer = if worker.role.train.is_some() { trains.take() } else { None };
            scope.spawn(move || {
                let track = work.timeline.track(&worker.name);
                let standby = worker.role.standby;
                let turns = worker.role.extract.is_some();
                let mut train = |task: BatchTask| {
                    let (Task::Train(number, Timed { batch, mut spent }), Some((replica, context))) =
                        (task, &mut trainer)
                    else {
                        return Ok(Flow::Continue);
                    };
                    let (clock, batch) = (Instant::now(), batch.into_batch());
                    let outcome = attempt(Stage::Train, number, || {
                        let number = first + number;
                        device.pool.install(|| replica.train(context, published, gradients, &batch, number))
                    });
                    spent.train = work.timeline.done(track, Stage::Train, number, clock);
                    // another batch takes over the memory of the rows
                    let Extracted { sampled: batch, features, traffic } = batch;
                    rows.put(features);
                    match outcome {
                        Ok(gradient) => {
                            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                            done.0 += 1;
                            done.1 += traffic;
                            drop(done);
                            // one thread does both in turns, or two do them side by side
                            let pace = if turns {
                                spent.extract + spent.train
                            } else {
                                spent.extract.max(spent.train)
                            };
                            let trained = Trained { batch, traffic, spent, gradient };
                            scheduler.trained(number, trained, pace, standby);
                        }
                        Err(error) => scheduler.fail(number, Slot(batch.into()), error),
                    }
                    Ok(Flow::Continue)
                };
                // its failures have gone to the scheduler
                let _ = worker.run(scheduler, work, &mut train);
                if let Some((replica, context)) = trainer {
                    replica.scratch = context.into_scratch();
                }
            });
        }
    }

    /// Sets the number of its trainer.
    pub(super) fn set_trainer(&mut self, trainer: usize) {
        for worker in &mut self.workers {
            let WorkerRole { extract, train, .. } = &mut worker.role;
            *extract = extract.map(|_| trainer);
            *train = train.map(|_| trainer);
            let what = if train.is_some() { "trainer" } else { "extractor" };
            worker.name = format!("{what} {trainer}");
        }
    }
}
