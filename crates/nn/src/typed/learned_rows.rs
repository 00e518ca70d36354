//! Learned rows of a node type without features.

use std::path::Path;

use graphmill_core::{Error, NodeId, Result, keyed};
use rayon::prelude::*;

use crate::{
    Matrix, View,
    backend::{Cpu, Precision, ops::Gather},
    optim::SparseAdam,
};

/// Rows that are initialised at once.
const RUN: usize = 1 << 16;

/// Backend of the table, which may be larger than the memory of a device.
const HOST: Cpu = Cpu { precision: Precision::F32 };

/// A learned row for each node of a type. A batch reads the rows of its nodes, and an update
/// changes only those ([`SparseAdam`]). The rows and their moments are in host memory; a device
/// gets those of a batch.
///
/// Initial values are uniform with the variance of a Glorot-initialised projection, `sqrt(3 /
/// width)` at most. They are functions of the key and the node.
///
/// Rows that exceed memory are in a file ([`LearnedRows::in_file`]), with the same values.
///
/// If several processes train together, each may have the rows of its own nodes alone
/// ([`LearnedRows::of_nodes`]).
#[derive(Clone, Debug)]
pub struct LearnedRows {
    table: Matrix,
    /// True if the table has the rows of own nodes alone.
    is_partial: bool,
    merged: Merged,
}

/// Rows of a batch in which nodes repeat, each node once.
#[derive(Clone, Debug, Default)]
struct Merged {
    ids: Vec<NodeId>,
    /// Sum of the gradients of each node's rows, in their order.
    grad: Matrix,
    /// Number of each node among `ids`, plus 1; zeros between updates.
    numbers: Vec<NodeId>,
}

impl Merged {
    /// Takes the distinct ones of `ids`, and adds up their gradients if any repeats. Returns false
    /// if none repeats.
    fn fill(&mut self, count: usize, ids: &[NodeId], grad: View) -> bool {
        let Self { ids: distinct, grad: sums, numbers } = self;
        // those of an update that ended early
        distinct.iter().for_each(|&v| numbers[v as usize] = 0);
        numbers.resize(count, 0);
        distinct.clear();
        for &v in ids {
            let number = &mut numbers[v as usize];
            if *number == 0 {
                distinct.push(v);
                *number = distinct.len() as NodeId;
            }
        }
        let repeats = distinct.len() < ids.len();
        if repeats {
            let width = grad.num_cols();
            sums.resize(distinct.len(), width);
            let sums = sums.view_mut().host();
            sums.fill(0.0);
            for (&v, row) in ids.iter().zip(grad.host().chunks_exact(width.max(1))) {
                let to = &mut sums[(numbers[v as usize] as usize - 1) * width..][..width];
                to.iter_mut().zip(row).for_each(|(to, x)| *to += x);
            }
        }
        distinct.iter().for_each(|&v| numbers[v as usize] = 0);
        repeats
    }
}

impl LearnedRows {
    /// Creates `count` rows of width `dim`. Memory: `4 count (dim + 1)` bytes, and `8 count dim`
    /// for the state of the optimiser.
    pub fn new(count: usize, dim: usize, key: u64) -> Self {
        Self { is_partial: false, ..Self::of(count, dim, key, |row| row as NodeId) }
    }

    /// Creates the rows of [`LearnedRows::new`] in a file without a name in the directory `dir`.
    /// The system keeps those in memory that batches read. Memory: `4 count` bytes, and on the disk
    /// `4 count dim`, and twice that for the state of the optimiser.
    ///
    /// # Errors
    /// The directory cannot be written, or the disk has too little space.
    pub fn in_file(count: usize, dim: usize, key: u64, dir: &Path) -> Result<Self> {
        let mut table = Matrix::in_file(count, dim, dir)?;
        fill(&mut table, key, |row| row as NodeId);
        Ok(Self { table, is_partial: false, merged: Merged::default() })
    }

    /// Creates the rows of `nodes` alone, in their order: those that [`LearnedRows::new`] gives
    /// them. Ids of [`LearnedRows::update`] are places in `nodes`, and batches bring their rows.
    pub fn of_nodes(nodes: &[NodeId], dim: usize, key: u64) -> Self {
        Self { is_partial: true, ..Self::of(nodes.len(), dim, key, |row| nodes[row]) }
    }

    /// Rows of the nodes `node_of(0), node_of(1), ...`.
    fn of(count: usize, dim: usize, key: u64, node_of: impl Fn(usize) -> NodeId + Sync) -> Self {
        let mut table = Matrix::zeros(count, dim);
        fill(&mut table, key, node_of);
        Self { table, is_partial: false, merged: Merged::default() }
    }

    /// Returns true if the table has the rows of some nodes alone ([`LearnedRows::of_nodes`]).
    pub fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// All rows, `V_t x hidden`, or those of the own nodes.
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
    pub fn gather(&self, ids: &[NodeId], out: &mut Matrix) -> Result<()> {
        let count = self.table.num_rows();
        if let Some(v) = ids.iter().find(|&&v| v as usize >= count) {
            return Err(Error::invalid(format!(
                "learned rows: node {v} of a type with {count} nodes; use ids local to the type"
            )));
        }
        out.resize(ids.len(), self.table.num_cols());
        Gather { src: self.table.view(), ids, dst: out.view_mut() }.run(&HOST);
        Ok(())
    }

