//! Devices of a run with their workers: the numbers of samplers and trainers, and the record of
//! each device.

use std::sync::{Arc, PoisonError};

use graphmill_core::{Matrix, ObjectPool};
use graphmill_loader::feature::LinkTraffic;

use super::{
    FactoredOptions, TimeSharingOptions, Toggle, roles::DeviceSetup, timing::time, workers::DeviceWorkers,
};
use crate::{
    Error, Result, TrainConfig,
    allocate::samplers::num_samplers,
    config::Devices,
    device::Device,
    learner::Learner,
    record::DeviceRecord,
    reuse::ReusePlan,
    stage::Loader,
    strategy::interface::StrategyContext,
    tiers::{DeviceCaches, Step, sampling_bytes},
};

/// Division of work among devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// Some devices sample, the others train.
    Factored,
    /// Every device samples and trains.
    TimeSharing,
    /// Every device samples and trains, and extracts the next batch meanwhile.
    Overlapping,
}

impl Design {
    /// Design of `time-sharing` with these options.
    pub fn time_sharing(config: &TrainConfig) -> Self {
        match config.own.get::<TimeSharingOptions>().overlap {
            Toggle::On => Self::Overlapping,
            Toggle::Off => Self::TimeSharing,
        }
    }
}

/// Devices of a run with their workers.
pub(super) struct DeviceGroup {
    pub(super) devices: Vec<Arc<Device>>,
    pub(super) members: Vec<DeviceWorkers>,
    /// Number of trainers that are not on standby.
    pub(super) dedicated: usize,
    /// Bytes of a sampled batch.
    pub(super) batch_bytes: u64,
    /// Memory of gradients that no batch uses.
    pub(super) gradients: Arc<ObjectPool<Vec<Matrix>>>,
    /// Seconds to sample a batch, and to train on it, if they were timed.
    times: Option<(f64, f64)>,
    num_nodes: usize,
    /// Traffic of each device's links to the host and to its peers at the last record.
    carried: Vec<[LinkTraffic; 2]>,
}

impl DeviceGroup {
    /// Devices of the options, with their tables and workspaces in memory.
    ///
    /// # Errors
    /// Options contradict each other, or the memory of a device is too small.
    pub(super) fn new(
        context: &StrategyContext,
        design: Design,
        reuse: Option<&ReusePlan>,
        loader: &Loader,
        learner: &Learner,
    ) -> Result<Self> {
        let config = context.config;
        let devices = devices_of(config)?;
        let count = devices.len();
        let FactoredOptions { num_samplers: given, switching } = config.own.get();
        if given > count {
            return Err(Error::usage(format!(
                "--num-samplers {given}: there are {count} devices; use fewer"
            )));
        }
        let caches =
            DeviceCaches::new(config, context.data, context.sampler, context.order, reuse)?.map(|caches| {
                caches
                    .learning(context.pairs)
                    .for_rank(context.own.cloned(), &**context.feature)
                    .counted_by(context.presampling, context.progress)
            });
        let has_budget = caches.is_some() && config.device_budget.0 > 0;
        let step = match &caches {
            Some(caches) if has_budget => caches.step_bytes(&**context.feature)?,
            _ => Step::default(),
        };
        let reused = reuse.map_or(0, ReusePlan::table_bytes);
        let (caches, model) = (caches.as_ref(), &learner.model);
        let mut setup = DeviceSetup { context, caches, step, reused, sample: 0, model, later: Vec::new() };

        let mut trainer = (design == Design::Factored && count > 1)
            .then(|| setup.trainer(&devices[count - 1]))
            .transpose()?;
        let preview = reuse.map(|plan| {
            let mut order = Vec::new();
            loader.order(0, &mut order);
            plan.preview(loader, &order, 0, 0)
        });
        let (times, batch_bytes) =
            time(loader, learner, preview.as_ref(), trainer.as_ref(), &devices[count - 1])?;
        drop(preview);
        let samplers = match (design, given) {
            (Design::TimeSharing | Design::Overlapping, _) => count,
            (_, 0) if count > 1 => {
                times.map_or(1, |(sample, train)| num_samplers(count, sample, train)).min(count - 1)
            }
            (_, 0) => 1,
            (_, given) => given,
        };
        setup.place(loader, samplers, trainer.as_mut())?;
        let each = sampling_bytes(context.data.num_nodes(), batch_bytes);
        setup.sample = if has_budget { each } else { 0 };
        let dedicated = if design == Design::Factored { count - samplers } else { count };
        if dedicated == 0 && switching == Toggle::Off {
            return Err(Error::usage(format!(
                "--switching off: all {count} devices sample, so none would train; use --switching on, or \
                 more devices"
            )));
        }
        let mut members = match design {
            Design::TimeSharing => setup.time_sharing(&devices, false)?,
            Design::Overlapping => setup.time_sharing(&devices, true)?,
            Design::Factored => setup.factored(&devices, samplers, trainer)?,
        };
        for DeviceWorkers { workers, rows, .. } in &mut members {
            workers.iter_mut().for_each(|worker| worker.tables.spare = Some(rows.clone()));
        }
        let gradients = Arc::new(ObjectPool::default());
        let num_nodes = context.data.num_nodes();
        let carried = carried(&devices);
        Ok(Self { devices, members, dedicated, batch_bytes, gradients, times, num_nodes, carried })
    }

