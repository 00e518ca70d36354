//! The train stage: one minibatch in, one update of the model out.

use std::sync::Arc;

use graphmill_graph::{Labels, NodeId, keyed};
use graphmill_loader::MiniBatch;
use graphmill_nn::{
    Backend, Matrix, Order, Pass, View, ViewMut,
    model::{Activations, Model, Part, Reused},
    optim::{Optimizer, clip},
};
use rayon::prelude::*;

use crate::{
    Result,
    distributed::Ranks,
    reuse::{Embeddings, History},
};

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
    /// Seeds that the loss is the mean over: those of all ranks.
    pub seeds: usize,
}

/// What forward and backward passes need besides the model. Matrices are reused from batch to batch.
pub struct Passes<'a> {
    /// Where the arithmetic runs.
    pub backend: &'a dyn Backend,
    /// The labels of all nodes.
    pub labels: &'a Labels,
    /// The feature table, where the bottom layer reads it in place.
    pub table: Option<Matrix>,
    /// Order of the products, layer by layer.
    pub orders: Vec<Order>,
    /// The run's seed, the root of every dropout mask.
    pub seed: u64,
    /// Rows that batches reuse, where they do.
    pub reuse: Option<Arc<Embeddings>>,
    room: Room,
}

/// The matrices of a pass, kept for the next.
#[derive(Default)]
pub struct Room {
    acts: Activations,
    seed_labels: SeedLabels,
}

impl<'a> Passes<'a> {
    /// The same passes, for another model of this shape beside this one, in a room of their own.
    #[must_use]
    pub fn with_room(&self, room: Room) -> Passes<'a> {
        Passes {
            backend: self.backend,
            labels: self.labels,
            table: self.table.clone(),
            orders: self.orders.clone(),
            seed: self.seed,
            reuse: self.reuse.clone(),
            room,
        }
    }

    /// The same passes without a room or rows to reuse.
    pub fn apart(&self) -> Passes<'a> {
        Passes { reuse: None, ..self.with_room(Room::default()) }
    }

    /// The room, for passes to come.
    pub fn into_room(self) -> Room {
        self.room
    }

    /// Forward, loss, backward: leaves the gradient of the batch's mean loss in the model, and returns that loss. `number` is
    /// that of the batch in the whole run: what is dropped depends on it. Where the loss is not finite there is no gradient.
    pub fn gradient(&mut self, model: &mut Model, batch: &MiniBatch, number: u64) -> f64 {
        let key = keyed::key(&[self.seed, number, 0x6472_6f70]);
        self.gradient_telling(model, batch, key, &mut |_, _| {})
    }

    /// [`Passes::gradient`] that tells `after` of each part of the model when its gradient is complete; what is dropped depends on
    /// `key`.
    pub fn gradient_telling(
        &mut self,
        model: &mut Model,
        batch: &MiniBatch,
        key: u64,
        after: &mut dyn FnMut(&mut Model, Part),
    ) -> f64 {
        let backend = self.backend;
        let pass = Pass { backend, training: true, key };
        let x = match (&self.table, batch.is_fused()) {
            (Some(table), true) => table.view(),
            _ => batch.features.view(),
        };
        let Room { acts, seed_labels } = &mut self.room;
        model.zero_grad(backend);
        let reused = match &self.reuse {
            Some(from) => from.reused(&batch.reused),
            None => Reused { rows: x, slots: &[], kept: &[], projected: None },
        };
        model.forward_reusing(&pass, &self.orders, &batch.blocks, x, reused, acts);
        seed_labels.gather(self.labels, &batch.seeds);
        let (logits, grad) = acts.logits_and_grad();
        let loss = loss(backend, self.labels, seed_labels, logits, &batch.loss_weight, grad);
        if loss.is_finite() {
            model.backward_telling(&pass, &self.orders, &batch.blocks, x, reused, acts, after);
        }
        backend.settle(loss)
    }
}

