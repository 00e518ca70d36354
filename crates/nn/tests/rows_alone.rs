//! A row of a product has the same bits whatever rows are computed with it, and whether it is added
//! to a result at once or later.

use graphmill_core::keyed;
use graphmill_nn::{
    Matrix,
    backend::{
        Cpu, Precision, Side,
        cpu::{Level, with_level},
        ops::{Add, Gemm},
    },
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

/// Bits of `c + a b`, added by the product itself and by a second operation.
fn sums(backend: &Cpu, [a, b, c]: &[Matrix; 3]) -> [Vec<u32>; 2] {
    let product = |beta, c: &mut Matrix| {
        let (a, b) = ((a.view(), Side::Plain), (b.view(), Side::Plain));
        Gemm { a, b, beta, c: c.view_mut() }.run(backend);
    };
    let (mut at_once, mut later) = (c.clone(), c.clone());
    product(1.0, &mut at_once);
    let mut first = Matrix::zeros(c.num_rows(), c.num_cols());
    product(0.0, &mut first);
    Add { alpha: 1.0, x: first.view(), y: later.view_mut() }.run(backend);
    [at_once, later].map(|sum| sum.view().host().iter().map(|x| x.to_bits()).collect())
}

#[test]
fn products_of_one_piece_may_be_added_later() {
    for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
        for precision in [Precision::F32, Precision::Bf16, Precision::Tf32] {
            for k in [3, 4, 17, 256, 511, 512] {
                for n in [1, 2, 7, 16, 47, 64, 65, 200] {
                    let inputs = [matrix(131, k, 1), matrix(k, n, 2), matrix(131, n, 3)];
                    let [at_once, later] = with_level(level, || sums(&Cpu { precision }, &inputs));
                    assert!(at_once == later, "131 x {k} x {n}, {level:?}, {precision:?}");
                }
            }
        }
    }
}
