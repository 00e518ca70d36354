//! The train stage: one minibatch in, one update of the model out.

use graphmill_graph::{Labels, NodeId, keyed};
use graphmill_loader::MiniBatch;
use graphmill_nn::{
    Backend, Matrix, Order, Pass, View, ViewMut,
    model::{Activations, Model},
    optim::{Optimizer, clip},
};
use rayon::prelude::*;

/// Nodes whose labels one task gathers.
const TASK: usize = 1 << 12;

/// The labels of one batch's seeds, gathered.
#[derive(Clone, Debug, Default)]
pub struct SeedLabels {
    /// A class per seed (single-label).
    pub class: Vec<i32>,
    /// `B x C` zeros and ones (multi-label).
    pub member: Vec<u8>,
}

impl SeedLabels {
    /// Gathers the labels of `nodes`.
    pub fn gather(&mut self, labels: &Labels, nodes: &[NodeId]) {
        self.class.clear();
        self.member.clear();
        match labels {
            Labels::Single { class, .. } => {
                self.class.par_extend(nodes.par_iter().with_min_len(TASK).map(|&v| class[v as usize]));
            }
            Labels::Multi { member, classes } => {
                let classes = *classes;
                self.member.resize(nodes.len() * classes, 0);
                let rows = self.member.par_chunks_exact_mut(classes.max(1)).with_min_len(TASK);
                rows.zip(nodes).for_each(|(row, &v)| {
                    row.copy_from_slice(&member[v as usize * classes..(v as usize + 1) * classes]);
                });
            }
        }
    }
}

/// What one batch did.
#[derive(Clone, Copy, Debug)]
pub struct BatchOutcome {
    /// Mean loss over the seeds; not finite where the loss or the clipped gradient's norm is not.
    pub loss: f64,
    /// Norm of the gradient before clipping, where clipping is on.
    pub grad_norm: Option<f64>,
}

/// The model with everything an update needs. Matrices are reused from batch to batch.
pub struct Learner<'a> {
    /// Where the arithmetic runs.
    pub backend: &'a dyn Backend,
    /// The model.
    pub model: Model,
    /// The optimiser and its state.
    pub optimizer: Box<dyn Optimizer>,
    /// The labels of all nodes.
    pub labels: &'a Labels,
    /// The feature table, where the bottom layer reads it in place.
    pub table: Option<Matrix>,
    /// Order of the products, layer by layer.
    pub orders: Vec<Order>,
    /// Largest norm of the gradient, 0 for no limit.
    pub clip: f64,
    /// L2 penalty or decay.
    pub weight_decay: f32,
    /// Whether only the first graph layer decays.
    pub decay_first: bool,
    /// The run's seed, the root of every dropout mask.
    pub seed: u64,
    /// Updates made so far.
    pub step: u64,
    acts: Activations,
    seed_labels: SeedLabels,
    scratch: Matrix,
}

impl<'a> Learner<'a> {
    /// A learner before its first step.
    pub fn new(
        backend: &'a dyn Backend,
        model: Model,
        optimizer: Box<dyn Optimizer>,
        labels: &'a Labels,
        orders: Vec<Order>,
        config: &crate::TrainConfig,
    ) -> Self {
        Self {
            backend,
            model,
            optimizer,
            labels,
            table: None,
            orders,
            clip: config.clip,
            weight_decay: config.weight_decay as f32,
            decay_first: config.decay_first,
            seed: config.seed,
            step: 0,
            acts: Activations::default(),
            seed_labels: SeedLabels::default(),
            scratch: Matrix::default(),
        }
    }

    /// Stage 4: forward, loss, backward, update. Touches no parameter when the loss is not finite, so that the last
    /// good model survives.
    ///
    /// All of it runs on a thread of the pool: called from outside, each of some thirty operations would wake
    /// a worker and wait for it.
    pub fn train(&mut self, batch: &MiniBatch, lr: f64) -> BatchOutcome {
        rayon::scope(|_| self.step(batch, lr))
    }

    fn step(&mut self, batch: &MiniBatch, lr: f64) -> BatchOutcome {
        let backend = self.backend;
        let pass = Pass { backend, training: true, key: keyed::key(&[self.seed, self.step, 0x6472_6f70]) };
        let x = match (&self.table, batch.is_fused()) {
            (Some(table), true) => table.view(),
            _ => batch.features.view(),
        };
        self.model.zero_grad(backend);
        self.model.forward(&pass, &self.orders, &batch.blocks, x, &mut self.acts);
        self.seed_labels.gather(self.labels, &batch.seeds);
        let (logits, grad) = self.acts.logits_and_grad();
        let loss = loss(backend, self.labels, &self.seed_labels, logits, &batch.loss_weight, grad);
        if !loss.is_finite() {
            return BatchOutcome { loss, grad_norm: None };
        }
        self.model.backward(&pass, &self.orders, &batch.blocks, x, &mut self.acts);
        let grad_norm = (self.clip > 0.0)
            .then(|| clip(backend, self.clip as f32, |see| self.model.visit_mut(&mut |_, param| see(param))));
        if grad_norm.is_some_and(|norm| !norm.is_finite()) {
            return BatchOutcome { loss: f64::NAN, grad_norm: None };
        }
        self.optimizer.begin(lr as f32);
        let (optimizer, decay, first) = (&mut self.optimizer, self.weight_decay, self.decay_first);
        let mut index = 0;
        self.model.visit_mut(&mut |name, param| {
            let decays = !first || name.starts_with("conv.0.");
            optimizer.update(backend, index, param, if decays { decay } else { 0.0 });
            index += 1;
        });
        self.step += 1;
        BatchOutcome { loss, grad_norm }
    }

    /// The mean loss of these nodes' logits.
    pub fn loss(&mut self, logits: &Matrix, nodes: &[NodeId]) -> f64 {
        self.seed_labels.gather(self.labels, nodes);
        self.scratch.resize(logits.num_rows(), logits.num_cols());
        loss(self.backend, self.labels, &self.seed_labels, logits.view(), &[], self.scratch.view_mut())
    }
}

/// Mean cross-entropy over the rows (softmax, or sigmoid over rows and classes where nodes have several labels), and
/// its gradient.
fn loss(
    backend: &dyn Backend,
    labels: &Labels,
    of_rows: &SeedLabels,
    logits: View,
    weight: &[f32],
    grad: ViewMut,
) -> f64 {
    let mean = 1.0 / logits.num_rows().max(1) as f32;
    match labels {
        Labels::Single { .. } => backend.softmax_cross_entropy(logits, &of_rows.class, weight, mean, grad),
        Labels::Multi { classes, .. } => {
            backend.sigmoid_cross_entropy(logits, &of_rows.member, weight, mean / *classes as f32, grad)
        }
    }
}
