//! Devices that sample, devices that train, and one queue between them.
//!
//! # Algorithm
//!
//! ```text
//!   factored:       device 0   sample b0 | b1 | b2 | .. | b9 | standby: train b8 ..      topology (and a cache in the rest)
//!                                          │ one queue, in host memory; the next free Trainer takes the next batch
//!                   device 1     extract b0 | extract b2 | ..                           cache of the hottest rows
//!                                  train b0 | train b2 | ..
//!                   host             update | update | ..
//!   time-sharing:   every device   sample | extract | train                             topology and a smaller cache
//!     --overlap on                 sample b2 | train b0 | ..  beside  extract b1 | ..   and the rows of the next batch
//! ```
//!
//! A Trainer computes gradients on a copy of the model. The thread of the strategy applies them,
//! round by round, in the order of the batches ([`super::scheduler`] has the rules). Synchronous
//! updates are as deterministic as `sequential`: one Trainer gives the same bits, `N` Trainers give
//! the updates of batches `N` times as large. With asynchronous updates, batch `k` of an epoch
//! reads the parameters after exactly `k - S` updates of the epoch, for a staleness of `S`
//! (`--staleness`, `crates/engine/src/versions`), so the bits depend on `S` and neither on timing
//! nor on the number of devices. A Trainer waits for these updates and for no others.
//!
//! # Source
//!
//! Yang et al., *GNNLab: A Factored System for Sample-based GNN Training over GPUs*, EuroSys 2022,
//! sections 4 and 5 (FGNN).
//!
//! # Cost
//!
//! Each batch copies the parameters to its Trainer. Each update adds one gradient per batch of its
//! round. The link of a simulated device is charged for one copy of each version of the parameters
//! that its Trainer uses, and for the gradient of each of its batches.
//!
//! # Memory
//!
//! Each device holds the topology, the cache and the training step that its role needs, within
//! `--device-budget`. The queue takes at most a quarter of the free host memory. Asynchronous
//! updates take that of `S` earlier versions of the parameters.
//!
//! # Deviations
//!
//! The paper leaves the rule of bounded staleness open; [`super::scheduler`] defines one, and each
//! gradient is as stale as it allows, also if newer parameters exist. A standby Trainer has a small
//! cache in the paper. Here it reads the Trainers' pool if they share one, and on an NVIDIA device
//! whenever it can read their memory.

mod device_group;
mod options;
mod reduce;
mod replica;
mod roles;
mod timing;
mod workers;

use std::{sync::Arc, time::Instant};

use graphmill_core::memory;
use graphmill_loader::{MiniBatch, Workspace, feature::Link};

use super::{
    QueueOptions, UpdateOptions,
    batch_states::{BatchTask, Scheduler, Slot, Trained, Work},
    interface::{CompletedBatch, Epoch, Flow, Nvidia, Strategy, StrategyContext},
    round,
    scheduler::{BatchScheduler, SchedulerRules, SchedulerState, Task, WorkerRole},
    worker::{CloseOnDrop, Worker, attempt},
};
use crate::{
    Result,
    learner::{Learner, StepContext},
    machine::monitor::Guarded,
    record::{BatchOutcome, DeviceRecord},
    reuse::ReusePlan,
    stage::Loader,
    timeline::Stage,
    versions::{PublishedParameters, VersionRule},
};
pub use device_group::Design;
use device_group::DeviceGroup;
pub use options::{FactoredOptions, TimeSharingOptions, Toggle};
pub(crate) use reduce::add_shares;
use reduce::{OnDevices, reduce_over_ranks};
pub(crate) use replica::ModelLink;
use workers::{DeviceWorkers, EpochContext};

/// Largest number of batches in the queue.
const MAX_QUEUE: usize = 1 << 14;
/// Share of the free memory that the queue may take.
const QUEUE_SHARE: f64 = 0.25;

/// Devices that sample, train, or do both.
pub struct Factored<'a> {
    context: StrategyContext<'a>,
    design: Design,
    group: Option<DeviceGroup>,
    slots: Vec<Slot<MiniBatch>>,
    note: Option<String>,
    /// All-reduce over devices, unless copies between them sum the gradients.
    sums: Option<OnDevices<'a>>,
    /// Plan of the rows that batches reuse, if they do.
    reuse: Option<Arc<ReusePlan>>,
}

