//! Simulated devices of `factored` and `time-sharing` on several types: one of them trains.
//!
//! ```text
//!   factored, virtual:3:   virtual:0, virtual:1   topology, sampling
//!                          virtual:2              a training step, the next rows, caches of all types
//!   virtual:1:             virtual:0              all of it
//! ```
//!
//! The last device trains and updates the model itself, so no gradient is summed and learned rows
//! have one copy.

use std::sync::Arc;

use graphmill_loader::{feature::LinkTraffic, typed::TypedWorkspace};

use super::{stages::TypedBatches, step::StepBytes, task::TypedTask};
use crate::{
    Error, Result, TrainConfig,
    accelerator::ComputeDevices,
    device::{Device, MemoryReservation},
    record::{DeviceRecord, Traffic},
    strategy::{
        self, FactoredOptions, SingleTrainer, TimeSharingOptions, Toggle, TypedOrder, Worker,
        scheduler::WorkerRole, simulated,
    },
    tiers::sampling_bytes,
};

/// Role of a worker that extracts and trains.
pub(super) const WHOLE: WorkerRole =
    WorkerRole { sample: 0, extract: Some(0), train: Some(0), standby: false, update: false };

/// Order of the stages by the strategy that the options name.
///
/// # Errors
/// It is not for several types.
pub(super) fn order(config: &TrainConfig) -> Result<TypedOrder> {
    let named = strategy::find(config)?;
    named.make.over_types.ok_or_else(|| {
        let rows = strategy::TABLE.iter().filter(|row| row.make.over_types.is_some());
        let names: Vec<&str> = rows.map(|row| row.name).collect();
        Error::usage(format!(
            "--strategy {}: it does not train on several types; use --strategy {}",
            named.name,
            graphmill_core::options::one_of(&names)
        ))
    })
}

/// Opens the NVIDIA device that trains, if the options name one.
///
/// # Errors
/// They name several, or the device cannot be used.
pub(super) fn compute_devices(config: &TrainConfig) -> Result<ComputeDevices> {
    if config.cuda_devices().len() > 1 {
        let why = "on several types one NVIDIA device trains; use --devices cuda:0";
        return Err(Error::usage(format!("--devices {}: {why}", config.devices)));
    }
    ComputeDevices::open(config)
}

/// Devices of a run with their reservations.
pub(super) struct TypedDevices {
    devices: Vec<Arc<Device>>,
    /// True if an own worker extracts the next batch on the training device.
    overlaps: bool,
    /// Number of rows of all types in the cache of the training device.
    pub(super) cache_rows: usize,
    /// Traffic of each link at the last record.
    carried: Vec<LinkTraffic>,
    _held: Vec<MemoryReservation>,
}

impl TypedDevices {
    /// Devices of the options, with the topology, the workspaces and a training step in their
    /// memory; `None` if the strategy runs on no devices.
    ///
    /// # Errors
    /// The options name no simulated devices, other samplers than all devices but one, or several
    /// devices that train; the memory of a device is too small.
    pub(super) fn new(
        config: &TrainConfig,
        task: &TypedTask,
        measure: &dyn Fn() -> Result<StepBytes>,
    ) -> Result<Option<Self>> {
        let by = order(config)?;
        if !by.is_on_devices() {
            return Ok(None);
        }
        let count = simulated(config)
            .map_err(|why| Error::usage(format!("--strategy {}: on several types {why}", config.strategy)))?;
        let given = config.own.get::<FactoredOptions>().num_samplers;
        if by == TypedOrder::Factored && given > 0 && given != (count - 1).max(1) {
            return Err(Error::usage(format!(
                "--num-samplers {given}: on several types all devices but one sample, which are {} of \
                 {count}; leave it out, or change --devices",
                count - 1
            )));
        }
        let overlaps = count > 1 || config.own.get::<TimeSharingOptions>().overlap == Toggle::On;
        let links = [*config.link, *config.peer_link];
        let devices = Device::several("virtual", count, config.device_budget.0, links)?;
        let held = if config.device_budget.0 > 0 {
            reserve(&devices, task, overlaps, measure()?)?
        } else {
            Vec::new()
        };
        let carried = devices.iter().map(|device| device.link.traffic()).collect();
        Ok(Some(Self { devices, overlaps, cache_rows: 0, carried, _held: held }))
    }

    /// The device that trains.
    pub(super) fn trainer(&self) -> &Arc<Device> {
        &self.devices[self.devices.len() - 1]
    }

    /// Workers of the devices. The tables of the run are those of the training device.
    ///
    /// # Errors
    /// The system refuses the threads.
    pub(super) fn workers(&self, space: &dyn Fn() -> TypedWorkspace) -> Result<SingleTrainer<TypedBatches>> {
        let trainer = self.trainer();
        let samplers = &self.devices[..self.devices.len() - 1];
        let mut others = Vec::new();
        for (i, device) in samplers.iter().enumerate() {
            let threads = device.pool.current_num_threads();
            let role = WorkerRole { sample: threads, ..WorkerRole::default() };
            let mut worker = Worker::new(format!("sampler {i}"), role, Some(device.pool.clone()), space);
            worker.link = Some(device.link.clone());
            others.push(worker);
        }
        let mut role = WHOLE;
        if samplers.is_empty() {
            role.sample = trainer.pool.current_num_threads();
        }
        if self.overlaps {
            role.extract = None;
            let own = WorkerRole { train: None, ..WHOLE };
            let mut extractor = Worker::new("extractor 0".into(), own, Some(trainer.pool_beside()?), space);
            extractor.link = (!samplers.is_empty()).then(|| trainer.link.clone());
            others.push(extractor);
        }
        let driver = Worker::new("trainer 0".into(), role, Some(trainer.pool.clone()), space);
        Ok(SingleTrainer { driver, others })
    }

    /// Record of each device since the last call; the last trained on `batches`, whose rows had
    /// this traffic.
    pub(super) fn records(&mut self, batches: u64, traffic: Traffic) -> Vec<DeviceRecord> {
        let last = self.devices.len() - 1;
        let cache_rows = self.cache_rows;
        let pairs = self.devices.iter().zip(&mut self.carried).enumerate();
        let records = pairs.map(|(i, (device, carried))| {
            let now = device.link.traffic();
            let sent = now - std::mem::replace(carried, now);
            let trains = i == last;
            DeviceRecord {
                device: device.name().to_string(),
                role: if last == 0 {
                    "both"
                } else if trains {
                    "trainer"
                } else {
                    "sampler"
                }
                .to_string(),
                batches: if trains { batches } else { 0 },
                cache_rows: if trains { cache_rows } else { 0 },
                hit_rate: traffic.hit_rate(true).filter(|_| trains),
                link_bytes: sent.bytes,
                link_seconds: sent.seconds,
                ..DeviceRecord::default()
            }
        });
        records.collect()
    }
}

/// Reserves the memory of the devices before their caches.
fn reserve(
    devices: &[Arc<Device>],
    task: &TypedTask,
    overlaps: bool,
    step: StepBytes,
) -> Result<Vec<MemoryReservation>> {
    let nodes = task.graph.schema().num_nodes();
    let last = devices.len() - 1;
    let mut held = Vec::new();
    for (i, device) in devices.iter().enumerate() {
        if i < last || last == 0 {
            let each = sampling_bytes(nodes, step.blocks);
            held.push(device.hold("the topology", step.topology)?);
            held.push(device.hold("sampling", each * device.pool.current_num_threads() as u64)?);
        }
        if i == last {
            let next = if overlaps { step.rows } else { 0 };
            held.push(device.hold("a training step", step.all + next)?);
        }
    }
    Ok(held)
}
