//! Optimisers of tables of which a batch reads few rows. Rows outside of the batch, and their
//! state, are unchanged.
//!
//! ```
//! use graphmill_nn::{Matrix, optim::rows};
//!
//! let mut table = Matrix::from_slice(3, 1, &[1.0, 1.0, 1.0]);
//! let mut optimizer = (rows::TABLE.find("adagrad")?.make)();
//! optimizer.begin(0.5);
//! optimizer.update(0, &mut table, &[1], Matrix::from_slice(1, 1, &[2.0]).view());
//! assert_eq!(table.view().host(), [1.0, 0.5, 1.0]);
//! # Ok::<(), graphmill_core::Error>(())
//! ```

mod adagrad;
mod adam;

use graphmill_core::{
    NodeId,
    table::{Entry, Table},
};
use rayon::prelude::*;

use crate::{Matrix, Result, View};

/// Minimum number of rows per task.
const MIN_TASK_LEN: usize = 32;

/// Rule that turns the gradients of rows into updates.
///
/// ```
/// use graphmill_nn::{Matrix, optim::rows};
///
/// let mut rows = (rows::TABLE.find("adam").expect("a row of the table").make)();
/// let (mut table, grad) = (Matrix::zeros(3, 2), Matrix::from_slice(1, 2, &[1.0, -1.0]));
/// rows.begin(0.5);
/// rows.update(0, &mut table, &[1], grad.view());
/// // row 1 moves against its gradient, the others stay
/// let [_, _, x, y, rest @ ..] = table.view().host() else { unreachable!() };
/// assert!(*x < -0.49 && *y > 0.49 && rest == [0.0, 0.0]);
/// ```
pub trait RowOptimizer: Send {
    /// Starts an update with learning rate `lr` and increments the step count.
    fn begin(&mut self, lr: f32);

    /// Updates the rows `ids` (ascending, distinct) of table number `index` from their gradients,
    /// in parallel. State is allocated in memory in the table's first update, unless
    /// [`RowOptimizer::prepare`] did so.
    ///
    /// # Panics
    /// The ids do not ascend or are beyond the table, or the table had another shape before: a bug
    /// in the caller.
    fn update(&mut self, index: usize, table: &mut Matrix, ids: &[NodeId], grad: View);

    /// Allocates the state of a table, so that a checkpoint can be read into it: in a file if the
    /// table is in one.
    ///
    /// # Errors
    /// The disk has too little space for a file.
    ///
    /// # Panics
    /// As [`RowOptimizer::update`].
    fn prepare(&mut self, index: usize, table: &Matrix) -> Result<()>;

    /// Number of updates begun.
    fn steps(&self) -> u64;

    /// Restores the count of a checkpoint.
    fn set_steps(&mut self, steps: u64);

    /// The state under names such as `3.m`: index, dot, kind, always in the same order.
    fn state(&self) -> Vec<(String, &Matrix)>;

    /// Visits the state mutably, in the order of [`RowOptimizer::state`].
    fn visit_state_mut(&mut self, see: &mut dyn FnMut(&str, &mut Matrix));
}

/// Constructor of an optimiser of rows.
pub type Make = fn() -> Box<dyn RowOptimizer>;

/// Table of the optimisers of rows.
pub static TABLE: Table<Make> = Table::new(
    "row optimizer",
    &[
        Entry {
            name: "adam",
            summary: "steps scaled by running means of the gradient and its square",
            source: "Kingma and Ba, ICLR 2015; as in PyTorch's SparseAdam",
            options: &[],
            make: || Box::new(Rows::new(adam::Adam::default())),
        },
        Entry {
            name: "adagrad",
            summary: "steps divided by the root of the sum of all squared gradients",
            source: "Duchi, Hazan and Singer, JMLR 2011",
            options: &[],
            make: || Box::new(Rows::new(adagrad::Adagrad::default())),
        },
    ],
);

