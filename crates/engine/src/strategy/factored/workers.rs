//! A device with its workers: its memory, and the threads of an epoch.

use std::{sync::Arc, thread::Scope};

use graphmill_core::{Matrix, ObjectPool};
use graphmill_loader::{Extracted, Sampled};

use super::replica::Replica;
use crate::{
    Result,
    device::{Device, MemoryReservation},
    learner::StepContext,
    record::Traffic,
    stage::Drawn,
    strategy::{
        batch_states::{Gradient, MinibatchStates, Scheduler, Work},
        interface::Nvidia,
        scheduler::WorkerRole,
        worker::{Done, GradientSource, Worker},
    },
    tiers::DeviceCache,
    versions::{PublishedParameters, VersionRule},
};

/// Values that the workers of an epoch share.
#[derive(Clone, Copy)]
pub(super) struct EpochContext<'s> {
    pub(super) scheduler: &'s Scheduler,
    pub(super) work: Work<'s>,
    pub(super) published: &'s PublishedParameters,
    /// Version of the parameters that each batch reads.
    pub(super) rule: VersionRule,
    /// Memory of gradients that no batch uses.
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
    /// Memory of gathered rows that no batch uses. Devices do not share it: a matrix would stay on
    /// one device while another device's is taken for its next batch.
    pub(super) rows: Arc<ObjectPool<Matrix>>,
    /// Number of batches trained on in this epoch, and the traffic of their rows.
    pub(super) done: Done,
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
            rows: Arc::default(),
            done: Done::default(),
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
        let Self { device, workers, replica, rows, done, .. } = self;
        let (device, rows, done): (&Device, &ObjectPool<Matrix>, &Done) = (device, rows, done);
        let mut trains = replica.as_mut().zip(context);
        for worker in workers {
            let trains = if worker.role.train.is_some() { trains.take() } else { None };
            scope.spawn(move || {
                let trainer = |(replica, context)| Trainer { replica, context, device, rows, shared };
                let mut trainer = trains.map(trainer);
                let source = trainer.as_mut().map(|trainer| (trainer, done));
                worker.run_for_updates(shared.scheduler, shared.work, source);
                if let Some(Trainer { replica, context, .. }) = trainer {
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

/// A device's copy of the model in an epoch.
struct Trainer<'s> {
    replica: &'s mut Replica,
    context: StepContext<'s>,
    device: &'s Device,
    rows: &'s ObjectPool<Matrix>,
    shared: EpochContext<'s>,
}

impl GradientSource<MinibatchStates> for Trainer<'_> {
    fn gradient(&mut self, number: u64, batch: &mut Drawn<Extracted>) -> Result<Gradient> {
        let Self { replica, context, device, shared, .. } = self;
        let EpochContext { published, rule, gradients, first, .. } = *shared;
        let from = (published, rule.version(number));
        let train = || replica.train(context, from, gradients, batch.batch(), first + number);
        device.pool.install(train)
    }

    fn spend(&mut self, batch: Drawn<Extracted>) -> (Sampled, Traffic) {
        let Extracted { sampled, features, traffic } = batch.into_batch();
        // another batch of the device takes over the memory of the rows
        self.rows.put(features);
        (sampled, traffic)
    }
}
