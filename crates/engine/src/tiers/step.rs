//! Device memory of a training step, measured by running a few steps.
//!
//! On the processor the bytes of the step's buffers are counted, so that they do not depend on the
//! allocator or on earlier work of the process.

use std::sync::Arc;

use graphmill_core::{Matrix, matrix::Tally, progress::Quiet};
use graphmill_data::Dataset;
use graphmill_distributed::NodeOwnership;
use graphmill_loader::{Feature, MiniBatch, MinibatchSampler, Workspace, feature::Host, order::SeedOrder};
use graphmill_nn::{Backend, ProductOrder, backend::Cpu, cost::BlockShape, model::Model};

use super::batches::Batches;
use crate::{
    Result, TrainConfig, build, hotness::scores::loader, learner::Learner, link::step::LinkObjective, memory,
    reuse::ReusePlan, stage::Drawn,
};

/// Number of batches that are measured; the largest counts.
const BATCHES: u64 = 3;
/// Factor for later batches, which may be larger.
const MARGIN: f64 = 1.1;

/// Device memory of a training step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Bytes of the whole step.
    pub bytes: u64,
    /// Bytes of the gathered rows, included in `bytes`.
    pub rows: u64,
}

impl Step {
    /// Bytes of the step and of the rows of the next batch, which are gathered during the step.
    pub fn with_next(self) -> u64 {
        self.bytes.saturating_add(self.rows)
    }
}

/// Device memory of a thread that samples: a number for each of `nodes` nodes, and a batch of
/// `batch` bytes.
pub fn sampling_bytes(nodes: usize, batch: u64) -> u64 {
    4 * nodes as u64 + batch
}

/// Device memory of a training step of a run that has not begun, as its simulated devices reserve
/// it: of steps that reuse rows by the plan `reuse`, and of a rank's shares of the batches, if
/// `own` has the owners of the nodes. Costs a few steps.
///
/// # Errors
/// Those of training.
pub fn step_of_run(
    config: &TrainConfig,
    data: &Dataset,
    (sampler, order): (&dyn MinibatchSampler, &dyn SeedOrder),
    reuse: Option<&ReusePlan>,
    own: Option<&Arc<NodeOwnership>>,
) -> Result<Step> {
    let batches =
        Batches { config, data, sampler, order, reuse, own, links: None, cost: None, progress: &Quiet };
    bytes(&batches, &Host::new(&data.features))
}

/// Device whose memory is measured.
pub(crate) struct Meter<'m> {
    /// Its operations.
    pub(crate) backend: &'m dyn Backend,
    /// Returns the bytes in use.
    pub(crate) now: &'m dyn Fn() -> u64,
    /// Returns the most bytes in use since the start.
    pub(crate) most: &'m dyn Fn() -> u64,
    /// True if these bytes include those of the blocks and of sparse rows.
    pub(crate) has_blocks: bool,
}

/// Counts the bytes of the first few steps on the processor: the blocks of the largest minibatch,
/// and the most that all matrices held at once, those of gathered rows, activations, parameters,
/// gradients and the optimiser's state, with the largest scratch buffer of an operation. If batches
/// reuse rows, so do the steps; the table of rows is not counted, nor is the workspace of sampling
/// ([`sampling_bytes`]). The steps train a temporary model.
///
/// # Errors
/// Those of training.
pub(super) fn bytes(batches: &Batches, feature: &dyn Feature) -> Result<Step> {
    let backend = Cpu { precision: build::precision(batches.config) };
    on_processor(&backend, |meter| measured(batches, feature, meter))
}

/// Runs `measure` with a meter that counts the matrices of `backend`, which computes on the
/// processor.
///
/// # Errors
/// Those of `measure`, or the system refuses threads.
pub(crate) fn on_processor<R: Send>(
    backend: &dyn Backend,
    measure: impl FnOnce(&Meter) -> Result<R> + Send,
) -> Result<R> {
    Tally::count(|tally| measure(&Meter { backend, now: &|| 0, most: &|| tally.most(), has_blocks: false }))?
}

