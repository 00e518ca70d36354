//! The devices of a run: how many sample and how many train, and what each did.

use std::sync::{Arc, PoisonError};

use graphmill_core::{Matrix, ObjectPool};
use graphmill_loader::feature::LinkOptions;

use super::{FactoredOptions, Toggle, roles::DeviceSetup, timing::time, workers::DeviceWorkers};
use crate::{
    Error, Result,
    allocate::samplers::num_samplers,
    config::Devices,
    device::{Device, MemoryReservation},
    learner::Learner,
    record::DeviceRecord,
    stage::Loader,
    strategy::interface::Setting,
    tiers::{DeviceCaches, Step},
};

/// The division of work among devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Design {
    /// Some sample, the others train.
    Factored,
    /// All do both.
    TimeSharing,
}

/// The devices of a run with their workers.
pub(super) struct DeviceGroup {
    pub(super) devices: Vec<Arc<Device>>,
    pub(super) seats: Vec<DeviceWorkers>,
    /// Trainers that are not on standby.
    pub(super) normal: usize,
    /// Bytes of a sampled batch.
    pub(super) batch_bytes: u64,
    /// Gathered rows, and gradients.
    pub(super) rows: Arc<ObjectPool<Matrix>>,
    pub(super) gradients: Arc<ObjectPool<Vec<Matrix>>>,
    /// Seconds to sample a batch, and to train on it, where they were timed.
    times: Option<(f64, f64)>,
    num_nodes: usize,
    /// What devices keep for something else.
    _reserved: Vec<Option<MemoryReservation>>,
}

impl DeviceGroup {
    /// Devices as the options say, with what they need in their memories.
    ///
    /// # Errors
    /// Options that contradict each other, or a device without room for what it needs.
    pub(super) fn new(
        with: &Setting,
        design: Design,
        reserved: Option<(&str, u64)>,
        loader: &Loader,
        learner: &Learner,
    ) -> Result<Self> {
        let config = with.config;
        let devices = match &*config.devices {
            Devices::Cpu => {
                Device::several("cores", rayon::current_num_threads(), 0, LinkOptions::default())?
            }
            Devices::Virtual(count) => {
                Device::several("virtual", *count, config.device_budget.0, *config.link)?
            }
            Devices::Cuda(numbers) => Device::nvidia(numbers)?,
        };
        let count = devices.len();
        let FactoredOptions { num_samplers: given, switching } = config.own.get();
        if given > count {
            return Err(Error::usage(format!("--num-samplers {given}: there are {count} devices")));
        }
        let reserve =
            |device: &Arc<Device>| reserved.map(|(what, bytes)| device.hold(what, bytes)).transpose();
        let reserved = devices.iter().map(reserve).collect::<Result<Vec<_>>>()?;
        let caches = DeviceCaches::new(config, with.data, with.sampler, with.order)?;
        let has_budget = caches.is_some() && config.device_budget.0 > 0;
        let step = match &caches {
            Some(caches) if has_budget => caches.step_bytes(&**with.feature)?,
            _ => Step::default(),
        };
        let mut setup = DeviceSetup { with, caches: caches.as_ref(), step, sample: 0, model: &learner.model };

        let trainer = (design == Design::Factored && count > 1)
            .then(|| setup.trainer(&devices[count - 1]))
            .transpose()?;
        let (times, batch_bytes) = time(loader, learner, trainer.as_ref(), &devices[count - 1])?;
        let samplers = match (design, given) {
            (Design::TimeSharing, _) => count,
            (_, 0) if count > 1 => {
                times.map_or(1, |(sample, train)| num_samplers(count, sample, train)).min(count - 1)
            }
            (_, 0) => 1,
            (_, given) => given,
        };
        // a workspace has a number for each node, and every thread has one, and a batch
        let each = 4 * with.data.num_nodes() as u64 + batch_bytes;
        setup.sample = if has_budget { each * devices[0].pool.current_num_threads() as u64 } else { 0 };
        let normal = if design == Design::TimeSharing { count } else { count - samplers };
        if normal == 0 && switching == Toggle::Off {
            return Err(Error::usage(format!(
                "--switching off: all {count} devices sample, so none would train; use --switching on, or more devices"
            )));
        }
        let mut seats = match design {
            Design::TimeSharing => setup.time_sharing(&devices)?,
            Design::Factored => setup.factored(&devices, samplers, trainer)?,
        };
        let rows = Arc::new(ObjectPool::default());
        for worker in seats.iter_mut().flat_map(|seat| &mut seat.workers) {
            worker.spare = Some(rows.clone());
        }
        let gradients = Arc::new(ObjectPool::default());
        let num_nodes = with.data.num_nodes();
        Ok(Self {
            devices,
            seats,
            normal,
            batch_bytes,
            rows,
            gradients,
            times,
            num_nodes,
            _reserved: reserved,
        })
    }

    /// Trainers, those on standby among them.
    pub(super) fn num_trainers(&self) -> usize {
        self.seats.iter().filter(|seat| seat.replica.is_some()).count()
    }

    /// The team in words.
    pub(super) fn describe(&self) -> String {
        let count = |role: &str| self.seats.iter().filter(|seat| seat.role == role).count();
        let percent = |seat: &DeviceWorkers| {
            let slots = seat.cache.as_ref().map_or(0, |cache| cache.slots);
            format!("{:.1} %", 100.0 * slots as f64 / self.num_nodes.max(1) as f64)
        };
        let caches: Vec<String> = ["sampler", "trainer", "both"]
            .iter()
            .filter_map(|role| {
                let seat = self.seats.iter().find(|seat| seat.role == *role && seat.cache.is_some())?;
                Some(format!("{} hold {} of the rows", plural(role), percent(seat)))
            })
            .collect();
        let caches = if caches.is_empty() { String::new() } else { format!("; {}", caches.join(", ")) };
        match self.times {
            None => format!("{} devices sample and train{caches}", self.seats.len()),
            Some((sample, train)) => format!(
                "{} of {} devices sample, {} train (a batch takes {:.2} ms to sample, {:.2} ms to train){caches}",
                count("sampler"),
                self.seats.len(),
                count("trainer"),
                1e3 * sample,
                1e3 * train
            ),
        }
    }

    /// What has gone over each device's link: bytes and seconds.
    pub(super) fn carried(&self) -> Vec<(u64, f64)> {
        let of = |device: &Arc<Device>| device.link.traffic();
        self.devices.iter().map(of).map(|carried| (carried.bytes, carried.seconds)).collect()
    }

    /// What each device has done since this was asked last, and what went over its link: bytes and
    /// seconds. Begins to count anew.
    pub(super) fn records(&mut self, carried: Vec<(u64, f64)>) -> Vec<DeviceRecord> {
        let records = self.seats.iter_mut().zip(carried).map(|(seat, (link_bytes, link_seconds))| {
            let done = seat.done.get_mut().unwrap_or_else(PoisonError::into_inner);
            let (batches, traffic) = std::mem::take(done);
            DeviceRecord {
                device: seat.device.name().to_string(),
                role: seat.role.to_string(),
                batches,
                cache_rows: seat.cache.as_ref().map_or(0, |cache| cache.slots),
                hit_rate: seat.cache.as_ref().and_then(|_| traffic.hit_rate(true)),
                link_bytes,
                link_seconds,
            }
        });
        records.collect()
    }
}

/// Several of a role.
fn plural(role: &str) -> &'static str {
    match role {
        "sampler" => "samplers",
        "trainer" => "trainers",
        _ => "they",
    }
}
