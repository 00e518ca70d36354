//! Attention to the rows of edges, which are keys and values of all heads.
//!
//! If keys are `row K` and values `row V`, a query `q` reads `q . (row K) = (q K^T) . row`, and its
//! sum of values is `(sum of alpha row) V`. Products with `K` and `V` then have a row for each
//! destination and head, not for each edge.
//!
//! An attention matrix has the shape that [`super::Attend`] reads: the edges' entries, then the
//! destinations' own, which are 0 here.

use graphmill_core::Block;

use super::{Operation, shape};
use crate::{View, ViewMut, backend::Dropout};

/// Attention with scores and sums over the edges' rows:
///
/// ```text
/// alpha = softmax over the edges e of v of scale query[v, h] . rows[e]
/// used = dropout(alpha)
/// out[v, h F + f] = sum over the edges e of v of used[e, h] rows[e, f]
/// ```
#[derive(Debug)]
pub struct EdgeAttention<'a> {
    /// The edges.
    pub block: &'a Block,
    /// Edges' rows, `E x F`.
    pub rows: View<'a>,
    /// Destinations' rows, `D x (H F)`.
    pub query: View<'a>,
    /// Factor of the scores.
    pub scale: f32,
    /// Dropout of the attention weights.
    pub dropout: Dropout,
    /// Attention weights, `(E + D) x H`, written.
    pub alpha: ViewMut<'a>,
    /// Weights after dropout, `(E + D) x H`, written; may be empty without dropout.
    pub used: ViewMut<'a>,
    /// Result, `D x (H F)`.
    pub out: ViewMut<'a>,
}

/// Checks rows, queries, attention matrices, and a matrix of the shape of the queries.
fn check(block: &Block, rows: View, query: View, of_entries: &[View], out: View) {
    shape::block(block);
    let heads = of_entries[0].num_cols();
    let (edges, cols) = shape::of(rows);
    assert_eq!(edges, block.num_edges(), "rows of the edges of an attention");
    assert_eq!(shape::of(query), (block.num_dst, heads * cols), "queries of an attention");
    shape::same(query, out);
    for &x in of_entries {
        shape::entries(block, heads, x);
    }
}

impl EdgeAttention<'_> {
    /// Computes the operation by its definition, in f64, for backends without a kernel.
    pub fn on_host(self) {
        let Self { block, rows, query, scale, dropout, alpha, used, out } = self;
        let (heads, cols) = (alpha.num_cols(), rows.num_cols());
        let (rows, query, alpha, used, out) =
            (rows.host(), query.host(), alpha.host(), used.host(), out.host());
        let drops = dropout.threshold() != 0;
        alpha[block.num_edges() * heads..].fill(0.0);
        if drops {
            used[block.num_edges() * heads..].fill(0.0);
        }
        let mut sums = vec![0.0; out.len()];
        for v in 0..block.num_dst {
            for h in 0..heads {
                let at = (v * heads + h) * cols;
                let score = |e: usize| f64::from(scale) * dot(&query[at..at + cols], &rows[e * cols..]);
                let scores: Vec<f64> = block.edges(v).map(score).collect();
                let max = scores.iter().fold(f64::NEG_INFINITY, |m, x| m.max(*x));
                let total: f64 = scores.iter().map(|x| (x - max).exp()).sum();
                for (e, score) in block.edges(v).zip(scores) {
                    let x = (score - max).exp() / total;
                    alpha[e * heads + h] = x as f32;
                    let x = x * dropout.factor(e, h);
                    if drops {
                        used[e * heads + h] = x as f32;
                    }
                    let row = &rows[e * cols..(e + 1) * cols];
                    sums[at..at + cols].iter_mut().zip(row).for_each(|(sum, r)| *sum += x * f64::from(*r));
                }
            }
        }
        out.iter_mut().zip(sums).for_each(|(x, sum)| *x = sum as f32);
    }
}

