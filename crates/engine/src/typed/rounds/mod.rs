//! Devices that train together on several types: each computes gradients on a copy of the model,
//! and the thread of the run applies them.
//!
//! # Algorithm
//!
//! ```text
//!   device 0   copy parameters, fetch learned rows | gradient b0 | .. gradient b2 | ..
//!   device 1   copy parameters, fetch learned rows | gradient b1 | .. gradient b3 | ..
//!   host                                                  update b0 b1 |    update b2 b3 |
//! ```
//!
//! Batches `k N .. (k + 1) N` are a round of `N` batches (`--batches-per-update`; by default, as
//! many as devices train). A round makes one update by the mean of its gradients, weighted by seeds
//! (of links, by positives): the update of a batch of all their seeds. Gradients are added in the
//! order of the batches, so the bits depend on `N`, but neither on the number of devices nor on the
//! device that takes a batch. The rules are those of one type ([`crate::strategy::factored`]).
//!
//! With `--updates asynchronous` a round has one batch, and batch `k` of an epoch reads the
//! parameters after exactly `k - S` updates of the epoch (`--staleness`, [`crate::versions`]), so
//! the bits depend on `S` and on nothing else. Every update asserts the bound.
//!
//! A device alone whose batches each make an update trains the model itself. It gives the bits of
//! rounds of one batch, except after a subgraph without seeds: dropout depends on the number of
//! updates there, and on that of the batch here.
//!
//! Learned rows of types without features have one copy, in host memory. A device fetches the rows
//! of a batch's nodes and returns their gradients, as a rank does ([`super::ranks`]). No device
//! fetches rows during an update.
//!
//! Over ranks, each device computes the gradient of its rank's share of a batch. The gradient of a
//! round is the sum of the shares of its batches, weighted by seeds: first over the batches of a
//! rank, then in rank order. All ranks make the same rounds, so the bits depend on `N`, `S` and the
//! ranks, and not on devices. Learned rows are at the owners of their nodes (`rows.rs`).
//!
//! # Source
//!
//! Yang et al., *GNNLab: A Factored System for Sample-based GNN Training over GPUs*, EuroSys 2022,
//! section 5. The learned rows are as in Li et al., *Scaling distributed machine learning with the
//! parameter server*, OSDI 2014, with updates in lockstep.
//!
//! # Cost
//!
//! Each batch copies the dense parameters to its device, and its learned rows there and back. The
//! link of the device is charged for one copy of each version of the parameters that it uses, for
//! the rows, and for the gradients.
//!
//! # Memory
//!
//! A copy of the dense parameters, of their gradients and of the activations on each device. Until
//! its update, a round has its batches with their feature rows, and their gradients, in host
//! memory. Asynchronous updates take that of `S` earlier versions.
//!
//! # Deviations
//!
//! Devices that sample do not train at the end of an epoch.

mod learner;
mod published;
mod rows;
mod update;

use std::{
    ops::Range,
    sync::{Arc, PoisonError},
};

use graphmill_core::ObjectPool;
use graphmill_loader::typed::{TypedExtracted, TypedSeeds, TypedWorkspace};
use graphmill_nn::Matrix;
use rayon::ThreadPool;

use self::{
    published::{Published, bytes_of},
    rows::RowVersions,
    update::Round,
};
use super::{
    computing::PROCESSOR,
    counts::total,
    devices::computes_gradients,
    ranks::RowOwners,
    stages::{EpochBatches, TypedBatches, TypedGradient},
};
use crate::{
    Error, Result, TrainConfig,
    batchwise::Session,
    device::Device,
    record::{PresamplingCost, Traffic},
    strategy::{
        self, BatchTask, CloseOnDrop, Done, Flow, GradientSource, ModelLink, Scheduler, Slot, Trained,
        Worker, busy_slots, scheduled,
        scheduler::{SchedulerRules, Task, WorkerRole},
    },
    versions::VersionRule,
};
pub(super) use learner::RoundLearner;

/// A batch with its gradient.
type TypedTrained = Trained<TypedExtracted, TypedGradient>;

/// Copies of the model on the devices that train together.
pub(super) struct Rounds<L> {
    replicas: Vec<Replica<L>>,
    rule: VersionRule,
    /// Learned rows between updates.
    rows: RowVersions,
    /// The ranks that train together, if there are several.
    over: Option<RowOwners>,
    /// Memory of gradients that no batch uses.
    spare: ObjectPool<Vec<Matrix>>,
}

/// A device's copy of the model.
struct Replica<L> {
    learner: L,
    pool: Arc<ThreadPool>,
    link: ModelLink,
}

/// Part of an epoch, and the workers of the devices.
pub(super) struct RoundWork<'w> {
    pub(super) of: EpochBatches<'w>,
    pub(super) batches: Range<u64>,
    /// For each device that trains, one worker trains, in their order.
    pub(super) workers: Vec<&'w mut Worker<TypedBatches>>,
    /// Most batches under way; 0 keeps all workers busy.
    pub(super) queue: usize,
    /// Memory of batches that are not under way.
    pub(super) memory: &'w mut Vec<TypedSeeds>,
    /// Batches that each device has trained on, and the traffic of their rows.
    pub(super) done: &'w mut [(u64, Traffic)],
    /// Cost of the batches whose reads are counted.
    pub(super) cost: &'w PresamplingCost,
}

