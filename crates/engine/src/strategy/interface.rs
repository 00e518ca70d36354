//! The interface between the trainer and a strategy: [`Strategy`], and what it is given. It knows
//! no strategy.

use std::sync::Arc;

use graphmill_core::NodeId;
use graphmill_data::Dataset;
use graphmill_loader::{
    Extracted, Feature, MinibatchSampler, Sampled, Traffic, feature::Link, order::SeedOrder,
};

use crate::{
    Result, TrainConfig,
    accelerator::{ComputeDevices, Samplers},
    learner::Learner,
    record::{BatchOutcome, DeviceRecord, ReuseRecord, Stages},
    stage::Loader,
    tiers::GpuTiers,
    timeline::Timeline,
};

/// What a strategy drives: the stages, and the place in the epoch.
pub struct Epoch<'e, 'a> {
    /// Number, from 0.
    pub number: u64,
    /// This epoch's order of the training nodes.
    pub order: &'e [NodeId],
    /// First batch to do; more than 0 after a resume.
    pub from: u64,
    /// Behind the last batch to do.
    pub to: u64,
    /// Order, sample, extract.
    pub loader: &'e Loader<'a>,
    /// Train.
    pub learner: &'e mut Learner<'a>,
    /// Learning rate of a batch.
    pub lr: &'e (dyn Fn(u64) -> f64 + Sync),
    /// Told after every update of the model, with the batches it was made from, in their order;
    /// decides whether to go on.
    pub after: &'e mut (dyn FnMut(&Learner<'a>, &[Done]) -> Result<Flow> + Send),
    /// Told what every worker does.
    pub timeline: &'e Timeline,
}

impl<'a> Epoch<'_, 'a> {
    /// The part of it before batch `to`.
    pub(super) fn until(&mut self, to: u64) -> Epoch<'_, 'a> {
        let Epoch { number, order, from, loader, timeline, lr, .. } = *self;
        Epoch { number, order, from, to, loader, learner: self.learner, lr, after: self.after, timeline }
    }
}

/// A batch that was trained on.
pub struct Done<'b> {
    /// The batch.
    pub batch: &'b Sampled,
    /// Rows and bytes that were read for it.
    pub traffic: Traffic,
    /// Result of the update.
    pub outcome: BatchOutcome,
    /// Seconds of its stages.
    pub spent: Stages,
}

impl<'b> Done<'b> {
    /// A batch that still has its feature rows.
    pub fn of(batch: &'b Extracted, outcome: BatchOutcome, spent: Stages) -> Self {
        Self { batch: &batch.sampled, traffic: batch.traffic, outcome, spent }
    }
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// With the next batch.
    Continue,
    /// No further: someone asked the run to stop.
    Stop,
}

/// Runs the batches of an epoch, in order. It may keep memory, and minibatches, across the
/// epochs of one run: the loader is the same for all of them.
///
/// ```
/// use graphmill_engine::{Result, record::Stages, strategy::{Done, Epoch, Flow, Strategy}};
/// use graphmill_loader::{MiniBatch, Workspace};
///
/// /// One batch after the other, with nothing reused.
/// struct Plain;
///
/// impl Strategy for Plain {
///     fn run(&mut self, epoch: Epoch) -> Result<Flow> {
///         let Epoch { number, order, from, to, loader, learner, lr, after, .. } = epoch;
///         let mut workspace = Workspace::new(loader.graph.num_nodes());
///         for i in from..to {
///             let drawn = loader.draw(order, number, i, &mut workspace, MiniBatch::default())?;
///             let batch = loader.extract(drawn)?;
///             let outcome = learner.train(&batch, lr(i))?;
///             let done = Done::of(batch.batch(), outcome, Stages::default());
///             if after(learner, &[done])? == Flow::Stop {
///                 return Ok(Flow::Stop);
///             }
///         }
///         Ok(Flow::Continue)
///     }
/// }
/// ```
pub trait Strategy: Send {
    /// What it needs before the first epoch; the loader and the shape of the model stay as they
    /// are.
    ///
    /// # Errors
    /// Options that contradict each other, memory that cannot be had, or a stage that fails while
    /// it is tried.
    fn prepare(&mut self, _loader: &Loader, _learner: &Learner) -> Result<()> {
        Ok(())
    }

    /// From `epoch.from` to the end, or until told to stop.
    ///
    /// # Errors
    /// What a stage or the listener reports.
    fn run(&mut self, epoch: Epoch) -> Result<Flow>;

    /// What each device did in the epoch that was just run, where there are several.
    fn devices(&mut self) -> Vec<DeviceRecord> {
        Vec::new()
    }

    /// What reusing rows of the bottom layer saved in the epoch that was just run, where that is
    /// done.
    fn reuse(&mut self) -> Option<ReuseRecord> {
        None
    }

    /// Updates that a gradient, or a reused row, may be late.
    fn staleness_bound(&self) -> u64 {
        0
    }

    /// Keeps so many bytes of each device for something, before it is prepared.
    fn reserve(&mut self, _what: &'static str, _bytes: u64) {}

    /// The links of its devices to the host.
    fn links(&self) -> Vec<Arc<Link>> {
        Vec::new()
    }

    /// The next note for the user; each is returned once.
    fn note(&mut self) -> Option<String> {
        None
    }
}

/// What strategies are made from.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// The options.
    pub config: &'a TrainConfig,
    /// What is trained on.
    pub data: &'a Dataset,
    /// The sampler.
    pub sampler: &'a dyn MinibatchSampler,
    /// The order of the seeds.
    pub order: &'a dyn SeedOrder,
    /// The rows, as the host has them; a chain of caches is before them where all devices share it.
    pub feature: &'a Arc<dyn Feature>,
    /// What there is on NVIDIA devices.
    pub(crate) nvidia: Option<Nvidia<'a>>,
}

impl<'a> Setting<'a> {
    /// Without NVIDIA devices.
    pub fn new(
        config: &'a TrainConfig,
        data: &'a Dataset,
        sampler: &'a dyn MinibatchSampler,
        order: &'a dyn SeedOrder,
        feature: &'a Arc<dyn Feature>,
    ) -> Self {
        Self { config, data, sampler, order, feature, nvidia: None }
    }
}

/// The NVIDIA devices of a run.
#[derive(Clone, Copy)]
pub(crate) struct Nvidia<'a> {
    /// What computes there.
    pub(crate) computers: &'a ComputeDevices,
    /// What draws there.
    pub(crate) samplers: &'a Samplers,
    /// The rows as they read them.
    pub(crate) rows: &'a GpuTiers,
}
