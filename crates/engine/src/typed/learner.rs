//! The train stage on several types: one minibatch in, one update of the model out.

use std::sync::Arc;

use graphmill_core::{NodeId, block::Aggregation, keyed};
use graphmill_distributed::NodeOwnership;
use graphmill_loader::typed::TypedExtracted;
use graphmill_nn::{
    Backend, Matrix, Pass,
    optim::{AdamOptions, Optimizer, SparseAdam},
    regression::TargetScale,
    typed::{TypedActivations, TypedModel, TypedStep},
};

use super::{
    batches::{HeldRows, StepModel, StepModels},
    build,
    clip::{clip, end_batch, merge},
    computing::PROCESSOR,
    ranks::{
        JoinedRows, RowGradients, RowOwners, exchange, fetch_rows, learned_types, own_nodes, update_rows,
    },
    reuse::ReuseState,
    rounds::RoundLearner,
    task::TypedTask,
};
use crate::{
    Error, Result, TrainConfig,
    build::{by_flag, optimizer, processor},
    checkpoint::tensors::Tensor,
    learner::BatchShare,
    record::{BatchOutcome, PresamplingCost},
    stages::target_loss::{Learned, SeedLabels, TargetLoss},
    tiers::ReadCounts,
    versions::{Parameters, PastVersions},
};

/// Model, optimisers and scratch memory of the train stage.
pub(super) struct TypedLearner<'a> {
    task: &'a TypedTask,
    pub(super) backend: &'a dyn Backend,
    pub(super) model: TypedModel,
    /// Optimiser of the dense parameters.
    pub(super) optimizer: Box<dyn Optimizer>,
    /// Optimiser of learned rows.
    pub(super) sparse: SparseAdam,
    weight_decay: f32,
    /// Maximum norm of the gradient; 0 for no limit.
    limit: f32,
    seed: u64,
    /// Number of updates so far, on which dropout depends.
    pub(super) step: u64,
    /// Number of this rank, on which dropout depends, if several train together.
    rank: Option<usize>,
    /// True if the model is that of the last update, false while an update is incomplete.
    pub(super) is_whole: bool,
    acts: TypedActivations,
    targets: TargetLoss,
    labels: SeedLabels,
    scratch: Matrix,
    /// Earlier versions of the parameters, if gradients of devices are stale.
    pub(super) past: PastVersions,
    /// Rows of the first layer that batches reuse.
    pub(super) reuse: ReuseState,
    /// The ranks that train together, if there are several.
    pub(super) over: Option<RowOwners>,
    /// Learned rows of all ranks, while a checkpoint is written.
    pub(super) joined: Option<JoinedRows>,
    /// Counts of reads by global id, if they fill caches during the run.
    pub(super) reads: Option<ReadCounts>,
    /// The counts of all ranks, while a checkpoint is written.
    pub(super) saved_reads: Vec<Tensor>,
}

/// Inputs of a model in a batch whose seeds are of the type `node_type`.
pub(super) fn step(batch: &TypedExtracted, node_type: usize) -> TypedStep<'_> {
    TypedStep {
        blocks: &batch.sampled.blocks,
        features: &batch.features,
        edges: &batch.edges,
        nodes: &batch.sampled.input_nodes,
        num_targets: batch.sampled.seeds.nodes[node_type].len(),
        reused: &[],
    }
}

impl<'a> TypedLearner<'a> {
    /// Creates the learner of a run before its first update.
    ///
    /// # Errors
    /// An option of the model, the optimiser or the loss is impossible.
    pub(super) fn new(config: &TrainConfig, task: &'a TypedTask) -> Result<Self> {
        Self::of_owners(config, task, None)
    }

    /// The learner of a rank before its first update, with the learned rows of the nodes that it
    /// owns; without `owners`, that of a run of one process.
    ///
    /// # Errors
    /// As [`TypedLearner::new`].
    pub(super) fn of_owners(
        config: &TrainConfig,
        task: &'a TypedTask,
        owners: Option<&[Arc<NodeOwnership>]>,
    ) -> Result<Self> {
        Self::of_rows(config, task, owners.map(|owners| own_nodes(owners, &task.feature_dims())))
    }

    /// The learner of another device before its first batch, which computes gradients. It has no
    /// learned rows: a batch brings those of its nodes.
    ///
    /// # Errors
    /// As [`TypedLearner::new`].
    pub(super) fn replica(config: &TrainConfig, task: &'a TypedTask) -> Result<Self> {
        let none: Vec<Vec<NodeId>> = vec![Vec::new(); task.graph.schema().num_types()];
        Self::of_rows(config, task, Some(none.into()))
    }

