//! Device memory of a training step, measured by running a few steps.

use graphmill_core::memory;
use graphmill_loader::{Feature, MiniBatch, Workspace};
use graphmill_nn::{Backend, backend::Cpu, cost::BlockShape};

use super::batches::Batches;
use crate::{Result, build, hotness::scores::loader, learner::Learner, stage::Drawn};

/// Number of batches that are measured; the largest counts.
const BATCHES: u64 = 3;
/// Factor for later batches, which may be larger.
const MARGIN: f64 = 1.1;

/// Device memory of a training step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Step {
    /// Bytes of the whole step.
    pub(crate) bytes: u64,
    /// Bytes of the gathered rows, included in `bytes`.
    pub(crate) rows: u64,
}

impl Step {
    /// Bytes of the step and of the rows of the next batch, which are gathered during the step.
    pub(crate) fn with_next(self) -> u64 {
        self.bytes.saturating_add(self.rows)
    }
}

/// Measures the bytes of the first few steps on the processor: minibatch, activations, parameters,
/// gradients and the optimiser's state. Their buffers are reused from step to step, so the memory
/// of the process after the last step is the maximum. If the system does not report it, the
/// predictable part is counted: gathered rows, and four times the parameters. The steps train a
/// temporary model.
///
/// # Errors
/// Those of training.
pub(super) fn bytes(batches: &Batches, feature: &dyn Feature) -> Result<Step> {
    let backend = Cpu { precision: build::precision(batches.config) };
    let before = memory::anonymous();
    let taken = || memory::anonymous().zip(before).map(|(after, before)| after.saturating_sub(before));
    measured(batches, feature, &backend, &taken)
}

/// [`bytes`] of steps on another backend; `taken` returns the bytes that they have allocated.
///
/// # Errors
/// Those of training.
pub(super) fn measured(
    batches: &Batches,
    feature: &dyn Feature,
    backend: &dyn Backend,
    taken: &dyn Fn() -> Option<u64>,
) -> Result<Step> {
    let Batches { config, data, sampler, order, own } = *batches;
    let unread = graphmill_loader::feature::Host::new(&data.features);
    let mut loader = loader(config, data, sampler, order, &unread)?;
    loader.feature = feature;
    loader.own = own.cloned();
    let model = build::model(config, data)?;
    loader.symmetric = build::symmetric(&model, data);
    loader.aggregation = model.aggregation();
    let mut model = Some(model);
    let (mut seeds, mut recycled) = (Vec::new(), MiniBatch::default());
    let mut workspace = Workspace::new(data.num_nodes());
    loader.order(0, &mut seeds);
    let mut learner: Option<Learner> = None;
    let (mut known, mut rows) = (0, 0);
    for number in 0..loader.num_batches().min(BATCHES) {
        let mut drawn = loader.draw(&seeds, 0, number, &mut workspace, recycled)?;
        if let Some(model) = model.take() {
            let shapes: Vec<BlockShape> = drawn.sampled().blocks.iter().map(BlockShape::from).collect();
            let orders = model.orders(&shapes);
            loader.transposed = (0..orders.len())
                .filter(|&l| model.needs_transposed(&orders, l))
                .fold(0, |bits, l| bits | 1 << l);
            learner =
                Some(Learner::new(backend, model, build::optimizer(config)?, &data.labels, orders, config));
            let picked = loader.pick(&seeds, number, MiniBatch::from(drawn).recycle());
            drawn = Drawn::New(loader.sample(0, &mut workspace, picked)?);
        }
        let batch = loader.extract(drawn)?;
        let learner = learner.as_mut().expect("created with the first batch");
        learner.train(&batch, config.lr)?;
        let gathered = batch.batch().sampled.input_nodes.len() * feature.dim();
        rows = rows.max(4 * gathered as u64);
        known = known.max(4 * (gathered + 4 * learner.model.num_params()) as u64);
        recycled = batch.into();
    }
    let taken = taken().unwrap_or(0);
    let with_margin = |bytes: u64| (bytes as f64 * MARGIN) as u64;
    Ok(Step { bytes: with_margin(taken.max(known)), rows: with_margin(rows) })
}
