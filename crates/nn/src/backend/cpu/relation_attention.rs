//! Attention of a relation over input rows: a row is read for its dot products with every head's
//! vector, and soon after, from the inner caches, for the sums.

use std::ops::Range;

use super::{
    attend_input::by_head,
    attend_rows::{Input, entry_dots, of_heads},
    attention::{entries, for_heads, softmax_rows},
    columns,
    dot_attention::NEVER,
    edge_attention::{Job, add_tile, sums},
    epilogue::{Identity, backward_rows, forward_rows},
    level::{Isa, kernel},
    parallel::{self, Rows},
};
use crate::backend::ops::{RelationAttention, RelationAttentionBackward};

pub(super) fn forward(op: RelationAttention) {
    let RelationAttention { block, x, source, target, slope, dropout, score, alpha, used, total, out } = op;
    let (heads, cols) = (source.num_cols(), x.num_cols());
    if heads == 0 {
        return;
    }
    let (isa, drops) = (Isa::current(), dropout.threshold() != 0);
    let weights = by_head(source, source);
    let source = &bytemuck::cast_slice(&weights)[..cols * heads];
    let (x, target) = (x.host(), target.host());
    let input = Input { block, x, cols, heads };
    let job = Job::new(block, (x, cols), (&[], 0), heads);
    // without dropout, the matrix after dropout is empty
    let used = if drops { entries(block, used.host(), heads) } else { entries(block, &mut [], 0) };
    let alphas = (entries(block, alpha.host(), heads), used);
    let narrow = Rows { data: total.host(), width: heads };
    let results = (narrow, Rows { data: out.host(), width: heads * cols });
    let parts = (entries(block, score.host(), heads), alphas, results);
    let work = heads * cols;
    parallel::runs(&block.indptr, work, parts, |rows, (score, (alpha, used), (total, out))| {
        scores(isa, input, source, target, rows.clone(), score.0.data);
        score.1.data.fill(0.0);
        alpha.0.data.copy_from_slice(score.0.data);
        alpha.1.data.fill(NEVER);
        softmax_rows(isa, block, heads, slope, rows.clone(), alpha.0.data, alpha.1.data);
        // a destination without edges would attend to itself
        alpha.1.data.fill(0.0);
        let weights = if drops {
            used.0.data.copy_from_slice(alpha.0.data);
            used.1.data.fill(0.0);
            let first = block.indptr[rows.start] as usize;
            forward_rows(isa, Identity, None, dropout, first, heads, used.0.data);
            used.0.data
        } else {
            alpha.0.data
        };
        let base = block.indptr[rows.start] as usize;
        for (v, total) in rows.clone().zip(total.data.chunks_exact_mut(heads)) {
            total.fill(0.0);
            for weight in weights[input.run(v, base)].chunks_exact(heads) {
                total.iter_mut().zip(weight).for_each(|(total, x)| *total += x);
            }
        }
        sums(isa, job, rows, weights, out.data);
    });
}

pub(super) fn backward(op: RelationAttentionBackward) {
    let RelationAttentionBackward { block, x, slope, dropout, total_grad, grad, .. } = op;
    let (heads, cols) = (op.source_grad.num_cols(), x.num_cols());
    if heads == 0 {
        return;
    }
    let (isa, x) = (Isa::current(), x.host());
    let input = Input { block, x, cols, heads };
    let job = Job::new(block, (x, cols), (&[], 0), heads);
    let (score, alpha, used) = (op.score.host(), op.alpha.host(), op.used.host());
    let (total_grad, grad) = (total_grad.host(), grad.host());
    let parts =
        (entries(block, op.score_grad.host(), heads), Rows { data: op.target_grad.host(), width: heads });
    let size = heads * cols;
    let results = columns::sums(block.num_dst, size, parts, |rows, (of_scores, of_target), sums| {
        let edges = block.indptr[rows.start] as usize..block.indptr[rows.end] as usize;
        let range = edges.start * heads..edges.end * heads;
        let [score, alpha, used] = [score, alpha, used].map(|x| &x[range.clone()]);
        of_scores.1.data.fill(0.0);
        let to = of_scores.0.data;
        products(isa, input, grad, total_grad, rows.clone(), to);
        if dropout.threshold() != 0 {
            backward_rows(isa, Identity, dropout, edges.start, heads, used, to, &mut []);
        }
        through_softmax(isa, input, slope, rows.clone(), [score, alpha], to, of_target.data);
        add_rows(isa, job, rows, to, sums);
    });
    for (i, out) in op.source_grad.host().iter_mut().enumerate() {
        *out = results[i % heads * cols + i / heads] as f32;
    }
}

