//! Aggregate of a node's in-neighbours, in double precision.

use graphmill_core::block::Aggregation;

use super::file::Value;

/// Aggregation of the rows of a node's in-neighbours, which are added in the order of its edges.
#[derive(Clone, Copy)]
pub(crate) struct NodeSum {
    aggregation: Aggregation,
    degree: usize,
    own: f64,
}

impl NodeSum {
    /// Aggregation of a node of that in-degree.
    pub(crate) fn new(aggregation: Aggregation, degree: usize) -> Self {
        Self { aggregation, degree, own: inv_sqrt(degree) }
    }

    /// Adds the row of a neighbour to `sums`. `degree` is the neighbour's in-degree, which only
    /// [`Aggregation::Symmetric`] reads.
    pub(crate) fn add<T: Value>(&self, degree: impl FnOnce() -> usize, row: &[T], sums: &mut [f64]) {
        let symmetric = self.aggregation == Aggregation::Symmetric;
        add(if symmetric { self.own * inv_sqrt(degree()) } else { 1.0 }, row, sums);
    }

    /// Completes the sums of all neighbours, with the node's own row if the aggregation reads it.
    pub(crate) fn finish<T: Value>(&self, row: &[T], sums: &mut [f64]) {
        match self.aggregation {
            Aggregation::Symmetric => add(self.own * self.own, row, sums),
            Aggregation::Mean => {
                let degree = self.degree.max(1) as f64;
                sums.iter_mut().for_each(|sum| *sum /= degree);
            }
            Aggregation::Sum | Aggregation::Other => {}
        }
    }
}

fn inv_sqrt(degree: usize) -> f64 {
    1.0 / (degree as f64 + 1.0).sqrt()
}

fn add<T: Value>(factor: f64, row: &[T], sums: &mut [f64]) {
    sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += factor * x.widen());
}
