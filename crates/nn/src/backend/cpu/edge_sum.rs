//! Sums over edges of functions of the sources' rows and the edges' rows, and their gradients.

use std::ops::Range;

use graphmill_core::Block;

use super::{
    level::{Isa, kernel, prefetch},
    math,
    parallel::{self, Rows, Runs},
    simd::Simd,
};
use crate::{
    ViewMut,
    backend::ops::{Gated, GatedSum, GatedSumBackward, ReluSum, ReluSumBackward},
};

/// Number of edges between a prefetch of a source's row and its use.
const PREFETCH_DISTANCE: usize = 8;

pub(super) fn relu_sum(op: ReluSum) {
    let ReluSum { block, x, edge, out } = op;
    let (isa, cols, x, edge) = (Isa::current(), x.num_cols(), x.host(), edge.host());
    parallel::runs(&block.indptr, cols, Rows { data: out.host(), width: cols }, |rows, out| {
        relu_rows(isa, block, cols, rows, x, edge, out.data);
    });
}

pub(super) fn relu_sum_backward(op: ReluSumBackward) {
    let ReluSumBackward { block, x, edge, grad, x_grad, edge_grad } = op;
    let (isa, cols) = (Isa::current(), x.num_cols());
    let (x, edge, grad) = (x.host(), edge.host(), grad.host());
    let parts = Runs { data: edge_grad.host(), indptr: &block.indptr, width: cols };
    parallel::runs(&block.indptr, cols, parts, |rows, edges| {
        relu_to_edges(isa, block, cols, rows, x, edge, grad, edges.data);
    });
    let Some(x_grad) = x_grad else { return };
    let t = &block.transposed;
    parallel::runs(&t.indptr, cols, Rows { data: x_grad.host(), width: cols }, |rows, out| {
        relu_to_sources(isa, block, cols, rows, x, edge, grad, out.data);
    });
}

/// Rows of a gated sum.
#[derive(Clone, Copy)]
pub(super) struct Gates<'a> {
    block: &'a Block,
    cols: usize,
    target: &'a [f32],
    source: &'a [f32],
    value: &'a [f32],
    /// Edges' parts of the gates and values, or empty.
    edge: [&'a [f32]; 2],
}

impl<'a> Gates<'a> {
    fn new(of: Gated<'a>) -> Self {
        let edge = of.edge.map_or([&[][..], &[][..]], |edge| edge.map(|edge| edge.host()));
        let cols = of.source.num_cols();
        let (target, source, value) = (of.target.host(), of.source.host(), of.value.host());
        Self { block: of.block, cols, target, source, value, edge }
    }

    /// Gate and gated value of the columns `c..` of edge `e` from `u` to `v`.
    #[inline(always)]
    fn at<S: Simd>(&self, s: S, [v, e, u]: [usize; 3], c: usize) -> (S::F, S::F) {
        let row = |x: &'a [f32], r: usize| &x[r * self.cols..][..self.cols];
        let mut z = s.add(s.load(row(self.target, v), c), s.load(row(self.source, u), c));
        let mut value = s.load(row(self.value, u), c);
        if !self.edge[0].is_empty() {
            z = s.add(z, s.load(row(self.edge[0], e), c));
            value = s.add(value, s.load(row(self.edge[1], e), c));
        }
        let one = s.splat(1.0);
        let e = math::exp(s, s.sub(s.splat(0.0), z));
        (s.div(one, s.add(one, e)), value)
    }
}

pub(super) fn gated_sum(op: GatedSum) {
    let GatedSum { of, out } = op;
    let (isa, gates) = (Isa::current(), Gates::new(of));
    let parts = Rows { data: out.host(), width: gates.cols };
    parallel::runs(&of.block.indptr, 4 * gates.cols, parts, |rows, out| {
        gated_rows(isa, gates, rows, out.data);
    });
}

pub(super) fn gated_sum_backward(op: GatedSumBackward) {
    let GatedSumBackward { of, grad, target_grad, source_grad, value_grad, edge_grad } = op;
    let (isa, gates, grad) = (Isa::current(), Gates::new(of), grad.host());
    let (block, cols) = (of.block, gates.cols);
    let (width, [gate, value]) = match edge_grad {
        Some(edge_grad) => (cols, edge_grad.map(ViewMut::host)),
        None => (0, [&mut [][..], &mut [][..]]),
    };
    let runs = |data| Runs { data, indptr: &block.indptr[..], width };
    let parts = (Rows { data: target_grad.host(), width: cols }, runs(gate), runs(value));
    parallel::runs(&block.indptr, 4 * cols, parts, |rows, (target, gate, value)| {
        gated_to_destinations(isa, gates, rows, grad, target.data, gate.data, value.data);
    });
    let rows = |data| Rows { data, width: cols };
    let parts = (rows(source_grad.host()), rows(value_grad.host()));
    parallel::runs(&block.transposed.indptr, 4 * cols, parts, |rows, (source, value)| {
        gated_to_sources(isa, gates, rows, grad, source.data, value.data);
    });
}