    /// The learner with the learned rows of these nodes of each type, or with those of all nodes.
    fn of_rows(config: &TrainConfig, task: &'a TypedTask, nodes: Option<Arc<[Vec<NodeId>]>>) -> Result<Self> {
        let model = build::model_of(config, task, nodes)?;
        let learned = Learned { name: &task.name, labels: &task.labels, train: &task.split.train };
        Ok(Self {
            targets: TargetLoss::of_targets(config, &learned)?,
            task,
            backend: processor(config),
            sparse: optimizer_of_rows(&model)?,
            model,
            optimizer: optimizer(config)?,
            weight_decay: config.weight_decay as f32,
            limit: config.clip as f32,
            seed: config.seed,
            step: 0,
            rank: None,
            is_whole: true,
            acts: TypedActivations::default(),
            labels: SeedLabels::default(),
            scratch: Matrix::default(),
            past: PastVersions::default(),
            reuse: ReuseState::default(),
            over: None,
            joined: None,
            reads: None,
            saved_reads: Vec::new(),
        })
    }

    /// Scale of the targets, if they are values.
    pub(super) fn scale(&self) -> Option<&TargetScale> {
        self.targets.scale()
    }

    /// The same learner, which sums gradients over ranks and learns the rows of its own nodes.
    pub(super) fn over_ranks(self, over: RowOwners) -> Self {
        let rank = Some(over.ranks.rank());
        Self { over: Some(over), ..self.of_rank(rank) }
    }

    /// The same learner with the dropout masks of this rank.
    pub(super) fn of_rank(self, rank: Option<usize>) -> Self {
        Self { rank, ..self }
    }

    /// The same learner, with counts of reads that its checkpoints hold.
    pub(super) fn counting(self, reads: Option<ReadCounts>) -> Self {
        Self { reads, ..self }
    }

    /// The same learner, whose passes and dense updates run on `backend`.
    pub(super) fn on(self, backend: &'a dyn Backend) -> Self {
        Self { backend, ..self }
    }

    fn learn(&mut self, batch: &TypedExtracted, lr: f64, all: Option<usize>) -> Result<BatchOutcome> {
        let (own, nodes) = (self.gradient(batch)?, &batch.sampled.input_nodes);
        // before the update, so that a failed pass changes no parameter
        self.backend.check()?;
        let seeds = batch.sampled.num_seeds();
        // of a subgraph without nodes of the task's type
        let nothing = BatchOutcome { loss: 0.0, grad_norm: None, seeds: 0 };
        let (loss, count, rows) = match &self.over {
            None => match own {
                Some(loss) => (loss, seeds, None),
                None => return Ok(nothing),
            },
            Some(over) => {
                self.is_whole = false;
                let has_gradient = own.is_some_and(f64::is_finite);
                if !has_gradient {
                    self.model.zero_grad(self.backend);
                }
                let loss = own.unwrap_or_default();
                // a subgraph weighs its nodes that do not train, too
                let of_type = batch.sampled.seeds.nodes[self.task.node_type].len();
                let share = BatchShare { loss, seeds, nodes: of_type, global: all };
                let acts = has_gradient.then_some(&self.acts);
                let learned = learned_types(&self.model);
                let summed = exchange(over, (&mut self.model, &learned), share, (nodes, acts))?;
                let Some((loss, count, rows)) = summed else {
                    self.is_whole = true;
                    return Ok(nothing);
                };
                (loss, count, Some(rows))
            }
        };
        end_batch(self, (lr, nodes), (loss, count), rows)
    }

    /// Computes the gradient of the mean loss of this rank's seeds of a batch. Returns the loss,
    /// or `None` without seeds; the gradient is meaningless if it is not finite.
    fn gradient(&mut self, batch: &TypedExtracted) -> Result<Option<f64>> {
        let backend = self.backend;
        let pass = Pass { backend, training: true, key: dropout_key(self.seed, self.step, self.rank) };
        let reuse = self.reuse.now.clone();
        let reused = reuse.as_ref().map(|now| now.reused(batch.sampled.seeds.number)).unwrap_or_default();
        self.reuse.staleness = reuse.as_ref().map_or(0, |now| now.staleness(self.step));
        let step = TypedStep { reused: &reused, ..step(batch, self.task.node_type) };
        let seeds = &batch.sampled.seeds.nodes[self.task.node_type];
        if seeds.is_empty() {
            return Ok(None);
        }
        self.model.forward(&pass, &step, &mut self.acts).map_err(Error::from)?;
        self.targets.gather(&self.task.labels, seeds, &mut self.labels);
        let (logits, grad) = self.acts.logits_and_grad();
        let (labels, weight) = (&self.task.labels, &batch.sampled.loss_weight);
        let loss = self.targets.run(backend, labels, &mut self.labels, logits, weight, grad);
        if loss.is_finite() {
            // a backward pass changes running statistics
            self.is_whole = false;
            self.model.zero_grad(backend);
            self.model.backward(&pass, &step, &mut self.acts);
        }
        Ok(Some(backend.resolve_loss(loss)))
    }