/// The model with everything an update needs.
pub struct Learner<'a> {
    /// Forward and backward.
    pub passes: Passes<'a>,
    /// The model.
    pub model: Model,
    /// The optimiser and its state.
    pub optimizer: Box<dyn Optimizer>,
    /// Largest norm of the gradient, 0 for no limit.
    pub clip: f64,
    /// L2 penalty or decay.
    pub weight_decay: f32,
    /// Whether only the first graph layer decays.
    pub decay_first: bool,
    /// Updates made so far.
    pub step: u64,
    /// The largest staleness of a gradient, or of a reused row, in updates.
    pub staleness: u64,
    /// Versions of the bottom layer's parameters, where rows of it are reused.
    pub history: Arc<History>,
    /// The other ranks, where batches are shared among several.
    pub ranks: Option<Arc<Ranks>>,
    /// Whether the model is that of the last update: no other was begun and not finished.
    pub is_whole: bool,
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
        let seed = config.seed;
        Self {
            passes: Passes { backend, labels, table: None, orders, seed, reuse: None, room: Room::default() },
            model,
            optimizer,
            clip: config.clip,
            weight_decay: config.weight_decay as f32,
            decay_first: config.decay_first,
            step: 0,
            staleness: 0,
            history: Arc::default(),
            ranks: None,
            is_whole: true,
            scratch: Matrix::default(),
        }
    }

    /// Stage 4: forward, loss, backward, update. Touches no parameter when the loss is not finite, so that the last
    /// good model survives. Of several ranks' shares of a batch it is the update of the whole batch, the same on all ranks.
    ///
    /// All of it runs on a thread of the pool: called from outside, each of some thirty operations would wake
    /// a worker and wait for it.
    ///
    /// # Errors
    /// Another rank did not do its part, or a device failed.
    pub fn train(&mut self, batch: &MiniBatch, lr: f64) -> Result<BatchOutcome> {
        // passes change running statistics
        self.is_whole = false;
        if let Some(reuse) = &self.passes.reuse {
            self.staleness = self.staleness.max(reuse.staleness(self.step));
        }
        rayon::scope(|_| {
            let backend = self.passes.backend;
            if batch.kept {
                backend.begin_again();
            }
            let outcome = self.learn(batch, lr);
            if batch.kept {
                backend.end_again();
            }
            let outcome = outcome?;
            backend.check()?;
            Ok(outcome)
        })
    }

    fn learn(&mut self, batch: &MiniBatch, lr: f64) -> Result<BatchOutcome> {
        let (loss, seeds) = match self.ranks.clone() {
            Some(ranks) => ranks.gradient(&mut self.passes, &mut self.model, batch, self.step)?,
            None => (self.passes.gradient(&mut self.model, batch, self.step), batch.num_seeds()),
        };
        // before the update: a failed pass leaves the parameters alone
        self.passes.backend.check()?;
        Ok(BatchOutcome { seeds, ..self.update(loss, lr) })
    }

    /// The update by the gradient that is in the model, of this loss; the outcome leaves the seeds to the caller.
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
        let backend = self.passes.backend;
        let grad_norm = (self.clip > 0.0)
            .then(|| clip(backend, self.clip as f32, |see| self.model.visit_mut(&mut |_, param| see(param))));
        if grad_norm.is_some_and(|norm| !norm.is_finite()) {
            return BatchOutcome { loss: f64::NAN, grad_norm: None, seeds: 0 };
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
        BatchOutcome { loss, grad_norm, seeds: 0 }
    }

    /// The mean loss of these nodes' logits.
    pub fn loss(&mut self, logits: &Matrix, nodes: &[NodeId]) -> f64 {
        let Passes { backend, labels, room: Room { seed_labels, .. }, .. } = &mut self.passes;
        seed_labels.gather(labels, nodes);
        self.scratch.resize(logits.num_rows(), logits.num_cols());
        backend.settle(loss(*backend, labels, seed_labels, logits.view(), &[], self.scratch.view_mut()))
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
