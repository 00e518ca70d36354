//! Dense products: in f32 by the `gemm` crate, in bf16 by `gemm_bf16`.
//!
//! The crate computes serially; how a product is cut into such calls is decided here, by its shape
//! alone, so the result cannot depend on the number of threads:
//!
//! - by rows of the result, and
//! - where a weight gradient reduces over many rows into a small result, by the inner dimension:
//!   every part gets a result of its own, and these are added in order. The library alone does not
//!   gain from a second thread there (256 x 100k x 47: 166 and 164 GFLOP/s), and short sums are
//!   also the more exact ones.
//!
//! A machine without instructions for bf16 rounds the factors to it and multiplies in f32: the same
//! products, slower.

use std::ops::Range;

use gemm::Parallelism;
use half::bf16;

use super::{
    Precision,
    factors::Factors,
    parallel::{Chunks, Rows},
    rows::elements,
    scratch,
    split_sum::{PARTIALS, add_parts, parts},
};
use crate::{
    ViewMut,
    backend::{
        Side,
        ops::{Gemm, WeightGradients},
    },
};

/// Multiplications in a piece of work: about a tenth of a millisecond.
const GRAIN: usize = 8 << 20;
/// Rows of the result in a piece, where pieces of [`GRAIN`] would have fewer and there are so many
/// pieces: every call packs the other factor anew, which took a quarter of the time of 8000 x 512 x
/// 512 in pieces of 48 rows.
const ROWS: usize = 192;
const PIECES: usize = 32;
/// Inner length from which a cut along it pays, and the shortest part.
const LONG: usize = 4096;

/// A factor: `data[i * rs + j * cs]`.
#[derive(Clone, Copy)]
pub(super) struct Factor<'a> {
    data: &'a [f32],
    rs: usize,
    cs: usize,
}

impl<'a> Factor<'a> {
    /// Stored as it is or transposed, in rows of `stride` values.
    pub(super) fn new(data: &'a [f32], side: Side, stride: usize) -> Self {
        match side {
            Side::Plain => Self { data, rs: stride, cs: 1 },
            Side::Transposed => Self { data, rs: 1, cs: stride },
        }
    }

    /// Element (`i`, `j`) on.
    pub(super) fn from(self, i: usize, j: usize) -> Self {
        Self { data: &self.data[i * self.rs + j * self.cs..], ..self }
    }
}

