//! The stages of a batch on several types before training.

use graphmill_core::{Matrix, NodeId, block::Aggregation};
use graphmill_distributed::NodeOwnership;
use graphmill_loader::{
    BatchKey,
    typed::{
        TypedExtracted, TypedRequest, TypedSampled, TypedSampler, TypedSeeds, TypedSplitSampler,
        TypedWorkspace,
    },
};

use super::{
    tables::{Tables, borrowed},
    task::TypedTask,
};
use crate::{Error, Result, strategy::BatchKind, timeline::Timeline};

/// Makes the seeds of batches.
pub(super) trait SeedSource: Sync {
    /// Makes the seeds of the batch `key` from `part`, its part of the epoch's order. A pure
    /// function of both.
    ///
    /// # Errors
    /// An edge has no negative.
    fn fill(&self, key: BatchKey, part: &[NodeId], memory: TypedSeeds) -> Result<TypedSeeds>;

    /// Numbers of the node types of the seeds.
    fn types(&self) -> Vec<usize>;

    /// Global ids of the nodes that train, the ends of edges of a run on links, each once.
    fn train(&self) -> Vec<NodeId>;
}

impl SeedSource for TypedTask {
    /// Nodes of the task's type.
    fn fill(&self, key: BatchKey, part: &[NodeId], memory: TypedSeeds) -> Result<TypedSeeds> {
        Ok(memory.refill(key.batch, &self.seeds(part)))
    }

    fn types(&self) -> Vec<usize> {
        vec![self.node_type]
    }

    fn train(&self) -> Vec<NodeId> {
        let schema = self.graph.schema();
        self.split.train.iter().map(|&v| schema.global(self.node_type, v)).collect()
    }
}

/// Batches that were drawn without their bottom blocks.
pub(super) trait CompleteBatch: Sync {
    /// Draws the bottom block of batch `number` of the epoch, without the nodes whose rows it
    /// reuses.
    ///
    /// # Errors
    /// A hop cannot be drawn.
    fn complete(
        &self,
        of: &EpochBatches,
        number: u64,
        workspace: &mut TypedWorkspace,
        memory: TypedSeeds,
    ) -> Result<TypedSampled>;
}

/// The batches of an epoch: a batch is a function of its number.
#[derive(Clone, Copy)]
pub(super) struct EpochBatches<'e> {
    pub(super) task: &'e TypedTask,
    pub(super) source: &'e dyn SeedSource,
    pub(super) sampler: &'e dyn TypedSampler,
    /// Feature table of each type.
    pub(super) tables: &'e Tables,
    /// This epoch's order of the training nodes or edges.
    pub(super) order: &'e [NodeId],
    pub(super) batch_size: usize,
    pub(super) seed: u64,
    pub(super) epoch: u64,
    /// The sum over neighbours that the model computes.
    pub(super) aggregation: Aggregation,
    pub(super) timeline: &'e Timeline,
    /// Owners of the seeds, if several ranks train together: a rank trains on its own seeds.
    pub(super) owners: Option<&'e NodeOwnership>,
    /// The batches without their bottom blocks, if they were drawn ahead because they reuse rows.
    pub(super) ahead: Option<&'e dyn CompleteBatch>,
}

/// Batches on several types, as the workers of a strategy make them.
pub(super) enum TypedBatches {}

/// Feature rows of a worker.
#[derive(Default)]
pub(super) struct TypedTables {
    /// Its own table of each type, if it does not read those of the epoch.
    pub(super) own: Option<Tables>,
}

/// Gradient of a batch, of devices that train together.
pub(super) struct TypedGradient {
    /// One matrix per dense parameter of the model, in the visiting order; for running statistics,
    /// their new values.
    pub(super) values: Vec<Matrix>,
    /// Gradients of the learned rows of the batch's input nodes, of each type that has some.
    pub(super) rows: Vec<Matrix>,
    /// Mean loss; `None` without seeds, and the gradients are then zeros or empty.
    pub(super) loss: Option<f64>,
    /// Updates of the epoch that made the parameters it was computed from.
    pub(super) version: u64,
}

impl BatchKind for TypedBatches {
    type Memory = TypedSeeds;
    type Drawn = TypedSampled;
    type Extracted = TypedExtracted;
    type Spent = TypedExtracted;
    type Gradient = TypedGradient;
    type Workspace = TypedWorkspace;
    type Tables = TypedTables;
    type Work<'w> = EpochBatches<'w>;

    fn timeline(work: Self::Work<'_>) -> &Timeline {
        work.timeline
    }