    /// Adds up the rows of `grad`, gradients of the rows `ids`, for each id that repeats.
    /// Afterwards `ids` are distinct, in the order in which they first occurred. The rows
    /// themselves are not read, and may be elsewhere.
    pub fn merge(&mut self, ids: &mut Vec<NodeId>, grad: &mut Matrix) {
        let count = ids.iter().max().map_or(0, |&last| last as usize + 1);
        if self.merged.fill(count, ids, grad.view()) {
            ids.clone_from(&self.merged.ids);
            grad.clone_from(&self.merged.grad);
        }
    }

    /// Updates the rows of `ids` from their gradients, which are added up for an id that repeats.
    ///
    /// # Panics
    /// An id has no row: a bug in the caller.
    pub fn update(&mut self, optimizer: &mut SparseAdam, index: usize, ids: &[NodeId], grad: View) {
        if self.merged.fill(self.table.num_rows(), ids, grad) {
            let Merged { ids, grad, .. } = &self.merged;
            optimizer.update(&HOST, index, &mut self.table, ids, grad.view());
        } else {
            optimizer.update(&HOST, index, &mut self.table, ids, grad);
        }
    }
}

/// Writes the initial values of the rows of the nodes `node_of(0), node_of(1), ...`. Rows in a file
/// leave memory as soon as they are written.
fn fill(table: &mut Matrix, key: u64, node_of: impl Fn(usize) -> NodeId + Sync) {
    let (count, dim) = (table.num_rows(), table.num_cols());
    let bound = (3.0 / dim.max(1) as f64).sqrt();
    for first in (0..count).step_by(RUN) {
        let run = first..count.min(first + RUN);
        let rows = table.rows_mut(run.clone()).host().par_chunks_mut(dim.max(1));
        rows.enumerate().for_each(|(i, row)| {
            let mut stream = keyed::Stream::new(keyed::key(&[key, node_of(first + i).into()]));
            row.iter_mut().for_each(|x| *x = (bound * (2.0 * stream.uniform() - 1.0)) as f32);
        });
        table.release(run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optim::AdamOptions;

    #[test]
    fn rows_of_some_nodes_are_those_of_all() {
        let (all, some) = (LearnedRows::new(9, 3, 5), LearnedRows::of_nodes(&[7, 2], 3, 5));
        for (i, v) in [(0, 7), (1, 2)] {
            assert_eq!(some.table().rows(i..i + 1).host(), all.table().rows(v..v + 1).host());
        }
        assert!(some.is_partial() && !all.is_partial());
    }

    #[test]
    fn rows_in_a_file_are_those_in_memory_and_learn_alike() {
        let dir = tempfile::tempdir().unwrap();
        let count = RUN + 70;
        let mut all = [LearnedRows::new(count, 2, 5), LearnedRows::in_file(count, 2, 5, dir.path()).unwrap()];
        let ids = [3, RUN as NodeId + 9, 1];
        for rows in &mut all {
            let mut optimizer = SparseAdam::new(&AdamOptions::default()).unwrap();
            optimizer.prepare(0, rows.table()).unwrap();
            let in_file = rows.table().is_in_file();
            assert!(optimizer.state().iter().all(|(_, moments)| moments.is_in_file() == in_file));
            for step in 0..3 {
                optimizer.begin(0.1);
                let grad = [0.5, -1.0, 2.0, 0.25, 1.0, step as f32];
                rows.update(&mut optimizer, 0, &ids, Matrix::from_slice(3, 2, &grad).view());
            }
        }
        let [memory, file] = &all;
        assert!(file.table().is_in_file() && !memory.table().is_in_file());
        assert_eq!(memory.table().view().host(), file.table().view().host());
        assert!(LearnedRows::in_file(1, 1, 0, Path::new("/nowhere/at/all")).is_err());
    }

    #[test]
    fn gradients_of_repeated_nodes_are_added_up() {
        let sums = [[3u32, 1, 3].as_slice(), &[3, 1]].map(|ids| {
            let grad = if ids.len() == 3 {
                vec![0.5, 0.25, 1.0, -1.0, 2.0, 0.5]
            } else {
                vec![2.5, 0.75, 1.0, -1.0]
            };
            let mut rows = LearnedRows::new(5, 2, 7);
            let mut optimizer = SparseAdam::new(&AdamOptions::default()).unwrap();
            for _ in 0..2 {
                optimizer.begin(0.1);
                rows.update(&mut optimizer, 0, ids, Matrix::from_slice(ids.len(), 2, &grad).view());
            }
            rows.table().view().host().to_vec()
        });
        let [first, second] = sums;
        assert_eq!(first, second);
        let mut grad = Matrix::from_slice(3, 2, &[0.5, 0.25, 1.0, -1.0, 2.0, 0.5]);
        let (mut rows, mut ids) = (LearnedRows::new(5, 2, 7), vec![3, 1, 3]);
        rows.merge(&mut ids, &mut grad);
        assert_eq!((&ids[..], grad.view().host()), (&[3, 1][..], &[2.5, 0.75, 1.0, -1.0][..]));
        rows.merge(&mut ids, &mut grad);
        assert_eq!((&ids[..], grad.num_rows()), (&[3, 1][..], 2), "distinct rows stay");
        let (mut repeated, mut grad) = (vec![4, 4], Matrix::from_slice(2, 2, &[1.0, 2.0, 0.5, 0.25]));
        LearnedRows::new(0, 2, 7).merge(&mut repeated, &mut grad);
        assert_eq!((&repeated[..], grad.view().host()), (&[4][..], &[1.5, 2.25][..]), "of rows elsewhere");
        let before = LearnedRows::new(5, 2, 7).table().view().host().to_vec();
        assert!(first[2..4] != before[2..4] && first[..2] == before[..2]);
    }
}