    /// Number of trainers, including those on standby.
    pub(super) fn num_trainers(&self) -> usize {
        self.members.iter().filter(|member| member.replica.is_some()).count()
    }

    /// Describes the group for a note.
    pub(super) fn describe(&self) -> String {
        let count = |role: &str| self.members.iter().filter(|member| member.role == role).count();
        let percent = |member: &DeviceWorkers| {
            let slots = member.cache.as_ref().map_or(0, |cache| cache.slots);
            format!("{:.1} %", 100.0 * slots as f64 / self.num_nodes.max(1) as f64)
        };
        let caches: Vec<String> = ["sampler", "trainer", "both"]
            .iter()
            .filter_map(|role| {
                let member =
                    self.members.iter().find(|member| member.role == *role && member.cache.is_some())?;
                Some(format!("{} hold {} of the rows", plural(role), percent(member)))
            })
            .collect();
        let caches = if caches.is_empty() { String::new() } else { format!("; {}", caches.join(", ")) };
        match self.times {
            None => format!("{} devices sample and train{caches}", self.members.len()),
            Some((sample, train)) => format!(
                "{} of {} devices sample, {} train (a batch takes {:.2} ms to sample, {:.2} ms to \
                 train){caches}",
                count("sampler"),
                self.members.len(),
                count("trainer"),
                1e3 * sample,
                1e3 * train
            ),
        }
    }

    /// Record of each device since the last call. Resets the counts.
    pub(super) fn records(&mut self) -> Vec<DeviceRecord> {
        let now = carried(&self.devices);
        let before = std::mem::replace(&mut self.carried, now.clone());
        let records = self.members.iter_mut().zip(now.iter().zip(before)).map(|(member, (now, before))| {
            let done = member.done.get_mut().unwrap_or_else(PoisonError::into_inner);
            let (batches, traffic) = std::mem::take(done);
            let [host, peers] = [now[0] - before[0], now[1] - before[1]];
            DeviceRecord {
                device: member.device.name().to_string(),
                role: member.role.to_string(),
                batches,
                cache_rows: member.cache.as_ref().map_or(0, |cache| cache.slots),
                hit_rate: member.cache.as_ref().and_then(|_| traffic.hit_rate(true)),
                link_bytes: host.bytes,
                link_seconds: host.seconds,
                peer_link_bytes: peers.bytes,
                peer_link_seconds: peers.seconds,
            }
        });
        records.collect()
    }
}

/// Devices of the options.
fn devices_of(config: &TrainConfig) -> Result<Vec<Arc<Device>>> {
    Ok(match &*config.devices {
        Devices::Cpu => Device::several("cores", rayon::current_num_threads(), 0, Default::default())?,
        Devices::Virtual(count) => {
            let links = [*config.link, *config.peer_link];
            Device::several("virtual", *count, config.device_budget.0, links)?
        }
        Devices::Cuda(numbers) => Device::nvidia(numbers)?,
    })
}

/// Traffic of each device's links to the host and to its peers.
fn carried(devices: &[Arc<Device>]) -> Vec<[LinkTraffic; 2]> {
    devices.iter().map(|device| device.traffic()).collect()
}

/// Plural of a role's name.
fn plural(role: &str) -> &'static str {
    match role {
        "sampler" => "samplers",
        "trainer" => "trainers",
        _ => "they",
    }
}
