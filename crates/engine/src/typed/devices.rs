//! Simulated devices of `factored` and `time-sharing` on several types.
//!
//! ```text
//!   factored, virtual:3:    virtual:0, virtual:1   topology, sampling
//!                           virtual:2              a training step, the next rows, caches
//!     --num-samplers 1:     virtual:0              topology, sampling
//!                           virtual:1, virtual:2   training steps, the next rows, caches
//!   time-sharing:           each device            all of it
//! ```
//!
//! A single device that trains updates the model itself, so no gradient is summed. Several compute
//! gradients, a round of batches for each update, or a stale one for each ([`super::rounds`]).

use std::sync::Arc;

use graphmill_distributed::NodeOwnership;
use graphmill_loader::{feature::LinkTraffic, typed::TypedWorkspace};

use super::{
    batches::HeldRows,
    stages::{TypedBatches, TypedTables},
    step::StepBytes,
    tables::Tables,
    task::TypedTask,
};
use crate::{
    Error, Result, TrainConfig,
    accelerator::ComputeDevices,
    device::{Device, MemoryReservation},
    record::{DeviceRecord, Traffic},
    strategy::{self, TimeSharingOptions, Toggle, TypedOrder, Worker, scheduler::WorkerRole, simulated},
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

/// Returns true if each of `trainers` devices that train only computes gradients, which the thread
/// of the run applies ([`super::rounds`]).
pub(super) fn computes_gradients(config: &TrainConfig, trainers: usize) -> bool {
    trainers > 1 || strategy::batches_per_update(config) > 1 || strategy::update_bound(config) > 0
}

/// Error of the strategy's devices.
fn on_types(config: &TrainConfig, why: &str) -> Error {
    Error::usage(format!("--strategy {}: on several types {why}", config.strategy))
}

/// Devices of a run with their reservations.
pub(super) struct TypedDevices {
    devices: Vec<Arc<Device>>,
    /// Number of devices that only sample, the first ones. Without them, every device samples.
    samplers: usize,
    /// True if an own worker extracts the next batch on a device that trains.
    overlaps: bool,
    /// Number of rows of all types in the cache of each device that trains.
    cache_rows: usize,
    /// Rows of each type as the devices that train read them, except the first, which reads those
    /// of the epoch.
    pub(super) tables: Vec<Tables>,
    /// Traffic of the links of each device at the last record.
    carried: Vec<[LinkTraffic; 2]>,
    _held: Vec<MemoryReservation>,
}

impl TypedDevices {
    /// Devices of the options, with the topology, the workspaces and training steps in their
    /// memory, which `measure` measures with these learned rows; `None` if the strategy runs on no
    /// devices. A device that only computes gradients holds the learned rows of its batch; another
    /// one holds those of all nodes or, of a rank, those that it owns by `owners`.
    ///
    /// # Errors
    /// The options name no simulated devices, or none that trains; the memory of a device is too
    /// small.
    pub(super) fn new(
        config: &TrainConfig,
        task: &TypedTask,
        owners: Option<&[Arc<NodeOwnership>]>,
        measure: &dyn Fn(HeldRows<'_>) -> Result<StepBytes>,
    ) -> Result<Option<Self>> {
        if !order(config)?.is_on_devices() {
            return Ok(None);
        }
        let [samplers, trainers] = simulated(config).map_err(|why| on_types(config, &why))?;
        let overlaps = samplers > 0 || config.own.get::<TimeSharingOptions>().overlap == Toggle::On;
        let links = [*config.link, *config.peer_link];
        let devices = Device::several("virtual", samplers + trainers, config.device_budget.0, links)?;
        let mut devices = Self {
            carried: devices.iter().map(|device| device.traffic()).collect(),
            devices,
            samplers,
            overlaps,
            cache_rows: 0,
            tables: Vec::new(),
            _held: Vec::new(),
        };
        if config.device_budget.0 > 0 {
            let together = computes_gradients(config, trainers);
            let own = owners.map_or(HeldRows::All, HeldRows::OfRank);
            let held = if together { HeldRows::OfBatch } else { own };
            devices._held = devices.reserve(task, measure(held)?)?;
        }
        Ok(Some(devices))
    }

    /// Sets the number of rows of all types in the cache of each device that trains, once the
    /// caches are filled. Records leave out the rows that filled them, because only those of a
    /// private cache crossed a link.
    pub(super) fn set_cache_rows(&mut self, rows: usize) {
        self.cache_rows = rows;
        self.carried = self.devices.iter().map(|device| device.traffic()).collect();
    }

    /// The devices that train.
    pub(super) fn trainers(&self) -> &[Arc<Device>] {
        &self.devices[self.samplers..]
    }

    /// Workers of the devices: for each that trains, one that trains comes last.
    ///
    /// # Errors
    /// The system refuses the threads.
    pub(super) fn workers(
        &mut self,
        space: &dyn Fn() -> TypedWorkspace,
    ) -> Result<Vec<Worker<TypedBatches>>> {
        let mut workers = Vec::new();
        for (i, device) in self.devices[..self.samplers].iter().enumerate() {
            let threads = device.pool.current_num_threads();
            let role = WorkerRole { sample: threads, ..WorkerRole::default() };
            let mut worker = Worker::new(format!("sampler {i}"), role, Some(device.pool.clone()), space);
            worker.link = Some(device.link.clone());
            workers.push(worker);
        }
        // the first device that trains reads the tables of the epoch
        let mut tables = std::iter::once(None).chain(std::mem::take(&mut self.tables).into_iter().map(Some));
        for (i, device) in self.trainers().iter().enumerate() {
            let own = TypedTables { own: tables.next().flatten() };
            let sample = if self.samplers == 0 { device.pool.current_num_threads() } else { 0 };
            let role = WorkerRole { sample, extract: Some(i), train: Some(i), ..WorkerRole::default() };
            let name = format!("trainer {i}");
            let trains: Worker<TypedBatches> = Worker::new(name, role, Some(device.pool.clone()), space);
            if !self.overlaps {
                workers.push(Worker { tables: own, ..trains });
                continue;
            }
            let role = WorkerRole { train: None, sample: 0, ..role };
            let (name, beside) = (format!("extractor {i}"), Some(device.pool_beside()?));
            let extracts: Worker<TypedBatches> = Worker::new(name, role, beside, space);
            let link = (self.samplers > 0).then(|| device.link.clone());
            workers.push(Worker { tables: own, link, ..extracts });
            workers.push(Worker { role: WorkerRole { extract: None, ..trains.role }, ..trains });
        }
        Ok(workers)
    }

    /// Record of each device since the last call. Those that train have done `done` batches each,
    /// whose rows had this traffic.
    pub(super) fn records(&mut self, done: &[(u64, Traffic)]) -> Vec<DeviceRecord> {
        let Self { samplers, cache_rows, .. } = *self;
        let pairs = self.devices.iter().zip(&mut self.carried).enumerate();
        let records = pairs.map(|(i, (device, carried))| {
            let now = device.traffic();
            let before = std::mem::replace(carried, now);
            let [host, peers] = [now[0] - before[0], now[1] - before[1]];
            let (batches, traffic) =
                i.checked_sub(samplers).and_then(|trainer| done.get(trainer)).copied().unwrap_or_default();
            let trains = i >= samplers;
            let role = match (samplers, trains) {
                (0, _) => "both",
                (_, true) => "trainer",
                (_, false) => "sampler",
            };
            DeviceRecord {
                device: device.name().to_string(),
                role: role.to_string(),
                batches,
                cache_rows: if trains { cache_rows } else { 0 },
                hit_rate: traffic.hit_rate(true).filter(|_| trains),
                link_bytes: host.bytes,
                link_seconds: host.seconds,
                peer_link_bytes: peers.bytes,
                peer_link_seconds: peers.seconds,
            }
        });
        records.collect()
    }

    /// Reserves the memory of the devices before their caches.
    fn reserve(&self, task: &TypedTask, step: StepBytes) -> Result<Vec<MemoryReservation>> {
        let nodes = task.graph.schema().num_nodes();
        let mut held = Vec::new();
        for (i, device) in self.devices.iter().enumerate() {
            if i < self.samplers || self.samplers == 0 {
                let each = sampling_bytes(nodes, step.blocks);
                held.push(device.hold("the topology", step.topology)?);
                held.push(device.hold("sampling", each * device.pool.current_num_threads() as u64)?);
            }
            if i >= self.samplers {
                let next = if self.overlaps { step.rows } else { 0 };
                held.push(device.hold("a training step", step.all + next)?);
            }
        }
        Ok(held)
    }
}

#[cfg(test)]
mod tests {
    use graphmill_data::generate::{GenerateOptions, generate_typed};
    use graphmill_loader::Fanout;

    use super::*;
    use crate::{
        config::Bytes,
        typed::{batches::RunBatches, build, step, tables::borrowed},
    };

    #[test]
    fn devices_that_train_together_hold_only_the_learned_rows_of_their_batches() {
        let options = GenerateOptions { nodes: 1200, classes: 4, dim: 8, ..GenerateOptions::default() };
        let mut data = generate_typed("typed", &options).unwrap();
        data.nodes[1].features = None;
        let config = TrainConfig {
            strategy: "time-sharing".into(),
            model: "rsage".into(),
            hidden: 64,
            batch_size: 8,
            fanout: Fanout(vec![2, 2]),
            ..TrainConfig::default()
        };
        let task = TypedTask::new(&data, &config.task).unwrap();
        let sampler = build::sampler(&config, &task).unwrap();
        let batches = RunBatches::of_nodes(&config, &task, &*sampler).unwrap();
        let tables = task.host_tables().unwrap();
        let measure = |held: HeldRows<'_>| step::bytes(&batches, held, &borrowed(&tables));
        let [all, of_batch] = [HeldRows::All, HeldRows::OfBatch].map(|held| measure(held).unwrap());
        assert_eq!(measure(HeldRows::All).unwrap(), all, "other steps change no count");
        let types = task.graph.schema().types();
        let learned = types.iter().zip(&task.features).filter(|(_, features)| features.is_none());
        let learned: usize = learned.map(|(node, _)| node.count).sum();
        assert!(all.all > of_batch.all + 4 * (learned * config.hidden) as u64, "{all:?} {of_batch:?}");

        let each = sampling_bytes(task.graph.schema().num_nodes(), all.blocks);
        let beside = all.topology + each * rayon::current_num_threads() as u64;
        let budget = Bytes(beside + u64::midpoint(all.all, of_batch.all));
        let reserve = |devices: &str| {
            let devices = devices.parse().unwrap();
            let config = TrainConfig { devices, device_budget: budget, ..config.clone() };
            TypedDevices::new(&config, &task, None, &measure)
        };
        let message = reserve("virtual:1").err().unwrap().to_string();
        assert!(message.starts_with("virtual:0 is out of memory: a training step takes "), "{message}");
        assert!(reserve("virtual:2").unwrap().is_some());
    }
}
