//! Who runs which stage, where, and how far ahead. The stages themselves do not know.

pub mod factored;
pub mod historical;
pub mod layered;
pub mod line;
pub mod monitor;
pub mod pipelined;
pub mod sequential;
mod worker;

use std::sync::Arc;

use graphmill_graph::{Dataset, NodeId, table::Entry};
use graphmill_loader::{Feature, MiniBatch, Sampler, feature::Link, order::Order};

use crate::{
    Result, TrainConfig,
    gpu::{Computers, Samplers},
    learner::{BatchOutcome, Learner},
    record::{DeviceRecord, ReuseRecord, Stages},
    stage::Loader,
    tiers::OnGpus,
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
    /// Told after every update of the model, with the batches it was made from, in their order; decides whether to go on.
    pub after: &'e mut (dyn FnMut(&Learner<'a>, &[Done]) -> Result<Flow> + Send),
    /// Told what every worker does.
    pub timeline: &'e Timeline,
}

impl<'a> Epoch<'_, 'a> {
    /// The part of it before batch `to`.
    fn until(&mut self, to: u64) -> Epoch<'_, 'a> {
        let Epoch { number, order, from, loader, timeline, lr, .. } = *self;
        Epoch { number, order, from, to, loader, learner: self.learner, lr, after: self.after, timeline }
    }
}

/// A batch that was trained on.
pub struct Done<'b> {
    /// The batch.
    pub batch: &'b MiniBatch,
    /// What it did.
    pub outcome: BatchOutcome,
    /// Seconds of its stages.
    pub spent: Stages,
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
pub trait Strategy: Send {
    /// What it needs before the first epoch; the loader and the shape of the model stay as they are.
    ///
    /// # Errors
    /// Options that contradict each other, memory that cannot be had, or a stage that fails while it is tried.
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

    /// What reusing rows of the bottom layer saved in the epoch that was just run, where that is done.
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

    /// Something worth telling whoever watches, once.
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
    pub sampler: &'a dyn Sampler,
    /// The order of the seeds.
    pub order: &'a dyn Order,
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
        sampler: &'a dyn Sampler,
        order: &'a dyn Order,
        feature: &'a Arc<dyn Feature>,
    ) -> Self {
        Self { config, data, sampler, order, feature, nvidia: None }
    }
}

/// The NVIDIA devices of a run.
#[derive(Clone, Copy)]
pub(crate) struct Nvidia<'a> {
    /// What computes there.
    pub(crate) computers: &'a Computers,
    /// What draws there.
    pub(crate) samplers: &'a Samplers,
    /// The rows as they read them.
    pub(crate) rows: &'a OnGpus,
}

/// Makes a strategy.
pub type Make = for<'a> fn(Setting<'a>) -> Result<Box<dyn Strategy + 'a>>;

/// A row of the [`TABLE`].
#[derive(Clone, Copy)]
pub struct Kind {
    /// The constructor.
    pub make: Make,
    /// Whether each device samples or trains for itself, and has a cache of its own.
    pub by_device: fn(&TrainConfig) -> bool,
}

/// Every strategy there is.
pub const TABLE: &[Entry<Kind>] = &[
    Entry {
        name: "sequential",
        summary: "order, sample, extract, train, one after the other; the reference for correctness",
        source: "",
        make: Kind {
            make: |with| Ok(Box::new(sequential::Sequential::new(with.data.num_nodes()))),
            by_device: |_| false,
        },
    },
    Entry {
        name: "pipelined",
        summary: "stages of several batches side by side, cores by the min-max allocation over profiled stage times",
        source: "Liu et al., BGL: GPU-efficient GNN training, NSDI 2023, resource isolation",
        make: Kind {
            make: |with| Ok(Box::new(pipelined::Pipelined::new(with.config, with.data.num_nodes())?)),
            by_device: |_| false,
        },
    },
    Entry {
        name: "factored",
        summary: "devices that sample and devices that train, linked by one queue, with dynamic switching",
        source: "Yang et al., GNNLab (FGNN), EuroSys 2022, section 5",
        make: Kind {
            make: |with| Ok(Box::new(factored::Factored::new(with, factored::Design::Factored))),
            by_device: |_| true,
        },
    },
    Entry {
        name: "time-sharing",
        summary: "every device samples and trains: what factored is compared with",
        source: "Yang et al., GNNLab (FGNN), EuroSys 2022, section 2",
        make: Kind {
            make: |with| Ok(Box::new(factored::Factored::new(with, factored::Design::TimeSharing))),
            by_device: |_| true,
        },
    },
    Entry {
        name: "layered",
        summary: "bottom-layer rows of hot nodes computed once for several batches, with bounded staleness",
        source: "Ai et al., NeutronOrch, VLDB 2024, section 4",
        make: Kind {
            make: |with| Ok(Box::new(layered::Layered::new(with)?)),
            by_device: |config| config.devices != "cpu",
        },
    },
    Entry {
        name: "historical",
        summary: "bottom-layer rows reused however old they are: what layered is compared with",
        source: "Fey et al., GNNAutoScale, ICML 2021, section 2",
        make: Kind { make: |with| Ok(Box::new(historical::Historical::new(with)?)), by_device: |_| false },
    },
];

/// Whether each device of the strategy works for itself.
pub(crate) fn is_by_device(config: &TrainConfig) -> bool {
    TABLE.iter().any(|entry| entry.name == config.strategy && (entry.make.by_device)(config))
}
