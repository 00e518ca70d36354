//! The train stage on several types: one minibatch in, one update of the model out.

use graphmill_core::{NodeId, keyed};
use graphmill_loader::typed::TypedExtracted;
use graphmill_nn::{
    Matrix, Pass,
    backend::Cpu,
    optim::{AdamOptions, Optimizer, SparseAdam},
    typed::{TypedActivations, TypedModel, TypedStep},
};

use super::{build, task::TypedTask};
use crate::{
    Error, Result, TrainConfig,
    build::optimizer,
    record::BatchOutcome,
    stages::target_loss::{Learned, SeedLabels, TargetLoss},
};

/// Model, optimisers and scratch memory of the train stage.
pub(super) struct TypedLearner<'a> {
    task: &'a TypedTask,
    backend: Cpu,
    pub(super) model: TypedModel,
    /// Optimiser of the dense parameters.
    pub(super) optimizer: Box<dyn Optimizer>,
    /// Optimiser of learned rows.
    pub(super) sparse: SparseAdam,
    weight_decay: f32,
    seed: u64,
    /// Number of updates so far, on which dropout depends.
    pub(super) step: u64,
    /// True if the model is that of the last update, false while an update is incomplete.
    pub(super) is_whole: bool,
    acts: TypedActivations,
    targets: TargetLoss,
    labels: SeedLabels,
    scratch: Matrix,
}

/// Inputs of a model in a batch whose seeds are of the type `node_type`.
pub(super) fn step(batch: &TypedExtracted, node_type: usize) -> TypedStep<'_> {
    TypedStep {
        blocks: &batch.sampled.blocks,
        features: &batch.features,
        edges: &batch.edges,
        nodes: &batch.sampled.input_nodes,
        num_targets: batch.sampled.seeds.nodes[node_type].len(),
    }
}

impl<'a> TypedLearner<'a> {
    /// Creates the learner of a run before its first update.
    ///
    /// # Errors
    /// An option of the model, the optimiser or the loss is impossible.
    pub(super) fn new(config: &TrainConfig, task: &'a TypedTask) -> Result<Self> {
        let learned = Learned { name: &task.name, labels: &task.labels, train: &task.split.train };
        Ok(Self {
            targets: TargetLoss::of_targets(config, &learned)?,
            task,
            backend: Cpu::default(),
            model: build::model(config, task)?,
            optimizer: optimizer(config)?,
            sparse: SparseAdam::new(&AdamOptions::default()).map_err(crate::build::by_flag)?,
            weight_decay: config.weight_decay as f32,
            seed: config.seed,
            step: 0,
            is_whole: true,
            acts: TypedActivations::default(),
            labels: SeedLabels::default(),
            scratch: Matrix::default(),
        })
    }

    /// Forward, loss, backward, update. If the loss is not finite, no parameter changes.
    ///
    /// # Errors
    /// The batch does not fit the model.
    pub(super) fn train(&mut self, batch: &TypedExtracted, lr: f64) -> Result<BatchOutcome> {
        // on a thread of the pool, so that no operation has to wake one
        rayon::scope(|_| self.learn(batch, lr))
    }

    fn learn(&mut self, batch: &TypedExtracted, lr: f64) -> Result<BatchOutcome> {
        let backend = &self.backend;
        let key = keyed::key(&[self.seed, self.step, 0x6472_6f70]);
        let pass = Pass { backend, training: true, key };
        let step = step(batch, self.task.node_type);
        let seeds = &batch.sampled.seeds.nodes[self.task.node_type];
        self.model.forward(&pass, &step, &mut self.acts).map_err(Error::from)?;
        self.targets.gather(&self.task.labels, seeds, &mut self.labels);
        let (logits, grad) = self.acts.logits_and_grad();
        let loss = self.targets.run(backend, &self.task.labels, &mut self.labels, logits, &[], grad);
        let outcome = BatchOutcome { loss, grad_norm: None, seeds: seeds.len() };
        if !loss.is_finite() {
            return Ok(outcome);
        }
        // a backward pass changes running statistics
        self.is_whole = false;
        self.model.zero_grad(backend);
        self.model.backward(&pass, &step, &mut self.acts);
        self.optimizer.begin(lr as f32);
        self.sparse.begin(lr as f32);
        let (optimizer, decay, mut index) = (&mut self.optimizer, self.weight_decay, 0);
        self.model.visit_mut(&mut |_, param| {
            optimizer.update(backend, index, param, decay);
            index += 1;
        });
        self.model.update_learned_rows(backend, &mut self.sparse, &batch.sampled.input_nodes, &self.acts);
        self.step += 1;
        self.is_whole = true;
        Ok(outcome)
    }

    /// Mean loss of the logits of these nodes.
    pub(super) fn loss(&mut self, logits: &Matrix, nodes: &[NodeId]) -> f64 {
        self.targets.gather(&self.task.labels, nodes, &mut self.labels);
        self.scratch.resize(logits.num_rows(), logits.num_cols());
        let grad = self.scratch.view_mut();
        self.targets.run(&self.backend, &self.task.labels, &mut self.labels, logits.view(), &[], grad)
    }
}
