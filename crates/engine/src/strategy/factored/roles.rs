//! Roles of a device (sampler, trainer, or both): the memory that each reserves, and its workers.

use std::sync::Arc;

use graphmill_loader::{Feature, MinibatchSampler, Workspace};
use graphmill_nn::model::Model;

use super::{FactoredOptions, Toggle, replica::Replica, workers::DeviceWorkers};
use crate::{
    Result,
    accelerator::topology_share,
    device::{Device, MemoryReservation},
    stage::Loader,
    strategy::{
        interface::{Nvidia, StrategyContext},
        scheduler::WorkerRole,
        worker::Worker,
    },
    tiers::{DeviceCache, DeviceCaches, Pool, Step},
};

/// Options, memory sizes and caches from which the workers of a device are made.
pub(super) struct DeviceSetup<'r, 'a> {
    pub(super) context: &'r StrategyContext<'a>,
    pub(super) caches: Option<&'r DeviceCaches<'a>>,
    /// Bytes of a training step, if memory is limited.
    pub(super) step: Step,
    /// Bytes of the tables of reused rows on each device that trains.
    pub(super) reused: u64,
    /// Bytes of a thread that samples, if memory is limited.
    pub(super) sample: u64,
    pub(super) model: &'r Model,
    /// Samplers of the NVIDIA devices after those of the run, if their number was balanced.
    pub(super) later: Vec<Arc<dyn MinibatchSampler>>,
}

/// Caches of the Trainers, as Samplers know them.
struct TrainerCaches {
    /// Rows that Samplers mark.
    marks: Option<Arc<dyn Feature>>,
    /// Cache that several Trainers share. A standby Trainer reads it, so that the rows from host
    /// memory do not depend on the Trainer that takes a batch.
    pool: Option<Pool>,
}

impl DeviceSetup<'_, '_> {
    fn space(&self) -> Workspace {
        Workspace::new(self.context.data.num_nodes())
    }

    /// The cache of an NVIDIA device, if it is one.
    fn on_gpu(&self, device: &Device) -> Option<DeviceCache> {
        let (gpu, Nvidia { rows, .. }) = device.gpu.zip(self.context.nvidia)?;
        let (rows, slots) = rows.of(gpu)?;
        Some(DeviceCache { rows, slots, _held: None })
    }

    /// Places the tables of NVIDIA devices for `samplers` devices that sample, if this number was
    /// balanced. Takes the cache of `trainer`, the timed one, if its rows move.
    ///
    /// # Errors
    /// The memory of a device is too small.
    pub(super) fn place(
        &mut self,
        loader: &Loader,
        samplers: usize,
        trainer: Option<&mut DeviceWorkers>,
    ) -> Result<()> {
        let StrategyContext { config, data, nvidia, .. } = *self.context;
        let Some(Nvidia { devices, rows, samplers: first }) = nvidia else { return Ok(()) };
        let Some(sampling) = rows.balanced_later() else { return Ok(()) };
        // the last device alone has held rows since it was timed
        if let Some(trainer) = trainer.filter(|_| samplers + 1 < devices.gpus().len()) {
            set_cache(trainer, None);
            rows.place(devices, samplers)?;
        }
        if !first.each.is_empty() {
            let (draw, share) = (first.each.len()..samplers, topology_share(Some(sampling)));
            self.later = devices.samplers(config, data, loader.graph, false, draw, share)?.each;
        }
        Ok(())
    }

    /// A cache of `device` alone.
    fn private(&self, device: &Arc<Device>, standby: bool) -> Result<Option<DeviceCache>> {
        if let Some(cache) = self.on_gpu(device) {
            return Ok(Some(cache));
        }
        self.caches.map(|caches| caches.private(device, self.context.feature.clone(), standby)).transpose()
    }

    /// Builds the caches of `members`, which share one if they are simulated, and lets their
    /// workers read through them. Their other memory is already reserved. Returns what they share.
    fn pool(&self, members: &mut [DeviceWorkers]) -> Result<Option<Pool>> {
        // the cache with which one of them was timed is not part of the pool
        members.iter_mut().for_each(|member| set_cache(member, None));
        for member in &mut *members {
            set_cache(member, self.on_gpu(&member.device));
        }
        let Some(caches) = self.caches else { return Ok(None) };
        let devices: Vec<Arc<Device>> = members.iter().map(|member| member.device.clone()).collect();
        let (shares, pool) = caches.pool(&devices, self.context.feature)?;
        for (member, cache) in members.iter_mut().zip(shares) {
            set_cache(member, Some(cache));
        }
        Ok(pool)
    }

