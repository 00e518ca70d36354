//! The devices of a run, what is on each, and who does what there.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::Scope,
    time::Instant,
};

use graphmill_graph::Matrix;
use graphmill_loader::{Feature, MiniBatch, Sampler, Workspace, feature::LinkOptions};
use graphmill_nn::model::Model;

use super::{
    Batches, Can, Design, Flow, Learner, Loader, Nvidia, Passes, Published, Replica, Setting, Slot, Stage,
    Task, TrafficRecord, Work, Worker, attempt,
};
use crate::{
    Error, Result,
    allocate::samplers::num_samplers,
    config::Devices,
    device::{Device, Held},
    record::DeviceRecord,
    tiers::{OwnCache, OwnCaches, Step},
};

/// Batches that are timed to tell how many devices are to sample, after one to warm up.
const TIMED: u64 = 3;

/// What some batches need for a while, and no batch is using.
#[derive(Default)]
pub(in crate::strategy) struct Spare<T>(Mutex<Vec<T>>);

impl<T: Default> Spare<T> {
    /// One of them, or an empty one.
    pub(in crate::strategy) fn take(&self) -> T {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Keeps it for another batch.
    pub(super) fn give(&self, one: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(one);
    }
}

/// What the workers of an epoch share.
#[derive(Clone, Copy)]
pub(super) struct Shift<'s> {
    pub(super) line: &'s Batches,
    pub(super) work: Work<'s, 's>,
    pub(super) published: &'s Published,
    /// Gathered rows, and gradients, that no batch is using.
    pub(super) rows: &'s Spare<Matrix>,
    pub(super) gradients: &'s Spare<Vec<Matrix>>,
    /// Number of the epoch's batch 0 in the whole run.
    pub(super) first: u64,
}

/// A device with its workers.
pub(super) struct Seat {
    pub(super) device: Arc<Device>,
    role: &'static str,
    /// One that does all in turns, or one that samples or extracts and one that trains.
    pub(super) workers: Vec<Worker>,
    pub(super) replica: Option<Replica>,
    cache: Option<OwnCache>,
    /// Batches it has trained on in this epoch, and what it read for them.
    pub(super) done: Mutex<(u64, TrafficRecord)>,
    _held: Vec<Held>,
}

impl Seat {
    fn new(device: &Arc<Device>, role: &'static str) -> Self {
        Self {
            device: device.clone(),
            role,
            workers: Vec::new(),
            replica: None,
            cache: None,
            done: Mutex::default(),
            _held: Vec::new(),
        }
    }
}

/// Everyone.
pub(super) struct Team {
    pub(super) devices: Vec<Arc<Device>>,
    pub(super) seats: Vec<Seat>,
    /// Trainers that are not on standby.
    pub(super) normal: usize,
    /// Bytes of a sampled batch.
    pub(super) batch_bytes: u64,
    /// Gathered rows, and gradients.
    pub(super) rows: Arc<Spare<Matrix>>,
    pub(super) gradients: Arc<Spare<Vec<Matrix>>>,
    /// Seconds to sample a batch, and to train on it, where they were timed.
    times: Option<(f64, f64)>,
    num_nodes: usize,
    /// What devices keep for something else.
    _reserved: Vec<Option<Held>>,
}

impl Team {
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
        let link = LinkOptions::parse(&config.link).map_err(Error::usage)?;
        let devices = match Devices::parse(&config.devices)? {
            Devices::Cpu => {
                Device::several("cores", rayon::current_num_threads(), 0, LinkOptions::default())?
            }
            Devices::Virtual(count) => Device::several("virtual", count, config.device_budget.0, link)?,
            Devices::Cuda(numbers) => Device::nvidia(&numbers)?,
        };
        let count = devices.len();
        if config.num_samplers > count {
            return Err(Error::usage(format!(
                "--num-samplers {}: there are {count} devices",
                config.num_samplers
            )));
        }
        let reserve =
            |device: &Arc<Device>| reserved.map(|(what, bytes)| device.hold(what, bytes)).transpose();
        let reserved = devices.iter().map(reserve).collect::<Result<Vec<_>>>()?;
        let caches = OwnCaches::new(config, with.data, with.sampler, with.order)?;
        let has_budget = caches.is_some() && config.device_budget.0 > 0;
        let step = match &caches {
            Some(caches) if has_budget => caches.step_bytes(&**with.feature)?,
            _ => Step::default(),
        };
        let mut room = Room { with, caches: caches.as_ref(), step, sample: 0, model: &learner.model };