kernel! {
    /// Computes `x[u] . source[h] + target[v, h]` for the edges of some destinations.
    fn scores[](
        s: S, job: Input<'_, &[f32]>, source: &[f32], target: &[f32], rows: Range<usize>, out: &mut [f32],
    ) {
        let base = job.block.indptr[rows.start] as usize;
        for v in rows {
            let out = &mut out[job.run(v, base)];
            for_heads!(job.heads, (h, N) => {
                let mut add = [0.0; N];
                add.copy_from_slice(&target[v * job.heads + h..][..N]);
                entry_dots(s, job, v, h, of_heads::<&[f32], N>(job, source, h), add, out);
            });
        }
    }

    /// Computes `x[u] . grad[v, h] + total_grad[v, h]` for the edges of some destinations.
    fn products[](
        s: S, job: Input<'_, &[f32]>, grad: &[f32], total_grad: &[f32], rows: Range<usize>, out: &mut [f32],
    ) {
        let base = job.block.indptr[rows.start] as usize;
        for v in rows {
            let out = &mut out[job.run(v, base)];
            let grad = &grad[v * job.heads * job.cols..][..job.heads * job.cols];
            for_heads!(job.heads, (h, N) => {
                let mut add = [0.0; N];
                add.copy_from_slice(&total_grad[v * job.heads + h..][..N]);
                entry_dots(s, job, v, h, of_heads::<&[f32], N>(job, grad, h), add, out);
            });
        }
    }

    /// Turns the gradients of attention weights into those of scores, in place, and computes their
    /// sums for each destination.
    fn through_softmax[](
        s: S,
        job: Input<'_, &[f32]>,
        slope: f32,
        rows: Range<usize>,
        given: [&[f32]; 2],
        grad: &mut [f32],
        of_target: &mut [f32],
    ) {
        let _ = s;
        let (heads, base) = (job.heads, job.block.indptr[rows.start] as usize);
        for (v, of_target) in rows.zip(of_target.chunks_exact_mut(heads)) {
            let run = job.run(v, base);
            let ([score, alpha], grad) = (given.map(|x| &x[run.clone()]), &mut grad[run.clone()]);
            for (h, total) in of_target.iter_mut().enumerate() {
                let mut mean = 0.0;
                for at in (h..alpha.len()).step_by(heads) {
                    mean += alpha[at] * grad[at];
                }
                let mut sum = 0.0;
                for at in (h..alpha.len()).step_by(heads) {
                    let slope = if score[at] > 0.0 { 1.0 } else { slope };
                    grad[at] = slope * alpha[at] * (grad[at] - mean);
                    sum += grad[at];
                }
                *total = sum;
            }
        }
    }

    /// Adds `sum over the edges of weight[e, h] x[u]` of some destinations to `out`, `H x F`.
    fn add_rows[](s: S, job: Job<'_>, rows: Range<usize>, weight: &[f32], out: &mut [f32]) {
        let base = job.block.indptr[rows.start] as usize;
        for v in rows {
            let weight = &weight[(job.block.indptr[v] as usize - base) * job.heads..];
            for_heads!(job.heads, (h, N) => add_tile::<S, N>(s, job, v, h, true, weight, out));
        }
    }
}
