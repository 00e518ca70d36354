//! Cross-entropy of the true candidate among all candidates, by dense products.
//!
//! # Algorithm
//!
//! The scores of a block of queries are one product of the queries' rows and the table, the
//! gradients two more. Other true candidates of a query are not left out.
//!
//! # Source
//!
//! Lacroix, Usunier and Obozinski, *Canonical tensor decomposition for knowledge base completion*,
//! ICML 2018, section 2; called 1vsAll by Ruffinelli, Broscheit and Gemulla, *You can teach an old
//! dog new tricks!*, ICLR 2020.
//!
//! # Cost
//!
//! O(Q C F) for `C` candidates, at the speed of dense products.
//!
//! # Memory
//!
//! A block of scores: 64 MiB, or 16 rows of `C` scores if that is more. A gradient of the table.

use std::ops::Range;

use graphmill_core::{End, NodeId};
use rayon::prelude::*;

use super::{QueryBatch, Relations, step::RelationGrads};
use crate::{
    Backend, Matrix, View,
    backend::{Side, ops::Gemm},
    link::{
        decoder::{PairScore, candidate_rows},
        kernel::add_scaled,
    },
};

/// Bytes of a block of scores.
const BLOCK_BYTES: usize = 64 << 20;
/// Least number of queries of a block.
const MIN_BLOCK_ROWS: usize = 16;

/// Workspace of a step against all candidates; its memory is reused.
#[derive(Clone, Debug, Default)]
pub struct SoftmaxStep {
    /// Gradient of the table, `V x F`.
    pub grad: Matrix,
    /// Gradients of the relations.
    pub relations: RelationGrads,
    /// Rows of the queries of a block, their gradients, and the scores.
    query: Matrix,
    query_grad: Matrix,
    scores: Matrix,
    /// Gradients of the queries' fixed ends and relations.
    fixed_grad: Vec<f32>,
    relation_grad: Vec<f32>,
    /// The table as candidates, `V x F`, if their rows differ from the embeddings.
    candidates: Matrix,
}

/// Inputs of a step.
struct Inputs<'a> {
    backend: &'a dyn Backend,
    score: &'a dyn PairScore,
    relations: Relations<'a>,
    batch: &'a QueryBatch,
    table: View<'a>,
    /// Rows of the table as candidates.
    candidates: View<'a>,
}

impl SoftmaxStep {
    /// Computes the loss of a batch over `table` (`V x F`) and all gradients. `candidates` are the
    /// rows that may be sources, and those that may be destinations; the batch holds the true
    /// candidates alone.
    ///
    /// # Panics
    /// The score is not a product, or the batch disagrees with the table: a bug in the caller.
    pub fn run(
        &mut self,
        backend: &dyn Backend,
        score: &dyn PairScore,
        relations: Relations,
        batch: &QueryBatch,
        table: View,
        candidates: &[Range<NodeId>; 2],
    ) -> f64 {
        let (dim, queries) = (table.num_cols(), batch.len());
        assert_eq!(batch.width(), 1, "true candidates of a batch");
        self.grad.resize(table.num_rows(), dim);
        backend.fill(0.0, self.grad.view_mut());
        for (values, width) in [(&mut self.fixed_grad, dim), (&mut self.relation_grad, relations.width)] {
            values.clear();
            values.resize(queries * width, 0.0);
        }
        let mut prepared = std::mem::take(&mut self.candidates);
        let differ = candidate_rows(score, table, &mut prepared);
        let rows = if differ { prepared.view() } else { table };
        let inputs = Inputs { backend, score, relations, batch, table, candidates: rows };
        let mut loss = 0.0;
        for end in [End::Source, End::Destination] {
            let range = &candidates[end as usize];
            let own: Vec<usize> = (0..queries).filter(|&i| batch.end[i] == end).collect();
            let len = (BLOCK_BYTES / (4 * range.len().max(1))).max(MIN_BLOCK_ROWS);
            for block in own.chunks(len) {
                loss += self.block(&inputs, range, block);
            }
        }
        self.candidates = prepared;
        let grad = self.grad.view_mut().host();
        if differ {
            let lines = grad.par_chunks_mut(dim).zip(table.host().par_chunks(dim));
            lines.for_each(|(grad, row)| score.candidate_gradient(row, grad));
        }
        // in the order of the queries
        for (&v, row) in batch.fixed.iter().zip(self.fixed_grad.chunks_exact(dim)) {
            add_scaled(1.0, row, &mut grad[v as usize * dim..][..dim]);
        }
        self.relations.sum(batch, &self.relation_grad, relations.width);
        loss
    }

