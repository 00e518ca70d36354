//! Initial rows of tables.

use std::ops::Range;

use graphmill_core::{NodeId, keyed};
use rayon::prelude::*;

use crate::Matrix;

/// Distribution of initial values. Each row is a function of the key and its number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Normal with this deviation. LightGCN's code uses 0.1; Lacroix, Usunier and Obozinski,
    /// *Canonical tensor decomposition for knowledge base completion*, ICML 2018, use 0.001 for
    /// ComplEx.
    Normal(f64),
    /// Uniform in `[-b, b]`. The code of RotatE uses `b = (gamma + 2) / F` for TransE and RotatE.
    Uniform(f64),
}

impl Init {
    /// A table of `count` rows of width `dim`.
    pub fn table(self, count: usize, dim: usize, key: u64) -> Matrix {
        let mut table = Matrix::zeros(count, dim);
        self.fill_rows(&mut table, 0..count, key);
        table
    }

    /// Fills the rows `range` of a table.
    ///
    /// # Panics
    /// The range is outside.
    pub fn fill_rows(self, table: &mut Matrix, range: Range<usize>, key: u64) {
        let (first, dim) = (range.start, table.num_cols());
        table.rows_mut(range).host().par_chunks_mut(dim.max(1)).enumerate().for_each(|(i, row)| {
            self.fill(row, (first + i) as NodeId, key);
        });
    }

    /// Fills the row of number `v`.
    pub fn fill(self, row: &mut [f32], v: NodeId, key: u64) {
        let mut stream = keyed::Stream::new(keyed::key(&[key, u64::from(v)]));
        let mut draw = || match self {
            Self::Normal(deviation) => deviation * stream.normal(),
            Self::Uniform(bound) => bound * (2.0 * stream.uniform() - 1.0),
        };
        row.iter_mut().for_each(|x| *x = draw() as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_deviation_of_their_distribution() {
        for (init, expected) in [(Init::Normal(0.1), 0.1), (Init::Uniform(0.3), 0.3 / 3f64.sqrt())] {
            let table = init.table(400, 10, 3);
            let values = table.view().host();
            let square: f64 = values.iter().map(|&x| f64::from(x).powi(2)).sum();
            let deviation = (square / values.len() as f64).sqrt();
            assert!((deviation / expected - 1.0).abs() < 0.05, "{init:?}: {deviation}");
            let mut row = [0.0; 10];
            init.fill(&mut row, 7, 3);
            assert_eq!(row, table.rows(7..8).host());
        }
    }
}
