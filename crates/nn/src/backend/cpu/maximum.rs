//! Elementwise maxima over the edges of a block, and their gradient.

use std::ops::Range;

use graphmill_core::Block;

use super::{
    level::{Isa, kernel, prefetch},
    parallel::{self, Rows},
    simd::Simd,
    sum::ahead,
};
use crate::backend::ops::{AggregateMax, AggregateMaxTransposed};

/// Vectors of maxima held in registers, and of their edges.
const N: usize = 4;

/// Rows over which maxima are taken.
#[derive(Clone, Copy)]
pub(super) struct Maxima<'a> {
    block: &'a Block,
    src: &'a [f32],
    cols: usize,
}

pub(super) fn aggregate_max(op: AggregateMax) {
    let AggregateMax { block, src, dst, arg } = op;
    let cols = src.num_cols();
    arg.resize(block.num_dst, cols);
    if cols == 0 {
        return;
    }
    let (isa, job) = (Isa::current(), Maxima { block, src: src.host(), cols });
    let parts = (Rows { data: dst.host(), width: cols }, Rows { data: arg.host_mut(), width: cols });
    parallel::runs(&block.indptr, cols, parts, |rows, (dst, arg)| {
        max_rows(isa, job, rows, dst.data, arg.data);
    });
}

kernel! {
    fn max_rows[](s: S, job: Maxima<'_>, rows: Range<usize>, dst: &mut [f32], arg: &mut [u32]) {
        let cols = job.cols;
        let ahead = ahead(job.src, cols);
        for ((v, dst), arg) in rows.zip(dst.chunks_exact_mut(cols)).zip(arg.chunks_exact_mut(cols)) {
            for at in (0..cols).step_by(N * S::LANES) {
                let end = (at + N * S::LANES).min(cols);
                let ahead = if at == 0 { ahead } else { 0 };
                job.columns(s, v, at, ahead, &mut dst[at..end], &mut arg[at..end]);
            }
        }
    }

    fn max_back_rows[](
        s: S, block: &Block, arg: &[u32], grad: &[f32], cols: usize, rows: Range<usize>, out: &mut [f32],
    ) {
        let transposed = &block.transposed;
        for (u, out) in rows.zip(out.chunks_exact_mut(cols)) {
            out.fill(0.0);
            for k in transposed.indptr[u] as usize..transposed.indptr[u + 1] as usize {
                let v = transposed.dst[k] as usize;
                let edge = s.splat_u(transposed.edge[k]);
                let (arg, grad) = (&arg[v * cols..][..cols], &grad[v * cols..][..cols]);
                let mut c = 0;
                while c < cols {
                    let won = s.eq_u(s.load_u(arg, c), edge);
                    let gain = s.select(won, s.load(grad, c), s.splat(0.0));
                    let sum = s.add(s.load(out, c), gain);
                    s.store(out, c, sum);
                    c += S::LANES;
                }
            }
        }
    }
}

impl Maxima<'_> {
    /// Computes the columns from `at` on, as many as `dst` and `arg` have, of destination `v`.
    #[inline(always)]
    fn columns<S: Simd>(self, s: S, v: usize, at: usize, ahead: usize, dst: &mut [f32], arg: &mut [u32]) {
        let Self { block, src, cols } = self;
        let len = dst.len();
        let mut edges = block.edges(v);
        let Some(first) = edges.next() else {
            dst.fill(0.0);
            arg.fill(u32::MAX);
            return;
        };
        let row = |e: usize| &src[block.indices[e] as usize * cols..][at..at + len];
        let mut best = [s.splat(0.0); N];
        let mut winner = [s.splat_u(first as u32); N];
        for (i, best) in best.iter_mut().enumerate() {
            if i * S::LANES < len {
                *best = s.load(row(first), i * S::LANES);
            }
        }
        for e in edges {
            if ahead != 0
                && let Some(&next) = block.indices.get(e + ahead)
            {
                prefetch(src, next as usize * cols, cols);
            }
            let row = row(e);
            let edge = s.splat_u(e as u32);
            for i in 0..N {
                if i * S::LANES < len {
                    let x = s.load(row, i * S::LANES);
                    let better = s.gt(x, best[i]);
                    best[i] = s.select(better, x, best[i]);
                    winner[i] = s.select_u(better, edge, winner[i]);
                }
            }
        }
        for i in 0..N {
            if i * S::LANES < len {
                s.store(dst, i * S::LANES, best[i]);
                s.store_u(arg, i * S::LANES, winner[i]);
            }
        }
    }
}

pub(super) fn aggregate_max_transposed(op: AggregateMaxTransposed) {
    let AggregateMaxTransposed { block, arg, dst_grad, src_grad } = op;
    let cols = dst_grad.num_cols();
    if cols == 0 {
        return;
    }
    let (isa, arg, grad) = (Isa::current(), arg.host(), dst_grad.host());
    let out = Rows { data: src_grad.host(), width: cols };
    parallel::runs(&block.transposed.indptr, cols, out, |rows, out| {
        max_back_rows(isa, block, arg, grad, cols, rows, out.data);
    });
}
