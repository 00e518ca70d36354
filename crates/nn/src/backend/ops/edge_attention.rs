//! Attention to the rows of sources and edges, which are keys and values of all heads.
//!
//! If keys are `row K` and values `row V`, a query `q` reads `q . (row K) = (q K^T) . row`, and its
//! sum of values is `(sum of alpha row) V`. Products with `K` and `V` then have a row for each
//! destination and head, not for each edge.
//!
//! The row of an edge `e` from `u` is `[x[u] | rows[e]]`. It is never stored, so that edges share
//! the rows of their sources. In a global block, destinations with the same own row share a query.
//!
//! An attention matrix has the shape that [`super::Attend`] reads: the edges' entries, then the
//! destinations' own, which are 0 here.

use graphmill_core::Block;

use super::{Operation, shape};
use crate::{View, ViewMut, backend::Dropout};

/// Attention with scores and sums over the edges' rows:
///
/// ```text
/// row[e] = [x[u] | rows[e]] for an edge e from u
/// alpha = softmax over the edges e of v of scale query[own row of v, h] . row[e]
/// used = dropout(alpha)
/// out[v, h J + j] = sum over the edges e of v of used[e, h] row[e, j]
/// ```
#[derive(Debug)]
pub struct EdgeAttention<'a> {
    /// The edges.
    pub block: &'a Block,
    /// Sources' rows, `S x F`.
    pub x: View<'a>,
    /// Edges' rows, `E x K`.
    pub rows: View<'a>,
    /// Rows of the leading sources, all destinations among them, `Q x (H J)` with `J = F + K`.
    pub query: View<'a>,
    /// Factor of the scores.
    pub scale: f32,
    /// Dropout of the attention weights.
    pub dropout: Dropout,
    /// Attention weights, `(E + D) x H`, written.
    pub alpha: ViewMut<'a>,
    /// Weights after dropout, `(E + D) x H`, written; may be empty without dropout.
    pub used: ViewMut<'a>,
    /// Result, `D x (H J)`.
    pub out: ViewMut<'a>,
}

/// Checks rows, queries, attention matrices, and a matrix with a row for each destination.
fn check(block: &Block, [x, rows]: [View; 2], query: View, of_entries: &[View], out: View) {
    shape::block(block);
    let heads = of_entries[0].num_cols();
    let ((sources, of_sources), (edges, of_edges)) = (shape::of(x), shape::of(rows));
    assert_eq!(sources, block.num_src, "rows of the sources of an attention");
    assert_eq!(edges, block.num_edges(), "rows of the edges of an attention");
    let cols = heads * (of_sources + of_edges);
    assert_eq!(query.num_cols(), cols, "queries of an attention");
    let mut own = (0..block.num_dst).map(|v| block.own_row(v));
    assert!(own.all(|own| own < query.num_rows()), "destinations without a query");
    assert_eq!(shape::of(out), (block.num_dst, cols), "sums of an attention");
    for &x in of_entries {
        shape::entries(block, heads, x);
    }
}

/// The values of an edge's row.
struct Joined<'a> {
    block: &'a Block,
    parts: [&'a [f32]; 2],
    widths: [usize; 2],
}

impl<'a> Joined<'a> {
    fn new(block: &'a Block, parts: [View<'a>; 2]) -> Self {
        Self { block, parts: parts.map(|x| x.host()), widths: parts.map(|x| x.num_cols()) }
    }

    fn width(&self) -> usize {
        self.widths.iter().sum()
    }

    fn row(&self, e: usize) -> Vec<f64> {
        let at = [self.block.indices[e] as usize, e];
        let part = |i: usize| &self.parts[i][at[i] * self.widths[i]..][..self.widths[i]];
        [part(0), part(1)].concat().into_iter().map(f64::from).collect()
    }
}

