//! The train stage: one minibatch in, one update of the model out.

use std::sync::Arc;

use graphmill_core::{Labels, NodeId, keyed};
use graphmill_loader::{Extracted, Sampled, link::NegativeLists};
use graphmill_nn::{
    Backend, Matrix, Pass, ProductOrder, View,
    model::{Activations, Model, Part, StepInput},
    optim::{Optimizer, clip},
};

pub use super::target_loss::SeedLabels;
use super::target_loss::TargetLoss;
use crate::{
    Result,
    link::step::{LinkObjective, LinkScratch},
    record::BatchOutcome,
    reuse::{History, PushedRows, Reuse},
    stage::Drawn,
    versions::PastVersions,
};

/// Inputs and scratch memory of forward and backward passes. Matrices are reused from batch to
/// batch.
pub struct StepContext<'a> {
    /// The backend that computes.
    pub backend: &'a dyn Backend,
    /// The labels of all nodes.
    pub labels: &'a Labels,
    /// The feature table, if the bottom layer reads it in place.
    pub table: Option<Matrix>,
    /// Order of the products, layer by layer.
    pub orders: Vec<ProductOrder>,
    /// The run's seed, from which dropout masks are drawn.
    pub seed: u64,
    /// Bottom-layer rows that batches reuse, if a strategy provides some.
    pub reuse: Option<Reuse>,
    /// Loss of batches of links, in a run that learns them.
    pub links: Option<LinkObjective>,
    /// Loss of classes or values.
    pub targets: Arc<TargetLoss>,
    scratch: StepScratch,
}

/// Scratch matrices of a pass.
#[derive(Default)]
pub struct StepScratch {
    acts: Activations,
    seed_labels: SeedLabels,
    links: LinkScratch,
}

impl<'a> StepContext<'a> {
    /// The same context with other scratch memory, for a second model of this shape.
    #[must_use]
    pub fn with_scratch(&self, scratch: StepScratch) -> StepContext<'a> {
        StepContext {
            backend: self.backend,
            labels: self.labels,
            table: self.table.clone(),
            orders: self.orders.clone(),
            seed: self.seed,
            reuse: self.reuse.clone(),
            links: self.links,
            targets: self.targets.clone(),
            scratch,
        }
    }

    /// The same context with new scratch memory and without reused rows.
    pub fn detached(&self) -> StepContext<'a> {
        StepContext { reuse: None, ..self.with_scratch(StepScratch::default()) }
    }

    /// Keeps the rows that the bottom layer computes, in every pass from now on.
    pub fn keep_bottom_rows(&mut self) {
        self.scratch.acts.keep_bottom_rows();
    }

    /// Rows that the bottom layer computed in the last pass, before norm, activation and dropout,
    /// if they are kept.
    pub fn bottom_rows(&self) -> Option<View<'_>> {
        self.scratch.acts.kept_rows()
    }

    /// Returns the scratch memory.
    pub fn into_scratch(self) -> StepScratch {
        self.scratch
    }

    /// Forward, loss, backward: leaves the gradient of the batch's mean loss in the model, and
    /// returns that loss. `number` is the batch's number in the run, on which dropout depends. If
    /// the loss is not finite, the backward pass is skipped and the gradient is zero.
    pub fn gradient(&mut self, model: &mut Model, batch: &Extracted, number: u64) -> f64 {
        let key = keyed::key(&[self.seed, number, 0x6472_6f70]);
        self.gradient_by_part(model, batch, key, &mut |_, _| {})
    }

    /// [`StepContext::gradient`] that calls `after` for each part of the model once its gradient is
    /// complete. Dropout depends on `key`.
    pub fn gradient_by_part(
        &mut self,
        model: &mut Model,
        batch: &Extracted,
        key: u64,
        after: &mut dyn FnMut(&mut Model, Part),
    ) -> f64 {
        let backend = self.backend;
        let pass = Pass { backend, training: true, key };
        let Extracted { sampled: batch, features, .. } = batch;
        if batch.seeds.nodes.is_empty() {
            // a rank that owns no seed of the batch
            model.zero_grad(backend);
            return 0.0;
        }
        let x = match (&self.table, batch.is_fused()) {
            (Some(table), true) => table.view(),
            _ => features.view(),
        };
        let StepScratch { acts, seed_labels, links } = &mut self.scratch;
        model.zero_grad(backend);
        let reused = self.reuse.as_ref().map(|reuse| reuse.rows_of(batch.seeds.number));
        let input = StepInput { orders: &self.orders, blocks: &batch.blocks, x, reused };
        model.forward_step(&pass, &input, acts);
        let (logits, grad) = acts.logits_and_grad();
        let loss = match (&self.links, model.decoder_mut(), &batch.seeds.links) {
            (Some(objective), Some(decoder), Some(pairs)) => {
                links.gradient(objective, decoder, &pass, (pairs, &batch.seeds.nodes), (logits, grad))
            }
            _ => {
                self.targets.gather(self.labels, &batch.seeds.nodes, seed_labels);
                self.targets.run(backend, self.labels, seed_labels, logits, &batch.loss_weight, grad)
            }
        };
        if loss.is_finite() {
            model.backward_step(&pass, &input, acts, after);
        }
        backend.resolve_loss(loss)
    }
}