impl<L: RoundLearner> Rounds<L> {
    /// Copies by `replica` on `devices`, unless there is one that makes an update of every batch,
    /// which needs no copy. A rank serves the learned rows of its nodes to the devices of the
    /// others.
    ///
    /// # Errors
    /// Those of `replica`.
    pub(super) fn new(
        config: &TrainConfig,
        devices: &[Arc<Device>],
        over: Option<RowOwners>,
        replica: impl Fn() -> Result<L>,
    ) -> Result<Option<Self>> {
        if !computes_gradients(config, devices.len()) {
            return Ok(None);
        }
        let rule = VersionRule {
            size: strategy::batches_per_update(config),
            staleness: strategy::update_bound(config),
            from: 0,
        };
        let replica = |device: &Arc<Device>| -> Result<Replica<L>> {
            let learner = replica()?;
            let link = ModelLink::new(learner.dense(), Some(device.link.clone()));
            Ok(Replica { learner, pool: device.pool.clone(), link })
        };
        let replicas: Vec<Replica<L>> = devices.iter().map(replica).collect::<Result<_>>()?;
        let Some(first) = replicas.first() else { return Ok(None) };
        let rows = RowVersions::new(first.learner.encoder(), over.as_ref());
        Ok(Some(Self { replicas, rule, rows, over, spare: ObjectPool::default() }))
    }

    /// Makes batches and trains on them, a round for each update, and reports each round.
    ///
    /// # Errors
    /// A stage or a report fails, a loss is not finite, a rank did not take part, or the run made
    /// other updates before it was resumed. Rounds before a failed one are trained on.
    pub(super) fn train(&mut self, session: &mut Session<L>, work: RoundWork) -> Result<Flow> {
        let RoundWork { of, batches, workers, queue, memory, done, cost } = work;
        let Self { replicas, rule, rows, over, spare } = self;
        let (rule, last) = (VersionRule { from: batches.start, ..*rule }, batches.end);
        let (rows, over, spare) = (&*rows, over.as_ref(), &*spare);
        let updates = session.learner().num_updates();
        check_updates(rule.size, of.num_batches(), [of.epoch, batches.start, updates])?;
        rule.check(session.learner().past(), of.num_batches())?;
        let trainers = replicas.len();
        let rules = SchedulerRules {
            trainers,
            dedicated: trainers,
            max_claims: 1,
            round_size: rule.size,
            max_staleness: rule.staleness,
            round_robin: false,
        };
        let busy = if queue > 0 { queue } else { busy_slots(workers.iter().map(|worker| &**worker)) };
        let wanted = busy.max(usize::try_from(rule.size).unwrap_or(usize::MAX));
        let counted: Vec<Done> = done.iter().map(|_| Done::default()).collect();
        let published = Published::new(session.learner(), rule, rows);
        // no rank requests rows before all ranks serve them
        rows.meet()?;
        let flow = scheduled::<TypedBatches>(batches, wanted, rules, memory, |scheduler| {
            let mut flow = Flow::Continue;
            let mut update = |task: BatchTask<TypedBatches>| -> Result<Flow> {
                let Task::Update(mut batches) = task else { return Ok(Flow::Continue) };
                let round = Round { of: &of, cost, rule, over, batches: &mut batches };
                let ended = round.end(session, &published);
                if let (Err(error), Some(over)) = (&ended, over) {
                    // another rank may wait for this one in its report, with its rows locked, while
                    // a device of this rank waits for such rows, and this rank for the device
                    over.ranks.post().fail(&error.to_string());
                }
                flow = ended?;
                if flow == Flow::Continue {
                    // no rank requests rows of this version before all ranks have it
                    rows.meet()?;
                    scheduler.updated();
                }
                for (_, Trained { batch, gradient, .. }) in batches {
                    spare.put(gradient.values);
                    scheduler.free(Slot(batch.recycle()));
                }
                Ok(flow)
            };
            let devices = (&mut replicas[..], workers, &counted[..]);
            run_devices(scheduler, of, devices, (rule, &published, spare), &mut update)?;
            Ok(flow)
        });
        // no rank takes its rows back while another may still request some
        let flow = flow.and_then(|flow| rows.meet().map(|()| flow));
        // after a failure devices of other ranks may still request rows, and the model is not saved
        if flow.is_ok() || !rows.are_shared() {
            published.end(session.learner());
        }
        if session.num_done() >= last {
            // the next epoch begins with the newest parameters
            session.learner().past().clear();
        }
        for (sum, counted) in done.iter_mut().zip(counted) {
            let (batches, traffic) = counted.into_inner().unwrap_or_else(PoisonError::into_inner);
            sum.0 += batches;
            sum.1 += traffic;
        }
        flow
    }
}