    /// Adds a block of queries of one end; returns their share of the loss.
    fn block(&mut self, inputs: &Inputs, range: &Range<NodeId>, block: &[usize]) -> f64 {
        let &Inputs { backend, score, relations, batch, table, candidates } = inputs;
        let (dim, all) = (table.num_cols(), table.host());
        let Self { query, query_grad, scores, .. } = self;
        let rows = candidates.rows(range.start as usize..range.end as usize);
        query.resize(block.len(), dim);
        query.view_mut().host().par_chunks_mut(dim).zip(block).for_each(|(out, &i)| {
            let fixed = &all[batch.fixed[i] as usize * dim..][..dim];
            score.query(batch.end[i], fixed, relations.of_query(batch, i), out);
        });
        scores.resize(block.len(), range.len());
        let a = (query.view(), Side::Plain);
        Gemm { a, b: (rows, Side::Transposed), beta: 0.0, c: scores.view_mut() }.run(backend);
        let sum: f64 = if batch.weight.is_empty() {
            batch.len() as f64
        } else {
            batch.weight.iter().map(|&w| f64::from(w)).sum()
        };
        let lines = scores.view_mut().host().par_chunks_mut(range.len()).zip(block);
        let losses: Vec<f64> = lines
            .map(|(scores, &i)| {
                let weight = batch.weight.get(i).map_or(1.0, |&w| f64::from(w)) / sum;
                weight * cross_entropy(scores, (batch.candidates[i] - range.start) as usize, weight as f32)
            })
            .collect();
        query_grad.resize(block.len(), dim);
        let (a, b) = ((scores.view(), Side::Plain), (rows, Side::Plain));
        Gemm { a, b, beta: 0.0, c: query_grad.view_mut() }.run(backend);
        let (a, b) = ((scores.view(), Side::Transposed), (query.view(), Side::Plain));
        let c = self.grad.rows_mut(range.start as usize..range.end as usize);
        Gemm { a, b, beta: 1.0, c }.run(backend);
        let grads = query_grad.view().host().chunks_exact(dim);
        for (grad, &i) in grads.zip(block) {
            let fixed = &all[batch.fixed[i] as usize * dim..][..dim];
            let fixed_grad = &mut self.fixed_grad[i * dim..][..dim];
            let relation_grad = &mut self.relation_grad[i * relations.width..][..relations.width];
            let r = relations.of_query(batch, i);
            score.query_gradients(batch.end[i], fixed, r, grad, [fixed_grad, relation_grad]);
        }
        losses.iter().sum()
    }
}

/// Cross-entropy of one of `scores`, which are replaced by `weight` times their gradients.
fn cross_entropy(scores: &mut [f32], target: usize, weight: f32) -> f64 {
    let max = scores.iter().fold(f32::NEG_INFINITY, |max, &x| max.max(x));
    let own = scores[target];
    let mut sum = 0.0f64;
    for x in scores.iter_mut() {
        *x = (*x - max).exp();
        sum += f64::from(*x);
    }
    let factor = (f64::from(weight) / sum) as f32;
    scores.iter_mut().for_each(|x| *x *= factor);
    scores[target] -= weight;
    sum.ln() + f64::from(max - own)
}
