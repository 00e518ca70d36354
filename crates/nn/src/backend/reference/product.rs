//! Dense products, and products of sparse rows.

use super::{at, keep, set};
use crate::backend::{
    Side,
    ops::{Gemm, HeadGemm},
};

pub(super) fn gemm(op: Gemm) {
    let [_, _, k] = op.size();
    let Gemm { a: (a, side_a), b: (b, side_b), beta, c } = op;
    set(c, |i, j, old| {
        let sum: f64 = (0..k)
            .map(|l| {
                let x = if side_a == Side::Plain { at(a, i, l) } else { at(a, l, i) };
                let y = if side_b == Side::Plain { at(b, l, j) } else { at(b, j, l) };
                x * y
            })
            .sum();
        keep(beta, old) + sum
    });
}

pub(super) fn head_gemm(op: HeadGemm) {
    let ([of_a, of_b, of_c], [_, _, inner]) = (op.widths(), op.size());
    let HeadGemm { a: (a, side_a), b: (b, side_b), beta, c, .. } = op;
    set(c, |i, j, old| {
        let (h, j) = (j / of_c, j % of_c);
        let sum: f64 = (0..inner)
            .map(|l| {
                let (row, col) = if side_a == Side::Plain { (i, l) } else { (l, i) };
                let x = at(a, row, h * of_a + col);
                let (row, col) = if side_b == Side::Plain { (l, j) } else { (j, l) };
                x * at(b, row, h * of_b + col)
            })
            .sum();
        keep(beta, old) + sum
    });
}