/// [`bytes`] of steps on another device.
///
/// # Errors
/// Those of training.
pub(super) fn measured(batches: &Batches, feature: &dyn Feature, meter: &Meter) -> Result<Step> {
    let Batches { config, data, sampler, order, reuse, own, links, .. } = *batches;
    let unread = Host::new(&data.features);
    let mut loader = loader(config, data, sampler, order, &unread)?;
    loader.feature = feature;
    loader.own = own.cloned();
    loader.links = links;
    let objective = links.map(|_| LinkObjective::new(config, data.num_nodes())).transpose()?;
    // the bytes of a step do not depend on the edges around pairs
    let model = build::model_of_shapes(config, data)?;
    loader.symmetric = build::symmetric(&model, data);
    loader.aggregation = model.aggregation();
    let (mut seeds, mut recycled) = (Vec::new(), MiniBatch::default());
    let mut preview = None;
    if let Some(plan) = reuse {
        loader.order(0, &mut seeds);
        loader.transposed = transposed(&model, &plan.orders);
        preview = Some(plan.preview(&loader, &seeds, 0, 0));
    } else {
        loader.first(0, BATCHES, &mut seeds);
    }
    let before = (meter.now)();
    let mut workspace = Workspace::new(data.num_nodes());
    let mut model = Some(model);
    let learner = |model: Model, orders: Vec<ProductOrder>| -> Result<Learner> {
        let optimizer = build::optimizer(config)?;
        let mut learner = Learner::new(meter.backend, model, optimizer, &data.labels, orders, config);
        learner.context.links = objective;
        Ok(learner)
    };
    let mut trained: Option<Learner> = None;
    let mut end = loader.num_batches().min(BATCHES);
    if let (Some(plan), Some(preview)) = (reuse, &preview)
        && let Some(model) = model.take()
    {
        loader.ahead = Some(preview.reuse.ahead.clone());
        end = end.min(preview.batches.end);
        let mut learner = learner(model, plan.orders.clone())?;
        learner.context.reuse = Some(preview.reuse.clone());
        trained = Some(learner);
    }
    let (mut blocks, mut rows) = (0, 0);
    for number in 0..end {
        let mut drawn = loader.draw(&seeds, 0, number, &mut workspace, recycled)?;
        if let Some(model) = model.take() {
            let shapes: Vec<BlockShape> = drawn.sampled().blocks.iter().map(BlockShape::from).collect();
            let mut orders = model.orders(&shapes);
            if memory::keeps_sparse(config, data) {
                model.start_with_product(&mut orders);
            }
            loader.transposed = transposed(&model, &orders);
            trained = Some(learner(model, orders)?);
            let picked = loader.pick(0, &seeds, number, MiniBatch::from(drawn).recycle())?;
            drawn = Drawn::New(loader.sample(0, &mut workspace, picked)?);
        }
        let batch = loader.extract(drawn)?;
        let learner = trained.as_mut().expect("created before the first step");
        learner.train(&batch, config.lr)?;
        let extracted = batch.batch();
        let sparse = sparse_bytes(&extracted.features);
        blocks = blocks.max(loader.bytes(&extracted.sampled) + sparse);
        rows = rows.max(sparse + dense_bytes(&extracted.features));
        recycled = batch.into();
    }
    let taken = (meter.most)().saturating_sub(before) + if meter.has_blocks { 0 } else { blocks };
    let with_margin = |bytes: u64| (bytes as f64 * MARGIN) as u64;
    Ok(Step { bytes: with_margin(taken), rows: with_margin(rows) })
}

/// Bytes of gathered dense rows; 0 for sparse ones.
pub(crate) fn dense_bytes(rows: &Matrix) -> u64 {
    if rows.is_sparse() { 0 } else { 4 * rows.num_rows() as u64 * rows.num_cols() as u64 }
}

/// Bytes of gathered sparse rows and of their transpose; 0 for dense ones.
pub(crate) fn sparse_bytes(rows: &Matrix) -> u64 {
    rows.view().sparse().map_or(0, |of| {
        let back = of.transposed.indptr.len() + of.transposed.dst.len() + of.transposed.edge.len();
        4 * (of.indptr.len() + of.indices.len() + of.values.len() + back) as u64
    })
}

/// Blocks that the backward pass needs transposed: bit `l` for block `l`.
fn transposed(model: &Model, orders: &[ProductOrder]) -> u64 {
    (0..orders.len()).filter(|&l| model.needs_transposed(orders, l)).fold(0, |bits, l| bits | 1 << l)
}