        let mut trainer = (design == Design::Factored && count > 1)
            .then(|| room.trainer(&devices[count - 1]))
            .transpose()?;
        let (times, batch_bytes) = time(loader, learner, trainer.as_ref(), &devices[count - 1])?;
        let samplers = match (design, config.num_samplers) {
            (Design::TimeSharing, _) => count,
            (_, 0) if count > 1 => {
                times.map_or(1, |(sample, train)| num_samplers(count, sample, train)).min(count - 1)
            }
            (_, 0) => 1,
            (_, given) => given,
        };
        // a workspace has a number for each node, and every thread has one, and a batch
        let each = 4 * with.data.num_nodes() as u64 + batch_bytes;
        room.sample = if has_budget { each * devices[0].pool.current_num_threads() as u64 } else { 0 };
        let normal = if design == Design::TimeSharing { count } else { count - samplers };
        if normal == 0 && config.switching == "off" {
            return Err(Error::usage(format!(
                "--switching off: all {count} devices sample, so none would train; use --switching on, or more devices"
            )));
        }
        let mut seats = Vec::with_capacity(count);
        if design == Design::TimeSharing {
            for device in &devices {
                seats.push(room.both(device, seats.len())?);
            }
        } else {
            // trainers first: their caches are those that samplers mark
            let mut trainers = Vec::new();
            for device in &devices[samplers..] {
                let ready = if Arc::ptr_eq(device, &devices[count - 1]) { trainer.take() } else { None };
                let mut seat = match ready {
                    Some(seat) => seat,
                    None => room.trainer(device)?,
                };
                seat.set_trainer(trainers.len());
                trainers.push(seat);
            }
            // the last device was only tried as a Trainer where all turn out to sample
            drop(trainer);
            let marks = trainers.first().and_then(|seat: &Seat| seat.cache.as_ref()).map(|c| c.rows.clone());
            let mut standby = trainers.len();
            for (i, device) in devices[..samplers].iter().enumerate() {
                seats.push(room.sampler(device, i, &mut standby, normal, marks.clone())?);
            }
            seats.append(&mut trainers);
        }
        let rows = Arc::new(Spare::default());
        for worker in seats.iter_mut().flat_map(|seat| &mut seat.workers) {
            worker.spare = Some(rows.clone());
        }
        let gradients = Arc::new(Spare::default());
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
        let percent = |seat: &Seat| {
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
        let of = |device: &Arc<Device>| device.link.carried();
        self.devices.iter().map(of).map(|carried| (carried.bytes, carried.seconds)).collect()
    }

    /// What each device has done since this was asked last, and what went over its link: bytes and seconds. Begins to count anew.
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

impl Seat {
    /// Passes for its Trainer, if it has one, in the room that it has kept.
    pub(super) fn passes<'a>(&mut self, like: &Passes<'a>, nvidia: Option<Nvidia<'a>>) -> Option<Passes<'a>> {
        let replica = self.replica.as_mut()?;
        let mut passes = like.with_room(std::mem::take(&mut replica.room));
        if let (Some(gpu), Some(Nvidia { computers, .. })) = (self.device.gpu, nvidia) {
            passes.backend = &computers.gpus()[gpu].backend;
        }
        Some(passes)
    }

