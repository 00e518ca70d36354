//! Bias, activation and dropout after a product, in one pass over the rows, and their gradient.

use super::{
    columns::{self, Values, add_columns},
    gemm,
    level::{Isa, kernel},
    math,
    parallel::{self, Rows},
    simd::Simd,
};
use crate::backend::{
    Activation, Dropout, Precision, Side,
    ops::{Dense, EpilogueBackward, EpilogueForward, Gemm},
};

/// An [`Activation`] as a type, so that the choice is made outside the loops.
pub(super) trait Pointwise: Copy + Send + Sync {
    fn apply<S: Simd>(self, s: S, x: S::F) -> S::F;
    /// `g` times the derivative at output `y`.
    fn back<S: Simd>(self, s: S, y: S::F, g: S::F) -> S::F;
}

#[derive(Clone, Copy)]
pub(super) struct Identity;

#[derive(Clone, Copy)]
struct Relu;

#[derive(Clone, Copy)]
struct Elu;

#[derive(Clone, Copy)]
struct LeakyRelu;

impl Pointwise for Identity {
    #[inline(always)]
    fn apply<S: Simd>(self, _: S, x: S::F) -> S::F {
        x
    }
    #[inline(always)]
    fn back<S: Simd>(self, _: S, _: S::F, g: S::F) -> S::F {
        g
    }
}

impl Pointwise for Relu {
    #[inline(always)]
    fn apply<S: Simd>(self, s: S, x: S::F) -> S::F {
        // this order preserves NaN
        s.max(s.splat(0.0), x)
    }
    #[inline(always)]
    fn back<S: Simd>(self, s: S, y: S::F, g: S::F) -> S::F {
        s.select(s.gt(y, s.splat(0.0)), g, s.splat(0.0))
    }
}

impl Pointwise for Elu {
    #[inline(always)]
    fn apply<S: Simd>(self, s: S, x: S::F) -> S::F {
        s.select(s.gt(x, s.splat(0.0)), x, math::exp_m1(s, x))
    }
    #[inline(always)]
    fn back<S: Simd>(self, s: S, y: S::F, g: S::F) -> S::F {
        s.select(s.gt(y, s.splat(0.0)), g, s.mul_add(g, y, g))
    }
}

impl Pointwise for LeakyRelu {
    #[inline(always)]
    fn apply<S: Simd>(self, s: S, x: S::F) -> S::F {
        s.select(s.gt(x, s.splat(0.0)), x, s.mul(x, s.splat(0.01)))
    }
    #[inline(always)]
    fn back<S: Simd>(self, s: S, y: S::F, g: S::F) -> S::F {
        s.select(s.gt(y, s.splat(0.0)), g, s.mul(g, s.splat(0.01)))
    }
}

/// Expands `$call` with `$act` bound to the activation's type.
macro_rules! with_activation {
    ($activation:expr, $act:ident => $call:expr) => {
        match $activation {
            Activation::Identity => {
                let $act = Identity;
                $call
            }
            Activation::Relu => {
                let $act = Relu;
                $call
            }
            Activation::Elu => {
                let $act = Elu;
                $call
            }
            Activation::LeakyRelu => {
                let $act = LeakyRelu;
                $call
            }
        }
    };
}

/// Dropout of one row: [`crate::backend::mask_hash`] for a vector of columns at a time.
struct RowMask<S: Simd> {
    key: S::U,
    /// Columns times the multiplier `SPREAD`.
    spread: S::U,
    threshold: S::U,
}

impl<S: Simd> RowMask<S> {
    #[inline(always)]
    fn new(s: S, dropout: Dropout, row: usize) -> Self {
        Self {
            key: s.splat_u(dropout.row_key(row)),
            spread: s.mul_u(s.iota(), s.splat_u(SPREAD)),
            threshold: s.splat_u(dropout.threshold()),
        }
    }

    /// Returns `x` with 0 in the dropped columns, and advances to the next columns.
    #[inline(always)]
    fn keep(&mut self, s: S, x: S::F) -> S::F {
        let h = s.xor(self.key, self.spread);
        self.spread = s.add_u(self.spread, s.splat_u(SPREAD.wrapping_mul(S::LANES as u32)));
        let h = s.mul_u(s.xor(h, s.shr(h, 16)), s.splat_u(0x7feb_352d));
        let h = s.mul_u(s.xor(h, s.shr(h, 15)), s.splat_u(0x846c_a68b));
        let h = s.xor(h, s.shr(h, 16));
        s.select(s.lt_u(h, self.threshold), s.splat(0.0), x)
    }
}

/// Multiplier of [`crate::backend::mask_hash`].
const SPREAD: u32 = 0x9e37_79b9;