    fn sample(
        work: EpochBatches<'_>,
        _: &TypedTables,
        number: u64,
        _: bool,
        workspace: &mut TypedWorkspace,
        memory: TypedSeeds,
    ) -> Result<TypedSampled> {
        work.sample(number, workspace, memory)
    }

    fn extract(work: EpochBatches<'_>, tables: &TypedTables, batch: TypedSampled) -> Result<TypedExtracted> {
        let tables = tables.own.as_ref().unwrap_or(work.tables);
        work.task.extract(batch, &borrowed(tables), work.epoch)
    }

    fn bytes(_: EpochBatches<'_>, batch: &TypedSampled) -> u64 {
        batch.bytes()
    }
}

impl<'e> EpochBatches<'e> {
    /// Seeds of batch `number`, on all ranks; none if it is a subgraph, which chooses its own.
    pub(super) fn seeds(&self, number: u64) -> &'e [NodeId] {
        let (all, size) = (self.order.len(), self.batch_size);
        let from = all.min(number as usize * size);
        &self.order[from..all.min(from + size)]
    }

    /// Number of batches of the epoch.
    pub(super) fn num_batches(&self) -> u64 {
        let of_seeds = || self.order.len().div_ceil(self.batch_size.max(1)) as u64;
        self.sampler.subgraphs().unwrap_or_else(of_seeds)
    }

    /// Number of the seeds of batch `number` on all ranks; `None` if it is a subgraph.
    pub(super) fn num_seeds(&self, number: u64) -> Option<usize> {
        self.sampler.subgraphs().is_none().then(|| self.seeds(number).len())
    }

    /// Request for batch `number`.
    fn request(&self, number: u64) -> TypedRequest<'e> {
        let key = BatchKey { seed: self.seed, epoch: self.epoch, batch: number };
        TypedRequest { aggregation: self.aggregation, ..self.task.request(key) }
    }

    /// Makes the seeds of batch `number`, on this rank.
    ///
    /// # Errors
    /// An edge has no negative.
    fn fill(&self, number: u64, memory: TypedSeeds) -> Result<TypedSeeds> {
        let all = self.seeds(number);
        let own: Vec<NodeId>;
        let seeds = match self.owners {
            Some(owners) => {
                own = all.iter().copied().filter(|&v| owners.is_own(v)).collect();
                &own
            }
            None => all,
        };
        self.source.fill(self.request(number).key, seeds, memory)
    }

    /// Draws the blocks of batch `number`.
    ///
    /// # Errors
    /// Those of the sampler.
    pub(super) fn sample(
        &self,
        number: u64,
        workspace: &mut TypedWorkspace,
        memory: TypedSeeds,
    ) -> Result<TypedSampled> {
        if let Some(ahead) = self.ahead {
            return ahead.complete(self, number, workspace, memory);
        }
        let seeds = self.fill(number, memory)?;
        Ok(self.sampler.sample(&self.request(number).transposed(), workspace, seeds)?)
    }

    /// The sampler, which draws the bottom block separately.
    fn parts(&self) -> Result<&'e dyn TypedSplitSampler> {
        let whole = || Error::usage("--reuse: the sampler draws all blocks at once; use neighbor");
        self.sampler.in_parts().ok_or_else(whole)
    }

    /// Draws the blocks of batch `number` without the bottom one.
    ///
    /// # Errors
    /// Those of the sampler.
    pub(super) fn upper(
        &self,
        number: u64,
        workspace: &mut TypedWorkspace,
        memory: TypedSeeds,
    ) -> Result<TypedSampled> {
        let seeds = self.fill(number, memory)?;
        Ok(self.parts()?.sample_upper(&self.request(number), workspace, seeds)?)
    }

    /// Draws the bottom block of batch `number` around the input nodes of `upper`.
    ///
    /// # Errors
    /// Those of the sampler.
    pub(super) fn bottom(
        &self,
        number: u64,
        workspace: &mut TypedWorkspace,
        upper: TypedSampled,
    ) -> Result<TypedSampled> {
        Ok(self.parts()?.sample_bottom(&self.request(number).transposed(), workspace, upper)?)
    }

    /// Draws the bottom block around these nodes alone, by the draws of batch `number`.
    ///
    /// # Errors
    /// Those of the sampler.
    pub(super) fn rows(
        &self,
        number: u64,
        workspace: &mut TypedWorkspace,
        nodes: TypedSeeds,
    ) -> Result<TypedSampled> {
        Ok(self.parts()?.sample_rows(&self.request(number), workspace, nodes)?)
    }
}