/// Update of one row, with `N` rows of state.
trait RowRule<const N: usize>: Copy + Send + Sync {
    /// Names of the state.
    const KINDS: [&'static str; N];

    /// Starts update number `step`, from 1.
    fn begin(&mut self, lr: f32, step: u64);

    /// Updates a row and its state.
    fn step(&self, grad: &[f32], state: [&mut [f32]; N], value: &mut [f32]);
}

/// Optimiser that applies a rule to rows.
struct Rows<R, const N: usize> {
    rule: R,
    steps: u64,
    state: Vec<Option<[Matrix; N]>>,
}

impl<R: RowRule<N>, const N: usize> Rows<R, N> {
    fn new(rule: R) -> Self {
        Self { rule, steps: 0, state: Vec::new() }
    }

    /// State of a table of this shape, made by `zeros` if there is none.
    fn of(
        &mut self,
        index: usize,
        shape: [usize; 2],
        zeros: impl Fn() -> Result<Matrix>,
    ) -> Result<&mut [Matrix; N]> {
        if self.state.len() <= index {
            self.state.resize_with(index + 1, || None);
        }
        let state = &mut self.state[index];
        if state.is_none() {
            let mut all = [const { None }; N];
            for one in &mut all {
                *one = Some(zeros()?);
            }
            *state = Some(all.map(Option::unwrap_or_default));
        }
        let state = state.as_mut().expect("it was just made");
        assert!(
            state.iter().all(|x| [x.num_rows(), x.num_cols()] == shape),
            "table {index} changed its shape"
        );
        Ok(state)
    }
}

impl<R: RowRule<N>, const N: usize> RowOptimizer for Rows<R, N> {
    fn begin(&mut self, lr: f32) {
        self.steps += 1;
        self.rule.begin(lr, self.steps);
    }

    fn update(&mut self, index: usize, table: &mut Matrix, ids: &[NodeId], grad: View) {
        let [rows, dim] = [table.num_rows(), table.num_cols()];
        let rule = self.rule;
        let state = self.of(index, [rows, dim], || Ok(Matrix::zeros(rows, dim)));
        let state = state.expect("memory needs no disk");
        if dim == 0 || ids.is_empty() {
            return;
        }
        assert_eq!(grad.num_rows(), ids.len(), "a gradient for each row");
        let values = rows_mut(table, ids);
        let mut states: [_; N] = state.each_mut().map(|state| rows_mut(state, ids).into_iter());
        let states: Vec<[&mut [f32]; N]> = (0..ids.len())
            .map(|_| states.each_mut().map(|rows| rows.next().expect("a row for each id")))
            .collect();
        let rows = values.into_par_iter().zip(states).zip(grad.host().par_chunks(dim));
        rows.with_min_len(MIN_TASK_LEN).for_each(|((value, state), grad)| rule.step(grad, state, value));
    }

    fn prepare(&mut self, index: usize, table: &Matrix) -> Result<()> {
        let shape = [table.num_rows(), table.num_cols()];
        self.of(index, shape, || Ok(table.zeros_like()?)).map(drop)
    }

    fn steps(&self) -> u64 {
        self.steps
    }

    fn set_steps(&mut self, steps: u64) {
        self.steps = steps;
    }

    fn state(&self) -> Vec<(String, &Matrix)> {
        let mut all = Vec::new();
        for (index, state) in self.state.iter().enumerate() {
            let own = R::KINDS.iter().zip(state.iter().flatten());
            all.extend(own.map(|(kind, matrix)| (format!("{index}.{kind}"), matrix)));
        }
        all
    }

