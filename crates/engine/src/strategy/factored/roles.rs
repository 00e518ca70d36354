//! The roles of a device: what a sampler, a trainer, and a device that does both hold in memory,
//! and their workers.

use std::sync::Arc;

use graphmill_loader::{Feature, MinibatchSampler};
use graphmill_nn::model::Model;

use super::{FactoredOptions, Toggle, replica::Replica, workers::DeviceWorkers};
use crate::{
    Result,
    device::{Device, MemoryReservation},
    strategy::{
        interface::{Nvidia, Setting},
        scheduler::WorkerRole,
        worker::Worker,
    },
    tiers::{DeviceCache, DeviceCaches, Step},
};

/// Options, memory sizes and caches from which the workers of a device are made.
pub(super) struct DeviceSetup<'r, 'a> {
    pub(super) with: &'r Setting<'a>,
    pub(super) caches: Option<&'r DeviceCaches<'a>>,
    /// Bytes of a training step, where memory is limited.
    pub(super) step: Step,
    /// Bytes of sampling, where memory is limited.
    pub(super) sample: u64,
    pub(super) model: &'r Model,
}

impl DeviceSetup<'_, '_> {
    fn num_nodes(&self) -> usize {
        self.with.data.num_nodes()
    }

    fn cache(&self, device: &Arc<Device>, lent: bool) -> Result<Option<DeviceCache>> {
        if let (Some(gpu), Some(Nvidia { rows, .. })) = (device.gpu, self.with.nvidia) {
            return Ok(Some(DeviceCache { rows: rows.each[gpu].clone(), slots: rows.slots, _held: None }));
        }
        self.caches.map(|caches| caches.make(device, self.with.feature.clone(), lent)).transpose()
    }

    fn topology(&self, device: &Arc<Device>) -> Result<MemoryReservation> {
        device.hold("the topology", self.caches.map_or(0, DeviceCaches::topology_bytes))
    }

    /// Devices that do all.
    pub(super) fn time_sharing(&self, devices: &[Arc<Device>]) -> Result<Vec<DeviceWorkers>> {
        devices.iter().enumerate().map(|(i, device)| self.both(device, i)).collect()
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
            let mut seat = match ready {
                Some(seat) => seat,
                None => self.trainer(device)?,
            };
            seat.set_trainer(trainers.len());
            trainers.push(seat);
        }
        // the last device was only tried as a Trainer where all turn out to sample
        drop(last);
        let marks = trainers.first().and_then(|seat| seat.cache.as_ref()).map(|cache| cache.rows.clone());
        let (normal, mut standby) = (trainers.len(), trainers.len());
        let mut seats = Vec::with_capacity(devices.len());
        for (i, device) in devices[..samplers].iter().enumerate() {
            seats.push(self.sampler(device, i, &mut standby, normal, marks.clone())?);
        }
        seats.append(&mut trainers);
        Ok(seats)
    }

    /// A device that only trains: one thread extracts ahead of the other.
    pub(super) fn trainer(&self, device: &Arc<Device>) -> Result<DeviceWorkers> {
        let mut seat = DeviceWorkers::new(device, "trainer");
        seat.reservations
            .push(device.hold("a training step, and the rows of the next", self.step.with_next())?);
        seat.cache = self.cache(device, false)?;
        seat.replica = Some(Replica::new(self.model));
        let can = WorkerRole { extract: Some(0), ..WorkerRole::default() };
        let mut extractor = Worker::new(String::new(), can, Some(device.pool_beside()?), 0);
        extractor.rows = seat.cache.as_ref().map(|cache| cache.rows.clone());
        extractor.link = self.caches.map(|_| device.link.clone());
        let can = WorkerRole { train: Some(0), ..WorkerRole::default() };
        let trainer = Worker::new(String::new(), can, Some(device.pool.clone()), 0);
        seat.workers = vec![extractor, trainer];
        seat.set_trainer(0);
        Ok(seat)
    }

    /// A device that samples, with a Trainer on standby where it may switch: the `standby`-th
    /// trainer, which it counts.
    fn sampler(
        &self,
        device: &Arc<Device>,
        index: usize,
        standby: &mut usize,
        normal: usize,
        marks: Option<Arc<dyn Feature>>,
    ) -> Result<DeviceWorkers> {
        let mut seat = DeviceWorkers::new(device, "sampler");
        seat.reservations.push(self.topology(device)?);
        seat.reservations.push(device.hold("sampling", self.sample)?);
        let mut can = WorkerRole { sample: device.pool.current_num_threads(), ..WorkerRole::default() };
        if self.with.config.own.get::<FactoredOptions>().switching == Toggle::On {
            match device.hold("a training step, and the rows of the next", self.step.with_next()) {
                Ok(held) => {
                    seat.reservations.push(held);
                    seat.cache = self.cache(device, true)?;
                    seat.replica = Some(Replica::new(self.model));
                    can = WorkerRole { extract: Some(*standby), standby: true, ..can };
                    *standby += 1;
                }
                // it samples and does not switch
                Err(_) if normal > 0 => {}
                Err(error) => return Err(error),
            }
        }
        let mut worker =
            Worker::new(format!("sampler {index}"), can, Some(device.pool_beside()?), self.num_nodes());
        worker.sampler = self.drawing(device);
        worker.rows = seat.cache.as_ref().map(|cache| cache.rows.clone());
        worker.marks = marks.or_else(|| worker.rows.clone());
        worker.link = self.caches.map(|_| device.link.clone());
        seat.workers = vec![worker];
        if let Some(trainer) = can.extract {
            let can = WorkerRole { train: Some(trainer), standby: true, ..WorkerRole::default() };
            seat.workers.push(Worker::new(format!("standby {index}"), can, Some(device.pool.clone()), 0));
        }
        Ok(seat)
    }

    /// A device that does all.
    fn both(&self, device: &Arc<Device>, index: usize) -> Result<DeviceWorkers> {
        let mut seat = DeviceWorkers::new(device, "both");
        seat.reservations.push(self.topology(device)?);
        seat.reservations.push(device.hold("sampling", self.sample)?);
        seat.reservations.push(device.hold("a training step", self.step.bytes)?);
        seat.cache = self.cache(device, false)?;
        seat.replica = Some(Replica::new(self.model));
        let threads = device.pool.current_num_threads();
        let can =
            WorkerRole { sample: threads, extract: Some(index), train: Some(index), ..WorkerRole::default() };
        let mut worker =
            Worker::new(format!("device {index}"), can, Some(device.pool.clone()), self.num_nodes());
        worker.rows = seat.cache.as_ref().map(|cache| cache.rows.clone());
        worker.sampler = self.drawing(device);
        seat.workers = vec![worker];
        Ok(seat)
    }

    /// What draws on this device.
    fn drawing(&self, device: &Device) -> Option<Arc<dyn MinibatchSampler>> {
        self.with.nvidia?.samplers.each.get(device.gpu?).cloned()
    }
}
