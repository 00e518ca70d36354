//! Dense products: in f32 by [`tiles`](super::tiles) or the crate `gemm-f32`, in bf16 and in sums of
//! two bf16 by `gemm_bf16`.
//!
//! Both compute serially. The split of a product into such calls is decided here, by its
//! shape alone, so the result does not depend on the number of threads:
//!
//! - by rows of the result, and
//! - by the inner dimension, if a weight gradient reduces over many rows into a small result: every
//!   part writes a separate result, and these are added in order. The library alone does not gain
//!   from a second thread there (256 x 100k x 47: 166 and 164 GFLOP/s), and short sums are also
//!   more accurate.
//!
//! A row of the result has the same bits whatever rows are computed with it ([`row_product`]), so
//! that a prediction does not depend on the nodes that are asked for together.
//!
//! On a machine without bf16 instructions, the factors are rounded to bf16 and multiplied in f32:
//! the same products, slower.

#![allow(unsafe_code, reason = "foreign libraries")]

use std::ops::Range;

use gemm_common::Parallelism;
use gemm_f32::gemm::f32::get_gemm_fn;
use half::bf16;

use super::{
    Precision,
    factors::{Factor, Factors},
    nonzero,
    parallel::{Chunks, Rows},
    rows::elements,
    scratch,
    split_sum::{MAX_PARTIALS, parts, sum_chunks},
};
#[cfg(target_arch = "x86_64")]
use super::{gemm_bf16::Unit, tiles};
use crate::{
    View,
    backend::{
        Side,
        ops::{Gemm, WeightGradients},
    },
};

/// Multiplications per task: about a tenth of a millisecond.
const GRAIN: usize = 8 << 20;
/// Fewest multiplications per task of a product that has less than [`FEW`] tasks of [`GRAIN`]: as
/// long as it takes to wake a thread.
const MIN_GRAIN: usize = 3 << 19;
const FEW: usize = 4;
/// Minimum rows of the result per task, for products of at least [`ROW_TASKS`] such tasks, even if
/// [`GRAIN`] alone would give fewer rows. Every call packs the other factor again, which took a
/// quarter of the time of 8000 x 512 x 512 in tasks of 48 rows.
const TASK_ROWS: usize = 192;
const ROW_TASKS: usize = 32;
/// Minimum length of a part of the inner dimension.
const MIN_PART_LEN: usize = 4096;

/// Rows from which on the parts of a gradient by tiles are as long as those by the library.
#[cfg(target_arch = "x86_64")]
const LONG_SUM: usize = 1024;

/// Length of the inner dimension up to which the library sums in one piece, and the largest number
/// of rows and columns at which it cuts a longer one in its own way.
const LONG: usize = 512;
const SMALL: usize = 64;
/// Largest number of values of a result that the library sums in another order, if both factors are
/// contiguous along the inner dimension.
const TINY: usize = 256;
/// Number of partial sums of a row's product with a column, which the compiler keeps in vectors.
const LANES: usize = 16;

