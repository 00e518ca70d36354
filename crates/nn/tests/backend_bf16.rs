//! Dense products in bf16 against their definition: both factors rounded to bf16, products and sums
//! in f64. The remaining difference is the rounding of f32 sums.

use graphmill_core::keyed::Stream;
use graphmill_nn::{
    Matrix,
    backend::{
        Activation, Cpu, Dropout, Precision,
        Side::{self, Plain, Transposed},
        cpu::{Level, with_level},
        ops::{Dense, EpilogueForward, Gemm, WeightGradients},
    },
};
use half::bf16;

const CPU: Cpu = Cpu { precision: Precision::Bf16 };

/// `(m, n, k)`: dimensions of 1, partial tiles (12, 8, 24 and 4 rows), panels (16 columns) and
/// pairs, empty sums, more than one block of the inner dimension.
const SHAPES: [(usize, usize, usize); 14] = [
    (1, 1, 1),
    (1, 47, 3),
    (25, 1, 7),
    (13, 33, 0),
    (0, 5, 4),
    (12, 16, 2),
    (24, 65, 31),
    (28, 48, 33),
    (100, 80, 65),
    (37, 47, 513),
    (49, 20, 1030),
    (401, 100, 70),
    (100, 31, 1101),
    (28, 47, 4201),
];

struct Factors {
    a: Matrix,
    side_a: Side,
    b: Matrix,
    side_b: Side,
    c: Matrix,
}

impl Factors {
    fn new((m, n, k): (usize, usize, usize), side_a: Side, side_b: Side) -> Self {
        let mut stream = Stream::new((m * 31 + n) as u64 * 31 + k as u64);
        let mut matrix = |rows: usize, cols: usize, side| {
            let data: Vec<f32> = (0..rows * cols).map(|_| stream.uniform() as f32 - 0.5).collect();
            if side == Plain {
                Matrix::from_slice(rows, cols, &data)
            } else {
                Matrix::from_slice(cols, rows, &data)
            }
        };
        let (a, b) = (matrix(m, k, side_a), matrix(k, n, side_b));
        Self { a, side_a, b, side_b, c: matrix(m, n, Plain) }
    }

    /// Product computed by the backend.
    fn run(&self, beta: f32) -> Vec<f32> {
        let mut c = self.c.clone();
        if beta == 0.0 {
            // overwritten values must not be read
            c.view_mut().host().fill(f32::NAN);
        }
        Gemm { a: (self.a.view(), self.side_a), b: (self.b.view(), self.side_b), beta, c: c.view_mut() }
            .run(&CPU);
        c.view().host().to_vec()
    }

    /// Product by its definition, and the sum of the terms' magnitudes.
    fn expected(&self, beta: f32) -> Vec<(f64, f64)> {
        let rounded =
            |x: &Matrix| -> Vec<f64> { x.view().host().iter().map(|&x| bf16::from_f32(x).into()).collect() };
        let (a, b) = (rounded(&self.a), rounded(&self.b));
        let (m, n) = (self.c.num_rows(), self.c.num_cols());
        let k = if self.side_a == Plain { self.a.num_cols() } else { self.a.num_rows() };
        let at = |i, l| if self.side_a == Plain { a[i * k + l] } else { a[l * m + i] };
        let bt = |l, j| if self.side_b == Plain { b[l * n + j] } else { b[j * k + l] };
        let mut out = Vec::new();
        for i in 0..m {
            for j in 0..n {
                let own = if beta == 0.0 {
                    0.0
                } else {
                    f64::from(beta) * f64::from(self.c.view().host()[i * n + j])
                };
                let (mut sum, mut size) = (own, own.abs());
                for l in 0..k {
                    let term = at(i, l) * bt(l, j);
                    sum += term;
                    size += term.abs();
                }
                out.push((sum, size));
            }
        }
        out
    }
}

fn levels() -> impl Iterator<Item = Level> {
    Level::ALL.into_iter().filter(|level| level.is_available())
}

