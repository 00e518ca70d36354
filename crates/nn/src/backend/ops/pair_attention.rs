//! Attention whose scores read both ends of an edge at once, with rows of the edges (GATv2).
//!
//! An attention matrix has a row per edge, then one per destination, which attends to itself.

use std::borrow::Cow;

use graphmill_core::Block;

use super::{Operation, shape};
use crate::{View, ViewMut};

/// `alpha = softmax over e in {edges of v, v itself} of a[h] . leaky_relu(left[u, h] + right[own
/// row of v, h] + edge[e, h])`.
///
/// # Panics
/// The columns do not form `H` heads.
#[derive(Debug)]
pub struct PairSoftmax<'a> {
    /// The edges.
    pub block: &'a Block,
    /// Sources' rows, `S x (H O)`.
    pub left: View<'a>,
    /// Destinations' rows, `S x (H O)`; `D x (H O)` suffices for a local block.
    pub right: View<'a>,
    /// Rows of the entries, `(E + D) x (H O)`, if there are any.
    pub edge: Option<View<'a>>,
    /// A vector for each head, `1 x (H O)`.
    pub vector: View<'a>,
    /// Slope of the leaky ReLU below 0, at most 1.
    pub slope: f32,
    /// Result, `(E + D) x H`.
    pub alpha: ViewMut<'a>,
}

/// Checks the rows of both ends and of the edges, and an attention matrix.
fn pair(block: &Block, rows: [View; 3], edge: Option<View>, alpha: View, slope: f32) {
    let [left, right, vector] = rows;
    shape::block(block);
    shape::prefix(block);
    let cols = left.num_cols();
    assert_eq!(left.num_rows(), block.num_src, "sources of an attention");
    let at_least = if block.dst_ids.is_some() { block.num_src } else { block.num_dst };
    assert!(
        right.num_cols() == cols && (at_least..=block.num_src).contains(&right.num_rows()),
        "destinations of an attention"
    );
    if let Some(edge) = edge {
        shape::entries(block, cols, edge);
    }
    shape::row(vector, cols);
    shape::entries(block, alpha.num_cols(), alpha);
    shape::head_width(cols, alpha.num_cols());
    assert!((0.0..=1.0).contains(&slope), "slope of a leaky ReLU");
}

/// The block with its arrays on the host.
pub(super) fn on_host(block: &Block) -> Cow<'_, Block> {
    if block.drawn_on_device().is_none() {
        return Cow::Borrowed(block);
    }
    let mut copy = block.clone();
    copy.fetch();
    Cow::Owned(copy)
}

/// Entries of destination `v`, with their sources: its edges, then itself.
fn entries(block: &Block, v: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
    let own = (block.num_edges() + v, block.own_row(v));
    block.edges(v).map(|e| (e, block.indices[e] as usize)).chain([own])
}

impl PairSoftmax<'_> {
    /// Width of a head, `O`.
    pub fn width(&self) -> usize {
        shape::head_width(self.left.num_cols(), self.alpha.num_cols())
    }

    /// Computes the operation by its definition, in f64, for backends without a kernel.
    pub fn on_host(self) {
        let width = self.width();
        let Self { block, left, right, edge, vector, slope, alpha } = self;
        let block = &*on_host(block);
        let (heads, cols) = (alpha.num_cols(), left.num_cols());
        let (left, right, vector) = (left.host(), right.host(), vector.host());
        let (edge, alpha) = (edge.map(|edge| edge.host()), alpha.host());
        for v in 0..block.num_dst {
            let own = block.own_row(v);
            for h in 0..heads {
                let score = |(e, u): (usize, usize)| -> f64 {
                    let columns = h * width..(h + 1) * width;
                    let term = |c: usize| {
                        let of_edge = edge.map_or(0.0, |edge| f64::from(edge[e * cols + c]));
                        let z = f64::from(left[u * cols + c]) + f64::from(right[own * cols + c]) + of_edge;
                        f64::from(vector[c]) * if z > 0.0 { z } else { f64::from(slope) * z }
                    };
                    columns.map(term).sum()
                };
                let scores: Vec<f64> = entries(block, v).map(score).collect();
                let max = scores.iter().fold(f64::NEG_INFINITY, |m, x| m.max(*x));
                let sum: f64 = scores.iter().map(|x| (x - max).exp()).sum();
                for ((e, _), x) in entries(block, v).zip(scores) {
                    alpha[e * heads + h] = ((x - max).exp() / sum) as f32;
                }
            }
        }
    }
}

impl Operation for PairSoftmax<'_> {
    fn check(&self) {
        let rows = [self.left, self.right, self.vector];
        pair(self.block, rows, self.edge, self.alpha.as_view(), self.slope);
    }
}

