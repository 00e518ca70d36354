//! Rows as `heads` adjacent column ranges: dot products with one vector per head, and means over
//! heads.

use super::{
    columns,
    level::{Isa, kernel},
    parallel::{self, Rows},
    row_norm::dot,
};
use crate::backend::ops::{HeadDot, HeadDotBackward, HeadMean, HeadMeanBackward};

pub(super) fn head_dot(op: HeadDot) {
    let width = op.width();
    let HeadDot { z, a, heads, out } = op;
    let (isa, cols, z, a) = (Isa::current(), z.num_cols(), z.host(), a.host());
    let rows = out.num_rows();
    parallel::rows(rows, cols, Rows { data: out.host(), width: heads }, |range, out| {
        dot_rows(isa, &z[range.start * cols..range.end * cols], a, heads, width, out.data);
    });
}

pub(super) fn head_dot_backward(op: HeadDotBackward) {
    let width = op.width();
    let HeadDotBackward { z, a, heads, grad, z_grad, a_grad } = op;
    let (isa, rows, cols) = (Isa::current(), z.num_rows(), z.num_cols());
    let (z, a, grad) = (z.host(), a.host(), grad.host());
    let parts = Rows { data: z_grad.host(), width: cols };
    let sums = columns::sums(rows, cols, parts, |range, z_grad, sums| {
        let z = &z[range.start * cols..range.end * cols];
        let grad = &grad[range.start * heads..range.end * heads];
        dot_back_rows(isa, z, a, heads, width, grad, z_grad.data, sums);
    });
    columns::add_to(a_grad, &sums);
}

pub(super) fn head_mean(op: HeadMean) {
    let HeadMean { x, heads, out } = op;
    let width = out.num_cols();
    let (isa, rows, cols, x) = (Isa::current(), x.num_rows(), x.num_cols(), x.host());
    parallel::rows(rows, cols, Rows { data: out.host(), width }, |range, out| {
        mean_rows(isa, &x[range.start * cols..range.end * cols], heads, width, out.data);
    });
}

pub(super) fn head_mean_backward(op: HeadMeanBackward) {
    let HeadMeanBackward { grad, heads, x_grad } = op;
    let width = grad.num_cols();
    let (isa, rows, cols) = (Isa::current(), x_grad.num_rows(), x_grad.num_cols());
    let grad = grad.host();
    parallel::rows(rows, cols, Rows { data: x_grad.host(), width: cols }, |range, x_grad| {
        mean_back_rows(isa, &grad[range.start * width..range.end * width], heads, width, x_grad.data);
    });
}

kernel! {
    fn dot_rows[](s: S, z: &[f32], a: &[f32], heads: usize, width: usize, out: &mut [f32]) {
        if width == 0 {
            out.fill(0.0);
            return;
        }
        for (z, out) in z.chunks_exact(heads * width).zip(out.chunks_exact_mut(heads)) {
            for ((z, a), out) in z.chunks_exact(width).zip(a.chunks_exact(width)).zip(out) {
                *out = dot(s, z, a);
            }
        }
    }

    /// Computes `z_grad += grad a`, `sums += grad z`.
    fn dot_back_rows[](
        s: S, z: &[f32], a: &[f32], heads: usize, width: usize, grad: &[f32], z_grad: &mut [f32],
        sums: &mut [f32],
    ) {
        if width == 0 {
            return;
        }
        let cols = heads * width;
        let rows = z.chunks_exact(cols).zip(z_grad.chunks_exact_mut(cols));
        for ((z, z_grad), grad) in rows.zip(grad.chunks_exact(heads)) {
            for (h, &g) in grad.iter().enumerate() {
                let head = h * width..(h + 1) * width;
                let (z, a) = (&z[head.clone()], &a[head.clone()]);
                let (z_grad, sums) = (&mut z_grad[head.clone()], &mut sums[head]);
                let g = s.splat(g);
                let mut c = 0;
                while c < width {
                    let new_grad = s.mul_add(g, s.load(a, c), s.load(z_grad, c));
                    let new_sum = s.mul_add(g, s.load(z, c), s.load(sums, c));
                    s.store(z_grad, c, new_grad);
                    s.store(sums, c, new_sum);
                    c += S::LANES;
                }
            }
        }
    }

    fn mean_rows[](s: S, x: &[f32], heads: usize, width: usize, out: &mut [f32]) {
        if width == 0 {
            return;
        }
        let inverse = s.splat(1.0 / heads as f32);
        for (x, out) in x.chunks_exact(heads * width).zip(out.chunks_exact_mut(width)) {
            let mut c = 0;
            while c < width {
                let mut sum = s.splat(0.0);
                for x in x.chunks_exact(width) {
                    sum = s.add(sum, s.load(x, c));
                }
                s.store(out, c, s.mul(sum, inverse));
                c += S::LANES;
            }
        }
    }

    fn mean_back_rows[](s: S, grad: &[f32], heads: usize, width: usize, x_grad: &mut [f32]) {
        if width == 0 {
            return;
        }
        let inverse = s.splat(1.0 / heads as f32);
        for (grad, x_grad) in grad.chunks_exact(width).zip(x_grad.chunks_exact_mut(heads * width)) {
            for x_grad in x_grad.chunks_exact_mut(width) {
                let mut c = 0;
                while c < width {
                    s.store(x_grad, c, s.mul(s.load(grad, c), inverse));
                    c += S::LANES;
                }
            }
        }
    }
}
