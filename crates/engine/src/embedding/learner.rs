//! The train stage: one batch of queries in, one update of the rows out.

use std::{collections::BTreeSet, ops::Range, path::Path, sync::Arc};

use graphmill_core::NodeId;
use graphmill_loader::link::NegativeLists;
use graphmill_nn::{
    Matrix,
    backend::Cpu,
    link::{
        loss::{self, LinkLoss, LinkLossOptions},
        table::{Penalty, QueryBatch, TableStep, Touched, softmax::SoftmaxStep, step::Objective},
    },
    optim::rows::{self, RowOptimizer},
};
use rayon::prelude::*;

use super::{
    held_rows::HeldRows,
    model::{TableModel, relations},
};
use crate::{
    Error, Result, TrainConfig,
    config::{embedding::EmbeddingOptions, link_task::loss_name},
    record::BatchOutcome,
    relational::LinkEdges,
};

/// Tables of the optimiser.
const ROWS: usize = 0;
const RELATIONS: usize = 1;

/// Model, optimiser and scratch memory.
pub(super) struct TableLearner {
    pub(super) model: TableModel,
    pub(super) optimizer: Box<dyn RowOptimizer>,
    /// Rows that are in memory.
    held: HeldRows,
    /// Number of updates so far.
    pub(super) step: u64,
    /// True if the model is that of the last update, false while an update is incomplete.
    pub(super) is_whole: bool,
    /// Lists of hard negatives by the ranking of the last epoch, if the run draws them.
    pub(super) hard: Option<Arc<NegativeLists>>,
    loss: LinkLoss,
    options: LinkLossOptions,
    penalty: Option<Penalty>,
    /// Rows that may be sources and destinations, if edges are compared with all of them.
    all: Option<[Range<NodeId>; 2]>,
    /// All rows.
    ids: Vec<NodeId>,
    backend: Cpu,
    touched: Touched,
    sampled: TableStep,
    dense: SoftmaxStep,
    /// Distinct rows of a batch, the rows that are scored, and the gradients of their penalty and
    /// of all rows.
    own: Matrix,
    scored: Matrix,
    penalty_grad: Matrix,
    grad: Matrix,
}

impl TableLearner {
    /// Creates the learner of a run before its first update. If the rows exceed `--host-budget`,
    /// they and their state are in files in the directory `dir`.
    ///
    /// # Errors
    /// An option is impossible, ends of different types are compared with all candidates, or rows
    /// do not fit in memory or on the disk.
    pub(super) fn new(config: &TrainConfig, edges: &LinkEdges, dir: &Path) -> Result<Self> {
        let options: EmbeddingOptions = config.own.get();
        let make = rows::TABLE.find(&options.row_optimizer).map_err(Error::name)?.make;
        let held = HeldRows::new(config, edges.num_rows(), make)?;
        let model = TableModel::new(config, edges, held.is_in_file().then_some(dir))?;
        let first = &edges.relations[0].candidates;
        if options.one_vs_all && edges.relations.iter().any(|relation| relation.candidates != *first) {
            return Err(Error::usage(
                "--one-vs-all: the relations join different node types; choose one with --task, or use \
                 negatives",
            ));
        }
        let is_dense = model.propagation.is_some() || options.one_vs_all;
        let mut learner = Self {
            penalty: model.penalty(config)?,
            optimizer: make(),
            held,
            step: 0,
            is_whole: true,
            hard: None,
            loss: loss::TABLE.find(loss_name(config)).map_err(Error::name)?.make.loss,
            options: config.own.get(),
            all: options.one_vs_all.then(|| first.clone()),
            ids: if is_dense { (0..edges.num_rows() as NodeId).collect() } else { Vec::new() },
            backend: Cpu::default(),
            touched: Touched::default(),
            sampled: TableStep::default(),
            dense: SoftmaxStep::default(),
            own: Matrix::default(),
            scored: Matrix::default(),
            penalty_grad: Matrix::default(),
            grad: Matrix::default(),
            model,
        };
        if learner.held.is_in_file() {
            learner.prepare()?;
        }
        Ok(learner)
    }

    /// Returns true if the rows are in files.
    pub(super) fn is_in_file(&self) -> bool {
        self.held.is_in_file()
    }

    /// Announces that the next updates use the rows of the buckets `now`, and that those of `next`
    /// follow. Rows in files of other buckets leave memory.
    pub(super) fn hold(&mut self, now: &BTreeSet<usize>, next: &BTreeSet<usize>) {
        let Self { model, optimizer, held, .. } = self;
        held.hold(&tables(&model.rows, &**optimizer), now, next);
    }

    /// Takes all rows in files out of memory, after a pass over rows of all buckets.
    pub(super) fn release(&mut self) {
        let Self { model, optimizer, held, .. } = self;
        held.release(&tables(&model.rows, &**optimizer));
    }

    /// Scores, loss, gradients, update. If the loss is not finite, no row changes. `seeds` is the
    /// number of edges of the batch.
    pub(super) fn train(&mut self, batch: &QueryBatch, lr: f64, seeds: usize) -> BatchOutcome {
        rayon::scope(|_| self.learn(batch, lr, seeds))
    }