    fn visit_state_mut(&mut self, see: &mut dyn FnMut(&str, &mut Matrix)) {
        for (index, state) in self.state.iter_mut().enumerate() {
            for (kind, matrix) in R::KINDS.iter().zip(state.iter_mut().flatten()) {
                see(&format!("{index}.{kind}"), matrix);
            }
        }
    }
}

/// The rows `ids` (ascending, distinct) of a matrix.
fn rows_mut<'m>(matrix: &'m mut Matrix, ids: &[NodeId]) -> Vec<&'m mut [f32]> {
    let dim = matrix.num_cols();
    let (mut rest, mut from) = (matrix.view_mut().host(), 0);
    let mut rows = Vec::with_capacity(ids.len());
    for &id in ids {
        assert!(id as usize >= from, "row {id} after row {from}: rows ascend");
        let (row, after) = rest[(id as usize - from) * dim..].split_at_mut(dim);
        rows.push(row);
        (rest, from) = (after, id as usize + 1);
    }
    rows
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        backend::Reference,
        optim::{AdamOptions, SparseAdam},
        testing::random,
    };

    #[test]
    fn adam_is_that_of_sparse_rows() {
        let mut expected = random(6, 5, 1);
        let mut table = expected.clone();
        let mut reference = SparseAdam::new(&AdamOptions::default()).unwrap();
        let mut optimizer = (TABLE.find("adam").unwrap().make)();
        for (step, ids) in [&[1u32, 4][..], &[0, 1, 5], &[], &[4]].into_iter().enumerate() {
            let grad = random(ids.len(), 5, 10 + step as u64);
            reference.begin(0.1);
            reference.update(&Reference, 0, &mut expected, ids, grad.view());
            optimizer.begin(0.1);
            optimizer.update(0, &mut table, ids, grad.view());
        }
        for (a, b) in table.view().host().iter().zip(expected.view().host()) {
            assert!((a - b).abs() < 1e-5, "{a} {b}");
        }
    }

    #[test]
    fn adagrad_divides_by_the_root_of_the_sum_of_squares() {
        let mut table = Matrix::from_slice(2, 1, &[1.0, 1.0]);
        let mut optimizer = (TABLE.find("adagrad").unwrap().make)();
        for grad in [3.0, 4.0] {
            optimizer.begin(0.5);
            optimizer.update(0, &mut table, &[1], Matrix::from_slice(1, 1, &[grad]).view());
        }
        // 1 - 0.5 * 3 / 3 - 0.5 * 4 / 5
        let [first, second] = table.view().host() else { panic!("two rows") };
        assert!(*first == 1.0 && (second - 0.1).abs() < 1e-6);
    }

    #[test]
    fn state_lies_beside_its_table() {
        let dir = tempfile::tempdir().unwrap();
        let in_file = Matrix::in_file(3, 2, dir.path()).unwrap();
        for entry in &TABLE {
            for table in [&in_file, &Matrix::zeros(3, 2)] {
                let mut optimizer = (entry.make)();
                optimizer.prepare(0, table).unwrap();
                let state = optimizer.state();
                assert!(!state.is_empty() && state.iter().all(|(_, x)| x.is_in_file() == table.is_in_file()));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn other_rows_and_threads_change_nothing(
            chosen in prop::collection::btree_set(0u32..300, 0..200),
            threads in 1usize..4,
        ) {
            let ids: Vec<u32> = chosen.into_iter().collect();
            let before = random(300, 7, 1);
            let grad = random(ids.len(), 7, 2);
            for entry in &TABLE {
                let run = |threads: usize| {
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                    pool.install(|| {
                        let (mut table, mut optimizer) = (before.clone(), (entry.make)());
                        for _ in 0..2 {
                            optimizer.begin(0.1);
                            optimizer.update(1, &mut table, &ids, grad.view());
                        }
                        let state = optimizer.state().into_iter();
                        let state: Vec<_> = state.map(|(name, x)| (name, x.view().host().to_vec())).collect();
                        (table.view().host().to_vec(), state)
                    })
                };
                let (table, state) = run(threads);
                prop_assert_eq!(&(table.clone(), state.clone()), &run(1));
                prop_assert!(state.iter().all(|(name, _)| name.starts_with("1.")));
                for v in (0..300u32).filter(|v| !ids.contains(v)) {
                    let row = v as usize * 7..(v as usize + 1) * 7;
                    prop_assert_eq!(&table[row.clone()], &before.view().host()[row.clone()]);
                    prop_assert!(state.iter().all(|(_, x)| x[row.clone()].iter().all(|&x| x == 0.0)));
                }
            }
        }
    }
}