impl EdgeAttention<'_> {
    /// Computes the operation by its definition, in f64, for backends without a kernel.
    pub fn on_host(self) {
        let Self { block, x, rows, query, scale, dropout, alpha, used, out } = self;
        let (heads, rows) = (alpha.num_cols(), Joined::new(block, [x, rows]));
        let (cols, query, alpha, used, out) =
            (rows.width(), query.host(), alpha.host(), used.host(), out.host());
        let drops = dropout.threshold() != 0;
        alpha[block.num_edges() * heads..].fill(0.0);
        if drops {
            used[block.num_edges() * heads..].fill(0.0);
        }
        let mut sums = vec![0.0; out.len()];
        for v in 0..block.num_dst {
            for h in 0..heads {
                let query = &query[(block.own_row(v) * heads + h) * cols..][..cols];
                let score = |e: usize| f64::from(scale) * dot(query, &rows.row(e));
                let scores: Vec<f64> = block.edges(v).map(score).collect();
                let max = scores.iter().fold(f64::NEG_INFINITY, |m, x| m.max(*x));
                let total: f64 = scores.iter().map(|x| (x - max).exp()).sum();
                let sums = &mut sums[(v * heads + h) * cols..][..cols];
                for (e, score) in block.edges(v).zip(scores) {
                    let x = (score - max).exp() / total;
                    alpha[e * heads + h] = x as f32;
                    let x = x * dropout.factor(e, h);
                    if drops {
                        used[e * heads + h] = x as f32;
                    }
                    sums.iter_mut().zip(rows.row(e)).for_each(|(sum, r)| *sum += x * r);
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
        check(self.block, [self.x, self.rows], self.query, &of_entries[..written], self.out.as_view());
    }
}

/// Gradients of [`EdgeAttention`]. The block is transposed.
#[derive(Debug)]
pub struct EdgeAttentionBackward<'a> {
    /// The edges.
    pub block: &'a Block,
    /// Sources' rows, `S x F`.
    pub x: View<'a>,
    /// Edges' rows, `E x K`.
    pub rows: View<'a>,
    /// Rows of the leading sources, `Q x (H J)`.
    pub query: View<'a>,
    /// Factor of the scores.
    pub scale: f32,
    /// Dropout of the attention weights.
    pub dropout: Dropout,
    /// Attention weights of the forward pass.
    pub alpha: View<'a>,
    /// Weights after dropout; `alpha` without dropout.
    pub used: View<'a>,
    /// Gradient of the result, `D x (H J)`.
    pub grad: View<'a>,
    /// Gradient of the scores, `(E + D) x H`; those of destinations are 0.
    pub score_grad: ViewMut<'a>,
    /// Gradient of each destination's query, `D x (H J)`.
    pub query_grad: ViewMut<'a>,
    /// Gradient of the sources' rows, `S x F`.
    pub x_grad: ViewMut<'a>,
    /// Gradient of the edges' rows, `E x K`, or empty: not requested.
    pub rows_grad: ViewMut<'a>,
}

impl EdgeAttentionBackward<'_> {
    /// Computes the operation by its definition, in f64, for backends without a kernel.
    pub fn on_host(self) {
        let Self { block, x, rows, query, scale, dropout, alpha, used, grad, .. } = self;
        let (heads, of_sources) = (alpha.num_cols(), x.num_cols());
        let (rows, of_edges) = (Joined::new(block, [x, rows]), rows.num_cols());
        let (cols, query, alpha, used, grad) =
            (rows.width(), query.host(), alpha.host(), used.host(), grad.host());
        let (score_grad, rows_grad) = (self.score_grad.host(), self.rows_grad.host());
        score_grad.fill(0.0);
        let of_rows = if rows_grad.is_empty() { 0 } else { of_edges };
        let lengths = [grad.len(), block.num_src * of_sources, block.num_edges() * of_rows];
        let mut sums = lengths.map(|len| vec![0.0; len]);
        for v in 0..block.num_dst {
            for h in 0..heads {
                let (at, entry) = ((v * heads + h) * cols, |x: &[f32], e: usize| f64::from(x[e * heads + h]));
                let query = &query[(block.own_row(v) * heads + h) * cols..][..cols];
                let grad = &grad[at..at + cols];
                let of_alpha = |e: usize| dropout.factor(e, h) * dot(grad, &rows.row(e));
                let mean: f64 = block.edges(v).map(|e| entry(alpha, e) * of_alpha(e)).sum();
                for e in block.edges(v) {
                    let g = f64::from(scale) * entry(alpha, e) * (of_alpha(e) - mean);
                    score_grad[e * heads + h] = g as f32;
                    let to = &mut sums[0][at..at + cols];
                    to.iter_mut().zip(rows.row(e)).for_each(|(sum, row)| *sum += g * row);
                    let term = |c: usize| entry(used, e) * f64::from(grad[c]) + g * f64::from(query[c]);
                    let to = &mut sums[1][block.indices[e] as usize * of_sources..][..of_sources];
                    to.iter_mut().zip(0..).for_each(|(sum, c)| *sum += term(c));
                    let to = &mut sums[2][e * of_rows..][..of_rows];
                    to.iter_mut().zip(of_sources..).for_each(|(sum, c)| *sum += term(c));
                }
            }
        }
        for (grad, sum) in [self.query_grad.host(), self.x_grad.host(), rows_grad].into_iter().zip(sums) {
            grad.iter_mut().zip(sum).for_each(|(x, sum)| *x = sum as f32);
        }
    }
}

impl Operation for EdgeAttentionBackward<'_> {
    fn check(&self) {
        let of_entries = [self.alpha, self.used, self.score_grad.as_view()];
        check(self.block, [self.x, self.rows], self.query, &of_entries, self.grad);
        shape::same(self.grad, self.query_grad.as_view());
        shape::same(self.x, self.x_grad.as_view());
        let (block, of_rows) = (self.block, shape::of(self.rows_grad.as_view()));
        assert!(of_rows == shape::of(self.rows) || of_rows.0 * of_rows.1 == 0, "gradient of edges' rows");
        let t = &block.transposed;
        assert!(block.is_transposed() && block.grad_src.is_none(), "a gradient requires a transposed block");
        assert_eq!(t.edge.len(), block.num_edges(), "a block's transpose");
    }
}

/// Dot product of `x` with the first values of `y`.
fn dot(x: &[f32], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(&x, &y)| f64::from(x) * y).sum()
}
