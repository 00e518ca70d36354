//! Neighbours that inference reads, and the samplers that find them.

use std::sync::Arc;

use graphmill_core::typed::Schema;
use graphmill_loader::{BatchKey, typed::TypedSampler};

use super::{build, task::TypedTask};
use crate::{Result, TrainConfig};

/// Seed of the draws of exact inference.
pub(super) const EXACT_SEED: u64 = 0;
/// Key of these draws.
const KEY: BatchKey = BatchKey { seed: EXACT_SEED, epoch: 0, batch: 0 };

/// Samplers of inference on one graph.
pub(super) struct Neighborhoods {
    /// Samplers of all neighbours, one for each layer from the bottom up.
    layers: Vec<Box<dyn TypedSampler>>,
    /// Sampler of whole neighbourhoods with the key of its draws: all neighbours that existed at
    /// the times of the seeds, if rows have times; the draws of training, if they are no stored
    /// edges; or chosen draws.
    by_batches: Option<(Arc<dyn TypedSampler>, BatchKey)>,
}

impl Neighborhoods {
    /// All neighbours by the relations that `sampler` follows.
    ///
    /// # Errors
    /// None in practice, because `sampler` was made for the same graph.
    pub(super) fn exact(config: &TrainConfig, task: &TypedTask, sampler: &dyn TypedSampler) -> Result<Self> {
        let by_batches = match &task.times {
            // the last neighbours are no random draw, and those of walks are no stored edges
            Some(_) if !sampler.is_random() || build::draws_in_inference(config) => {
                Some(build::sampler(config, task)?)
            }
            Some(times) => Some(times.full_sampler(config, sampler)?),
            None if build::draws_in_inference(config) => Some(build::sampler(config, task)?),
            None => None,
        };
        let layers =
            if by_batches.is_none() { build::full_samplers(config, task, sampler)? } else { Vec::new() };
        Ok(Self { layers, by_batches: by_batches.map(|sampler| (Arc::from(sampler), KEY)) })
    }

    /// Neighbours that `sampler` draws under `seed`. The draws of a node are a function of the
    /// seed, the hop and the node, if the sampler [draws per node](TypedSampler::is_per_node).
    pub(super) fn drawn(sampler: Arc<dyn TypedSampler>, seed: u64) -> Self {
        Self { layers: Vec::new(), by_batches: Some((sampler, BatchKey { seed, ..KEY })) }
    }

    /// Samplers of the layers from the bottom up; empty if neighbourhoods are sampled as batches.
    pub(super) fn layers(&self) -> &[Box<dyn TypedSampler>] {
        &self.layers
    }

    /// Returns true if rows are computed layer by layer, and not batch by batch.
    pub(super) fn has_layers(&self) -> bool {
        self.by_batches.is_none()
    }

    /// Sampler of whole neighbourhoods, and the key of its draws.
    pub(super) fn by_batches(&self) -> Option<(&dyn TypedSampler, BatchKey)> {
        self.by_batches.as_ref().map(|(sampler, key)| (&**sampler, *key))
    }

    /// Types whose rows the last layer reads to compute nodes of the type number `target`.
    pub(super) fn last_reads(&self, schema: &Schema, target: usize) -> Vec<bool> {
        let follows = |r: usize| self.layers.last().is_some_and(|last| last.follows(schema, 0, r));
        let mut read: Vec<bool> = (0..schema.num_types()).map(|t| t == target).collect();
        for (r, relation) in schema.relations().iter().enumerate() {
            if relation.dst == target && follows(r) {
                read[relation.src] = true;
            }
        }
        read
    }
}