impl<'a> Factored<'a> {
    /// Strategy of this design; [`Strategy::prepare`] fills the devices.
    pub fn new(context: StrategyContext<'a>, design: Design) -> Self {
        let slots = Vec::new();
        Self { context, design, group: None, slots, note: None, sums: None, reuse: None }
    }

    /// Rules of the scheduler for these devices.
    fn rules(&self, group: &DeviceGroup) -> SchedulerRules {
        let config = self.context.config;
        let (dedicated, trainers) = (group.dedicated, group.num_trainers());
        let updates = config.own.get::<UpdateOptions>();
        SchedulerRules {
            trainers,
            dedicated,
            max_claims: 1,
            round_size: if updates.is_asynchronous() { 1 } else { round(config) },
            max_staleness: updates.bound(),
            // a standby trainer may not take its batch
            round_robin: self.sums.is_some() && dedicated == trainers,
        }
    }

    /// Makes the slots of the queue: as many as the options say, or as an epoch has batches, within
    /// the free memory.
    fn fill_slots(&mut self, epoch: &Epoch, group: &DeviceGroup, rules: SchedulerRules) {
        let batches = usize::try_from(epoch.loader.num_batches()).unwrap_or(usize::MAX);
        let round = usize::try_from(rules.round_size).unwrap_or(usize::MAX).min(batches);
        let least = round.saturating_add(3 * (rules.trainers + group.members.len()));
        let QueueOptions { queue_depth: queue } = self.context.config.own.get();
        let wanted = if queue > 0 {
            queue
        } else if !self.slots.is_empty() {
            // an earlier epoch has measured the free memory
            self.slots.len()
        } else {
            let limit = memory::available().map_or(f64::INFINITY, |bytes| QUEUE_SHARE * bytes as f64);
            let fit = (limit / group.batch_bytes.max(1) as f64).min(MAX_QUEUE as f64) as usize;
            fit.max(least)
        };
        self.slots.resize_with(wanted.max(round).min(batches), Slot::default);
    }
}

impl Strategy for Factored<'_> {
    fn prepare(&mut self, loader: &Loader, learner: &Learner) -> Result<()> {
        let group = DeviceGroup::new(&self.context, self.design, self.reuse.as_deref(), loader, learner)?;
        let devices = self.context.nvidia.map(|nvidia| nvidia.devices);
        let (sums, how) = OnDevices::choose(self.context.config, devices, round(self.context.config))?;
        self.sums = sums;
        let mut note = group.describe();
        if let (Some(how), Some(devices)) = (how, devices) {
            note = format!("{note}; gradients are summed by {how}");
            devices.set_all_reduce(how);
        }
        self.note = Some(note);
        self.group = Some(group);
        Ok(())
    }

    fn run(&mut self, mut epoch: Epoch) -> Result<Flow> {
        if epoch.from >= epoch.to {
            return Ok(Flow::Continue);
        }
        if self.group.is_none() {
            self.prepare(epoch.loader, epoch.learner)?;
        }
        let Some(mut group) = self.group.take() else { return Ok(Flow::Stop) };
        let rules = self.rules(&group);
        self.fill_slots(&epoch, &group, rules);
        let slots = std::mem::take(&mut self.slots);
        let scheduler =
            BatchScheduler::new(Guarded::new(SchedulerState::new(epoch.from, epoch.to, slots, rules)));
        let flow =
            run_group(self.context.nvidia, &mut group, self.sums.as_mut(), &scheduler, &mut epoch, rules);
        let (failure, slots) = scheduler.into_inner().into_inner().end();
        self.slots = slots;
        self.group = Some(group);
        let flow = flow?;
        if let (Some(error), Flow::Continue) = (failure, flow) {
            return Err(error);
        }
        Ok(flow)
    }

    fn expect_reuse(&mut self, plan: Arc<ReusePlan>) {
        self.reuse = Some(plan);
    }

    fn links(&self) -> Vec<Arc<Link>> {
        let trains = |member: &&DeviceWorkers| member.replica.is_some();
        let members = self.group.iter().flat_map(|group| &group.members).filter(trains);
        members.map(|member| member.device.link.clone()).collect()
    }

    fn devices(&mut self) -> Vec<DeviceRecord> {
        self.group.as_mut().map_or_else(Vec::new, DeviceGroup::records)
    }

    fn note(&mut self) -> Option<String> {
        self.note.take()
    }

    fn staleness_bound(&self) -> u64 {
        self.context.config.own.get::<UpdateOptions>().bound()
    }
}

