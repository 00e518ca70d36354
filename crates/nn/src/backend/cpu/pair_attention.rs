//! Attention whose scores read both ends of an edge at once, and its gradients (GATv2).

use std::ops::Range;

use graphmill_core::Block;

use super::{
    attention::{entries, softmax_rows},
    columns,
    level::{Isa, kernel, prefetch},
    parallel::{self, Rows, Runs},
};
use crate::backend::ops::{PairSoftmax, PairSoftmaxBackward};

/// Number of edges between a prefetch of a source's row and its use.
const PREFETCH_DISTANCE: usize = 8;

/// Rows that the scores read.
#[derive(Clone, Copy)]
pub(super) struct Pairs<'a> {
    block: &'a Block,
    heads: usize,
    width: usize,
    left: &'a [f32],
    right: &'a [f32],
    /// Rows of the entries, or empty.
    edge: &'a [f32],
    vector: &'a [f32],
    slope: f32,
}

impl<'a> Pairs<'a> {
    /// Row of an entry; empty if there are none.
    #[inline(always)]
    fn edge_row(&self, e: usize) -> &'a [f32] {
        let cols = self.heads * self.width;
        if self.edge.is_empty() { &[] } else { &self.edge[e * cols..][..cols] }
    }
}

pub(super) fn pair_softmax(op: PairSoftmax) {
    let width = op.width();
    let PairSoftmax { block, left, right, edge, vector, slope, alpha } = op;
    let heads = alpha.num_cols();
    let isa = Isa::current();
    let pairs = Pairs {
        block,
        heads,
        width,
        left: left.host(),
        right: right.host(),
        edge: edge.map_or(&[], |edge| edge.host()),
        vector: vector.host(),
        slope,
    };
    let parts = entries(block, alpha.host(), heads);
    parallel::runs(&block.indptr, heads * (8 + width), parts, |rows, (edges, own)| {
        scores(isa, pairs, rows.clone(), edges.data, own.data);
        // the slope 1 leaves the scores as they are
        softmax_rows(isa, block, heads, 1.0, rows, edges.data, own.data);
    });
}

pub(super) fn pair_softmax_backward(op: PairSoftmaxBackward) {
    let width = op.width();
    let PairSoftmaxBackward { block, left, right, edge, vector, slope, alpha, alpha_grad, .. } = op;
    let (mut scratch, left_grad, right_grad) = (op.scratch, op.left_grad, op.right_grad);
    let (heads, cols) = (alpha.num_cols(), left.num_cols());
    let isa = Isa::current();
    let (alpha, alpha_grad) = (alpha.host(), alpha_grad.host());
    let parts = entries(block, scratch.reborrow().host(), heads);
    parallel::runs(&block.indptr, 4 * heads, parts, |rows, (edges, own)| {
        score_gradients(block, heads, alpha, alpha_grad, rows, edges.data, own.data);
    });
    let grads = scratch.as_view().host();
    let pairs = Pairs {
        block,
        heads,
        width,
        left: left.host(),
        right: right.host(),
        edge: edge.map_or(&[], |edge| edge.host()),
        vector: vector.host(),
        slope,
    };
    let (edge_width, all) = match op.edge_grad {
        Some(edge_grad) => (cols, edge_grad.host()),
        None => (0, &mut [][..]),
    };
    let (of_edges, of_own) = all.split_at_mut(block.num_edges() * edge_width);
    let edges = Runs { data: of_edges, indptr: &block.indptr, width: edge_width };
    let parts =
        (Rows { data: right_grad.host(), width: cols }, edges, Rows { data: of_own, width: edge_width });
    let sums = columns::sums(block.num_dst, cols, parts, |rows, (right, edges, own), sums| {
        to_destinations(isa, pairs, rows, grads, right.data, edges.data, own.data, sums);
    });
    columns::add_to(op.vector_grad, &sums);
    let t = &block.transposed;
    let parts = Rows { data: left_grad.host(), width: cols };
    parallel::runs(&t.indptr, cols, parts, |rows, left| {
        to_sources(isa, pairs, rows, grads, left.data);
    });
}

/// Gradients of the scores of some destinations' entries.
fn score_gradients(
    block: &Block,
    heads: usize,
    alpha: &[f32],
    alpha_grad: &[f32],
    rows: Range<usize>,
    edges: &mut [f32],
    own: &mut [f32],
) {
    let base = block.indptr[rows.start] as usize;
    let first = rows.start;
    for v in rows {
        let run = block.edges(v);
        let at_own = (block.num_edges() + v) * heads;
        for h in 0..heads {
            let entries = || run.clone().map(|e| e * heads + h).chain([at_own + h]);
            let mean: f32 = entries().map(|i| alpha[i] * alpha_grad[i]).sum();
            for e in run.clone() {
                let i = e * heads + h;
                edges[(e - base) * heads + h] = alpha[i] * (alpha_grad[i] - mean);
            }
            let i = at_own + h;
            own[(v - first) * heads + h] = alpha[i] * (alpha_grad[i] - mean);
        }
    }
}