/// Computes `c = beta c + a b` serially: `m x k` by `k x n`; the rows of `c` are `stride` apart.
pub(super) fn product(a: Factor, b: Factor, [m, n, k]: [usize; 3], beta: f32, c: &mut [f32], stride: usize) {
    assert!(is_inside(a.data.len(), [m, k], [a.rs, a.cs]));
    assert!(is_inside(b.data.len(), [k, n], [b.rs, b.cs]));
    assert!(is_inside(c.len(), [m, n], [stride, 1]) && n <= stride);
    // The kernels write columns of the result, so they compute its transpose, unless it is a
    // column.
    let [rs, cs] = [stride as isize, 1];
    let (m, n, rs, cs, left, right) =
        if stride > 1 { (n, m, cs, rs, b.transposed(), a.transposed()) } else { (m, n, rs, cs, a, b) };
    // SAFETY: the assertions above ensure that the last element of each matrix is inside its slice.
    unsafe {
        get_gemm_fn()(
            m,
            n,
            k,
            c.as_mut_ptr(),
            cs,
            rs,
            beta != 0.0,
            left.data.as_ptr(),
            left.cs as isize,
            left.rs as isize,
            right.data.as_ptr(),
            right.cs as isize,
            right.rs as isize,
            beta,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// Returns true if a matrix of this shape with these strides has elements, and all within `len`
/// values.
fn is_inside(len: usize, [rows, columns]: [usize; 2], [rs, cs]: [usize; 2]) -> bool {
    let last = |count: usize, stride: usize| count.checked_sub(1)?.checked_mul(stride);
    let last = last(rows, rs).zip(last(columns, cs)).and_then(|(row, column)| row.checked_add(column));
    last.is_some_and(|last| last < len)
}

/// [`product`], with rows whose bits do not depend on their number. The library sums a single row
/// and tiny results in another order, and cuts a long inner dimension elsewhere if the result is
/// small; such a product is padded to the fewest rows that it computes as it does many.
pub(super) fn row_product(
    a: Factor,
    b: Factor,
    [m, n, k]: [usize; 3],
    beta: f32,
    c: &mut [f32],
    stride: usize,
) {
    if n == 1 && a.cs == 1 {
        return column_product(a, b, [m, k], beta, c, stride);
    }
    let of_tiny = if a.cs == 1 && b.rs == 1 { TINY / n + 1 } else { 0 };
    let of_long = if k > LONG && n <= SMALL { SMALL + 1 } else { 0 };
    let padded = of_tiny.max(of_long).max(2);
    if m >= padded {
        return product(a, b, [m, n, k], beta, c, stride);
    }
    let mut scratch = scratch::take((padded * (k + n)).div_ceil(2));
    let scratch = &mut bytemuck::cast_slice_mut::<f64, f32>(&mut scratch)[..padded * (k + n)];
    scratch.fill(0.0);
    let (rows, out) = scratch.split_at_mut(padded * k);
    for (i, row) in rows.chunks_exact_mut(k).take(m).enumerate() {
        row.iter_mut().enumerate().for_each(|(j, x)| *x = a.data[i * a.rs + j * a.cs]);
    }
    for (out, c) in out.chunks_exact_mut(n).zip(c.chunks(stride)) {
        out.copy_from_slice(&c[..n]);
    }
    product(Factor { data: rows, rs: k, cs: 1 }, b, [padded, n, k], beta, out, n);
    for (out, c) in out.chunks_exact(n).zip(c.chunks_mut(stride)).take(m) {
        c[..n].copy_from_slice(out);
    }
}

/// [`row_product`] by a single column. The rows of `a` are contiguous.
fn column_product(a: Factor, b: Factor, [m, k]: [usize; 2], beta: f32, c: &mut [f32], stride: usize) {
    let mut scratch = scratch::take(k.div_ceil(2));
    let column = &mut bytemuck::cast_slice_mut::<f64, f32>(&mut scratch)[..k];
    column.iter_mut().enumerate().for_each(|(j, x)| *x = b.data[j * b.rs]);
    for i in 0..m {
        let row = &a.data[i * a.rs..][..k];
        let mut sums = [0.0; LANES];
        for (row, column) in row.chunks(LANES).zip(column.chunks(LANES)) {
            sums.iter_mut().zip(row).zip(column).for_each(|((sum, x), y)| *sum += x * y);
        }
        let old = if beta == 0.0 { 0.0 } else { beta * c[i * stride] };
        c[i * stride] = old + sums.iter().sum::<f32>();
    }
}

/// Product of factors rounded to `precision`.
pub(super) fn gemm(precision: Precision, op: Gemm) {
    gemm_then(precision, op, |_, _| {});
}

/// Product of factors rounded to `precision`, to which a second one is added, followed by `finish`
/// as in [`gemm_then`].
pub(super) fn sum_then(
    precision: Precision,
    first: Gemm,
    second: Option<(View, View)>,
    finish: impl Fn(Range<usize>, &mut [f32]) + Sync,
) {
    let Some((x, w)) = second else { return gemm_then(precision, first, finish) };
    let (a, b) = ((x, Side::Plain), (w, Side::Plain));
    let Gemm { beta, mut c, .. } = first;
    #[cfg(target_arch = "x86_64")]
    if precision == Precision::F32 {
        let n = c.num_cols();
        let both = [(first.a, first.b), (a, b)].map(|((a, side_a), (b, side_b))| {
            let k = if side_a == Side::Plain { a.num_cols() } else { a.num_rows() };
            Factors { a: a.host(), side_a, b: b.host(), side_b, k, n }
        });
        if both.iter().all(by_tiles) {
            return sum_by_tiles(&both, beta, c.host(), finish);
        }
    }
    gemm(precision, Gemm { a: first.a, b: first.b, beta, c: c.reborrow() });
    gemm_then(precision, Gemm { a, b, beta: 1.0, c }, finish);
}

/// [`gemm`], followed by `finish` on every run of complete rows of `c`, as soon as it is computed.
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
    let is_gradient = (side_a, side_b) == (Side::Transposed, Side::Plain);
    if precision == Precision::F32 && is_gradient && nonzero::pays(m, b, n) {
        sum_nonzero(&[nonzero::Columns { data: a, width: m }], b, n, beta, [&mut *c]);
        return finish(0..m, c);
    }
    #[cfg(target_arch = "x86_64")]
    if let Some(unit) = Unit::of(precision) {
        return super::gemm_bf16::gemm(unit, Factors { a, side_a, b, side_b, k, n }, beta, c, finish);
    }
    match precision {
        Precision::F32 | Precision::Tf32 => {
            let factors = Factors { a, side_a, b, side_b, k, n };
            #[cfg(target_arch = "x86_64")]
            if by_tiles(&factors) {
                return sum_by_tiles(&[factors], beta, c, finish);
            }
            by_library(factors, beta, c, finish);
        }
        Precision::Bf16 => {
            let (mut scratch_a, mut scratch_b) = (scratch::take(a.len()), scratch::take(b.len()));
            let (a, b) = (rounded(a, &mut scratch_a), rounded(b, &mut scratch_b));
            by_library(Factors { a, side_a, b, side_b, k, n }, beta, c, finish);
        }
    }
}

/// Weight gradients of factors rounded to `precision`. `b` is packed once, if the products are our
/// own.
pub(super) fn weight_gradients(precision: Precision, op: WeightGradients) {
    let (widths, n) = (op.a.map(|a| a.num_cols()), op.b.num_cols());
    if precision == Precision::F32 && nonzero::pays(widths.iter().sum(), op.b.host(), n) {
        let WeightGradients { a, b, beta, c } = op;
        let columns = |i: usize| nonzero::Columns { data: a[i].host(), width: widths[i] };
        let c = c.map(crate::ViewMut::host);
        return sum_nonzero(&[columns(0), columns(1)], b.host(), n, beta, c);
    }
    #[cfg(target_arch = "x86_64")]
    if op.b.num_rows() * op.b.num_cols() > 0 && op.a.iter().all(|a| a.num_cols() > 0) {
        let WeightGradients { a, b, beta, c } = op;
        let (widths, n) = (a.map(|a| a.num_cols()), b.num_cols());
        let (a, b) = (a.map(|a| a.host()), b.host());
        if let Some(unit) = Unit::of(precision) {
            let c = c.map(crate::ViewMut::host);
            return super::gemm_bf16::weight_gradients(unit, a, widths, b, n, beta, c);
        }
        if precision == Precision::F32 && gradients_by_tiles(widths.iter().sum(), n) {
            let columns = |data, width| tiles::Columns { data, width };
            let a = [columns(a[0], widths[0]), columns(a[1], widths[1])];
            return sum_rows(&a, columns(b, n), beta, c.map(crate::ViewMut::host));
        }
        let op = WeightGradients { a: op.a, b: op.b, beta, c };
        return op.products().into_iter().for_each(|product| gemm(precision, product));
    }
    op.products().into_iter().for_each(|product| gemm(precision, product));
}

/// Values rounded to bf16, in `scratch`.
fn rounded<'r>(x: &[f32], scratch: &'r mut [f64]) -> &'r [f32] {
    let out = &mut bytemuck::cast_slice_mut::<f64, f32>(scratch)[..x.len()];
    elements(out, 1, |first, out| {
        for (out, &x) in out.iter_mut().zip(&x[first..]) {
            *out = bf16::from_f32(x).to_f32();
        }
    });
    out
}