    /// Sets its workers to work, a thread each.
    pub(super) fn start<'s>(
        &'s mut self,
        scope: &'s Scope<'s, '_>,
        shift: Shift<'s>,
        passes: Option<Passes<'s>>,
    ) {
        let Shift { line, work, published, rows, gradients, first } = shift;
        let Self { device, workers, replica, done, .. } = self;
        let (device, done): (&Device, &Mutex<(u64, TrafficRecord)>) = (device, done);
        let mut trains = replica.as_mut().zip(passes);
        for worker in workers {
            let mut trainer = if worker.can.train.is_some() { trains.take() } else { None };
            scope.spawn(move || {
                let track = work.timeline.track(&worker.name);
                let standby = worker.can.standby;
                let turns = worker.can.extract.is_some();
                let mut train = |task: Task<Slot>| {
                    let (Task::Train(number, mut slot), Some((replica, passes))) = (task, &mut trainer)
                    else {
                        return Ok(Flow::Continue);
                    };
                    let clock = Instant::now();
                    let outcome = attempt(Stage::Train, number, || {
                        let number = first + number;
                        device.pool.install(|| replica.train(passes, published, gradients, &mut slot, number))
                    });
                    slot.spent.train = work.timeline.done(track, Stage::Train, number, clock);
                    let Slot { batch, spent, .. } = &mut slot;
                    // the rows have done their work: another batch has room for its own
                    batch.extracted = false;
                    rows.give(std::mem::take(&mut batch.features));
                    match outcome {
                        Ok(()) => {
                            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                            done.0 += 1;
                            done.1 += batch.traffic.into();
                            drop(done);
                            // one thread does both in turns, or two do them side by side
                            let pace = if turns {
                                spent.extract + spent.train
                            } else {
                                spent.extract.max(spent.train)
                            };
                            line.trained(number, slot, pace, standby);
                        }
                        Err(error) => line.fail(number, slot, error),
                    }
                    Ok(Flow::Continue)
                };
                // its failures are told to the line
                let _ = worker.run(line, work, &mut train);
                if let Some((replica, passes)) = trainer {
                    replica.room = passes.into_room();
                }
            });
        }
    }

    /// Makes its workers those of this trainer.
    fn set_trainer(&mut self, trainer: usize) {
        for worker in &mut self.workers {
            let Can { extract, train, .. } = &mut worker.can;
            *extract = extract.map(|_| trainer);
            *train = train.map(|_| trainer);
            let what = if train.is_some() { "trainer" } else { "extractor" };
            worker.name = format!("{what} {trainer}");
        }
    }
}

/// What seats are furnished with.
struct Room<'r, 'a> {
    with: &'r Setting<'a>,
    caches: Option<&'r OwnCaches<'a>>,
    /// Bytes of a training step, where memory is limited.
    step: Step,
    /// Bytes of sampling, where memory is limited.
    sample: u64,
    model: &'r Model,
}

impl Room<'_, '_> {
    fn num_nodes(&self) -> usize {
        self.with.data.num_nodes()
    }

    fn cache(&self, device: &Arc<Device>, lent: bool) -> Result<Option<OwnCache>> {
        if let (Some(gpu), Some(Nvidia { rows, .. })) = (device.gpu, self.with.nvidia) {
            return Ok(Some(OwnCache { rows: rows.each[gpu].clone(), slots: rows.slots, _held: None }));
        }
        self.caches.map(|caches| caches.make(device, self.with.feature.clone(), lent)).transpose()
    }

    fn topology(&self, device: &Arc<Device>) -> Result<Held> {
        device.hold("the topology", self.caches.map_or(0, OwnCaches::topology_bytes))
    }

    /// A device that only trains: one thread extracts ahead of the other.
    fn trainer(&self, device: &Arc<Device>) -> Result<Seat> {
        let mut seat = Seat::new(device, "trainer");
        seat._held.push(device.hold("a training step, and the rows of the next", self.step.with_next())?);
        seat.cache = self.cache(device, false)?;
        seat.replica = Some(Replica::new(self.model));
        let can = Can { extract: Some(0), ..Can::default() };
        let mut extractor = Worker::new(String::new(), can, Some(device.pool_beside()?), 0);
        extractor.rows = seat.cache.as_ref().map(|cache| cache.rows.clone());
        extractor.link = self.caches.map(|_| device.link.clone());
        let can = Can { train: Some(0), ..Can::default() };
        let trainer = Worker::new(String::new(), can, Some(device.pool.clone()), 0);
        seat.workers = vec![extractor, trainer];
        seat.set_trainer(0);
        Ok(seat)
    }

