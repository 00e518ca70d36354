//! Batches of a run as its caches count and measure them before the first epoch: the seeds that
//! training takes, whatever the model learns from them.

use std::sync::Arc;

use graphmill_core::{NodeId, block::Aggregation};
use graphmill_distributed::NodeOwnership;
use graphmill_loader::{
    BatchKey,
    order::SeedOrder,
    typed::{TypedExtracted, TypedSampler, TypedSeeds},
};
use graphmill_nn::Backend;

use super::{build, stages::SeedSource, task::TypedTask};
use crate::{Result, TrainConfig};

/// A temporary model whose steps are measured.
pub(super) trait StepModel {
    /// The sum over neighbours that the model computes.
    fn aggregation(&self) -> Aggregation;

    /// Trains on a batch, without other ranks.
    ///
    /// # Errors
    /// The batch does not fit the model, or a device failed.
    fn step(&mut self, batch: &mut TypedExtracted, lr: f64) -> Result<()>;
}

/// Learned rows of a temporary model.
#[derive(Clone, Copy)]
pub(super) enum HeldRows<'o> {
    /// Those of all nodes.
    All,
    /// Those of the nodes that a rank owns, by type.
    OfRank(&'o [Arc<NodeOwnership>]),
    /// None of its own: each batch brings those of its nodes, for a device that only computes
    /// gradients.
    OfBatch,
}

impl<'o> HeldRows<'o> {
    /// Owners of the nodes, if a rank has the rows of its own.
    pub(super) fn owners(self) -> Option<&'o [Arc<NodeOwnership>]> {
        match self {
            Self::OfRank(owners) => Some(owners),
            Self::All | Self::OfBatch => None,
        }
    }
}

/// Makes temporary models of the kind that a run trains.
pub(super) trait StepModels: Sync {
    /// A model on `backend` before its first update, with the learned rows `held`.
    ///
    /// # Errors
    /// An option of the model, the optimiser or the loss is impossible.
    fn model<'m>(
        &'m self,
        config: &TrainConfig,
        held: HeldRows,
        backend: &'m dyn Backend,
    ) -> Result<Box<dyn StepModel + 'm>>;
}

/// Batches of a run.
pub(super) struct RunBatches<'r> {
    pub(super) config: &'r TrainConfig,
    pub(super) task: &'r TypedTask,
    pub(super) sampler: &'r dyn TypedSampler,
    pub(super) source: &'r dyn SeedSource,
    pub(super) models: &'r dyn StepModels,
    order: Box<dyn SeedOrder + 'r>,
    /// Number of seeds of a batch.
    size: usize,
    /// Most batches of an epoch; 0 for all.
    most: usize,
    /// Owners of the seeds, if several ranks share each batch and `source` makes whole ones.
    owners: Option<&'r NodeOwnership>,
}

/// Rows or pairs that a run learns, and how it makes batches of them.
pub(super) struct Learned<'r> {
    pub(super) task: &'r TypedTask,
    pub(super) sampler: &'r dyn TypedSampler,
    pub(super) source: &'r dyn SeedSource,
    pub(super) models: &'r dyn StepModels,
    pub(super) order: Box<dyn SeedOrder + 'r>,
    /// Number of seeds.
    pub(super) seeds: usize,
}

impl<'r> RunBatches<'r> {
    /// Batches of a run, each of `--batch-size` seeds, at most `--max-batches` in an epoch.
    pub(super) fn new(config: &'r TrainConfig, learned: Learned<'r>) -> Self {
        let Learned { task, sampler, source, models, order, seeds } = learned;
        let size = if config.batch_size == 0 { seeds } else { config.batch_size };
        Self { config, task, sampler, source, models, order, size, most: config.max_batches, owners: None }
    }

    /// Batches of a run on the nodes of a task.
    ///
    /// # Errors
    /// The order of the seeds is unknown or reads edges of one type.
    pub(super) fn of_nodes(
        config: &'r TrainConfig,
        task: &'r TypedTask,
        sampler: &'r dyn TypedSampler,
    ) -> Result<Self> {
        let (order, seeds) = (build::order(config, task)?, task.split.train.len());
        let learned = Learned { task, sampler, source: task, models: task, order, seeds };
        // an epoch has all training nodes
        Ok(Self { most: 0, ..Self::new(config, learned) })
    }

    /// The same batches, of each of which this rank takes the seeds that it owns.
    pub(super) fn of_rank(self, owners: &'r NodeOwnership) -> Self {
        Self { owners: Some(owners), ..self }
    }

    /// Number of seeds of a batch.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Seeds of the first `most` batches of an epoch in their order; 0 for all.
    pub(super) fn order(&self, epoch: u64, most: usize, out: &mut Vec<NodeId>) {
        let most = [most, self.most].into_iter().filter(|&most| most > 0).min();
        match most {
            Some(most) => self.order.first(epoch, most.saturating_mul(self.size), out),
            None => self.order.order(epoch, out),
        }
    }

    /// Seeds of each batch of an epoch with this order.
    pub(super) fn divide<'o>(&self, order: &'o [NodeId]) -> Vec<&'o [NodeId]> {
        batches(self.sampler, order, self.size)
    }

    /// Makes the seeds of a batch of which `part` is the part of the order: of several ranks, those
    /// of this one.
    ///
    /// # Errors
    /// An edge has no negative.
    pub(super) fn fill(&self, key: BatchKey, part: &[NodeId], memory: TypedSeeds) -> Result<TypedSeeds> {
        let own: Vec<NodeId>;
        let part = match self.owners {
            Some(owners) => {
                own = part.iter().copied().filter(|&v| owners.is_own(v)).collect();
                &own
            }
            None => part,
        };
        self.source.fill(key, part, memory)
    }
}

/// Number of seeds in a batch of a run on this task.
pub(super) fn batch_size(config: &TrainConfig, task: &TypedTask) -> usize {
    if config.batch_size == 0 { task.split.train.len() } else { config.batch_size }
}

/// Seeds of the batches of an epoch with this order of the training nodes. Subgraphs choose their
/// own: an empty list for each.
pub(super) fn batches<'o>(sampler: &dyn TypedSampler, order: &'o [NodeId], size: usize) -> Vec<&'o [NodeId]> {
    match sampler.subgraphs() {
        Some(count) => vec![&[]; count as usize],
        None => order.chunks(size.max(1)).collect(),
    }
}
