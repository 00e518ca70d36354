//! Attention (GAT) of a relation over input rows, which all heads share.
//!
//! Destinations are not among the sources, and do not attend to themselves. An attention matrix has
//! the shape that [`super::Attend`] reads; the destinations' own entries are 0.

use graphmill_core::Block;

use super::{Operation, shape};
use crate::{View, ViewMut, backend::Dropout};

/// Attention with scores and sums over the sources' input rows:
///
/// ```text
/// score[e, h] = x[u] . source[., h] + target[v, h]
/// alpha = softmax over the edges e of v of leaky_relu(score)
/// used = dropout(alpha)
/// total[v, h] = sum over the edges e of v of used[e, h]
/// out[v, h F + f] = sum over the edges e of v of used[e, h] x[u, f]
/// ```
#[derive(Debug)]
pub struct RelationAttention<'a> {
    /// The edges, local.
    pub block: &'a Block,
    /// Input rows, `S x F`.
    pub x: View<'a>,
    /// Sources' vectors, `F x H`.
    pub source: View<'a>,
    /// Destinations' part of the scores, `D x H`.
    pub target: View<'a>,
    /// Slope of the leaky ReLU below 0.
    pub slope: f32,
    /// Dropout of the attention weights.
    pub dropout: Dropout,
    /// Scores, `(E + D) x H`, written.
    pub score: ViewMut<'a>,
    /// Attention weights, `(E + D) x H`, written.
    pub alpha: ViewMut<'a>,
    /// Weights after dropout, `(E + D) x H`, written; may be empty without dropout.
    pub used: ViewMut<'a>,
    /// Sums of the weights, `D x H`.
    pub total: ViewMut<'a>,
    /// Result, `D x (H F)`.
    pub out: ViewMut<'a>,
}

/// Checks the matrices of both operations.
fn check(block: &Block, x: View, source: View, of_entries: &[View], of_heads: [View; 2], wide: View) {
    shape::block(block);
    assert!(block.dst_ids.is_none(), "an attention of a relation requires a local block");
    let (rows, cols) = shape::of(x);
    let heads = source.num_cols();
    assert_eq!(rows, block.num_src, "sources of an attention");
    assert_eq!(source.num_rows(), cols, "sources' vectors of an attention");
    assert_eq!(shape::of(wide), (block.num_dst, heads * cols), "result of an attention");
    for &x in of_entries {
        shape::entries(block, heads, x);
    }
    for x in of_heads {
        assert_eq!(shape::of(x), (block.num_dst, heads), "destinations of an attention");
    }
}

impl RelationAttention<'_> {
    /// Computes the operation by its definition, in f64, for backends without a kernel.
    pub fn on_host(self) {
        let Self { block, x, slope, dropout, .. } = self;
        let (heads, cols) = (self.source.num_cols(), x.num_cols());
        let (x, source, target) = (x.host(), self.source.host(), self.target.host());
        let (score, alpha, used) = (self.score.host(), self.alpha.host(), self.used.host());
        let (total, out) = (self.total.host(), self.out.host());
        let drops = dropout.threshold() != 0;
        score[block.num_edges() * heads..].fill(0.0);
        alpha[block.num_edges() * heads..].fill(0.0);
        if drops {
            used[block.num_edges() * heads..].fill(0.0);
        }
        for v in 0..block.num_dst {
            for h in 0..heads {
                let mut logits = Vec::new();
                for e in block.edges(v) {
                    let row = &x[block.indices[e] as usize * cols..][..cols];
                    let sum = row.iter().enumerate().map(|(f, x)| double(*x) * double(source[f * heads + h]));
                    let sum = sum.sum::<f64>() + double(target[v * heads + h]);
                    score[e * heads + h] = sum as f32;
                    logits.push(if sum > 0.0 { sum } else { double(slope) * sum });
                }
                let max = logits.iter().fold(f64::NEG_INFINITY, |m, x| m.max(*x));
                let all: f64 = logits.iter().map(|x| (x - max).exp()).sum();
                let mut sums = vec![0.0; cols];
                let mut of_weights = 0.0;
                for (e, logit) in block.edges(v).zip(logits) {
                    let weight = (logit - max).exp() / all;
                    alpha[e * heads + h] = weight as f32;
                    let weight = weight * dropout.factor(e, h);
                    if drops {
                        used[e * heads + h] = weight as f32;
                    }
                    of_weights += weight;
                    let row = &x[block.indices[e] as usize * cols..][..cols];
                    sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += weight * double(*x));
                }
                total[v * heads + h] = of_weights as f32;
                let out = &mut out[(v * heads + h) * cols..][..cols];
                out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum as f32);
            }
        }
    }
}