/// Gradients of [`PairSoftmax`].
///
/// # Panics
/// The block is not local and transposed, or the columns do not form `H` heads.
#[derive(Debug)]
pub struct PairSoftmaxBackward<'a> {
    /// The edges, local and transposed.
    pub block: &'a Block,
    /// Sources' rows, `S x (H O)`.
    pub left: View<'a>,
    /// Destinations' rows, `D x (H O)` or more.
    pub right: View<'a>,
    /// Rows of the entries, `(E + D) x (H O)`, if there are any.
    pub edge: Option<View<'a>>,
    /// A vector for each head, `1 x (H O)`.
    pub vector: View<'a>,
    /// Slope of the leaky ReLU below 0.
    pub slope: f32,
    /// Result of the forward pass, `(E + D) x H`.
    pub alpha: View<'a>,
    /// Its gradient.
    pub alpha_grad: View<'a>,
    /// Scratch of the same shape.
    pub scratch: ViewMut<'a>,
    /// Gradient of the sources' rows, `S' x (H O)`, added to.
    pub left_grad: ViewMut<'a>,
    /// Gradient of the destinations' rows, `D x (H O)`.
    pub right_grad: ViewMut<'a>,
    /// Gradient of the entries' rows, if there are any.
    pub edge_grad: Option<ViewMut<'a>>,
    /// Gradient of the vectors, added to.
    pub vector_grad: ViewMut<'a>,
}

impl PairSoftmaxBackward<'_> {
    /// Width of a head, `O`.
    pub fn width(&self) -> usize {
        shape::head_width(self.left.num_cols(), self.alpha.num_cols())
    }

    /// Computes the operation by its definition, in f64, for backends without a kernel.
    pub fn on_host(self) {
        let width = self.width();
        let Self { block, left, right, edge, vector, slope, alpha, alpha_grad, .. } = self;
        let block = &*on_host(block);
        let (heads, cols) = (alpha.num_cols(), left.num_cols());
        let (left, right, vector) = (left.host(), right.host(), vector.host());
        let (edge, alpha, alpha_grad) = (edge.map(|edge| edge.host()), alpha.host(), alpha_grad.host());
        let mut sums = [vec![0.0; left.len()], vec![0.0; block.num_dst * cols], vec![0.0; cols]];
        let mut of_edges = vec![0.0; if edge.is_some() { alpha.len() * width } else { 0 }];
        for v in 0..block.num_dst {
            for h in 0..heads {
                let entry = |x: &[f32], e: usize| f64::from(x[e * heads + h]);
                let mean: f64 = entries(block, v).map(|(e, _)| entry(alpha, e) * entry(alpha_grad, e)).sum();
                for (e, u) in entries(block, v) {
                    let g = entry(alpha, e) * (entry(alpha_grad, e) - mean);
                    for c in h * width..(h + 1) * width {
                        let of_edge = edge.map_or(0.0, |edge| f64::from(edge[e * cols + c]));
                        let z = f64::from(left[u * cols + c]) + f64::from(right[v * cols + c]) + of_edge;
                        let slope = if z > 0.0 { 1.0 } else { f64::from(slope) };
                        let through = g * f64::from(vector[c]) * slope;
                        sums[0][u * cols + c] += through;
                        sums[1][v * cols + c] += through;
                        sums[2][c] += g * slope * z;
                        if let Some(sum) = of_edges.get_mut(e * cols + c) {
                            *sum = through;
                        }
                    }
                }
            }
        }
        let [of_left, of_right, of_vector] = sums;
        let add = |grad: ViewMut, sums: &[f64]| {
            grad.host().iter_mut().zip(sums).for_each(|(x, sum)| *x = (f64::from(*x) + sum) as f32);
        };
        let set = |grad: ViewMut, sums: &[f64]| {
            grad.host().iter_mut().zip(sums).for_each(|(x, sum)| *x = *sum as f32);
        };
        add(self.left_grad, &of_left);
        set(self.right_grad, &of_right);
        add(self.vector_grad, &of_vector);
        if let Some(edge_grad) = self.edge_grad {
            set(edge_grad, &of_edges);
        }
    }
}

impl Operation for PairSoftmaxBackward<'_> {
    fn check(&self) {
        let rows = [self.left, self.right, self.vector];
        pair(self.block, rows, self.edge, self.alpha, self.slope);
        shape::local(self.block);
        shape::same(self.alpha, self.alpha_grad);
        shape::same(self.alpha, self.scratch.as_view());
        shape::source_grad(self.block, self.left, self.left_grad.as_view());
        let destinations = (self.block.num_dst, self.left.num_cols());
        assert_eq!(shape::of(self.right_grad.as_view()), destinations, "gradient of the destinations");
        shape::same(self.vector, self.vector_grad.as_view());
        assert_eq!(self.edge.is_some(), self.edge_grad.is_some(), "gradient of the edges' rows");
        if let Some(grad) = &self.edge_grad {
            shape::entries(self.block, self.left.num_cols(), grad.as_view());
        }
    }
}
