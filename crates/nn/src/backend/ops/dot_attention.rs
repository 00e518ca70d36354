//! Attention by dot products of query and key (HGT), normalized over all edges of a destination.
//!
//! An attention matrix has the shape that [`super::Attend`] reads: the edges' entries, then the
//! destinations' own, which are 0 here.

use graphmill_core::Block;

use super::{Operation, shape};
use crate::{View, ViewMut};

/// `alpha = softmax over the edges (u, v) of v of scale query[v, h] . key[u, h]`; a destination's
/// own entry is 0.
///
/// # Panics
/// The columns do not form `H` heads.
#[derive(Debug)]
pub struct DotSoftmax<'a> {
    /// The edges.
    pub block: &'a Block,
    /// Destinations' rows, `D x (H O)`.
    pub query: View<'a>,
    /// Sources' rows, `S x (H O)`.
    pub key: View<'a>,
    /// Factor of the scores.
    pub scale: f32,
    /// Result, `(E + D) x H`.
    pub alpha: ViewMut<'a>,
}

/// Checks queries, keys and an attention matrix.
fn dot_softmax(block: &Block, query: View, key: View, alpha: View) {
    shape::block(block);
    shape::prefix(block);
    assert_eq!(query.num_rows(), block.num_dst, "destinations of an attention");
    assert_eq!(shape::of(key), (block.num_src, query.num_cols()), "sources of an attention");
    shape::entries(block, alpha.num_cols(), alpha);
    shape::head_width(key.num_cols(), alpha.num_cols());
}

impl DotSoftmax<'_> {
    /// Width of a head, `O`.
    pub fn width(&self) -> usize {
        shape::head_width(self.key.num_cols(), self.alpha.num_cols())
    }

    /// Computes the operation by its definition, in f64, for backends without a kernel.
    pub fn on_host(self) {
        let width = self.width();
        let Self { block, query, key, scale, alpha } = self;
        let (heads, cols) = (alpha.num_cols(), key.num_cols());
        let (query, key, alpha) = (query.host(), key.host(), alpha.host());
        alpha[block.num_edges() * heads..].fill(0.0);
        for v in 0..block.num_dst {
            for h in 0..heads {
                let scores: Vec<f64> = block
                    .edges(v)
                    .map(|e| {
                        let k = &key[block.indices[e] as usize * cols + h * width..][..width];
                        f64::from(scale) * dot(&query[v * cols + h * width..][..width], k)
                    })
                    .collect();
                let max = scores.iter().fold(f64::NEG_INFINITY, |m, x| m.max(*x));
                let sum: f64 = scores.iter().map(|x| (x - max).exp()).sum();
                for (e, x) in block.edges(v).zip(scores) {
                    alpha[e * heads + h] = ((x - max).exp() / sum) as f32;
                }
            }
        }
    }
}

impl Operation for DotSoftmax<'_> {
    fn check(&self) {
        dot_softmax(self.block, self.query, self.key, self.alpha.as_view());
    }
}

/// Gradients of [`DotSoftmax`].
///
/// # Panics
/// The block is not local and transposed, or the columns do not form `H` heads.
#[derive(Debug)]
pub struct DotSoftmaxBackward<'a> {
    /// The edges, local and transposed.
    pub block: &'a Block,
    /// Destinations' rows, `D x (H O)`.
    pub query: View<'a>,
    /// Sources' rows, `S x (H O)`.
    pub key: View<'a>,
    /// Factor of the scores.
    pub scale: f32,
    /// Result of the forward pass, `(E + D) x H`.
    pub alpha: View<'a>,
    /// Its gradient.
    pub alpha_grad: View<'a>,
    /// Scratch of the same shape.
    pub scratch: ViewMut<'a>,
    /// Gradient of the destinations' rows, `D x (H O)`.
    pub query_grad: ViewMut<'a>,
    /// Gradient of the sources' rows, `S' x (H O)`.
    pub key_grad: ViewMut<'a>,
}

impl DotSoftmaxBackward<'_> {
    /// Computes the operation by its definition, in f64, for backends without a kernel.
    pub fn on_host(self) {
        let Self { block, query, key, scale, alpha, alpha_grad, query_grad, key_grad, .. } = self;
        let (heads, cols) = (alpha.num_cols(), key.num_cols());
        let width = shape::head_width(cols, heads);
        let (query, key, alpha, alpha_grad) = (query.host(), key.host(), alpha.host(), alpha_grad.host());
        let mut sums = [vec![0.0; query.len()], vec![0.0; key.len()]];
        for v in 0..block.num_dst {
            for h in 0..heads {
                let entry = |x: &[f32], e: usize| f64::from(x[e * heads + h]);
                let mean: f64 = block.edges(v).map(|e| entry(alpha, e) * entry(alpha_grad, e)).sum();
                for e in block.edges(v) {
                    let g = f64::from(scale) * entry(alpha, e) * (entry(alpha_grad, e) - mean);
                    let (q, k) = (v * cols + h * width, block.indices[e] as usize * cols + h * width);
                    for c in 0..width {
                        sums[0][q + c] += g * f64::from(key[k + c]);
                        sums[1][k + c] += g * f64::from(query[q + c]);
                    }
                }
            }
        }
        for (grad, sum) in [query_grad, key_grad].into_iter().zip(sums) {
            grad.host().iter_mut().zip(sum).for_each(|(x, sum)| *x = sum as f32);
        }
    }
}

impl Operation for DotSoftmaxBackward<'_> {
    fn check(&self) {
        dot_softmax(self.block, self.query, self.key, self.alpha);
        shape::local(self.block);
        shape::same(self.alpha, self.alpha_grad);
        shape::same(self.alpha, self.scratch.as_view());
        shape::same(self.query, self.query_grad.as_view());
        shape::source_grad(self.block, self.key, self.key_grad.as_view());
    }
}

fn dot(x: &[f32], y: &[f32]) -> f64 {
    x.iter().zip(y).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum()
}
