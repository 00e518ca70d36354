//! Penalties of the rows of a batch.

use graphmill_core::table::{Entry, Table};
use rayon::prelude::*;

use super::{QueryBatch, Relations, Touched};
use crate::{Matrix, View};

/// A penalty of a row: adds `weight` times its gradient to the slice, and returns its value. The
/// flag is true if the row holds complex numbers.
pub type Regularizer = fn(&[f32], bool, f32, &mut [f32]) -> f64;

/// Kind of a penalty.
#[derive(Clone, Copy, Debug)]
pub struct RegularizerKind {
    /// The penalty.
    pub penalty: Regularizer,
    /// True if rows of negatives and not those of relations are penalized.
    pub of_negatives: bool,
}

/// Table of the penalties.
pub static TABLE: Table<RegularizerKind> = Table::new(
    "regularizer",
    &[
        Entry {
            name: "l2",
            summary: "half the squared norm of the rows of nodes, negatives included",
            source: "Rendle et al., UAI 2009; He et al., LightGCN, SIGIR 2020, equation 15",
            options: &[],
            make: RegularizerKind { penalty: l2, of_negatives: true },
        },
        Entry {
            name: "n3",
            summary: "the cube of the nuclear 3-norm: rows of both ends and of the relation",
            source: "Lacroix, Usunier and Obozinski, ICML 2018, equation 4",
            options: &[],
            make: RegularizerKind { penalty: n3, of_negatives: false },
        },
    ],
);

/// A penalty with its weight.
#[derive(Clone, Copy, Debug)]
pub struct Penalty {
    /// The kind.
    pub kind: RegularizerKind,
    /// Factor of the mean over the queries.
    pub weight: f64,
    /// True if rows hold complex numbers.
    pub is_complex: bool,
}

impl Penalty {
    /// Adds the gradient of the penalty of the distinct `rows` of a batch (`R x F`) to `grad`, and
    /// returns the penalty: the mean over the queries, each of which counts the rows of its ends.
    ///
    /// # Panics
    /// The rows are not those of the batch: a bug in the caller.
    pub fn of_rows(&self, batch: &QueryBatch, touched: &Touched, rows: View, grad: &mut Matrix) -> f64 {
        let (width, dim, queries) = (batch.width(), rows.num_cols(), batch.len());
        assert_eq!((rows.num_rows(), grad.num_rows()), (touched.ids.len(), rows.num_rows()));
        let counts = |&&place: &&u32| {
            let place = place as usize;
            self.kind.of_negatives || place >= queries * width || place.is_multiple_of(width)
        };
        let lines = grad.view_mut().host().par_chunks_mut(dim.max(1)).zip(rows.host().par_chunks(dim.max(1)));
        let values: Vec<f64> = lines
            .enumerate()
            .map(|(i, (grad, row))| {
                let share = touched.places(i).iter().filter(counts).count() as f64 / queries as f64;
                let factor = self.weight * share;
                if factor == 0.0 {
                    return 0.0;
                }
                factor * (self.kind.penalty)(row, self.is_complex, factor as f32, grad)
            })
            .collect();
        values.iter().sum()
    }

    /// Adds the gradient of the penalty of relations to `grad`, `N x W`, and returns the penalty:
    /// the mean over the queries. `ids` are the distinct relations and `counts` their queries.
    pub fn of_relations(
        &self,
        relations: Relations,
        ids: &[u32],
        counts: &[usize],
        grad: &mut Matrix,
    ) -> f64 {
        let queries: usize = counts.iter().sum();
        if self.kind.of_negatives || relations.width == 0 || queries == 0 {
            return 0.0;
        }
        let lines = grad.view_mut().host().chunks_mut(relations.width).zip(ids.iter().zip(counts));
        lines
            .map(|(grad, (&id, &count))| {
                let factor = self.weight * count as f64 / queries as f64;
                let row = relations.row(id as usize);
                factor * (self.kind.penalty)(row, self.is_complex, factor as f32, grad)
            })
            .sum()
    }
}

fn l2(row: &[f32], _: bool, weight: f32, grad: &mut [f32]) -> f64 {
    grad.iter_mut().zip(row).for_each(|(grad, x)| *grad += weight * x);
    row.iter().map(|&x| 0.5 * f64::from(x) * f64::from(x)).sum()
}

fn n3(row: &[f32], is_complex: bool, weight: f32, grad: &mut [f32]) -> f64 {
    if !is_complex {
        grad.iter_mut().zip(row).for_each(|(grad, x)| *grad += 3.0 * weight * x.abs() * x);
        return row.iter().map(|&x| f64::from(x.abs()).powi(3)).sum();
    }
    let n = row.len() / 2;
    (0..n)
        .map(|i| {
            let (a, b) = (row[i], row[n + i]);
            let length = (a * a + b * b).sqrt();
            grad[i] += 3.0 * weight * length * a;
            grad[n + i] += 3.0 * weight * length * b;
            f64::from(length).powi(3)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random;

    #[test]
    fn gradients_match_finite_differences() {
        let x = random(1, 8, 3);
        for entry in &TABLE {
            for is_complex in [false, true] {
                let penalty = entry.make.penalty;
                let mut grad = [1.0; 8];
                penalty(x.view().host(), is_complex, 0.5, &mut grad);
                for (i, grad) in grad.iter().enumerate() {
                    let value = |delta: f32| {
                        let mut moved = x.view().host().to_vec();
                        moved[i] += delta;
                        penalty(&moved, is_complex, 0.0, &mut [0.0; 8])
                    };
                    let slope = 0.5 * (value(0.01) - value(-0.01)) / 0.02;
                    assert!((f64::from(*grad) - 1.0 - slope).abs() < 1e-3, "{} {i}", entry.name);
                }
            }
        }
    }
}