pub(super) fn epilogue(op: EpilogueForward) {
    let EpilogueForward { bias, activation, dropout, x } = op;
    let (rows, cols) = (x.num_rows(), x.num_cols());
    if bias.is_none() && activation == Activation::Identity && dropout.threshold() == 0 {
        return;
    }
    let (isa, bias) = (Isa::current(), bias.map(|bias| bias.host()));
    with_activation!(activation, act => {
        parallel::rows(rows, cols, Rows { data: x.host(), width: cols }, |range, part| {
            forward_rows(isa, act, bias, dropout, range.start, cols, part.data);
        });
    });
}

/// Dense product whose rows are finished chunk by chunk, while they are in the second-level cache.
pub(super) fn dense(precision: Precision, op: Dense) {
    let Dense { x, w, plus, beta, bias, activation, dropout, out } = op;
    let cols = out.num_cols();
    let first = Gemm { a: (x, Side::Plain), b: (w, Side::Plain), beta, c: out };
    if bias.is_none() && activation == Activation::Identity && dropout.threshold() == 0 {
        return gemm::sum_then(precision, first, plus, |_, _| {});
    }
    let (isa, bias) = (Isa::current(), bias.map(|bias| bias.host()));
    with_activation!(activation, act => {
        gemm::sum_then(precision, first, plus, |range, part| {
            forward_rows(isa, act, bias, dropout, range.start, cols, part);
        });
    });
}

pub(super) fn epilogue_backward(op: EpilogueBackward) {
    let EpilogueBackward { activation, dropout, y, grad, bias_grad } = op;
    let (rows, cols) = (grad.num_rows(), grad.num_cols());
    if activation == Activation::Identity && dropout.threshold() == 0 {
        if let Some(bias_grad) = bias_grad {
            columns::add_column_sums(grad.as_view(), bias_grad);
        }
        return;
    }
    let (isa, y) = (Isa::current(), y.host());
    let grad = Rows { data: grad.host(), width: cols };
    with_activation!(activation, act => match bias_grad {
        Some(bias_grad) => {
            let sums = columns::sums(rows, cols, grad, |range, grad, sums| {
                let y = &y[range.start * cols..range.end * cols];
                backward_rows(isa, act, dropout, range.start, cols, y, grad.data, sums);
            });
            columns::add_to(bias_grad, &sums);
        }
        None => parallel::rows(rows, 2 * cols, grad, |range, grad| {
            let y = &y[range.start * cols..range.end * cols];
            backward_rows(isa, act, dropout, range.start, cols, y, grad.data, &mut []);
        }),
    });
}

kernel! {
    fn forward_rows[A: Pointwise](
        s: S, act: A, bias: Option<&[f32]>, dropout: Dropout, first: usize, cols: usize, x: &mut [f32],
    ) {
        let drops = dropout.threshold() != 0;
        let scale = s.splat(dropout.scale());
        for (r, row) in x.chunks_exact_mut(cols.max(1)).enumerate() {
            let mut mask = RowMask::new(s, dropout, first + r);
            let mut c = 0;
            while c < row.len() {
                let mut v = s.load(row, c);
                if let Some(bias) = bias {
                    v = s.add(v, s.load(bias, c));
                }
                v = act.apply(s, v);
                if drops {
                    v = mask.keep(s, s.mul(v, scale));
                }
                s.store(row, c, v);
                c += S::LANES;
            }
        }
    }

    /// `sums` is empty if the bias gradient is not requested.
    fn backward_rows[A: Pointwise](
        s: S, act: A, dropout: Dropout, first: usize, cols: usize, y: &[f32], grad: &mut [f32],
        sums: &mut [f32],
    ) {
        let drops = dropout.threshold() != 0;
        let scale = s.splat(dropout.scale());
        let unscale = s.splat(1.0 - dropout.p);
        let rows = y.chunks_exact(cols.max(1)).zip(grad.chunks_exact_mut(cols.max(1)));
        for (r, (y, grad)) in rows.enumerate() {
            let mut mask = RowMask::new(s, dropout, first + r);
            let mut c = 0;
            while c < grad.len() {
                let (mut out, mut g) = (s.load(y, c), s.load(grad, c));
                if drops {
                    out = s.mul(out, unscale);
                    g = mask.keep(s, s.mul(g, scale));
                }
                g = act.back(s, out, g);
                s.store(grad, c, g);
                c += S::LANES;
            }
        }
        // the block is still in the second-level cache
        if !sums.is_empty() {
            add_columns(s, Values(grad), grad.len() / sums.len(), sums);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{cpu::level::with_level, dropped};
    use crate::{Matrix, backend::cpu::Level};

    #[test]
    fn vector_masks_match_the_definition() {
        let dropout = Dropout { p: 0.4, key: 0x1234_5678_9abc };
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            let mut x = Matrix::from_slice(20, 37, &[1.0; 20 * 37]);
            let op =
                EpilogueForward { bias: None, activation: Activation::Identity, dropout, x: x.view_mut() };
            with_level(level, || epilogue(op));
            for (i, &x) in x.view().host().iter().enumerate() {
                assert_eq!(x == 0.0, dropped(dropout, i / 37, i % 37), "{level:?}, element {i}");
            }
        }
    }
}