    fn topology(&self, device: &Arc<Device>) -> Result<MemoryReservation> {
        device.hold("the topology", self.caches.map_or(0, DeviceCaches::topology_bytes))
    }

    /// Memory of the threads of a device that samples.
    fn sampling(&self, device: &Arc<Device>) -> Result<MemoryReservation> {
        device.hold("sampling", self.sample * device.pool.current_num_threads() as u64)
    }

    fn reused_rows(&self, device: &Arc<Device>) -> Result<MemoryReservation> {
        device.hold("reused rows", self.reused)
    }

    /// Copy of the model for the Trainer of a device. Copies over the link of a simulated device
    /// are charged to it.
    fn replica(&self, device: &Device) -> Replica {
        Replica::new(self.model, self.caches.map(|_| device.link.clone()))
    }

    /// Devices that each sample and train; with `overlap`, a second worker extracts meanwhile.
    pub(super) fn time_sharing(&self, devices: &[Arc<Device>], overlap: bool) -> Result<Vec<DeviceWorkers>> {
        let members = devices.iter().enumerate().map(|(i, device)| self.both(device, i, overlap));
        let mut members = members.collect::<Result<Vec<_>>>()?;
        self.pool(&mut members)?;
        Ok(members)
    }

    /// The first `samplers` of the devices sample, the others train; `last` is the last device,
    /// ready to train, if there are several.
    pub(super) fn factored(
        &self,
        devices: &[Arc<Device>],
        samplers: usize,
        mut last: Option<DeviceWorkers>,
    ) -> Result<Vec<DeviceWorkers>> {
        // trainers first: their caches are those that samplers mark
        let mut trainers: Vec<DeviceWorkers> = Vec::new();
        for (i, device) in devices.iter().enumerate().skip(samplers) {
            let ready = if i + 1 == devices.len() { last.take() } else { None };
            let mut member = match ready {
                Some(member) => member,
                None => self.without_cache(device)?,
            };
            member.set_trainer(trainers.len());
            trainers.push(member);
        }
        // a single trainer has the cache with which it was timed
        let pool = if trainers.len() > 1 || trainers.iter().any(|member| member.cache.is_none()) {
            self.pool(&mut trainers)?
        } else {
            None
        };
        // if all devices sample, the last one was a Trainer only for the timing
        drop(last);
        let marks = trainers.first().and_then(|member| member.cache.as_ref()).map(|cache| cache.rows.clone());
        let trained = TrainerCaches { marks, pool };
        let (dedicated, mut standby) = (trainers.len(), trainers.len());
        let mut members = Vec::with_capacity(devices.len());
        for (i, device) in devices[..samplers].iter().enumerate() {
            members.push(self.sampler(device, i, &mut standby, dedicated, &trained)?);
        }
        members.append(&mut trainers);
        Ok(members)
    }

    /// A device that only trains, with a private cache.
    pub(super) fn trainer(&self, device: &Arc<Device>) -> Result<DeviceWorkers> {
        let mut member = self.without_cache(device)?;
        let cache = self.private(device, false)?;
        set_cache(&mut member, cache);
        Ok(member)
    }

    /// A device that only trains: one thread extracts ahead of the other.
    fn without_cache(&self, device: &Arc<Device>) -> Result<DeviceWorkers> {
        let mut member = DeviceWorkers::new(device, "trainer");
        member.reservations.push(self.reused_rows(device)?);
        member
            .reservations
            .push(device.hold("a training step, and the rows of the next", self.step.with_next())?);
        member.replica = Some(self.replica(device));
        let role = WorkerRole { extract: Some(0), ..WorkerRole::default() };
        let mut extractor = Worker::new(String::new(), role, Some(device.pool_beside()?), || self.space());
        extractor.link = self.caches.map(|_| device.link.clone());
        let role = WorkerRole { train: Some(0), ..WorkerRole::default() };
        let trainer = Worker::new(String::new(), role, Some(device.pool.clone()), || self.space());
        member.workers = vec![extractor, trainer];
        member.set_trainer(0);
        Ok(member)
    }