impl Operation for EdgeAttention<'_> {
    fn check(&self) {
        let of_entries = [self.alpha.as_view(), self.used.as_view()];
        let written = if self.dropout.threshold() == 0 { 1 } else { 2 };
        check(self.block, self.rows, self.query, &of_entries[..written], self.out.as_view());
    }
}

/// Gradients of [`EdgeAttention`].
#[derive(Debug)]
pub struct EdgeAttentionBackward<'a> {
    /// The edges.
    pub block: &'a Block,
    /// Edges' rows, `E x F`.
    pub rows: View<'a>,
    /// Destinations' rows, `D x (H F)`.
    pub query: View<'a>,
    /// Factor of the scores.
    pub scale: f32,
    /// Dropout of the attention weights.
    pub dropout: Dropout,
    /// Attention weights of the forward pass.
    pub alpha: View<'a>,
    /// Weights after dropout; `alpha` without dropout.
    pub used: View<'a>,
    /// Gradient of the result, `D x (H F)`.
    pub grad: View<'a>,
    /// Gradient of the scores, `(E + D) x H`; those of destinations are 0.
    pub score_grad: ViewMut<'a>,
    /// Gradient of the destinations' rows, `D x (H F)`.
    pub query_grad: ViewMut<'a>,
    /// Gradient of the first columns of the edges' rows, `E x F'` with `F' <= F`.
    pub rows_grad: ViewMut<'a>,
}

impl EdgeAttentionBackward<'_> {
    /// Computes the operation by its definition, in f64, for backends without a kernel.
    pub fn on_host(self) {
        let Self { block, rows, query, scale, dropout, alpha, used, grad, .. } = self;
        let (heads, cols, width) = (alpha.num_cols(), rows.num_cols(), self.rows_grad.num_cols());
        let (rows, query, alpha, used, grad) =
            (rows.host(), query.host(), alpha.host(), used.host(), grad.host());
        let score_grad = self.score_grad.host();
        score_grad.fill(0.0);
        let mut sums = [vec![0.0; query.len()], vec![0.0; block.num_edges() * width]];
        for v in 0..block.num_dst {
            for h in 0..heads {
                let (at, entry) = ((v * heads + h) * cols, |x: &[f32], e: usize| f64::from(x[e * heads + h]));
                let of_alpha = |e: usize| dropout.factor(e, h) * dot(&grad[at..at + cols], &rows[e * cols..]);
                let mean: f64 = block.edges(v).map(|e| entry(alpha, e) * of_alpha(e)).sum();
                for e in block.edges(v) {
                    let g = f64::from(scale) * entry(alpha, e) * (of_alpha(e) - mean);
                    score_grad[e * heads + h] = g as f32;
                    for c in 0..cols {
                        sums[0][at + c] += g * f64::from(rows[e * cols + c]);
                    }
                    for c in 0..width {
                        sums[1][e * width + c] +=
                            entry(used, e) * f64::from(grad[at + c]) + g * f64::from(query[at + c]);
                    }
                }
            }
        }
        for (grad, sum) in [self.query_grad, self.rows_grad].into_iter().zip(sums) {
            grad.host().iter_mut().zip(sum).for_each(|(x, sum)| *x = sum as f32);
        }
    }
}

impl Operation for EdgeAttentionBackward<'_> {
    fn check(&self) {
        let of_entries = [self.alpha, self.used, self.score_grad.as_view()];
        check(self.block, self.rows, self.query, &of_entries, self.grad);
        shape::same(self.query, self.query_grad.as_view());
        let (edges, width) = shape::of(self.rows_grad.as_view());
        assert_eq!(edges, self.block.num_edges(), "gradients of the edges of an attention");
        assert!(width <= self.rows.num_cols(), "columns of the edges of an attention");
    }
}

/// Dot product of `x` with the first values of `y`.
fn dot(x: &[f32], y: &[f32]) -> f64 {
    x.iter().zip(y).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum()
}
