//! Who runs which stage, where, and how far ahead. The stages themselves do not know.

pub mod sequential;

use graphmill_graph::{NodeId, table::Entry};
use graphmill_loader::MiniBatch;

use crate::{
    Result,
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
}

/// Makes a strategy for a graph of that many nodes.
pub type Make = fn(num_nodes: usize) -> Box<dyn Strategy>;

/// Every strategy there is.
pub const TABLE: &[Entry<Make>] = &[Entry {
    name: "sequential",
    summary: "order, sample, extract, train, one after the other; the reference for correctness",
    source: "",
    make: |num_nodes| Box::new(sequential::Sequential::new(num_nodes)),
}];