/// Fewest columns of a product by tiles: all that are no column, so that a value does not depend on
/// the columns that are computed with it.
#[cfg(target_arch = "x86_64")]
const MIN_TILE_COLS: usize = 2;

/// Returns true if [`tiles`] computes the product.
#[cfg(target_arch = "x86_64")]
fn by_tiles(factors: &Factors) -> bool {
    let &Factors { a, side_a, k, n, .. } = factors;
    match side_a {
        Side::Plain => tiles::is_available() && n >= MIN_TILE_COLS && !a.is_empty(),
        Side::Transposed => k > 0 && gradients_by_tiles(a.len() / k, n),
    }
}

/// Returns true if [`tiles`] computes a gradient of `m` rows and `n` columns: its parts fit into
/// [`MAX_PARTIALS`].
#[cfg(target_arch = "x86_64")]
fn gradients_by_tiles(m: usize, n: usize) -> bool {
    tiles::is_available() && n >= MIN_TILE_COLS && m * n <= MAX_PARTIALS / 4
}

/// Computes `c = beta c +` the products in their order by [`tiles`].
#[cfg(target_arch = "x86_64")]
fn sum_by_tiles(
    products: &[Factors],
    beta: f32,
    c: &mut [f32],
    finish: impl Fn(Range<usize>, &mut [f32]) + Sync,
) {
    let n = products[0].n;
    let m = c.len() / n;
    if let &[Factors { a, side_a: Side::Transposed, b, k, .. }] = products {
        let columns = |data, width| tiles::Columns { data, width };
        debug_assert_eq!(a.len(), m * k);
        sum_rows(&[columns(a, m)], columns(b, n), beta, [&mut *c]);
        return finish(0..m, c);
    }
    let lens = products.iter().map(|product| tiles::panels_len(product.k, n));
    let mut memory = scratch::take(lens.clone().sum::<usize>().div_ceil(2));
    let mut rest = bytemuck::cast_slice_mut::<f64, f32>(&mut memory);
    let (mut terms, mut work) = (Vec::with_capacity(products.len()), 0);
    for (&Factors { a, b, side_b, k, .. }, len) in products.iter().zip(lens) {
        let (panels, others) = rest.split_at_mut(len);
        let b = Factor::new(b, side_b, if side_b == Side::Plain { n } else { k });
        tiles::pack(b, k, n, panels);
        terms.push(tiles::Term { a, panels, k });
        (rest, work) = (others, work + n * k);
    }
    Chunks::of(m, task_rows(m, work)).each(Rows { data: c, width: n }, &mut [], |rows, c, _: &mut [()]| {
        let terms: Vec<_> = terms.iter().map(|term| term.of_rows(&rows)).collect();
        tiles::multiply(&terms, n, beta, c.data);
        finish(rows, c.data);
    });
}