    fn learn(&mut self, batch: &QueryBatch, lr: f64, seeds: usize) -> BatchOutcome {
        self.touched.refill(batch);
        gather(&self.model.rows, &self.touched.ids, &mut self.own);
        let mut loss = if self.all.is_some() { self.all_candidates(batch) } else { self.negatives(batch) };
        loss += self.penalize(batch);
        let outcome = BatchOutcome { loss, grad_norm: None, seeds };
        if !loss.is_finite() {
            return outcome;
        }
        self.is_whole = false;
        self.optimizer.begin(lr as f32);
        if self.model.propagation.is_some() {
            self.optimizer.update(ROWS, &mut self.model.rows, &self.ids, self.grad.view());
        } else if self.all.is_some() {
            self.optimizer.update(ROWS, &mut self.model.rows, &self.ids, self.dense.grad.view());
        } else {
            let (ids, grad) = (&self.touched.ids, self.sampled.grad.view());
            self.optimizer.update(ROWS, &mut self.model.rows, ids, grad);
        }
        let of = if self.all.is_some() { &self.dense.relations } else { &self.sampled.relations };
        let optimizer = &mut self.optimizer;
        self.model.decoder.visit_mut(&mut |param| {
            optimizer.update(RELATIONS, &mut param.value, &of.ids, of.grad.view());
        });
        self.step += 1;
        self.is_whole = true;
        outcome
    }

    /// Loss and gradients against negatives.
    fn negatives(&mut self, batch: &QueryBatch) -> f64 {
        let Self { model, touched, sampled, own, scored, grad, backend, .. } = self;
        let score = model.decoder.pair_score().expect("a decoder of tables has a formula");
        let objective = Objective { score, loss: self.loss, options: &self.options };
        let of_relations = relations(&*model.decoder);
        let Some(propagation) = &mut model.propagation else {
            return sampled.run(&objective, of_relations, batch, touched, own.view());
        };
        propagation.forward_rows(backend, &model.rows, &touched.ids, scored);
        let loss = sampled.run(&objective, of_relations, batch, touched, scored.view());
        propagation.backward_rows(backend, &touched.ids, sampled.grad.view(), grad);
        loss
    }

    /// Loss and gradients against all candidates.
    fn all_candidates(&mut self, batch: &QueryBatch) -> f64 {
        let Self { model, dense, backend, all, .. } = self;
        let score = model.decoder.pair_score().expect("a decoder of tables has a formula");
        let ranges = all.as_ref().expect("the candidates of such a run");
        dense.run(backend, score, relations(&*model.decoder), batch, model.rows.view(), ranges)
    }

    /// Adds the gradient of the penalty; returns its value.
    fn penalize(&mut self, batch: &QueryBatch) -> f64 {
        let Some(penalty) = &self.penalty else { return 0.0 };
        let is_sparse = self.model.propagation.is_none() && self.all.is_none();
        let (touched, own, cols) = (&self.touched, self.own.view(), self.own.num_cols());
        let mut value = if is_sparse {
            penalty.of_rows(batch, touched, own, &mut self.sampled.grad)
        } else {
            self.penalty_grad.resize(own.num_rows(), cols);
            self.penalty_grad.view_mut().host().fill(0.0);
            let value = penalty.of_rows(batch, touched, own, &mut self.penalty_grad);
            let to = if self.all.is_some() { &mut self.dense.grad } else { &mut self.grad };
            let to = to.view_mut().host();
            let rows = self.penalty_grad.view().host().chunks_exact(cols);
            for (row, &v) in rows.zip(&touched.ids) {
                to[v as usize * cols..][..cols].iter_mut().zip(row).for_each(|(to, x)| *to += x);
            }
            value
        };
        let of = if self.all.is_some() { &mut self.dense.relations } else { &mut self.sampled.relations };
        value += penalty.of_relations(relations(&*self.model.decoder), &of.ids, &of.counts, &mut of.grad);
        value
    }

    /// Allocates the state of the optimiser, so that a checkpoint can be read into it.
    ///
    /// # Errors
    /// The disk has too little space.
    pub(super) fn prepare(&mut self) -> Result<()> {
        let Self { model, optimizer, .. } = self;
        let mut prepared = optimizer.prepare(ROWS, &model.rows);
        model.decoder.visit(&mut |param| {
            if prepared.is_ok() {
                prepared = optimizer.prepare(RELATIONS, &param.value);
            }
        });
        Ok(prepared?)
    }
}

/// Tables with a row for each node: the rows, and their state once it is allocated.
fn tables<'t>(rows: &'t Matrix, optimizer: &'t dyn RowOptimizer) -> Vec<&'t Matrix> {
    let own = format!("{ROWS}.");
    let state = optimizer.state().into_iter().filter(|(name, _)| name.starts_with(&own));
    [rows].into_iter().chain(state.map(|(_, table)| table)).collect()
}

/// Copies rows of a table.
pub(super) fn gather(table: &Matrix, ids: &[NodeId], out: &mut Matrix) {
    let cols = table.num_cols();
    out.resize(ids.len(), cols);
    let rows = out.view_mut().host().par_chunks_mut(cols.max(1)).zip(ids).with_min_len(64);
    let all = table.view().host();
    rows.for_each(|(row, &v)| row.copy_from_slice(&all[v as usize * cols..][..cols]));
}