impl Operation for RelationAttention<'_> {
    fn check(&self) {
        let of_entries = [self.score.as_view(), self.alpha.as_view(), self.used.as_view()];
        let written = if self.dropout.threshold() == 0 { 2 } else { 3 };
        let of_heads = [self.target, self.total.as_view()];
        check(self.block, self.x, self.source, &of_entries[..written], of_heads, self.out.as_view());
    }
}

/// Gradients of [`RelationAttention`], except that of `x`.
#[derive(Debug)]
pub struct RelationAttentionBackward<'a> {
    /// The edges, local.
    pub block: &'a Block,
    /// Input rows, `S x F`.
    pub x: View<'a>,
    /// Slope of the leaky ReLU below 0.
    pub slope: f32,
    /// Dropout of the attention weights.
    pub dropout: Dropout,
    /// Scores of the forward pass.
    pub score: View<'a>,
    /// Attention weights of the forward pass.
    pub alpha: View<'a>,
    /// Weights after dropout; `alpha` without dropout.
    pub used: View<'a>,
    /// Gradient of the sums of the weights, `D x H`.
    pub total_grad: View<'a>,
    /// Gradient of the result, `D x (H F)`.
    pub grad: View<'a>,
    /// Gradient of the scores, `(E + D) x H`; those of destinations are 0.
    pub score_grad: ViewMut<'a>,
    /// Gradient of the sources' vectors, `F x H`.
    pub source_grad: ViewMut<'a>,
    /// Gradient of the destinations' part of the scores, `D x H`.
    pub target_grad: ViewMut<'a>,
}

impl RelationAttentionBackward<'_> {
    /// Computes the operation by its definition, in f64, for backends without a kernel.
    pub fn on_host(self) {
        let Self { block, x, slope, dropout, .. } = self;
        let (heads, cols) = (self.source_grad.num_cols(), x.num_cols());
        let (x, score, alpha) = (x.host(), self.score.host(), self.alpha.host());
        let (total_grad, grad) = (self.total_grad.host(), self.grad.host());
        let (score_grad, target_grad) = (self.score_grad.host(), self.target_grad.host());
        let mut source_grad = vec![0.0; cols * heads];
        score_grad.fill(0.0);
        for v in 0..block.num_dst {
            for h in 0..heads {
                let row = |e: usize| &x[block.indices[e] as usize * cols..][..cols];
                let of_alpha = |e: usize| {
                    let grad = &grad[(v * heads + h) * cols..][..cols];
                    let sum: f64 = row(e).iter().zip(grad).map(|(x, g)| double(*x) * double(*g)).sum();
                    dropout.factor(e, h) * (sum + double(total_grad[v * heads + h]))
                };
                let entry = |x: &[f32], e: usize| double(x[e * heads + h]);
                let mean: f64 = block.edges(v).map(|e| entry(alpha, e) * of_alpha(e)).sum();
                let mut sum = 0.0;
                for e in block.edges(v) {
                    let slope = if entry(score, e) > 0.0 { 1.0 } else { double(slope) };
                    let g = slope * entry(alpha, e) * (of_alpha(e) - mean);
                    score_grad[e * heads + h] = g as f32;
                    sum += g;
                    for (f, x) in row(e).iter().enumerate() {
                        source_grad[f * heads + h] += g * double(*x);
                    }
                }
                target_grad[v * heads + h] = sum as f32;
            }
        }
        self.source_grad.host().iter_mut().zip(source_grad).for_each(|(x, sum)| *x = sum as f32);
    }
}

impl Operation for RelationAttentionBackward<'_> {
    fn check(&self) {
        let of_entries = [self.score, self.alpha, self.used, self.score_grad.as_view()];
        let of_heads = [self.total_grad, self.target_grad.as_view()];
        check(self.block, self.x, self.source_grad.as_view(), &of_entries, of_heads, self.grad);
    }
}

fn double(x: f32) -> f64 {
    x.into()
}
