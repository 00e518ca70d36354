//! Learned rows of a node type without features.

use graphmill_core::{Error, NodeId, Result, keyed};
use rayon::prelude::*;

use crate::{Backend, Matrix, View, backend::ops::Gather, optim::SparseAdam};

/// A learned row for each node of a type. A batch reads the rows of its nodes, and an update
/// changes only those ([`SparseAdam`]).
///
/// Initial values are uniform with the variance of a Glorot-initialised projection, `sqrt(3 /
/// width)` at most. They are functions of the key and the node.
#[derive(Clone, Debug)]
pub struct LearnedRows {
    table: Matrix,
}

impl LearnedRows {
    /// Creates `count` rows of width `dim`. Memory: `4 count dim` bytes, and twice as much for the
    /// state of the optimiser.
    pub fn new(count: usize, dim: usize, key: u64) -> Self {
        let mut table = Matrix::zeros(count, dim);
        let bound = (3.0 / dim.max(1) as f64).sqrt();
        table.view_mut().host().par_chunks_mut(dim.max(1)).enumerate().for_each(|(v, row)| {
            let mut stream = keyed::Stream::new(keyed::key(&[key, v as u64]));
            row.iter_mut().for_each(|x| *x = (bound * (2.0 * stream.uniform() - 1.0)) as f32);
        });
        Self { table }
    }

    /// All rows, `V_t x hidden`.
    pub fn table(&self) -> &Matrix {
        &self.table
    }

    /// All rows mutably, for checkpoints.
    pub fn table_mut(&mut self) -> &mut Matrix {
        &mut self.table
    }

    /// Gathers the rows of `ids` to `out`.
    ///
    /// # Errors
    /// An id has no row.
    pub fn gather(&self, backend: &dyn Backend, ids: &[NodeId], out: &mut Matrix) -> Result<()> {
        let count = self.table.num_rows();
        if let Some(v) = ids.iter().find(|&&v| v as usize >= count) {
            return Err(Error::invalid(format!(
                "learned rows: node {v} of a type with {count} nodes; use ids local to the type"
            )));
        }
        out.resize(ids.len(), self.table.num_cols());
        Gather { src: self.table.view(), ids, dst: out.view_mut() }.run(backend);
        Ok(())
    }

    /// Updates the rows of `ids` (distinct) from their gradients.
    pub fn update(
        &mut self,
        backend: &dyn Backend,
        optimizer: &mut SparseAdam,
        index: usize,
        ids: &[NodeId],
        grad: View,
    ) {
        optimizer.update(backend, index, &mut self.table, ids, grad);
    }
}