#[test]
fn products_equal_those_of_rounded_factors() {
    for shape in SHAPES {
        for (side_a, side_b) in [(Plain, Plain), (Plain, Transposed), (Transposed, Plain)] {
            let factors = Factors::new(shape, side_a, side_b);
            for beta in [0.0, 1.0, 0.7] {
                let expected = factors.expected(beta);
                for level in levels() {
                    let got = with_level(level, || factors.run(beta));
                    assert_eq!(got.len(), expected.len());
                    for (i, (&x, &(y, size))) in got.iter().zip(&expected).enumerate() {
                        // written so that NaN fails
                        let close = (f64::from(x) - y).abs() <= 4e-6 * size;
                        assert!(
                            close,
                            "{shape:?} {side_a:?} {side_b:?} {beta} on {level:?}: {i} is {x}, not {y}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    for (shape, side) in [((9001, 67, 45), Plain), ((67, 45, 9001), Transposed)] {
        let factors = Factors::new(shape, side, Plain);
        for level in levels() {
            let run = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| with_level(level, || factors.run(0.5)))
            };
            let one = run(1);
            for threads in [2, 3] {
                assert!(run(threads) == one, "{side:?} on {level:?} with {threads} threads");
            }
        }
    }
}

#[test]
fn rows_do_not_depend_on_other_rows() {
    let factors = Factors::new((401, 47, 100), Plain, Plain);
    let all = factors.run(0.0);
    let mut some = Matrix::zeros(30, 47);
    Gemm {
        a: (factors.a.rows(105..135), Plain),
        b: (factors.b.view(), Plain),
        beta: 0.0,
        c: some.view_mut(),
    }
    .run(&CPU);
    assert_eq!(some.view().host(), &all[105 * 47..135 * 47]);
}

#[test]
fn fused_epilogues_match_separate_operations() {
    let mut inputs = Stream::new(9);
    let mut random = |rows: usize, cols: usize| {
        let values: Vec<f32> = (0..rows * cols).map(|_| inputs.uniform() as f32 - 0.5).collect();
        Matrix::from_slice(rows, cols, &values)
    };
    // several tasks, the last of them short
    let (x, w, bias, y) = (random(1001, 90), random(90, 130), random(1, 130), random(1001, 130));
    let dropout = Dropout { p: 0.3, key: 7 };
    let (mut one, mut two) = (y.clone(), y);
    Dense {
        x: x.view(),
        w: w.view(),
        plus: None,
        beta: 1.0,
        bias: Some(bias.view()),
        activation: Activation::Relu,
        dropout,
        out: one.view_mut(),
    }
    .run(&CPU);
    Gemm { a: (x.view(), Plain), b: (w.view(), Plain), beta: 1.0, c: two.view_mut() }.run(&CPU);
    EpilogueForward { bias: Some(bias.view()), activation: Activation::Relu, dropout, x: two.view_mut() }
        .run(&CPU);
    assert!(one.view().host() == two.view().host());
}

#[test]
fn joint_weight_gradients_match_separate_products() {
    let mut stream = Stream::new(10);
    let mut random = |rows: usize, cols: usize| {
        let values: Vec<f32> = (0..rows * cols).map(|_| stream.uniform() as f32 - 0.5).collect();
        Matrix::from_slice(rows, cols, &values)
    };
    // one block, several parts, empty sums, empty results
    for (k, widths, n) in
        [(7, [3, 30], 17), (9001, [100, 25], 47), (0, [2, 3], 4), (5, [0, 3], 4), (5, [2, 3], 0)]
    {
        let (a, b) = (widths.map(|m| random(k, m)), random(k, n));
        let (mut one, mut two) = (widths.map(|m| random(m, n)), widths.map(|m| random(m, n)));
        two.clone_from(&one);
        WeightGradients {
            a: a.each_ref().map(Matrix::view),
            b: b.view(),
            beta: 1.0,
            c: one.each_mut().map(Matrix::view_mut),
        }
        .run(&CPU);
        for (a, c) in a.iter().zip(&mut two) {
            Gemm { a: (a.view(), Transposed), b: (b.view(), Plain), beta: 1.0, c: c.view_mut() }.run(&CPU);
        }
        for (one, two) in one.iter().zip(&two) {
            for (x, y) in one.view().host().iter().zip(two.view().host()) {
                assert!((x - y).abs() <= 1e-5 * k as f32, "{x} {y}, {k} {widths:?} {n}");
            }
        }
    }
}