    /// A device that samples, with a Trainer on standby where it may switch: the `standby`-th trainer, which it counts.
    fn sampler(
        &self,
        device: &Arc<Device>,
        index: usize,
        standby: &mut usize,
        normal: usize,
        marks: Option<Arc<dyn Feature>>,
    ) -> Result<Seat> {
        let mut seat = Seat::new(device, "sampler");
        seat._held.push(self.topology(device)?);
        seat._held.push(device.hold("sampling", self.sample)?);
        let mut can = Can { sample: device.pool.current_num_threads(), ..Can::default() };
        if self.with.config.switching == "on" {
            match device.hold("a training step, and the rows of the next", self.step.with_next()) {
                Ok(held) => {
                    seat._held.push(held);
                    seat.cache = self.cache(device, true)?;
                    seat.replica = Some(Replica::new(self.model));
                    can = Can { extract: Some(*standby), standby: true, ..can };
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
            let can = Can { train: Some(trainer), standby: true, ..Can::default() };
            seat.workers.push(Worker::new(format!("standby {index}"), can, Some(device.pool.clone()), 0));
        }
        Ok(seat)
    }

    /// A device that does all.
    fn both(&self, device: &Arc<Device>, index: usize) -> Result<Seat> {
        let mut seat = Seat::new(device, "both");
        seat._held.push(self.topology(device)?);
        seat._held.push(device.hold("sampling", self.sample)?);
        seat._held.push(device.hold("a training step", self.step.bytes)?);
        seat.cache = self.cache(device, false)?;
        seat.replica = Some(Replica::new(self.model));
        let threads = device.pool.current_num_threads();
        let can = Can { sample: threads, extract: Some(index), train: Some(index), ..Can::default() };
        let mut worker =
            Worker::new(format!("device {index}"), can, Some(device.pool.clone()), self.num_nodes());
        worker.rows = seat.cache.as_ref().map(|cache| cache.rows.clone());
        worker.sampler = self.drawing(device);
        seat.workers = vec![worker];
        Ok(seat)
    }

    /// What draws on this device.
    fn drawing(&self, device: &Device) -> Option<Arc<dyn Sampler>> {
        self.with.nvidia?.samplers.each.get(device.gpu?).cloned()
    }
}

/// Seconds to sample a batch and to train on it, on the threads of a device, and bytes of a batch: of the first batches of the first
/// epoch. Nothing is updated. A batch that fails ends the timing: it fails again when it is its turn, behind those before it.
///
/// # Errors
/// The first batch fails.
fn time(
    loader: &Loader,
    learner: &Learner,
    trainer: Option<&Seat>,
    device: &Arc<Device>,
) -> Result<(Option<(f64, f64)>, u64)> {
    let (mut space, mut batch) = (Workspace::new(loader.graph.num_nodes()), MiniBatch::default());
    space.set_parallel(false);
    let mut order = Vec::new();
    loader.order(0, &mut order);
    let last = loader.num_batches().min(if trainer.is_some() { TIMED + 1 } else { 1 });
    let mut model = learner.model.clone();
    let mut passes = learner.passes.with_room(Default::default());
    let threads = device.pool.current_num_threads() as f64;
    let (mut sample, mut train, mut bytes) = (f64::INFINITY, f64::INFINITY, 0);
    let mut one = |this: u64| -> Result<()> {
        let clock = Instant::now();
        attempt(Stage::Sample, this, || {
            device.pool.install(|| loader.draw(&order, 0, this, &mut space, &mut batch))
        })?;
        let sampled = clock.elapsed().as_secs_f64() / threads;
        bytes = bytes.max(batch.bytes());
        let Some(seat) = trainer else { return Ok(()) };
        let clock = Instant::now();
        attempt(Stage::Extract, this, || {
            device.pool.install(|| match &seat.cache {
                Some(cache) => loader.extract_from(&*cache.rows, &mut batch),
                None => loader.extract(&mut batch),
            })
        })?;
        let extracted = clock.elapsed().as_secs_f64();
        let clock = Instant::now();
        attempt(Stage::Train, this, || {
            device.pool.install(|| passes.gradient(&mut model, &batch, 0));
            Ok(passes.backend.check()?)
        })?;
        let trained = clock.elapsed().as_secs_f64();
        // a Trainer extracts the next batch while it trains on this one
        sample = sample.min(sampled);
        train = train.min(trained.max(extracted));
        Ok(())
    };
    for this in 0..last {
        match one(this) {
            Err(error) if this == 0 => return Err(error),
            Err(_) => break,
            Ok(()) => {}
        }
    }
    Ok((train.is_finite().then_some((sample, train)), bytes))
}