/// Computes `c[i] = beta c[i] +` the product of the columns `a[i]`, transposed, and `b`, by
/// [`tiles`]. The rows are divided by their number alone.
#[cfg(target_arch = "x86_64")]
fn sum_rows<const N: usize>(a: &[tiles::Columns; N], b: tiles::Columns, beta: f32, c: [&mut [f32]; N]) {
    let (k, n) = (b.data.len() / b.width, b.width);
    let size: usize = c.iter().map(|c| c.len()).sum();
    let count = if k < LONG_SUM { k.div_ceil(LONG_SUM / 4) } else { parts(k, MIN_PART_LEN / 2) };
    let chunks = Chunks::of(k, k.div_ceil(count.min(MAX_PARTIALS / size).max(1)));
    sum_chunks(chunks, beta, c, |range, partial| {
        let len = tiles::leaf_len(n);
        let mut memory = scratch::take(len.div_ceil(2));
        let leaf = &mut bytemuck::cast_slice_mut::<f64, f32>(&mut memory)[..len];
        tiles::multiply_transposed(a, b, range, leaf, partial);
    });
}

/// Computes `c[i] = beta c[i] +` the product of the columns `a[i]`, transposed, and `b` with rows
/// of `n` values, most of them zeros. The rows are divided by their number alone.
fn sum_nonzero<const N: usize>(
    a: &[nonzero::Columns; N],
    b: &[f32],
    n: usize,
    beta: f32,
    c: [&mut [f32]; N],
) {
    let k = b.len() / n;
    // the same parts whether factors are summed together or alone
    let size = c.iter().map(|c| c.len()).max().unwrap_or(1);
    let chunks = Chunks::of(k, k.div_ceil(parts(k, MIN_PART_LEN / 2).min(MAX_PARTIALS / size).max(1)));
    sum_chunks(chunks, beta, c, |range, partial| nonzero::multiply_transposed(a, b, n, range, partial));
}