/// Runs the batches of an epoch: one thread per worker of the devices, updates on this thread.
fn run_group(
    nvidia: Option<Nvidia>,
    group: &mut DeviceGroup,
    mut sums: Option<&mut OnDevices>,
    scheduler: &Scheduler,
    epoch: &mut Epoch,
    rules: SchedulerRules,
) -> Result<Flow> {
    let Epoch { number, order, from, to, loader, learner, lr, after, timeline } = epoch;
    let work = Work { loader, order, number: *number, timeline };
    let first = *number * loader.num_batches();
    let rule = VersionRule { size: rules.round_size, staleness: rules.max_staleness, from: *from };
    rule.check(&learner.past, *to)?;
    let published = &PublishedParameters::new(&learner.model, learner.step, &learner.past, rule);
    let contexts: Vec<Option<StepContext>> =
        group.members.iter_mut().map(|member| member.context(&learner.context, nvidia)).collect();
    let host = timeline.track("host");
    let gradients = group.gradients.clone();
    let gpus = nvidia.map_or(&[][..], |nvidia| nvidia.devices.gpus());
    let mut flow = Flow::Continue;
    let mut update = |task: BatchTask| -> Result<Flow> {
        let Task::Update(mut batches) = task else { return Ok(Flow::Continue) };
        let (clock, last) = (Instant::now(), batches.last().map_or(0, |(number, _)| *number));
        let (outcome, losses) = attempt(Stage::Update, last, || {
            let late = |(number, slot): &(u64, Trained)| rule.round(*number) - slot.gradient.version;
            let latest = batches.iter().map(late).max().unwrap_or(0);
            assert!(
                latest <= rule.staleness,
                "a gradient is {latest} updates stale; the bound is {}",
                rule.staleness
            );
            // rows that a batch reused have aged with its gradient
            let aged = batches.iter().map(|batch| late(batch) + batch.1.gradient.reused).max().unwrap_or(0);
            learner.staleness = learner.staleness.max(aged);
            let (mean, losses) = reduce_over_ranks(learner, &mut batches, sums.as_deref_mut())?;
            let outcome = learner.update(mean, lr(last));
            learner.context.backend.check()?;
            Ok((outcome, losses))
        })?;
        published.publish(&learner.model, learner.context.backend, gpus, Vec::new());
        learner.context.backend.check()?;
        scheduler.updated();
        timeline.done(host, Stage::Update, last, clock);
        // the outcome is not finite because a batch's loss is not, or because the gradient's norm
        // is not: then all batches of the round get its loss
        let finite = losses.iter().all(|(loss, _)| loss.is_finite());
        let shared_loss = (finite && !outcome.loss.is_finite()).then_some(outcome.loss);
        let done: Vec<CompletedBatch> = batches
            .iter()
            .zip(losses)
            .map(|((_, Trained { batch, traffic, spent, .. }), (loss, seeds))| {
                let loss = shared_loss.unwrap_or(loss);
                let outcome = BatchOutcome { loss, seeds, ..outcome };
                CompletedBatch { batch, traffic: *traffic, outcome, spent: *spent }
            })
            .collect();
        flow = after(learner, &done)?;
        for (_, Trained { batch, gradient, .. }) in batches {
            gradients.put(gradient.values);
            scheduler.free(Slot(batch.into()));
        }
        Ok(flow)
    };
    let mut driver =
        Worker::new("host".into(), WorkerRole { update: true, ..WorkerRole::default() }, None, || {
            Workspace::new(0)
        });
    std::thread::scope(|scope| {
        // the other threads do not wait for this one, even if it panics
        let _closing = CloseOnDrop { scheduler, always: true };
        let gradients = &gradients;
        let shared = EpochContext { scheduler, work, published, rule, gradients, first };
        for (member, context) in group.members.iter_mut().zip(contexts) {
            member.start(scope, shared, context);
        }
        driver.run(scheduler, work, &mut update)
    })?;
    Ok(flow)
}
