//! Devices that sample, devices that train, and one queue between them (FGNN, sections 4 and 5).
//!
//! ```text
//!   factored:       device 0   sample b0 | b1 | b2 | .. | b9 | standby: train b8 ..      topology (and what cache is left room for)
//!                                          │ one queue, in host memory; the next free Trainer takes the next batch
//!                   device 1     extract b0 | extract b2 | ..                           cache of the hottest rows
//!                                  train b0 | train b2 | ..
//!                   host             update | update | ..
//!   time-sharing:   every device   sample | extract | train                             topology and a smaller cache
//! ```
//!
//! A Trainer computes gradients on a copy of the model; this thread applies them, round by round,
//! in the order of the batches ([`super::scheduler`] has the rules). Synchronous updates are as
//! deterministic as `sequential`, and with one Trainer the same to the bit; with `N` they are those
//! of batches `N` times as large. Asynchronous ones depend on who was how fast, within their bound.

mod options;
mod reduce;
mod replica;
mod roles;
mod team;
mod timing;
mod workers;

use std::{sync::Arc, time::Instant};

use graphmill_core::memory;
use graphmill_loader::{MiniBatch, feature::Link};

use super::{
    QueueOptions, UpdateOptions,
    interface::{Done, Epoch, Flow, Nvidia, Setting, Strategy},
    round,
    scheduler::{BatchScheduler, Rules, SchedulerState, Task, WorkerRole},
    slots::{BatchTask, Batches, Trained},
    worker::{Closing, Work, Worker, attempt},
};
use crate::{
    Result,
    learner::{Learner, StepContext},
    machine::monitor::Guarded,
    record::{BatchOutcome, DeviceRecord},
    stage::Loader,
    timeline::Stage,
};
pub use options::{FactoredOptions, Toggle};
use reduce::{OnDevices, reduce};
use replica::Published;
pub use team::Design;
use team::DeviceGroup;
use workers::EpochContext;

/// Most batches in the queue, whatever memory there is.
const QUEUE: usize = 1 << 14;
/// The part of the memory that is left which the queue may take.
const QUEUE_SHARE: f64 = 0.25;

/// Devices that sample, train, or do both.
pub struct Factored<'a> {
    with: Setting<'a>,
    design: Design,
    team: Option<DeviceGroup>,
    slots: Vec<MiniBatch>,
    /// What had gone over each link when somebody asked last: bytes and seconds.
    carried: Vec<(u64, f64)>,
    note: Option<String>,
    /// What sums gradients over devices, where copies between them do not.
    sums: Option<OnDevices<'a>>,
    /// Bytes that each device keeps for something else, and for what.
    reserved: Option<(&'static str, u64)>,
}

impl<'a> Factored<'a> {
    /// With nothing on any device yet.
    pub fn new(with: Setting<'a>, design: Design) -> Self {
        let (slots, carried) = Default::default();
        Self { with, design, team: None, slots, carried, note: None, sums: None, reserved: None }
    }

    /// How gradients become updates.
    fn rules(&self, team: &DeviceGroup) -> Rules {
        let config = self.with.config;
        let (normal, trainers) = (team.normal, team.num_trainers());
        let updates = config.own.get::<UpdateOptions>();
        let group = if updates.is_asynchronous() { 1 } else { round(config) };
        // whoever is on standby cannot be counted on
        let dealt = self.sums.is_some() && normal == trainers;
        Rules { trainers, normal, ahead: 1, group, bound: updates.bound(), dealt }
    }

    /// The slots of the queue: as the options say, or as many as an epoch's batches, as far as
    /// there is memory.
    fn fill_slots(&mut self, epoch: &Epoch, team: &DeviceGroup, rules: Rules) {
        let batches = usize::try_from(epoch.loader.num_batches()).unwrap_or(usize::MAX);
        let round = usize::try_from(rules.group).unwrap_or(usize::MAX).min(batches);
        let least = round.saturating_add(3 * (rules.trainers + team.seats.len()));
        let QueueOptions { queue } = self.with.config.own.get();
        let wanted = if queue > 0 {
            queue
        } else if !self.slots.is_empty() {
            // what memory there was has been looked at
            self.slots.len()
        } else {
            let room = memory::available().map_or(f64::INFINITY, |bytes| QUEUE_SHARE * bytes as f64);
            let fit = (room / team.batch_bytes.max(1) as f64).min(QUEUE as f64) as usize;
            fit.max(least)
        };
        self.slots.resize_with(wanted.max(round).min(batches), MiniBatch::default);
    }
}

