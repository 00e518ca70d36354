//! Both units beside a product of the rounded factors in f64.

use half::bf16;

use super::*;

/// Units of this machine.
fn units() -> Vec<Unit> {
    let mut units = Vec::new();
    if is_available() {
        units.push(Unit::Vectors);
        units.extend([Precision::Bf16, Precision::Tf32].into_iter().filter_map(Unit::of));
        units.dedup();
    }
    units
}

/// Values between -1 and 1 that differ from their neighbours.
fn values(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|i| ((i + seed) as f32 * 0.731).sin()).collect()
}

/// `beta c + a b` of factors rounded to sums of bf16 as `unit` rounds them.
fn reference(unit: Unit, factors: Factors, m: usize, beta: f32, c: &[f32]) -> Vec<f64> {
    let Factors { a, side_a, b, side_b, k, n } = factors;
    let round = |x: f32| {
        let first = bf16::from_f32(x).to_f32();
        let second = if unit.parts() > 1 { bf16::from_f32(x - first).to_f32() } else { 0.0 };
        f64::from(first) + f64::from(second)
    };
    let a = |i: usize, l: usize| round(if side_a == Side::Plain { a[i * k + l] } else { a[l * m + i] });
    let b = |l: usize, j: usize| round(if side_b == Side::Plain { b[l * n + j] } else { b[j * k + l] });
    let sum = |i: usize, j: usize| (0..k).map(|l| a(i, l) * b(l, j)).sum::<f64>();
    (0..m * n).map(|at| f64::from(beta) * f64::from(c[at]) + sum(at / n, at % n)).collect()
}

#[test]
fn units_multiply_rounded_factors() {
    let shapes = [
        [1, 1, 1],
        [3, 17, 33],
        [31, 47, 100],
        [32, 32, 32],
        [33, 64, 602],
        [70, 256, 1100],
        [100, 33, 2500],
        [256, 16, 515],
    ];
    for unit in units() {
        for ([m, n, k], beta) in shapes.into_iter().flat_map(|shape| [(shape, 0.0), (shape, 0.5)]) {
            for (side_a, side_b) in
                [(Side::Plain, Side::Plain), (Side::Plain, Side::Transposed), (Side::Transposed, Side::Plain)]
            {
                let (a, b, before) = (values(m * k, 1), values(k * n, 5), values(m * n, 9));
                let factors = Factors { a: &a, side_a, b: &b, side_b, k, n };
                let expected = reference(unit, factors, m, beta, &before);
                // a rest has 2^-9 of a value, and the product of two is left out
                let exact = if unit.parts() > 1 { 1e-5 } else { 1e-6 };
                let mut c = if beta == 0.0 { vec![f32::NAN; m * n] } else { before };
                gemm(unit, factors, beta, &mut c, |_, _| ());
                for (at, (&c, expected)) in c.iter().zip(expected).enumerate() {
                    let error = (f64::from(c) - expected).abs();
                    let name = format!("{unit:?}: {m} x {n} x {k}, {side_a:?} {side_b:?}, value {at}");
                    assert!(
                        error <= exact * (k as f64).sqrt() + 1e-6 * (k as f64),
                        "{name}: {c} beside {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn gradients_of_two_weights_are_those_of_each() {
    for unit in units() {
        let (k, n, widths) = (5000, 40, [100, 17]);
        let a = widths.map(|width| values(k * width, width));
        let b = values(k * n, 3);
        let columns = |i: usize| Columns { data: &a[i], width: widths[i] };
        let right = Columns { data: &b, width: n };
        let mut both = widths.map(|width| vec![0.0; width * n]);
        let [first, second] = &mut both;
        by_inner(unit, [columns(0), columns(1)], right, k, 0.0, [first, second]);
        for (i, both) in both.iter().enumerate() {
            let mut alone = vec![0.0; widths[i] * n];
            by_inner(unit, [columns(i)], right, k, 0.0, [&mut alone]);
            assert_eq!(&alone, both, "{unit:?}");
        }
    }
}

#[test]
fn a_row_does_not_depend_on_the_rows_beside_it() {
    for unit in units() {
        let (m, n, k) = (77, 47, 600);
        let (a, b) = (values(m * k, 2), values(k * n, 7));
        let rows = |first: usize, m: usize| {
            let a = &a[first * k..(first + m) * k];
            let factors = Factors { a, side_a: Side::Plain, b: &b, side_b: Side::Plain, k, n };
            let mut c = vec![0.0; m * n];
            gemm(unit, factors, 0.0, &mut c, |_, _| ());
            c
        };
        let all = rows(0, m);
        for (first, count) in [(0, 1), (5, 1), (76, 1), (20, 33)] {
            assert_eq!(rows(first, count), all[first * n..(first + count) * n], "{unit:?}");
        }
    }
}
