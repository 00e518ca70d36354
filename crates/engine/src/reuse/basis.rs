//! Basis of the directions in which reused rows follow the parameters.
//!
//! # Algorithm
//!
//! A stale row `a W_old` has the error `a (W_now - W_old)`. Aggregated features are means, which
//! are similar to each other: a few directions hold most of their length. Recomputing the part of
//! `a` in these directions removes most of the error. The basis holds the first right singular
//! vectors of a sample of aggregated rows, by subspace iteration. The rows are not centred, because
//! their mean contributes most to the drift.
//!
//! # Source
//!
//! Halko, Martinsson and Tropp, *Finding Structure with Randomness: Probabilistic Algorithms for
//! Constructing Approximate Matrix Decompositions*, SIAM Review 2011, algorithm 4.4.
//!
//! # Cost
//!
//! O(S dim k) for `S` rows and `k` directions.
//!
//! # Memory
//!
//! `(S + dim) k` values.
//!
//! # Deviations
//!
//! Directions are orthonormalized once per iteration, not after each of its two products.

use graphmill_core::{Matrix, keyed};
use graphmill_nn::{
    Backend,
    backend::{
        Side::{Plain, Transposed},
        ops::Gemm,
    },
};

/// Number of iterations: enough if a few directions dominate; if none does, the choice matters
/// little.
const ITERATIONS: usize = 4;

/// Computes at most `k` orthonormal directions of the rows that the matrices `of` (`S x dim` each)
/// hold side by side. Returns them as rows of matrices of the same widths: fewer than `k` if the
/// rows span fewer dimensions. O(S dim k).
pub fn basis(backend: &dyn Backend, of: &[Matrix], k: usize, seed: u64) -> Vec<Matrix> {
    let widths: Vec<usize> = of.iter().map(Matrix::num_cols).collect();
    let all: usize = widths.iter().sum();
    let rows = of.first().map_or(0, Matrix::num_rows);
    let k = k.min(all).min(rows);
    let mut stream = keyed::Stream::new(keyed::key(&[seed, 0x6261_7369]));
    let mut directions: Vec<Vec<f32>> =
        (0..k).map(|_| (0..all).map(|_| stream.normal() as f32).collect()).collect();
    orthonormalise(&mut directions);
    for _ in 0..ITERATIONS {
        let parts = cut(&directions, &widths);
        let mut images = Matrix::zeros(rows, directions.len());
        for (of, part) in of.iter().zip(&parts) {
            Gemm { a: (of.view(), Plain), b: (part.view(), Transposed), beta: 1.0, c: images.view_mut() }
                .run(backend);
        }
        for direction in &mut directions {
            direction.clear();
        }
        for of in of {
            let mut back = Matrix::zeros(images.num_cols(), of.num_cols());
            Gemm { a: (images.view(), Transposed), b: (of.view(), Plain), beta: 0.0, c: back.view_mut() }
                .run(backend);
            let back = back.view().host().chunks_exact(of.num_cols());
            directions.iter_mut().zip(back).for_each(|(direction, part)| direction.extend_from_slice(part));
        }
        orthonormalise(&mut directions);
    }
    if directions.is_empty() { Vec::new() } else { cut(&directions, &widths) }
}

/// Gram-Schmidt, applied twice to limit rounding errors; removes linearly dependent directions.
fn orthonormalise(directions: &mut Vec<Vec<f32>>) {
    let mut kept: Vec<Vec<f32>> = Vec::with_capacity(directions.len());
    for mut direction in directions.drain(..) {
        let norm = |v: &[f32]| v.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
        let before = norm(&direction);
        for _ in 0..2 {
            for other in &kept {
                let along: f64 =
                    other.iter().zip(&direction).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
                direction.iter_mut().zip(other).for_each(|(x, &y)| *x -= (along * f64::from(y)) as f32);
            }
        }
        let after = norm(&direction);
        if after > 1e-5 * before && after.is_finite() {
            direction.iter_mut().for_each(|x| *x = (f64::from(*x) / after) as f32);
            kept.push(direction);
        }
    }
    *directions = kept;
}

/// Splits directions into rows of matrices of these widths.
fn cut(directions: &[Vec<f32>], widths: &[usize]) -> Vec<Matrix> {
    let mut from = 0;
    let part = |&width: &usize| {
        let mut part = Matrix::zeros(directions.len(), width);
        let rows = part.view_mut().host().chunks_exact_mut(width.max(1));
        rows.zip(directions).for_each(|(row, all)| row.copy_from_slice(&all[from..from + width]));
        from += width;
        part
    };
    widths.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use graphmill_nn::backend::Reference;

    use super::*;

    #[test]
    fn the_basis_spans_rows_of_low_rank() {
        // 40 rows that are sums of three, in two matrices of 5 and 4 columns
        let mut stream = keyed::Stream::new(7);
        let three: Vec<Vec<f32>> =
            (0..3).map(|_| (0..9).map(|_| stream.normal() as f32 + 0.3).collect()).collect();
        let mut of = [Matrix::zeros(40, 5), Matrix::zeros(40, 4)];
        for i in 0..40 {
            let mut row = [0.0; 9];
            for direction in &three {
                let much = stream.normal() as f32;
                row.iter_mut().zip(direction).for_each(|(x, y)| *x += much * y);
            }
            of[0].rows_mut(i..i + 1).host().copy_from_slice(&row[..5]);
            of[1].rows_mut(i..i + 1).host().copy_from_slice(&row[5..]);
        }
        for k in [0, 2, 3, 6] {
            let basis = basis(&Reference, &of, k, 1);
            let found = basis.first().map_or(0, Matrix::num_rows);
            assert_eq!(found, k.min(3), "at most the rank of the rows");
            if found == 0 {
                continue;
            }
            let row = |of: &[Matrix], i: usize| -> Vec<f32> {
                of.iter().flat_map(|part| part.rows(i..i + 1).host().to_vec()).collect()
            };
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f32>();
            for i in 0..found {
                for j in 0..found {
                    let expected = if i == j { 1.0 } else { 0.0 };
                    assert!((dot(&row(&basis, i), &row(&basis, j)) - expected).abs() < 1e-5);
                }
            }
            for i in 0..40 {
                let whole = row(&of, i);
                let mut left = whole.clone();
                for j in 0..found {
                    let direction = row(&basis, j);
                    let along = dot(&whole, &direction);
                    left.iter_mut().zip(&direction).for_each(|(x, y)| *x -= along * y);
                }
                let part = dot(&left, &left) / dot(&whole, &whole);
                assert!(part < if k < 3 { 0.9 } else { 1e-6 }, "{part} of row {i} remains with k = {k}");
            }
        }
    }
}
