//! Computation of rows of the first layer for each type from the current parameters.

use graphmill_core::keyed;
use graphmill_loader::typed::{TypedSeeds, TypedWorkspace};
use graphmill_nn::{
    Pass,
    typed::{TypedActivations, TypedStep},
};

use super::TypedLookahead;
use crate::{
    Result,
    reuse::Embeddings,
    typed::{learner::TypedLearner, stages::EpochBatches, tables::borrowed},
};

/// Number of nodes whose rows are made at once, so that their inputs stay in the cache.
const CHUNK_LEN: usize = 1 << 14;

/// Makes rows by the model of a run, with its current learned rows.
pub(super) struct TypedRowMaker {
    acts: TypedActivations,
    workspace: TypedWorkspace,
    /// Memory of a chunk's batch.
    memory: TypedSeeds,
}

impl TypedRowMaker {
    pub(super) fn new(workspace: TypedWorkspace) -> Self {
        Self { acts: TypedActivations::default(), workspace, memory: TypedSeeds::default() }
    }

    /// Makes the rows of the nodes with slots in `ahead`, which are at most `bound` updates old
    /// when they are read, by the draws of batch `number`. Returns the number of edges drawn.
    ///
    /// # Errors
    /// A hop cannot be drawn, features cannot be read, or a block is too large.
    pub(super) fn make(
        &mut self,
        of: &EpochBatches,
        learner: &TypedLearner,
        (number, bound): (u64, u64),
        ahead: &TypedLookahead,
        to: &mut Vec<Embeddings>,
    ) -> Result<u64> {
        let (model, step, mut edges) = (&learner.model, learner.step, 0);
        let tables = borrowed(of.tables);
        to.resize_with(ahead.slots.len(), Embeddings::default);
        for (t, (slots, to)) in ahead.slots.iter().zip(to).enumerate() {
            to.fit(slots.nodes().len(), model.bottom_dim(), step, bound);
            for (i, chunk) in slots.nodes().chunks(CHUNK_LEN).enumerate() {
                let mut lists = vec![&[][..]; ahead.slots.len()];
                lists[t] = chunk;
                let seeds = std::mem::take(&mut self.memory).refill(number, &lists);
                let drawn = of.rows(number, &mut self.workspace, seeds)?;
                edges += drawn.num_edges() as u64;
                let batch = of.task.extract(drawn, &tables, of.epoch)?;
                // every chunk has its own dropout mask
                let at = i * CHUNK_LEN;
                let key = keyed::key(&[of.seed, step, t as u64, at as u64, 0x6d61_6b65]);
                let pass = Pass { backend: learner.backend, training: true, key };
                let input = TypedStep {
                    blocks: &batch.sampled.blocks,
                    features: &batch.features,
                    edges: &batch.edges,
                    nodes: &batch.sampled.input_nodes,
                    num_targets: 0,
                    reused: &[],
                };
                let made = model.bottom_rows(&pass, &input, &mut self.acts)?;
                learner.backend.copy(made[t].view(), to.rows.rows_mut(at..at + chunk.len()));
                self.memory = batch.recycle();
            }
        }
        Ok(edges)
    }
}
