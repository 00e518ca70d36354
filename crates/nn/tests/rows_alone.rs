//! A row of a product has the same bits whatever rows are computed with it.

use graphmill_core::keyed;
use graphmill_nn::{
    Matrix,
    backend::{Cpu, Side, ops::Gemm},
};

/// Matrix of keyed values.
fn matrix(rows: usize, cols: usize, key: u64) -> Matrix {
    let value = |i: usize| (keyed::mix(key ^ i as u64) >> 40) as f32 / (1 << 23) as f32 - 1.0;
    Matrix::from_slice(rows, cols, &(0..rows * cols).map(value).collect::<Vec<_>>())
}

/// Bits of the rows `range` of `a` times `b`, as stored or transposed, with `n` columns.
fn bits(
    a: &Matrix,
    range: std::ops::Range<usize>,
    (b, side, n): (&Matrix, Side, usize),
    beta: f32,
) -> Vec<u32> {
    let backend = Cpu::default();
    let mut c = Matrix::default();
    c.resize(range.len(), n);
    c.view_mut().host().fill(beta);
    Gemm { a: (a.rows(range), Side::Plain), b: (b.view(), side), beta, c: c.view_mut() }.run(&backend);
    c.view().host().iter().map(|x| x.to_bits()).collect()
}

#[test]
fn rows_do_not_depend_on_the_others() {
    for k in [1, 2, 3, 8, 24, 512, 513, 1433] {
        for n in [1, 2, 7, 16, 64, 65, 200] {
            let (a, plain, transposed) = (matrix(131, k, 1), matrix(k, n, 2), matrix(n, k, 2));
            for (b, side, beta) in [
                (&plain, Side::Plain, 0.0),
                (&plain, Side::Plain, 1.0),
                (&transposed, Side::Transposed, 0.0),
                (&transposed, Side::Transposed, 1.0),
            ] {
                let all = bits(&a, 0..131, (b, side, n), beta);
                for (first, count) in [(0, 1), (77, 1), (130, 1), (3, 2), (40, 5), (8, 64), (9, 65), (48, 83)]
                {
                    let some = bits(&a, first..first + count, (b, side, n), beta);
                    assert_eq!(
                        some,
                        all[first * n..(first + count) * n],
                        "{count} rows of {k} x {n} {side:?}, beta {beta}"
                    );
                }
            }
        }
    }
}