impl Strategy for Factored<'_> {
    fn prepare(&mut self, loader: &Loader, learner: &Learner) -> Result<()> {
        let team = DeviceGroup::new(&self.with, self.design, self.reserved, loader, learner)?;
        let computers = self.with.nvidia.map(|nvidia| nvidia.computers);
        let (sums, how) = OnDevices::choose(self.with.config, computers, round(self.with.config))?;
        self.sums = sums;
        let mut note = team.describe();
        if let (Some(how), Some(computers)) = (how, computers) {
            note = format!("{note}; gradients are summed by {how}");
            computers.tell_sums(how);
        }
        self.note = Some(note);
        self.carried = team.carried();
        self.team = Some(team);
        Ok(())
    }

    fn run(&mut self, mut epoch: Epoch) -> Result<Flow> {
        if epoch.from >= epoch.to {
            return Ok(Flow::Continue);
        }
        if self.team.is_none() {
            self.prepare(epoch.loader, epoch.learner)?;
        }
        let Some(mut team) = self.team.take() else { return Ok(Flow::Stop) };
        let rules = self.rules(&team);
        self.fill_slots(&epoch, &team, rules);
        let slots = std::mem::take(&mut self.slots);
        let line = BatchScheduler::new(Guarded::new(SchedulerState::new(epoch.from, epoch.to, slots, rules)));
        let flow = run_team(self.with.nvidia, &mut team, self.sums.as_mut(), &line, &mut epoch, rules);
        let (failure, slots) = line.into_inner().into_inner().end();
        self.slots = slots;
        self.team = Some(team);
        let flow = flow?;
        if let (Some(error), Flow::Continue) = (failure, flow) {
            return Err(error);
        }
        Ok(flow)
    }

    fn reserve(&mut self, what: &'static str, bytes: u64) {
        self.reserved = Some((what, bytes));
    }

    fn links(&self) -> Vec<Arc<Link>> {
        self.team.iter().flat_map(|team| &team.devices).map(|device| device.link.clone()).collect()
    }

    fn devices(&mut self) -> Vec<DeviceRecord> {
        let Some(team) = &mut self.team else { return Vec::new() };
        let now = team.carried();
        let before = std::mem::replace(&mut self.carried, now.clone());
        let since = now.iter().zip(&before).map(|(now, before)| (now.0 - before.0, now.1 - before.1));
        team.records(since.collect())
    }

    fn note(&mut self) -> Option<String> {
        self.note.take()
    }

    fn staleness_bound(&self) -> u64 {
        self.with.config.own.get::<UpdateOptions>().bound()
    }
}

/// An epoch's batches: a thread for each worker of the devices, updates on this one.
fn run_team(
    nvidia: Option<Nvidia>,
    team: &mut DeviceGroup,
    mut sums: Option<&mut OnDevices>,
    line: &Batches,
    epoch: &mut Epoch,
    rules: Rules,
) -> Result<Flow> {
    let Epoch { number, order, loader, learner, lr, after, timeline, .. } = epoch;
    let work = Work { loader, order, number: *number, timeline };
    let first = *number * loader.num_batches();
    let published = &Published::new(&learner.model, learner.step);
    let passes: Vec<Option<StepContext>> =
        team.seats.iter_mut().map(|seat| seat.passes(&learner.passes, nvidia)).collect();
    let host = timeline.track("host");
    let (rows, gradients) = (team.rows.clone(), team.gradients.clone());
    let gpus = nvidia.map_or(&[][..], |nvidia| nvidia.computers.gpus());
    let mut flow = Flow::Continue;
    let mut update = |task: BatchTask| -> Result<Flow> {
        let Task::Update(mut batches) = task else { return Ok(Flow::Continue) };
        let (clock, last) = (Instant::now(), batches.last().map_or(0, |(number, _)| *number));
        let round = line.see(SchedulerState::version);
        let outcome = attempt(Stage::Update, last, || {
            let late = |(_, slot): &(u64, Trained)| round.saturating_sub(slot.gradient.version);
            let late = batches.iter().map(late).max().unwrap_or(0);
            let reused = batches.iter().map(|(_, slot)| slot.gradient.reused).max().unwrap_or(0);
            assert!(
                late <= rules.bound,
                "a gradient came {late} updates late; at most {} may be",
                rules.bound
            );
            learner.staleness = learner.staleness.max(late).max(reused);
            let mean = reduce(learner, &mut batches, sums.as_deref_mut())?;
            let outcome = learner.update(mean, lr(last));
            learner.passes.backend.check()?;
            Ok(outcome)
        })?;
        published.publish(&learner.model, learner.passes.backend, gpus);
        learner.passes.backend.check()?;
        line.updated();
        timeline.done(host, Stage::Update, last, clock);
        // where the mean is not finite, either a batch's loss is not, or the gradient's norm: then
        // all are to blame
        let finite = batches.iter().all(|(_, slot)| slot.gradient.loss.is_finite());
        let blamed = (finite && !outcome.loss.is_finite()).then_some(outcome.loss);
        let done: Vec<Done> = batches
            .iter()
            .map(|(_, Trained { batch, traffic, spent, gradient })| {
                let loss = blamed.unwrap_or(gradient.loss);
                let outcome = BatchOutcome { loss, seeds: batch.num_seeds(), ..outcome };
                Done { batch, traffic: *traffic, outcome, spent: *spent }
            })
            .collect();
        flow = after(learner, &done)?;
        for (_, Trained { batch, gradient, .. }) in batches {
            gradients.put(gradient.values);
            line.free(batch.into());
        }
        Ok(flow)
    };
    let mut driver =
        Worker::new("host".into(), WorkerRole { update: true, ..WorkerRole::default() }, None, 0);
    std::thread::scope(|scope| {
        // however this thread leaves, the others do not wait for it
        let _closing = Closing { line, always: true };
        let shift = EpochContext { line, work, published, rows: &rows, gradients: &gradients, first };
        for (seat, passes) in team.seats.iter_mut().zip(passes) {
            seat.start(scope, shift, passes);
        }
        driver.run(line, work, &mut update)
    })?;
    Ok(flow)
}
