//! Scores, loss and gradients of a batch of queries with sampled candidates.
//!
//! # Algorithm
//!
//! The row of each query is computed once, and its `1 + K` candidates are scored against it. The
//! gradient of a distinct row is the sum over the places that read it, in their order, so that no
//! gradient of a single pair is stored and the sums do not depend on the threads.
//!
//! # Source
//!
//! The structure of batches that corrupt one end is that of Lerer et al., *PyTorch-BigGraph: a
//! large-scale graph embedding system*, MLSys 2019, section 4.3.
//!
//! # Cost
//!
//! O(Q K F).
//!
//! # Memory
//!
//! Three rows for each query and one for each distinct row.

use rayon::prelude::*;

use super::{QueryBatch, Touched};
use crate::{
    Matrix, View,
    link::{
        decoder::{PairScore, candidate_rows},
        kernel::add_scaled,
        loss::{LinkGrads, LinkLoss, LinkLossOptions, LinkScores},
    },
};

/// Minimum number of queries or rows per task.
const MIN_TASK_LEN: usize = 8;

/// Parameters of the relations, a row of `width` values each; the width may be 0.
#[derive(Clone, Copy, Debug)]
pub struct Relations<'a> {
    /// Values, row by row.
    pub values: &'a [f32],
    /// Width of a row, `W`.
    pub width: usize,
}

impl<'a> Relations<'a> {
    /// Relations without parameters.
    pub const NONE: Self = Self { values: &[], width: 0 };

    /// Parameters of relation `r`.
    pub fn row(&self, r: usize) -> &'a [f32] {
        if self.width == 0 { &[] } else { &self.values[r * self.width..][..self.width] }
    }

    /// Parameters of the relation of query `i`.
    pub(super) fn of_query(&self, batch: &QueryBatch, i: usize) -> &'a [f32] {
        self.row(relation(batch, i) as usize)
    }
}

/// Relation of query `i`.
fn relation(batch: &QueryBatch, i: usize) -> u32 {
    batch.relation.get(i).copied().unwrap_or(0)
}

/// Formula and loss of a model.
#[derive(Clone, Copy)]
pub struct Objective<'a> {
    /// Score of a pair, of a decoder that trains tables.
    pub score: &'a dyn PairScore,
    /// Loss of the scores.
    pub loss: LinkLoss,
    /// Options of the loss.
    pub options: &'a LinkLossOptions,
}

/// Gradients of the relations of a batch.
#[derive(Clone, Debug, Default)]
pub struct RelationGrads {
    /// Distinct relations, ascending.
    pub ids: Vec<u32>,
    /// Number of queries of each.
    pub counts: Vec<usize>,
    /// Gradient of each, `N x W`.
    pub grad: Matrix,
    /// Queries by relation.
    order: Vec<u64>,
}

impl RelationGrads {
    /// Adds the gradients of the queries (rows of `width` values) by relation, in the order of the
    /// queries.
    pub(super) fn sum(&mut self, batch: &QueryBatch, by_query: &[f32], width: usize) {
        let Self { ids, counts, grad, order } = self;
        ids.clear();
        counts.clear();
        if width == 0 {
            return;
        }
        order.clear();
        order.extend((0..batch.len()).map(|i| u64::from(relation(batch, i)) << 32 | i as u64));
        order.sort_unstable();
        let groups: Vec<&[u64]> = order.chunk_by(|a, b| a >> 32 == b >> 32).collect();
        ids.extend(groups.iter().map(|group| (group[0] >> 32) as u32));
        counts.extend(groups.iter().map(|group| group.len()));
        grad.resize(groups.len(), width);
        grad.view_mut().host().par_chunks_mut(width).zip(&groups).for_each(|(to, group)| {
            to.fill(0.0);
            for &key in *group {
                add_scaled(1.0, &by_query[key as u32 as usize * width..][..width], to);
            }
        });
    }
}