/// Number of edges that a batch of links learns, or of seeds with a loss.
pub(crate) fn num_seeds(batch: &Sampled) -> usize {
    batch.seeds.links.as_ref().map_or_else(|| batch.num_seeds(), |links| links.positives)
}

/// Sums the gradients of the shares of a batch over ranks.
///
/// ```
/// use std::sync::Arc;
/// use graphmill_engine::{distributed::Ranks, learner::GradientExchange};
///
/// // the ranks of a run exchange gradients
/// fn exchange(ranks: Arc<Ranks>) -> Arc<dyn GradientExchange> {
///     ranks
/// }
/// ```
pub trait GradientExchange: Send + Sync {
    /// Leaves the gradient of the whole batch in the model; `batch` is this rank's share of it.
    /// Returns the mean loss over all its seeds, and their number. With subgraph samplers every
    /// rank draws its own subgraph, which has the weight of its nodes. `number` is the batch's
    /// number in the run.
    ///
    /// # Errors
    /// A rank did not take part.
    fn gradient(
        &self,
        context: &mut StepContext,
        model: &mut Model,
        batch: &Extracted,
        number: u64,
    ) -> Result<(f64, usize)>;

    /// Replaces the gradient in `model`, the mean over this rank's seeds of a round of batches, by
    /// that over the seeds of all ranks. Returns the mean loss of each batch over all its seeds,
    /// and their number.
    ///
    /// # Errors
    /// A rank did not take part.
    fn round(&self, model: &mut Model, batches: &[BatchShare]) -> Result<Vec<(f64, usize)>>;
}

/// This rank's share of a batch that was trained on.
#[derive(Clone, Copy, Debug)]
pub struct BatchShare {
    /// Mean loss over its seeds; 0 without seeds.
    pub loss: f64,
    /// Number of its seeds with a loss.
    pub seeds: usize,
    /// Number of its seeds, or of the edges that it learns, by which it counts in the mean.
    pub nodes: usize,
    /// Number of seeds, or edges, of the batch over all ranks; `None` if every rank draws its own
    /// subgraph.
    pub global: Option<usize>,
}

/// Model, optimiser and context of the train stage.
pub struct Learner<'a> {
    /// Forward and backward.
    pub context: StepContext<'a>,
    /// The model.
    pub model: Model,
    /// The optimiser and its state.
    pub optimizer: Box<dyn Optimizer>,
    /// Largest norm of the gradient; 0 for no limit.
    pub clip: f64,
    /// Weight decay, or factor of the L2 penalty.
    pub weight_decay: f32,
    /// True if only the first graph layer decays.
    pub weight_decay_first_layer: bool,
    /// Number of updates so far.
    pub step: u64,
    /// Largest staleness of a gradient, or of a reused row, in updates.
    pub staleness: u64,
    /// Earlier versions of the parameters, if gradients of devices are stale.
    pub(crate) past: PastVersions,
    /// Versions of the bottom layer's parameters, if rows are reused.
    pub history: Arc<History>,
    /// Bottom-layer rows that batches have pushed, if the strategy pulls them.
    pub pushed: PushedRows,
    /// Lists of hard negatives by the ranking of the last epoch, in a run on links that draws them.
    pub hard: Option<Arc<NegativeLists>>,
    /// Sum of gradients over ranks, if several ranks share batches.
    pub exchange: Option<Arc<dyn GradientExchange>>,
    /// True if the model is that of the last update, false while an update is incomplete.
    pub is_whole: bool,
    scratch: Matrix,
}