kernel! {
    fn relu_rows[](
        s: S, block: &Block, cols: usize, rows: Range<usize>, x: &[f32], edge: &[f32], out: &mut [f32],
    ) {
        let (zero, first) = (s.splat(0.0), rows.start);
        out.fill(0.0);
        for v in rows {
            let out = &mut out[(v - first) * cols..][..cols];
            for e in block.edges(v) {
                if let Some(&ahead) = block.indices.get(e + PREFETCH_DISTANCE) {
                    prefetch(x, ahead as usize * cols, cols);
                }
                let x = &x[block.indices[e] as usize * cols..][..cols];
                let edge = &edge[e * cols..][..cols];
                let mut c = 0;
                while c < cols {
                    let z = s.max(s.add(s.load(x, c), s.load(edge, c)), zero);
                    let sum = s.add(s.load(out, c), z);
                    s.store(out, c, sum);
                    c += S::LANES;
                }
            }
        }
    }

    fn relu_to_edges[](
        s: S, block: &Block, cols: usize, rows: Range<usize>, x: &[f32], edge: &[f32], grad: &[f32],
        out: &mut [f32],
    ) {
        let (zero, base) = (s.splat(0.0), block.indptr[rows.start] as usize);
        for v in rows {
            let grad = &grad[v * cols..][..cols];
            for e in block.edges(v) {
                let x = &x[block.indices[e] as usize * cols..][..cols];
                let edge = &edge[e * cols..][..cols];
                let out = &mut out[(e - base) * cols..][..cols];
                let mut c = 0;
                while c < cols {
                    let z = s.add(s.load(x, c), s.load(edge, c));
                    let g = s.select(s.gt(z, zero), s.load(grad, c), zero);
                    s.store(out, c, g);
                    c += S::LANES;
                }
            }
        }
    }

    fn relu_to_sources[](
        s: S, block: &Block, cols: usize, rows: Range<usize>, x: &[f32], edge: &[f32], grad: &[f32],
        out: &mut [f32],
    ) {
        let (t, zero, first) = (&block.transposed, s.splat(0.0), rows.start);
        out.fill(0.0);
        for u in rows {
            let x = &x[u * cols..][..cols];
            let out = &mut out[(u - first) * cols..][..cols];
            for i in t.indptr[u] as usize..t.indptr[u + 1] as usize {
                let grad = &grad[t.dst[i] as usize * cols..][..cols];
                let edge = &edge[t.edge[i] as usize * cols..][..cols];
                let mut c = 0;
                while c < cols {
                    let z = s.add(s.load(x, c), s.load(edge, c));
                    let g = s.select(s.gt(z, zero), s.load(grad, c), zero);
                    let sum = s.add(s.load(out, c), g);
                    s.store(out, c, sum);
                    c += S::LANES;
                }
            }
        }
    }

    fn gated_rows[](s: S, of: Gates, rows: Range<usize>, out: &mut [f32]) {
        let (cols, first) = (of.cols, rows.start);
        out.fill(0.0);
        for v in rows {
            let out = &mut out[(v - first) * cols..][..cols];
            for e in of.block.edges(v) {
                let u = of.block.indices[e] as usize;
                let mut c = 0;
                while c < cols {
                    let (gate, value) = of.at(s, [v, e, u], c);
                    let sum = s.mul_add(gate, value, s.load(out, c));
                    s.store(out, c, sum);
                    c += S::LANES;
                }
            }
        }
    }

    /// Computes the gradients of some destinations' parts and of their edges' parts.
    fn gated_to_destinations[](
        s: S, of: Gates, rows: Range<usize>, grad: &[f32], target: &mut [f32], gates: &mut [f32],
        values: &mut [f32],
    ) {
        let (cols, first, one) = (of.cols, rows.start, s.splat(1.0));
        let base = of.block.indptr[rows.start] as usize;
        target.fill(0.0);
        for v in rows {
            let grad = &grad[v * cols..][..cols];
            let to = &mut target[(v - first) * cols..][..cols];
            for e in of.block.edges(v) {
                let u = of.block.indices[e] as usize;
                let at = (e - base) * cols;
                let mut c = 0;
                while c < cols {
                    let (gate, value) = of.at(s, [v, e, u], c);
                    let of_value = s.mul(s.load(grad, c), gate);
                    let of_gate = s.mul(s.mul(of_value, value), s.sub(one, gate));
                    let sum = s.add(s.load(to, c), of_gate);
                    s.store(to, c, sum);
                    if !gates.is_empty() {
                        s.store(&mut gates[at..at + cols], c, of_gate);
                        s.store(&mut values[at..at + cols], c, of_value);
                    }
                    c += S::LANES;
                }
            }
        }
    }

    /// Computes the gradients of some sources' parts of the gates, and of their values.
    fn gated_to_sources[](
        s: S, of: Gates, rows: Range<usize>, grad: &[f32], source: &mut [f32], values: &mut [f32],
    ) {
        let (cols, first, one) = (of.cols, rows.start, s.splat(1.0));
        let t = &of.block.transposed;
        source.fill(0.0);
        values.fill(0.0);
        for u in rows {
            let to = (u - first) * cols..(u - first + 1) * cols;
            let (source, values) = (&mut source[to.clone()], &mut values[to]);
            for i in t.indptr[u] as usize..t.indptr[u + 1] as usize {
                let (v, e) = (t.dst[i] as usize, t.edge[i] as usize);
                let grad = &grad[v * cols..][..cols];
                let mut c = 0;
                while c < cols {
                    let (gate, value) = of.at(s, [v, e, u], c);
                    let of_value = s.mul(s.load(grad, c), gate);
                    let of_gate = s.mul(s.mul(of_value, value), s.sub(one, gate));
                    let sum = s.add(s.load(source, c), of_gate);
                    s.store(source, c, sum);
                    let sum = s.add(s.load(values, c), of_value);
                    s.store(values, c, sum);
                    c += S::LANES;
                }
            }
        }
    }
}