/// `c = beta c + a b`, serially: `m x k` by `k x n`; the rows of `c` are `stride` apart.
pub(super) fn product(a: Factor, b: Factor, [m, n, k]: [usize; 3], beta: f32, c: &mut [f32], stride: usize) {
    assert!((m - 1) * a.rs + (k - 1) * a.cs < a.data.len());
    assert!((k - 1) * b.rs + (n - 1) * b.cs < b.data.len());
    assert!((m - 1) * stride + n <= c.len() && n <= stride);
    // SAFETY: the last element of each matrix is inside its slice, by the lines above.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.as_mut_ptr(),
            1,
            stride as isize,
            beta != 0.0,
            a.data.as_ptr(),
            a.cs as isize,
            a.rs as isize,
            b.data.as_ptr(),
            b.cs as isize,
            b.rs as isize,
            beta,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// The product of factors rounded to `precision`.
pub(super) fn gemm(precision: Precision, op: Gemm) {
    gemm_then(precision, op, |_, _| {});
}

/// [`gemm`], and then `finish` on every run of rows of `c` (which are never cut), as soon as it is
/// there.
pub(super) fn gemm_then(precision: Precision, op: Gemm, finish: impl Fn(Range<usize>, &mut [f32]) + Sync) {
    let [m, n, k] = op.size();
    let Gemm { a: (a, side_a), b: (b, side_b), beta, c } = op;
    let c = c.host();
    if m * n == 0 {
        return;
    }
    if k == 0 {
        c.iter_mut().for_each(|x| *x = if beta == 0.0 { 0.0 } else { beta * *x });
        return finish(0..m, c);
    }
    let (a, b) = (a.host(), b.host());
    #[cfg(target_arch = "x86_64")]
    if precision == Precision::Bf16 && precision.is_native() {
        return super::gemm_bf16::gemm(Factors { a, side_a, b, side_b, k, n }, beta, c, finish);
    }
    match precision {
        Precision::F32 => by_library(Factors { a, side_a, b, side_b, k, n }, beta, c, finish),
        Precision::Bf16 => {
            let (mut room_a, mut room_b) = (scratch::take(a.len()), scratch::take(b.len()));
            let (a, b) = (rounded(a, &mut room_a), rounded(b, &mut room_b));
            by_library(Factors { a, side_a, b, side_b, k, n }, beta, c, finish);
        }
    }
}

/// All factors are rounded to `precision`. In bf16 `b` is packed once.
pub(super) fn weight_gradients(precision: Precision, op: WeightGradients) {
    #[cfg(target_arch = "x86_64")]
    if precision == Precision::Bf16 && precision.is_native() {
        let some = op.b.num_rows() * op.b.num_cols() > 0 && op.a.iter().all(|a| a.num_cols() > 0);
        if some {
            let WeightGradients { a, b, beta, c } = op;
            let widths = a.map(|a| a.num_cols());
            return super::gemm_bf16::weight_gradients(
                a.map(|a| a.host()),
                widths,
                b.host(),
                b.num_cols(),
                beta,
                c.map(ViewMut::host),
            );
        }
    }
    op.products().into_iter().for_each(|product| gemm(precision, product));
}

/// The values rounded to bf16, in `room`.
fn rounded<'r>(x: &[f32], room: &'r mut [f64]) -> &'r [f32] {
    let out = &mut bytemuck::cast_slice_mut::<f64, f32>(room)[..x.len()];
    elements(out, 1, |first, out| {
        for (out, &x) in out.iter_mut().zip(&x[first..]) {
            *out = bf16::from_f32(x).to_f32();
        }
    });
    out
}

fn by_library(
    Factors { a, side_a, b, side_b, k, n }: Factors,
    beta: f32,
    c: &mut [f32],
    finish: impl Fn(Range<usize>, &mut [f32]) + Sync,
) {
    let m = c.len() / n;
    let stride = |side, plain, transposed| if side == Side::Plain { plain } else { transposed };
    let (a, b) = (Factor::new(a, side_a, stride(side_a, k, m)), Factor::new(b, side_b, stride(side_b, n, k)));
    if side_a == Side::Transposed && k >= 2 * LONG && m * n <= PARTIALS / 2 {
        by_inner(a, b, k, m, n, beta, c);
        finish(0..m, c);
    } else {
        // whole tiles of any kernel, of at least `GRAIN` multiplications
        let packed = ROWS.min(m.div_ceil(PIECES));
        let len = (GRAIN / (n * k)).max(m.div_ceil(256)).max(packed).next_multiple_of(48);
        let chunks = Chunks::of(m, len);
        chunks.each(Rows { data: c, width: n }, &mut [], |rows, c, _: &mut [()]| {
            product(a.from(rows.start, 0), b, [rows.len(), n, k], beta, c.data, n);
            finish(rows, c.data);
        });
    }
}

fn by_inner(a: Factor, b: Factor, k: usize, m: usize, n: usize, beta: f32, c: &mut [f32]) {
    let size = m * n;
    let chunks = Chunks::of(k, k.div_ceil(parts(k, LONG / 2).min(PARTIALS / size)));
    let mut scratch = scratch::take((chunks.count() * size).div_ceil(2));
    let partials = &mut bytemuck::cast_slice_mut::<f64, f32>(&mut scratch)[..chunks.count() * size];
    chunks.each((), partials, |inner: Range<usize>, (), partial| {
        let (a, b) = (a.from(0, inner.start), b.from(inner.start, 0));
        product(a, b, [size / n, n, inner.len()], 0.0, partial, n);
    });
    add_parts(partials, size, 0, beta, c);
}