    /// Mean loss of the logits of these nodes.
    pub(super) fn loss(&mut self, logits: &Matrix, nodes: &[NodeId]) -> f64 {
        self.targets.gather(&self.task.labels, nodes, &mut self.labels);
        self.scratch.resize(logits.num_rows(), logits.num_cols());
        let grad = self.scratch.view_mut();
        self.targets.run(&PROCESSOR, &self.task.labels, &mut self.labels, logits.view(), &[], grad)
    }
}

impl RoundLearner for TypedLearner<'_> {
    fn encoder(&self) -> &TypedModel {
        &self.model
    }

    fn encoder_mut(&mut self) -> &mut TypedModel {
        &mut self.model
    }

    fn dense(&self) -> &dyn Parameters {
        &self.model
    }

    fn dense_mut(&mut self) -> &mut dyn Parameters {
        &mut self.model
    }

    fn past(&self) -> &PastVersions {
        &self.past
    }

    fn num_seeds(&self, batch: &TypedExtracted) -> usize {
        batch.sampled.num_seeds()
    }

    fn weight(&self, batch: &TypedExtracted) -> usize {
        // a subgraph weighs its nodes that do not train, too
        batch.sampled.seeds.nodes[self.task.node_type].len()
    }

    fn batch_gradient(&mut self, batch: &TypedExtracted) -> Result<Option<f64>> {
        self.gradient(batch)
    }

    fn train(&mut self, batch: &mut TypedExtracted, lr: f64, all: Option<usize>) -> Result<BatchOutcome> {
        fetch_rows(self.over.as_ref(), (&self.model, self.backend), batch)?;
        // on a thread of the pool, so that no operation has to wake one
        let outcome = rayon::scope(|_| self.learn(batch, lr, all))?;
        self.backend.check()?;
        Ok(outcome)
    }

    fn activations(&self) -> &TypedActivations {
        &self.acts
    }

    fn set_whole(&mut self, is_whole: bool) {
        self.is_whole = is_whole;
    }

    fn clips(&self) -> bool {
        self.limit > 0.0
    }

    fn clip(&mut self, rows: &mut [RowGradients]) -> Result<Option<f64>> {
        if !self.clips() {
            return Ok(None);
        }
        merge(&mut self.model, rows);
        clip(self.limit, (&mut self.model, self.backend), rows, self.over.as_ref()).map(Some)
    }

    fn update(&mut self, lr: f64, nodes: &[Vec<NodeId>], rows: Option<&[RowGradients]>) -> Result<()> {
        self.optimizer.begin(lr as f32);
        self.sparse.begin(lr as f32);
        let (optimizer, decay, mut index) = (&mut self.optimizer, self.weight_decay, 0);
        let backend = self.backend;
        self.model.visit_mut(&mut |_, param| {
            optimizer.update(backend, index, param, decay);
            index += 1;
        });
        update_rows(&mut self.model, &mut self.sparse, rows, (nodes, &self.acts))?;
        self.step += 1;
        self.is_whole = true;
        Ok(())
    }

    fn see(&mut self, epoch: u64, batch: &TypedExtracted, cost: &PresamplingCost) {
        let Some(reads) = &mut self.reads else { return };
        let schema = self.task.graph.schema();
        let nodes = batch.sampled.input_nodes.iter().enumerate();
        let nodes = nodes.flat_map(|(t, of)| of.iter().map(move |&v| schema.global(t, v)));
        reads.see(epoch, nodes, cost);
    }
}

/// Key of the dropout masks of a pass after `step` updates. Masks are drawn by row, so those of
/// several ranks depend on the rank.
pub(super) fn dropout_key(seed: u64, step: u64, rank: Option<usize>) -> u64 {
    let parts: &[u64] = &[seed, step, 0x6472_6f70, rank.map_or(0, |rank| rank as u64 + 1)];
    keyed::key(if rank.is_some() { parts } else { &parts[..3] })
}

/// The optimiser of the learned rows of `model`. The state of rows in files is allocated.
///
/// # Errors
/// The disk has too little space.
pub(super) fn optimizer_of_rows(model: &TypedModel) -> Result<SparseAdam> {
    let mut sparse = SparseAdam::new(&AdamOptions::default()).map_err(by_flag)?;
    for (t, rows) in model.learned_rows().filter(|(_, rows)| rows.table().is_in_file()) {
        sparse.prepare(t, rows.table())?;
    }
    Ok(sparse)
}

impl StepModel for TypedLearner<'_> {
    fn aggregation(&self) -> Aggregation {
        self.model.aggregation()
    }

    fn step(&mut self, batch: &mut TypedExtracted, lr: f64) -> Result<()> {
        self.train(batch, lr, None).map(drop)
    }
}

impl StepModels for TypedTask {
    fn model<'m>(
        &'m self,
        config: &TrainConfig,
        held: HeldRows,
        backend: &'m dyn Backend,
    ) -> Result<Box<dyn StepModel + 'm>> {
        let learner = match held {
            HeldRows::OfBatch => TypedLearner::replica(config, self)?,
            held => TypedLearner::of_owners(config, self, held.owners())?,
        };
        Ok(Box::new(learner.on(backend)))
    }
}