    /// Memory of a training step and of reused rows for a standby Trainer, and its reader of the
    /// Trainers' cache if they share one.
    fn standby(
        &self,
        device: &Arc<Device>,
        trained: &TrainerCaches,
    ) -> Result<([MemoryReservation; 2], Option<DeviceCache>)> {
        let rows = self.reused_rows(device)?;
        let held = [rows, device.hold("a training step, and the rows of the next", self.step.with_next())?];
        let shared = self.caches.zip(trained.pool.as_ref());
        Ok((held, shared.map(|(caches, pool)| caches.without_share(pool, device)).transpose()?))
    }

    /// A device that samples, with a standby Trainer if it may switch: trainer number `standby`,
    /// which is then incremented.
    fn sampler(
        &self,
        device: &Arc<Device>,
        index: usize,
        standby: &mut usize,
        dedicated: usize,
        trained: &TrainerCaches,
    ) -> Result<DeviceWorkers> {
        let mut member = DeviceWorkers::new(device, "sampler");
        member.reservations.push(self.topology(device)?);
        member.reservations.push(self.sampling(device)?);
        let mut role = WorkerRole { sample: device.pool.current_num_threads(), ..WorkerRole::default() };
        if self.context.config.own.get::<FactoredOptions>().switching == Toggle::On {
            match self.standby(device, trained) {
                Ok((held, shared)) => {
                    member.reservations.extend(held);
                    member.cache = match shared {
                        Some(cache) => Some(cache),
                        None => self.private(device, true)?,
                    };
                    member.replica = Some(self.replica(device));
                    role = WorkerRole { extract: Some(*standby), standby: true, ..role };
                    *standby += 1;
                }
                // without memory for training it samples and does not switch
                Err(_) if dedicated > 0 => {}
                Err(error) => return Err(error),
            }
        }
        let mut worker: Worker =
            Worker::new(format!("sampler {index}"), role, Some(device.pool_beside()?), || self.space());
        worker.tables.sampler = self.drawing(device);
        worker.tables.rows = member.cache.as_ref().map(|cache| cache.rows.clone());
        worker.tables.marks = trained.marks.clone().or_else(|| worker.tables.rows.clone());
        worker.link = self.caches.map(|_| device.link.clone());
        member.workers = vec![worker];
        if let Some(trainer) = role.extract {
            let role = WorkerRole { train: Some(trainer), standby: true, ..WorkerRole::default() };
            member.workers.push(Worker::new(
                format!("standby {index}"),
                role,
                Some(device.pool.clone()),
                || self.space(),
            ));
        }
        Ok(member)
    }

    /// A device that samples and trains, without its cache; with `overlap`, a second worker
    /// extracts the next batch while the first samples or trains.
    fn both(&self, device: &Arc<Device>, index: usize, overlap: bool) -> Result<DeviceWorkers> {
        let mut member = DeviceWorkers::new(device, "both");
        member.reservations.push(self.topology(device)?);
        member.reservations.push(self.sampling(device)?);
        member.reservations.push(self.reused_rows(device)?);
        let (what, bytes) = if overlap {
            ("a training step, and the rows of the next (--overlap on)", self.step.with_next())
        } else {
            ("a training step", self.step.bytes)
        };
        member.reservations.push(device.hold(what, bytes)?);
        member.replica = Some(self.replica(device));
        let sample = device.pool.current_num_threads();
        let role = WorkerRole { sample, train: Some(index), ..WorkerRole::default() };
        let extracts = WorkerRole { extract: Some(index), ..WorkerRole::default() };
        let role = if overlap { role } else { WorkerRole { extract: extracts.extract, ..role } };
        let mut worker: Worker =
            Worker::new(format!("device {index}"), role, Some(device.pool.clone()), || self.space());
        worker.tables.sampler = self.drawing(device);
        if overlap {
            let name = format!("extractor {index}");
            member.workers.push(Worker::new(name, extracts, Some(device.pool_beside()?), || self.space()));
        }
        member.workers.push(worker);
        Ok(member)
    }

    /// The sampler that draws on this device, if any.
    fn drawing(&self, device: &Device) -> Option<Arc<dyn MinibatchSampler>> {
        let (gpu, first) = (device.gpu?, &self.context.nvidia?.samplers.each);
        first.get(gpu).or_else(|| self.later.get(gpu.checked_sub(first.len())?)).cloned()
    }
}

/// Sets the cache of a device. Its first worker, which extracts, reads through it.
fn set_cache(member: &mut DeviceWorkers, cache: Option<DeviceCache>) {
    if let Some(extractor) = member.workers.first_mut() {
        extractor.tables.rows = cache.as_ref().map(|cache| cache.rows.clone());
    }
    member.cache = cache;
}
