//! The interface between the trainer and a strategy: [`Strategy`] and its inputs. It does not
//! depend on any strategy.

use std::sync::Arc;

use graphmill_core::{
    NodeId,
    progress::{Progress, Quiet},
};
use graphmill_data::Dataset;
use graphmill_distributed::NodeOwnership;
use graphmill_loader::{
    Extracted, Feature, MinibatchSampler, Sampled, Traffic, feature::Link, link::LinkSource, order::SeedOrder,
};

use crate::{
    Result, TrainConfig,
    accelerator::{ComputeDevices, Samplers},
    learner::Learner,
    record::{BatchOutcome, DeviceRecord, ReuseRecord, Stages},
    reuse::{ReusePlan, RowExchange},
    stage::Loader,
    tiers::{GpuTiers, Presampling},
    timeline::Timeline,
};

/// Epoch of a run for a strategy: the stages, and the batches to run.
pub struct Epoch<'e, 'a> {
    /// Number, from 0.
    pub number: u64,
    /// This epoch's order of the training nodes.
    pub order: &'e [NodeId],
    /// First batch to run; above 0 after a resume.
    pub from: u64,
    /// End of the batches to run (exclusive).
    pub to: u64,
    /// Order, sample, extract.
    pub loader: &'e Loader<'a>,
    /// Train.
    pub learner: &'e mut Learner<'a>,
    /// Learning rate of a batch.
    pub lr: &'e (dyn Fn(u64) -> f64 + Sync),
    /// Called after every update of the model, with its batches in their order; decides whether to
    /// continue.
    pub after: &'e mut (dyn FnMut(&Learner<'a>, &[CompletedBatch]) -> Result<Flow> + Send),
    /// Records the stages of every worker.
    pub timeline: &'e Timeline,
}

impl<'a> Epoch<'_, 'a> {
    /// The part of the epoch before batch `to`.
    pub(super) fn until(&mut self, to: u64) -> Epoch<'_, 'a> {
        let Epoch { number, order, from, loader, timeline, lr, .. } = *self;
        Epoch { number, order, from, to, loader, learner: self.learner, lr, after: self.after, timeline }
    }
}

/// Batch that was trained on, for [`Epoch::after`].
pub struct CompletedBatch<'b> {
    /// The batch.
    pub batch: &'b Sampled,
    /// Rows and bytes read for it.
    pub traffic: Traffic,
    /// Result of the update.
    pub outcome: BatchOutcome,
    /// Seconds of its stages.
    pub spent: Stages,
}

impl<'b> CompletedBatch<'b> {
    /// Completed batch that still has its feature rows.
    pub fn of(batch: &'b Extracted, outcome: BatchOutcome, spent: Stages) -> Self {
        Self { batch: &batch.sampled, traffic: batch.traffic, outcome, spent }
    }
}

/// Decision to continue or to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Continue with the next batch.
    Continue,
    /// Stop: the run was asked to stop.
    Stop,
}

/// Runs the batches of an epoch, in order. It may hold memory and minibatches across the epochs of
/// a run, because the loader is the same for all of them.
///
/// ```
/// use graphmill_engine::{Result, record::Stages, strategy::{CompletedBatch, Epoch, Flow, Strategy}};
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
///             let done = CompletedBatch::of(batch.batch(), outcome, Stages::default());
///             if after(learner, &[done])? == Flow::Stop {
///                 return Ok(Flow::Stop);
///             }
///         }
///         Ok(Flow::Continue)
///     }
/// }
/// ```
pub trait Strategy: Send {
    /// Prepares the first epoch, and again an epoch before which caches of devices are filled. The
    /// loader and the shape of the model do not change afterwards.
    ///
    /// # Errors
    /// Options contradict each other, an allocation fails, or a stage fails in a trial.
    fn prepare(&mut self, _loader: &Loader, _learner: &Learner) -> Result<()> {
        Ok(())
    }

    /// Runs the batches from `epoch.from` to `epoch.to`, or until [`Epoch::after`] stops the run.
    ///
    /// # Errors
    /// A stage or [`Epoch::after`] fails.
    fn run(&mut self, epoch: Epoch) -> Result<Flow>;

    /// Records of the devices in the last epoch; empty unless there are several devices.
    fn devices(&mut self) -> Vec<DeviceRecord> {
        Vec::new()
    }

    /// Record of reused bottom-layer rows in the last epoch, if the strategy reuses rows.
    fn reuse(&mut self) -> Option<ReuseRecord> {
        None
    }

    /// Largest staleness of a gradient or of a reused row, in updates.
    fn staleness_bound(&self) -> u64 {
        0
    }

    /// Announces that batches will reuse rows by this plan, so that devices reserve memory for the
    /// rows, and for steps that read them. Called before [`Strategy::prepare`].
    fn expect_reuse(&mut self, _plan: Arc<ReusePlan>) {}

    /// Links to the host of the devices that read reused rows.
    fn links(&self) -> Vec<Arc<Link>> {
        Vec::new()
    }

    /// Next note for the user; each note is returned once.
    fn note(&mut self) -> Option<String> {
        None
    }
}

/// Inputs of a strategy's constructor.
#[derive(Clone, Copy)]
pub struct StrategyContext<'a> {
    /// The options.
    pub config: &'a TrainConfig,
    /// The dataset to train on.
    pub data: &'a Dataset,
    /// The sampler.
    pub sampler: &'a dyn MinibatchSampler,
    /// The order of the seeds.
    pub order: &'a dyn SeedOrder,
    /// Feature rows in host memory, behind a chain of caches if all devices share one.
    pub feature: &'a Arc<dyn Feature>,
    /// Links between host memory and devices in front of these rows.
    pub links: &'a [Arc<Link>],
    /// Edges to learn, in a run on links: their ends and those of negatives are the seeds.
    pub pairs: Option<&'a LinkSource>,
    /// Owners of the nodes, if several ranks share each batch.
    pub own: Option<&'a Arc<NodeOwnership>>,
    /// Counts and rows of the other ranks, if several ranks share each batch.
    pub exchange: Option<&'a dyn RowExchange>,
    /// Minibatches that the run counts for its caches.
    pub(crate) presampling: Option<&'a Presampling>,
    /// Watches the work before the first epoch, and may stop it.
    pub(crate) progress: &'a dyn Progress,
    /// NVIDIA devices, if the run uses some.
    pub(crate) nvidia: Option<Nvidia<'a>>,
}

impl<'a> StrategyContext<'a> {
    /// Inputs without NVIDIA devices.
    pub fn new(
        config: &'a TrainConfig,
        data: &'a Dataset,
        sampler: &'a dyn MinibatchSampler,
        order: &'a dyn SeedOrder,
        feature: &'a Arc<dyn Feature>,
    ) -> Self {
        Self {
            config,
            data,
            sampler,
            order,
            feature,
            links: &[],
            pairs: None,
            own: None,
            exchange: None,
            presampling: None,
            progress: &Quiet,
            nvidia: None,
        }
    }
}

/// The NVIDIA devices of a run.
#[derive(Clone, Copy)]
pub(crate) struct Nvidia<'a> {
    /// The devices with their operations.
    pub(crate) devices: &'a ComputeDevices,
    /// Samplers that draw on the devices.
    pub(crate) samplers: &'a Samplers,
    /// Feature rows as the devices read them.
    pub(crate) rows: &'a GpuTiers,
}