/// Rows of each of both views by the place that reads them.
fn of_places<'a>(views: [View<'a>; 2], touched: &'a Touched) -> [impl Fn(usize) -> &'a [f32]; 2] {
    views.map(|rows| {
        let (all, dim) = (rows.host(), rows.num_cols());
        move |place: usize| &all[touched.position[place] as usize * dim..][..dim]
    })
}

/// Workspace of a step; its memory is reused.
#[derive(Clone, Debug, Default)]
pub struct TableStep {
    /// Gradient of each distinct row, `R x F`.
    pub grad: Matrix,
    /// Gradients of the relations.
    pub relations: RelationGrads,
    /// Rows of the queries, `Q x F`.
    query: Matrix,
    /// Gradients of the queries' fixed ends, `Q x F`.
    fixed_grad: Matrix,
    /// Gradients of the queries' relations, `Q x W`.
    relation_grad: Vec<f32>,
    /// Distinct rows as candidates, `R x F`, if they differ from the embeddings.
    candidates: Matrix,
    positive: [Vec<f32>; 2],
    negative: [Vec<f32>; 2],
}

impl TableStep {
    /// Computes the loss of a batch, whose distinct rows are `rows` (`R x F`), and all gradients.
    ///
    /// # Panics
    /// Rows, relations and batch disagree: a bug in the caller.
    pub fn run(
        &mut self,
        objective: &Objective,
        relations: Relations,
        batch: &QueryBatch,
        touched: &Touched,
        rows: View,
    ) -> f64 {
        assert_eq!(rows.num_rows(), touched.ids.len(), "distinct rows of a batch");
        let mut prepared = std::mem::take(&mut self.candidates);
        let differ = candidate_rows(objective.score, rows, &mut prepared);
        // as ends of queries, and as candidates
        let of = [rows, if differ { prepared.view() } else { rows }];
        let loss = self.score(objective, relations, batch, touched, of);
        self.query_gradients(objective.score, relations, batch, touched, of);
        self.row_gradients(objective.score, batch, touched, of);
        self.candidates = prepared;
        self.relations.sum(batch, &self.relation_grad, relations.width);
        loss
    }

    /// Scores all candidates; computes the loss and the gradients of the scores.
    fn score(
        &mut self,
        objective: &Objective,
        relations: Relations,
        batch: &QueryBatch,
        touched: &Touched,
        [rows, candidates]: [View; 2],
    ) -> f64 {
        let (score, dim, queries, width) = (objective.score, rows.num_cols(), batch.len(), batch.width());
        let (kernel, k) = (score.kernel(), width - 1);
        let [fixed, candidate] = of_places([rows, candidates], touched);
        self.query.resize(queries, dim);
        for (scores, len) in [(&mut self.positive, queries), (&mut self.negative, queries * k)] {
            scores.iter_mut().for_each(|x| x.resize(len, 0.0));
        }
        let [positive, positive_grad] = &mut self.positive;
        let [negative, negative_grad] = &mut self.negative;
        let lines = self.query.view_mut().host().par_chunks_mut(dim).zip(positive.par_iter_mut());
        let of_query = |i: usize, query: &mut [f32], positive: &mut f32, negative: &mut [f32]| {
            let r = relations.of_query(batch, i);
            score.query(batch.end[i], fixed(queries * width + i), r, query);
            *positive = kernel.score(query, candidate(i * width));
            for (k, score) in negative.iter_mut().enumerate() {
                *score = kernel.score(query, candidate(i * width + 1 + k));
            }
        };
        if k == 0 {
            lines.enumerate().for_each(|(i, (query, positive))| of_query(i, query, positive, &mut []));
        } else {
            let lines = lines.zip(negative.par_chunks_mut(k)).enumerate().with_min_len(MIN_TASK_LEN);
            lines.for_each(|(i, ((query, positive), negative))| of_query(i, query, positive, negative));
        }
        let scores =
            LinkScores { positive, negative, weight: &batch.weight, log_expected: &batch.log_expected };
        let grads = LinkGrads { positive: positive_grad, negative: negative_grad };
        (objective.loss)(&scores, objective.options, grads)
    }