kernel! {
    /// Computes the scores of some destinations' entries.
    fn scores[](s: S, of: Pairs, rows: Range<usize>, edges: &mut [f32], own: &mut [f32]) {
        let Pairs { block, heads, width, left, right, vector, .. } = of;
        let (cols, slope) = (heads * width, s.splat(of.slope));
        let (base, first) = (block.indptr[rows.start] as usize, rows.start);
        for v in rows {
            let at = block.own_row(v);
            let target = &right[at * cols..][..cols];
            for e in block.edges(v).chain([block.num_edges() + v]) {
                let is_own = e >= block.num_edges();
                let u = if is_own { at } else { block.indices[e] as usize };
                if let Some(&ahead) = block.indices.get(e + PREFETCH_DISTANCE) {
                    prefetch(left, ahead as usize * cols, cols);
                }
                let (source, edge) = (&left[u * cols..][..cols], of.edge_row(e));
                let out = if is_own {
                    &mut own[(v - first) * heads..][..heads]
                } else {
                    &mut edges[(e - base) * heads..][..heads]
                };
                for (h, out) in out.iter_mut().enumerate() {
                    let head = h * width..(h + 1) * width;
                    let (x, y, a) = (&source[head.clone()], &target[head.clone()], &vector[head.clone()]);
                    let edge = if edge.is_empty() { edge } else { &edge[head] };
                    let mut sum = s.splat(0.0);
                    let mut c = 0;
                    while c < width {
                        let mut z = s.add(s.load(x, c), s.load(y, c));
                        if !edge.is_empty() {
                            z = s.add(z, s.load(edge, c));
                        }
                        sum = s.mul_add(s.load(a, c), s.max(z, s.mul(slope, z)), sum);
                        c += S::LANES;
                    }
                    *out = s.sum(sum);
                }
            }
        }
    }

    /// Computes the gradients of some destinations' rows and of their entries' rows, and adds
    /// those of the vectors to `sums`.
    fn to_destinations[](
        s: S, of: Pairs, rows: Range<usize>, grads: &[f32], target_grad: &mut [f32],
        edges: &mut [f32], own: &mut [f32], sums: &mut [f32],
    ) {
        let Pairs { block, heads, width, left, right, vector, .. } = of;
        let (cols, slope, one, zero) = (heads * width, s.splat(of.slope), s.splat(1.0), s.splat(0.0));
        let (base, first) = (block.indptr[rows.start] as usize, rows.start);
        target_grad.fill(0.0);
        for v in rows {
            let target = &right[v * cols..][..cols];
            let to = &mut target_grad[(v - first) * cols..][..cols];
            for e in block.edges(v).chain([block.num_edges() + v]) {
                let is_own = e >= block.num_edges();
                let u = if is_own { v } else { block.indices[e] as usize };
                let (source, edge) = (&left[u * cols..][..cols], of.edge_row(e));
                let of_entry: &mut [f32] = if edge.is_empty() {
                    &mut []
                } else if is_own {
                    &mut own[(v - first) * cols..][..cols]
                } else {
                    &mut edges[(e - base) * cols..][..cols]
                };
                for h in 0..heads {
                    let g = s.splat(grads[e * heads + h]);
                    let head = h * width..(h + 1) * width;
                    let (x, y, a) = (&source[head.clone()], &target[head.clone()], &vector[head.clone()]);
                    let (to, sums) = (&mut to[head.clone()], &mut sums[head.clone()]);
                    let edge = if edge.is_empty() { edge } else { &edge[head.clone()] };
                    let mut c = 0;
                    while c < width {
                        let mut z = s.add(s.load(x, c), s.load(y, c));
                        if !edge.is_empty() {
                            z = s.add(z, s.load(edge, c));
                        }
                        let inner = s.mul(g, s.select(s.gt(z, zero), one, slope));
                        let through = s.mul(inner, s.load(a, c));
                        let sum = s.mul_add(inner, z, s.load(sums, c));
                        s.store(sums, c, sum);
                        let sum = s.add(s.load(to, c), through);
                        s.store(to, c, sum);
                        if !edge.is_empty() {
                            s.store(&mut of_entry[head.clone()], c, through);
                        }
                        c += S::LANES;
                    }
                }
            }
        }
    }

    /// Adds to the gradients of some sources' rows.
    fn to_sources[](s: S, of: Pairs, rows: Range<usize>, grads: &[f32], source_grad: &mut [f32]) {
        let Pairs { block, heads, width, left, right, vector, .. } = of;
        let (cols, slope, one, zero) = (heads * width, s.splat(of.slope), s.splat(1.0), s.splat(0.0));
        let (t, first) = (&block.transposed, rows.start);
        for u in rows {
            let source = &left[u * cols..][..cols];
            let to = &mut source_grad[(u - first) * cols..][..cols];
            let run = t.indptr[u] as usize..t.indptr[u + 1] as usize;
            let own = (u < block.num_dst).then_some((u, block.num_edges() + u));
            let of_edges = run.map(|i| (t.dst[i] as usize, t.edge[i] as usize));
            for (v, e) in of_edges.chain(own) {
                let (target, edge) = (&right[v * cols..][..cols], of.edge_row(e));
                for h in 0..heads {
                    let g = s.splat(grads[e * heads + h]);
                    let head = h * width..(h + 1) * width;
                    let (x, y, a) = (&source[head.clone()], &target[head.clone()], &vector[head.clone()]);
                    let to = &mut to[head.clone()];
                    let edge = if edge.is_empty() { edge } else { &edge[head] };
                    let mut c = 0;
                    while c < width {
                        let mut z = s.add(s.load(x, c), s.load(y, c));
                        if !edge.is_empty() {
                            z = s.add(z, s.load(edge, c));
                        }
                        let inner = s.mul(g, s.select(s.gt(z, zero), one, slope));
                        let sum = s.mul_add(inner, s.load(a, c), s.load(to, c));
                        s.store(to, c, sum);
                        c += S::LANES;
                    }
                }
            }
        }
    }
}