/// Checks that rounds of `size` batches can have made the updates of a run so far, which are those
/// of whole epochs of `num_batches` batches, and of `done` batches of the current one. Versions in
/// which one device trained recorded the size of a round, and updated by every batch.
///
/// # Errors
/// They cannot.
fn check_updates(size: u64, num_batches: u64, [epochs, done, updates]: [u64; 3]) -> Result<()> {
    let most = epochs * num_batches.div_ceil(size) + done.div_ceil(size);
    // the last round of an epoch may be smaller
    if updates <= most && (done.is_multiple_of(size) || done >= num_batches) {
        return Ok(());
    }
    Err(Error::usage(format!(
        "--batches-per-update {size}: this run has made {updates} updates in {epochs} epochs and {done} \
         batches, because it was begun by an earlier version, which did not use the option; train again"
    )))
}

/// Runs the workers of devices, each on a thread, and `update` for each round on this one.
///
/// # Errors
/// Those of `update`.
fn run_devices<L: RoundLearner>(
    scheduler: &Scheduler<TypedBatches>,
    of: EpochBatches,
    (replicas, workers, counted): (&mut [Replica<L>], Vec<&mut Worker<TypedBatches>>, &[Done]),
    (rule, published, spare): (VersionRule, &Published, &ObjectPool<Vec<Matrix>>),
    update: &mut dyn FnMut(BatchTask<TypedBatches>) -> Result<Flow>,
) -> Result<()> {
    let role = WorkerRole { update: true, ..WorkerRole::default() };
    let mut host: Worker<TypedBatches> =
        Worker::new("host".into(), role, None, || TypedWorkspace::new(of.task.graph.schema()));
    let first = of.epoch * of.num_batches();
    std::thread::scope(|scope| {
        // the other threads do not wait for this one, even if it panics
        let _closing = CloseOnDrop { scheduler, always: true };
        let mut trainers = replicas.iter_mut().zip(counted);
        for worker in workers {
            let trainer = worker.role.train.and_then(|_| trainers.next());
            scope.spawn(move || {
                let on = |(replica, done)| (Trainer { replica, rule, published, spare, first }, done);
                let mut trainer = trainer.map(on);
                let source = trainer.as_mut().map(|(trainer, done)| (trainer, *done));
                worker.run_for_updates(scheduler, of, source);
            });
        }
        host.run(scheduler, of, update)
    })
}

/// A device's copy of the model in an epoch.
struct Trainer<'s, L> {
    replica: &'s mut Replica<L>,
    rule: VersionRule,
    published: &'s Published<'s>,
    spare: &'s ObjectPool<Vec<Matrix>>,
    /// Number of the epoch's batch 0 in the whole run.
    first: u64,
}

impl<L: RoundLearner> GradientSource<TypedBatches> for Trainer<'_, L> {
    fn gradient(&mut self, number: u64, batch: &mut TypedExtracted) -> Result<TypedGradient> {
        let (published, spare, version) = (self.published, self.spare, self.rule.version(number));
        let Replica { learner, pool, link } = &mut *self.replica;
        // dropout depends on it
        learner.set_num_updates(self.first + number);
        pool.install(|| -> Result<TypedGradient> {
            published.copy_to(learner, version, batch, link)?;
            let loss = learner.batch_gradient(batch)?;
            let has_gradient = loss.is_some_and(f64::is_finite);
            if !has_gradient {
                learner.dense_mut().each_mut(&mut |param| param.zero_grad(&PROCESSOR));
            }
            let mut values = spare.take_or_default();
            link.take_gradients(learner.dense_mut(), &mut values);
            let types = learner.encoder().learned_rows().map(|(t, _)| t).filter(|_| has_gradient);
            let rows: Vec<Matrix> = types.map(|t| learner.row_gradient(t)).collect();
            link.transfer(rows.iter().map(bytes_of).sum());
            Ok(TypedGradient { values, rows, loss, version })
        })
    }

    fn spend(&mut self, batch: TypedExtracted) -> (TypedExtracted, Traffic) {
        let traffic = total(&batch.traffic);
        (batch, traffic)
    }
}

#[cfg(test)]
mod tests {
    use super::check_updates;

    #[test]
    fn runs_that_updated_by_every_batch_are_refused() {
        // epochs of five batches in rounds of two: three updates each
        for of in [[0, 0, 0], [0, 2, 1], [0, 4, 2], [0, 5, 3], [1, 0, 3], [2, 2, 7], [2, 2, 4]] {
            check_updates(2, 5, of).unwrap();
        }
        for of in [[0, 1, 1], [0, 2, 2], [0, 5, 5], [1, 0, 5], [1, 3, 5]] {
            let message = check_updates(2, 5, of).unwrap_err().to_string();
            assert!(message.starts_with("--batches-per-update 2: this run has made "), "{message}");
        }
        check_updates(1, 5, [1, 3, 8]).unwrap();
        check_updates(u64::MAX, 5, [1, 5, 2]).unwrap();
    }
}