    /// Gradient of the score of each candidate.
    fn gradient(&self, width: usize, place: usize) -> f32 {
        let (query, candidate) = (place / width, place % width);
        match candidate {
            0 => self.positive[1][query],
            candidate => self.negative[1][query * (width - 1) + candidate - 1],
        }
    }

    /// Computes the gradients of the queries' fixed ends and relations.
    fn query_gradients(
        &mut self,
        score: &dyn PairScore,
        relations: Relations,
        batch: &QueryBatch,
        touched: &Touched,
        rows: [View; 2],
    ) {
        let (dim, queries, width) = (rows[0].num_cols(), batch.len(), batch.width());
        let (kernel, of_relation) = (score.kernel(), relations.width.max(1));
        let [fixed, candidate] = of_places(rows, touched);
        let mut fixed_grad = std::mem::take(&mut self.fixed_grad);
        let mut relation_grad = std::mem::take(&mut self.relation_grad);
        fixed_grad.resize(queries, dim);
        relation_grad.clear();
        relation_grad.resize(queries * of_relation, 0.0);
        let query = self.query.view().host();
        let lines = fixed_grad.view_mut().host().par_chunks_mut(dim);
        let lines = lines.zip(relation_grad.par_chunks_mut(of_relation)).enumerate();
        lines.with_min_len(MIN_TASK_LEN).for_each_init(
            || vec![0.0; dim],
            |grad, (i, (fixed_grad, relation_grad))| {
                let query = &query[i * dim..][..dim];
                grad.fill(0.0);
                for place in i * width..(i + 1) * width {
                    let g = self.gradient(width, place);
                    if g != 0.0 {
                        kernel.add_query_gradient(query, candidate(place), g, grad);
                    }
                }
                fixed_grad.fill(0.0);
                let r = relations.of_query(batch, i);
                let grads = [fixed_grad, &mut relation_grad[..relations.width]];
                score.query_gradients(batch.end[i], fixed(queries * width + i), r, grad, grads);
            },
        );
        (self.fixed_grad, self.relation_grad) = (fixed_grad, relation_grad);
    }

    /// Computes the gradient of each distinct row.
    fn row_gradients(
        &mut self,
        score: &dyn PairScore,
        batch: &QueryBatch,
        touched: &Touched,
        [rows, candidates]: [View; 2],
    ) {
        let (dim, width) = (rows.num_cols(), batch.width());
        let (kernel, fixed_from) = (score.kernel(), (batch.len() * width) as u32);
        let mut grad = std::mem::take(&mut self.grad);
        grad.resize(touched.ids.len(), dim);
        let (query, fixed_grad) = (self.query.view().host(), self.fixed_grad.view().host());
        let of_rows = rows.host().par_chunks(dim).zip(candidates.host().par_chunks(dim));
        let lines = grad.view_mut().host().par_chunks_mut(dim).zip(of_rows).enumerate();
        lines.with_min_len(MIN_TASK_LEN).for_each(|(i, (to, (row, candidate)))| {
            to.fill(0.0);
            // ascending: places of candidates, then of fixed ends
            let places = touched.places(i);
            let (as_candidate, as_fixed) = places.split_at(places.partition_point(|&p| p < fixed_from));
            for place in as_candidate.iter().map(|&place| place as usize) {
                let g = self.gradient(width, place);
                if g != 0.0 {
                    kernel.add_candidate_gradient(&query[place / width * dim..][..dim], candidate, g, to);
                }
            }
            score.candidate_gradient(row, to);
            for &place in as_fixed {
                add_scaled(1.0, &fixed_grad[(place - fixed_from) as usize * dim..][..dim], to);
            }
        });
        self.grad = grad;
    }
}
