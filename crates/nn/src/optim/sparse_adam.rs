//! Adam for tables of which a batch reads few rows.
//!
//! # Algorithm
//!
//! The step of [`super::adam`] on the rows of the batch alone. The other rows and their moments are
//! unchanged, so a row's moments decay only when it is read. The corrections count all updates, as
//! in PyTorch's `SparseAdam`.
//!
//! # Source
//!
//! Kingma and Ba, *Adam: a method for stochastic optimization*, ICLR 2015, algorithm 1.
//!
//! # Cost
//!
//! Proportional to the rows of the batch.
//!
//! # Memory
//!
//! Two matrices per table, in files if the table is in one.

use graphmill_core::NodeId;

use super::{AdamOptions, adam::Adam};
use crate::{
    Backend, Matrix, Result, View,
    backend::{
        AdamStep,
        ops::{AdamUpdate, Gather},
    },
};

/// Adam on some rows of tables.
#[derive(Clone, Debug)]
pub struct SparseAdam {
    step: AdamStep,
    steps: u64,
    /// Moments of each table, allocated at its first update.
    moments: Vec<Option<[Matrix; 2]>>,
    /// Rows of the batch: both moments, and values.
    rows: [Matrix; 3],
}

impl SparseAdam {
    /// Creates the optimiser.
    ///
    /// # Errors
    /// A beta is outside `[0, 1)`, or epsilon is not positive.
    pub fn new(options: &AdamOptions) -> Result<Self> {
        let step = Adam::new(options, false)?.step();
        Ok(Self { step, steps: 0, moments: Vec::new(), rows: Default::default() })
    }

    /// Starts an update with learning rate `lr` and increments the step count.
    pub fn begin(&mut self, lr: f32) {
        self.steps += 1;
        self.step = self.step.at(lr, self.steps);
    }

    /// Updates the rows `ids` (distinct) of table number `index` from their gradients, in the order
    /// of `ids`. Without rows, only the state is allocated.
    ///
    /// # Panics
    /// An id is beyond the table, the table had another shape before, or it is in a file and was
    /// not [prepared](SparseAdam::prepare): a bug in the caller.
    pub fn update(
        &mut self,
        backend: &dyn Backend,
        index: usize,
        table: &mut Matrix,
        ids: &[NodeId],
        grad: View,
    ) {
        // in memory, no allocation is refused
        self.prepare(index, table).expect("the state of a table in a file was prepared");
        let Self { step, moments, rows, .. } = self;
        let [m, v] = moments[index].as_mut().expect("the state was allocated");
        if ids.is_empty() {
            return;
        }
        for (rows, all) in rows.iter_mut().zip([&*m, &*v, &*table]) {
            rows.resize(ids.len(), all.num_cols());
            Gather { src: all.view(), ids, dst: rows.view_mut() }.run(backend);
        }
        let [row_m, row_v, value] = rows;
        let (m_rows, v_rows) = (row_m.view_mut(), row_v.view_mut());
        AdamUpdate { step: *step, grad, m: m_rows, v: v_rows, value: value.view_mut() }.run(backend);
        for (rows, all) in rows.iter().zip([m, v, table]) {
            scatter(rows.view(), ids, all);
        }
    }

    /// Allocates the state of a table, so that a checkpoint can be read into it: in files beside a
    /// table in a file.
    ///
    /// # Errors
    /// The disk has too little space.
    ///
    /// # Panics
    /// The table had another shape before: a bug in the caller.
    pub fn prepare(&mut self, index: usize, table: &Matrix) -> Result<()> {
        if self.moments.len() <= index {
            self.moments.resize(index + 1, None);
        }
        let moments = &mut self.moments[index];
        match moments {
            None => *moments = Some([table.zeros_like()?, table.zeros_like()?]),
            Some([m, _]) => {
                let shape = (table.num_rows(), table.num_cols());
                assert_eq!((m.num_rows(), m.num_cols()), shape, "table {index} changed its shape");
            }
        }
        Ok(())
    }

    /// The state under names such as `3.m`: index, dot, kind, always in the same order.
    pub fn state(&self) -> Vec<(String, &Matrix)> {
        let mut state = Vec::new();
        for (index, moments) in self.moments.iter().enumerate() {
            for (kind, matrix) in ["m", "v"].iter().zip(moments.iter().flatten()) {
                state.push((format!("{index}.{kind}"), matrix));
            }
        }
        state
    }

    /// Number of updates begun.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Restores the count of a checkpoint.
    pub fn set_steps(&mut self, steps: u64) {
        self.steps = steps;
    }

    /// Visits the state mutably, in the order and by the names of [`SparseAdam::state`].
    pub fn visit_state_mut(&mut self, see: &mut dyn FnMut(&str, &mut Matrix)) {
        for (index, moments) in self.moments.iter_mut().enumerate() {
            for (kind, matrix) in ["m", "v"].iter().zip(moments.iter_mut().flatten()) {
                see(&format!("{index}.{kind}"), matrix);
            }
        }
    }
}

/// Copies rows to the rows `ids` of `to`.
fn scatter(rows: View, ids: &[NodeId], to: &mut Matrix) {
    let (cols, rows, to) = (to.num_cols(), rows.host(), to.view_mut().host());
    for (row, &id) in rows.chunks_exact(cols.max(1)).zip(ids) {
        to[id as usize * cols..][..cols].copy_from_slice(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Param,
        backend::{Cpu, Reference},
        optim::Optimizer,
        testing::random,
    };

    #[test]
    fn updates_of_all_rows_are_those_of_adam() {
        let mut param = Param::zeros("weight", 4, 3);
        param.value = random(4, 3, 1);
        let mut table = param.value.clone();
        let mut dense = Adam::new(&AdamOptions::default(), false).unwrap();
        let mut sparse = SparseAdam::new(&AdamOptions::default()).unwrap();
        for step in 0..5 {
            param.grad = random(4, 3, 10 + step);
            dense.begin(0.1);
            dense.update(&Reference, 0, &mut param, 0.0);
            // another order of the rows
            let ids = [2, 0, 3, 1];
            let mut grad = Matrix::zeros(4, 3);
            Gather { src: param.grad.view(), ids: &ids, dst: grad.view_mut() }.run(&Reference);
            sparse.begin(0.1);
            sparse.update(&Reference, 0, &mut table, &ids, grad.view());
        }
        assert_eq!(table.view().host(), param.value.view().host());
        assert_eq!(sparse.steps(), 5);
    }

    #[test]
    fn rows_outside_of_the_batch_keep_values_and_moments() {
        let mut table = random(5, 2, 1);
        let before = table.clone();
        let mut sparse = SparseAdam::new(&AdamOptions::default()).unwrap();
        for ids in [&[3u32, 1][..], &[3], &[]] {
            sparse.begin(0.5);
            sparse.update(&Cpu::default(), 1, &mut table, ids, random(ids.len(), 2, 7).view());
        }
        for v in [0, 2, 4] {
            assert_eq!(table.rows(v..v + 1).host(), before.rows(v..v + 1).host());
        }
        assert!((1..=3).step_by(2).all(|v| table.rows(v..v + 1).host() != before.rows(v..v + 1).host()));
        let mut names = Vec::new();
        sparse.visit_state_mut(&mut |name, moment| {
            names.push(name.to_string());
            assert_eq!(moment.rows(4..5).host(), [0.0, 0.0]);
        });
        assert_eq!(names, ["1.m", "1.v"]);
    }
}
