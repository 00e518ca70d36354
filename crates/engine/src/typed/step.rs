//! Device memory of a training step on several types, measured by running a few steps.

use graphmill_core::{Graph, typed::TypedGraph};
use graphmill_loader::{
    BatchKey, Feature,
    typed::{TypedRequest, TypedSampler, TypedSeeds, TypedWorkspace},
};

use super::batches::{HeldRows, RunBatches};
use crate::{
    Result,
    build::processor,
    tiers::{Meter, dense_bytes, on_processor, sparse_bytes},
};

/// Number of batches that are measured; the largest counts.
const BATCHES: usize = 3;
/// Factor for later batches, which may be larger.
const MARGIN: f64 = 1.1;

/// Bytes of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepBytes {
    /// All that a step allocates.
    pub(super) all: u64,
    /// Gathered rows of the largest batch.
    pub(super) rows: u64,
    /// Blocks of the largest batch.
    pub(super) blocks: u64,
    /// The graph, and what the sampler holds beside it.
    pub(super) topology: u64,
}

/// Counts the bytes of a training step on the processor: the blocks of the largest minibatch, and
/// the most that all matrices held at once, those of gathered rows, activations, parameters,
/// learned rows, gradients and the optimiser's state, with the largest scratch buffer of an
/// operation. The workspace of sampling is not counted. Of several ranks, each counts its shares of
/// the batches, and the learned rows of the nodes that it owns. The steps train a temporary model
/// with the learned rows `held`.
///
/// # Errors
/// Those of training.
pub(super) fn bytes(of: &RunBatches, held: HeldRows, tables: &[Option<&dyn Feature>]) -> Result<StepBytes> {
    on_processor(processor(of.config), |meter| measured(of, held, tables, meter))
}

/// [`bytes`] of steps on another device.
///
/// # Errors
/// Those of training.
pub(super) fn measured(
    of: &RunBatches,
    held: HeldRows,
    tables: &[Option<&dyn Feature>],
    meter: &Meter,
) -> Result<StepBytes> {
    let RunBatches { config, task, sampler, .. } = of;
    let (before, mut order) = ((meter.now)(), Vec::new());
    let (mut rows, mut blocks, mut beside) = (0, 0, 0);
    let mut model = of.models.model(config, held, meter.backend)?;
    of.order(0, BATCHES, &mut order);
    let mut workspace = TypedWorkspace::new(task.graph.schema());
    let mut memory = TypedSeeds::default();
    for (number, seeds) in of.divide(&order).into_iter().take(BATCHES).enumerate() {
        let key = BatchKey { seed: config.seed, epoch: 0, batch: number as u64 };
        let request = TypedRequest { aggregation: model.aggregation(), ..task.request(key).transposed() };
        let seeds = of.fill(key, seeds, memory)?;
        let batch = sampler.sample(&request, &mut workspace, seeds)?;
        let drawn = batch.bytes();
        let mut batch = task.extract(batch, tables, 0)?;
        model.step(&mut batch, config.lr)?;
        let sparse: u64 = batch.features.iter().map(sparse_bytes).sum();
        let dense: u64 = batch.features.iter().map(dense_bytes).sum();
        blocks = blocks.max(drawn);
        beside = beside.max(drawn + sparse);
        rows = rows.max(dense + sparse);
        memory = batch.recycle();
    }
    let topology = topology_bytes(&task.graph, *sampler) as u64;
    let taken = (meter.most)().saturating_sub(before) + if meter.has_blocks { 0 } else { beside };
    let larger = |bytes: u64| (bytes as f64 * MARGIN) as u64;
    Ok(StepBytes { all: larger(taken), rows: larger(rows), blocks: larger(blocks), topology })
}

/// Bytes of the graph, and of what `sampler` holds beside it.
pub(super) fn topology_bytes(graph: &TypedGraph, sampler: &dyn TypedSampler) -> f64 {
    let of_relation = |graph: &Graph| {
        let weights = graph.edge_weight().map_or(0, <[f32]>::len);
        (8 * graph.indptr().len() + 4 * graph.num_edges() + 4 * weights) as f64
    };
    graph.relations().iter().map(of_relation).sum::<f64>() + sampler.bytes() as f64
}
