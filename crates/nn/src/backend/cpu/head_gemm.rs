//! Dense products head by head. Each head's columns of the factors and of the result are matrices
//! inside larger ones, so nothing is copied.
//!
//! Products are split as in [`super::gemm`], by shape alone. With several heads they use f32 at
//! every precision, because the factors are small.

use super::{
    factors::Factor,
    gemm::{few, gemm, product, row_product},
    parallel::{Chunks, Rows},
    split_sum::sum_chunks,
};
use crate::backend::{
    Precision, Side,
    ops::{Gemm, HeadGemm},
};

/// Multiplications per task: about a tenth of a millisecond.
const GRAIN: usize = 8 << 20;
/// Minimum length of a part of the inner dimension.
const MIN_PART_LEN: usize = 1024;

pub(super) fn head_gemm(precision: Precision, op: HeadGemm) {
    let ([of_a, of_b, _], [m, n, k]) = (op.widths(), op.size());
    let HeadGemm { heads, a, b, beta, c } = op;
    if heads == 1 {
        return gemm(precision, Gemm { a, b, beta, c });
    }
    let ((a, side_a), (b, side_b), stride) = (a, b, c.num_cols());
    let c = c.host();
    if c.is_empty() {
        return;
    }
    if k == 0 {
        c.iter_mut().for_each(|x| *x = if beta == 0.0 { 0.0 } else { beta * *x });
        return;
    }
    let factors = |h: usize| {
        let (of_a, of_b) = (&a.host()[h * of_a..], &b.host()[h * of_b..]);
        (Factor::new(of_a, side_a, a.num_cols()), Factor::new(of_b, side_b, b.num_cols()))
    };
    if side_a == Side::Plain {
        // whole tiles of any kernel, with at least `GRAIN` multiplications
        let len = (GRAIN / (stride * k)).max(m.div_ceil(256)).min(few(m, stride * k)).next_multiple_of(48);
        Chunks::of(m, len).each(Rows { data: c, width: stride }, &mut [], |rows, c, _: &mut [()]| {
            for h in 0..heads {
                let (a, b) = factors(h);
                let size = [rows.len(), n, k];
                row_product(a.from(rows.start, 0), b, size, beta, &mut c.data[h * n..], stride);
            }
        });
        return;
    }
    let chunks = Chunks::new(k, MIN_PART_LEN);
    if chunks.count() == 1 {
        let len = few(m, stride * k).next_multiple_of(48);
        Chunks::of(m, len).each(Rows { data: c, width: stride }, &mut [], |rows, c, _: &mut [()]| {
            for h in 0..heads {
                let (a, b) = factors(h);
                product(a.from(rows.start, 0), b, [rows.len(), n, k], beta, &mut c.data[h * n..], stride);
            }
        });
        return;
    }
    // a small result of long sums: every part of them writes a separate result
    sum_chunks(chunks, beta, [c], |inner, partial| {
        for h in 0..heads {
            let (a, b) = factors(h);
            let (a, b) = (a.from(0, inner.start), b.from(inner.start, 0));
            product(a, b, [m, n, inner.len()], 0.0, &mut partial[h * n..], stride);
        }
    });
}
