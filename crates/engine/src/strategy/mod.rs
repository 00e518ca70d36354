//! Who runs which stage, where, and how far ahead. The stages themselves do not know.

pub mod line;
pub mod monitor;
pub mod pipelined;
pub mod sequential;
mod worker;

use graphmill_graph::{NodeId, table::Entry};
use graphmill_loader::MiniBatch;

use crate::{
    Result, TrainConfig,
    learner::{BatchOutcome, Learner},
    record::Stages,
    stage::Loader,
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
    /// Order, sample, extract.
    pub loader: &'e Loader<'a>,
    /// Train.
    pub learner: &'e mut Learner<'a>,
    /// Learning rate of a batch.
    pub lr: &'e dyn Fn(u64) -> f64,
    /// Told after every update of the model, with the batches it was made from, in their order; decides whether to go on.
    pub after: &'e mut dyn FnMut(&Learner<'a>, &[Done]) -> Result<Flow>,
    /// Told what every worker does.
    pub timeline: &'e Timeline,
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
    /// From `epoch.from` to the end, or until told to stop.
    ///
    /// # Errors
    /// What a stage or the listener reports.
    fn run(&mut self, epoch: Epoch) -> Result<Flow>;

    /// Something worth telling whoever watches, once.
    fn note(&mut self) -> Option<String> {
        None
    }
}

/// Makes a strategy, as the options say, for a graph of that many nodes.
pub type Make = fn(config: &TrainConfig, num_nodes: usize) -> Result<Box<dyn Strategy>>;

/// Every strategy there is.
pub const TABLE: &[Entry<Make>] = &[
    Entry {
        name: "sequential",
        summary: "order, sample, extract, train, one after the other; the reference for correctness",
        source: "",
        make: |_, num_nodes| Ok(Box::new(sequential::Sequential::new(num_nodes))),
    },
    Entry {
        name: "pipelined",
        summary: "stages of several batches side by side, cores by the min-max allocation over profiled stage times",
        source: "Liu et al., BGL: GPU-efficient GNN training, NSDI 2023, resource isolation",
        make: |config, num_nodes| Ok(Box::new(pipelined::Pipelined::new(config, num_nodes)?)),
    },
];