/// Rows of a task of a product of `m` rows with `work` multiplications each: whole tiles of any
/// kernel, with at least [`GRAIN`] multiplications.
fn task_rows(m: usize, work: usize) -> usize {
    let packed = TASK_ROWS.min(m.div_ceil(ROW_TASKS));
    (GRAIN / work).max(m.div_ceil(256)).max(packed).min(few(m, work)).next_multiple_of(48)
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
    if side_a == Side::Transposed && k >= 2 * MIN_PART_LEN && m * n <= MAX_PARTIALS / 2 {
        by_inner(a, b, k, m, n, beta, c);
        finish(0..m, c);
    } else {
        let chunks = Chunks::of(m, task_rows(m, n * k));
        let product = if side_a == Side::Plain { row_product } else { product };
        chunks.each(Rows { data: c, width: n }, &mut [], |rows, c, _: &mut [()]| {
            product(a.from(rows.start, 0), b, [rows.len(), n, k], beta, c.data, n);
            finish(rows, c.data);
        });
    }
}

/// Largest number of rows of a task, for `m` rows of `work` multiplications each: few tasks are
/// short, so that several threads compute a product of a small batch.
pub(super) fn few(m: usize, work: usize) -> usize {
    m.div_ceil((m * work / MIN_GRAIN).clamp(1, FEW))
}

fn by_inner(a: Factor, b: Factor, k: usize, m: usize, n: usize, beta: f32, c: &mut [f32]) {
    let size = m * n;
    let chunks = Chunks::of(k, k.div_ceil(parts(k, MIN_PART_LEN / 2).min(MAX_PARTIALS / size)));
    sum_chunks(chunks, beta, [c], |inner: Range<usize>, partial| {
        let (a, b) = (a.from(0, inner.start), b.from(inner.start, 0));
        product(a, b, [size / n, n, inner.len()], 0.0, partial, n);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_outside_of_their_values_are_refused() {
        // 2 x 3 with rows of 4 values
        assert!(is_inside(7, [2, 3], [4, 1]) && !is_inside(6, [2, 3], [4, 1]));
        for shape in [[0, 3], [2, 0], [0, 0]] {
            assert!(!is_inside(7, shape, [4, 1]), "{shape:?} has no element");
        }
        // products and sums that wrap
        assert!(!is_inside(7, [usize::MAX, 1], [2, 1]));
        assert!(!is_inside(7, [3, 2], [usize::MAX / 2, 2]));
    }

    #[test]
    #[should_panic(expected = "is_inside")]
    fn an_empty_product_is_refused() {
        let a = Factor { data: &[1.0], rs: 1, cs: 1 };
        product(a, a, [0, 1, 1], 0.0, &mut [0.0], 1);
    }
}