impl<'a> Learner<'a> {
    /// Learner before its first update.
    pub fn new(
        backend: &'a dyn Backend,
        model: Model,
        optimizer: Box<dyn Optimizer>,
        labels: &'a Labels,
        orders: Vec<ProductOrder>,
        config: &crate::TrainConfig,
    ) -> Self {
        let seed = config.seed;
        Self {
            context: StepContext {
                backend,
                labels,
                table: None,
                orders,
                seed,
                reuse: None,
                links: None,
                targets: Arc::default(),
                scratch: StepScratch::default(),
            },
            model,
            optimizer,
            clip: config.clip,
            weight_decay: config.weight_decay as f32,
            weight_decay_first_layer: config.weight_decay_first_layer,
            step: 0,
            staleness: 0,
            past: PastVersions::default(),
            history: Arc::default(),
            pushed: PushedRows::default(),
            hard: None,
            exchange: None,
            is_whole: true,
            scratch: Matrix::default(),
        }
    }

    /// Stage 4: forward, loss, backward, update. A repeated batch may replay recorded device work.
    /// If the loss is not finite, no parameter changes, so that the last valid model survives. If
    /// ranks share the batch, all ranks make the same update by the whole batch.
    ///
    /// The stage runs on a thread of the pool: from another thread, each of about thirty operations
    /// would wake a worker and wait for it.
    ///
    /// # Errors
    /// Another rank did not take part, or a device failed.
    pub fn train(&mut self, batch: &Drawn<Extracted>, lr: f64) -> Result<BatchOutcome> {
        // ranks exchange gradients in the middle of a step, which is then not replayed
        let is_again = matches!(batch, Drawn::Again(_)) && self.exchange.is_none();
        let batch = batch.batch();
        // forward passes change running statistics
        self.is_whole = false;
        if let Some(reuse) = &self.context.reuse {
            self.staleness = self.staleness.max(reuse.rows.staleness(self.step));
        }
        rayon::scope(|_| {
            let backend = self.context.backend;
            if is_again {
                backend.begin_replayable_step();
            }
            let outcome = self.learn(batch, lr);
            if is_again {
                backend.end_replayable_step();
            }
            let outcome = outcome?;
            backend.check()?;
            Ok(outcome)
        })
    }

    fn learn(&mut self, batch: &Extracted, lr: f64) -> Result<BatchOutcome> {
        let (loss, seeds) = match self.exchange.clone() {
            Some(exchange) => exchange.gradient(&mut self.context, &mut self.model, batch, self.step)?,
            None => (self.context.gradient(&mut self.model, batch, self.step), num_seeds(&batch.sampled)),
        };
        // before the update, so that a failed pass changes no parameter
        self.context.backend.check()?;
        Ok(BatchOutcome { seeds, ..self.update(loss, lr) })
    }

    /// Updates the model by its gradient, whose loss is `loss`. The caller sets the seeds of the
    /// outcome.
    pub fn update(&mut self, loss: f64, lr: f64) -> BatchOutcome {
        self.is_whole = false;
        let outcome = self.apply(loss, lr);
        self.is_whole = true;
        outcome
    }

    fn apply(&mut self, loss: f64, lr: f64) -> BatchOutcome {
        if !loss.is_finite() {
            return BatchOutcome { loss, grad_norm: None, seeds: 0 };
        }
        let backend = self.context.backend;
        let grad_norm = (self.clip > 0.0).then(|| {
            clip(backend, self.clip as f32, |visit| self.model.visit_mut(&mut |_, param| visit(param)))
        });
        let outcome = BatchOutcome { loss, grad_norm: None, seeds: 0 }.with_norm(grad_norm);
        if !outcome.loss.is_finite() {
            return outcome;
        }
        self.optimizer.begin(lr as f32);
        let (optimizer, decay, first) =
            (&mut self.optimizer, self.weight_decay, self.weight_decay_first_layer);
        let mut index = 0;
        self.model.visit_mut(&mut |name, param| {
            let decays = !first || name.starts_with("conv.0.");
            optimizer.update(backend, index, param, if decays { decay } else { 0.0 });
            index += 1;
        });
        self.step += 1;
        outcome
    }

    /// Mean loss of the logits of these nodes.
    pub fn loss(&mut self, logits: &Matrix, nodes: &[NodeId]) -> f64 {
        let StepContext { backend, labels, targets, scratch: StepScratch { seed_labels, .. }, .. } =
            &mut self.context;
        targets.gather(labels, nodes, seed_labels);
        self.scratch.resize(logits.num_rows(), logits.num_cols());
        let grad = self.scratch.view_mut();
        backend.resolve_loss(targets.run(*backend, labels, seed_labels, logits.view(), &[], grad))
    }
}
