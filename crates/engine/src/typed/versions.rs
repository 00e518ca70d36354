//! Earlier versions of the parameters of a model, which gradients of a bounded staleness read.
//!
//! # Cost
//!
//! An update copies the dense parameters and the learned rows that it replaces. An earlier version
//! of the rows of `n` nodes takes O(n a log r), for `a` updates since and `r` rows that each
//! replaced.
//!
//! # Memory
//!
//! For each earlier version, the dense parameters and the learned rows that the next update
//! replaced.

use std::collections::VecDeque;

use graphmill_core::NodeId;
use graphmill_nn::{
    Matrix,
    typed::{LearnedRows, TypedModel},
};

use super::ranks::{RowOwners, learned_types};
use crate::{Result, checkpoint::tensors::Tensor, strategy::Parameters};

/// Prefix of the names of their tensors in checkpoints.
const PREFIX: &str = "past";

/// The last versions of a model's parameters before the newest.
#[derive(Default)]
pub(super) struct PastVersions(VecDeque<Version>);

/// Parameters before an update.
struct Version {
    /// Values of the dense parameters, in the visiting order.
    dense: Vec<Matrix>,
    /// Learned rows that the update replaced, of each type that has some.
    rows: Vec<ReplacedRows>,
}

/// Learned rows of a type before an update.
#[derive(Default)]
struct ReplacedRows {
    /// Nodes of the rows, ascending; of a rank that has the rows of its own nodes alone, their
    /// places.
    nodes: Vec<NodeId>,
    rows: Matrix,
}

impl PastVersions {
    /// Number of earlier versions.
    pub(super) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Removes all versions.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds the version of a model before an update: its dense parameters ([`values`]), and the
    /// learned rows that the update replaces, at the places `replaced(t)` of each type `t`, which
    /// may repeat. Removes all but the last `most` versions.
    ///
    /// # Errors
    /// A node has no row.
    pub(super) fn push(
        &mut self,
        (dense, encoder): (Vec<Matrix>, &TypedModel),
        replaced: &dyn Fn(usize) -> Vec<NodeId>,
        most: u64,
    ) -> Result<()> {
        let of_type = |(t, learned): (usize, &LearnedRows)| -> Result<ReplacedRows> {
            let mut of = ReplacedRows { nodes: replaced(t), rows: Matrix::default() };
            of.nodes.sort_unstable();
            of.nodes.dedup();
            learned.gather(&of.nodes, &mut of.rows)?;
            Ok(of)
        };
        let rows = encoder.learned_rows().map(of_type).collect::<Result<_>>()?;
        self.0.push_back(Version { dense, rows });
        while self.len() > most {
            self.0.pop_front();
        }
        Ok(())
    }

    /// Dense parameters before the last `age` updates, at least one.
    pub(super) fn dense(&self, age: u64) -> &[Matrix] {
        &self.0[self.0.len() - age as usize].dense
    }

    /// Replaces `rows`, the newest learned rows of `nodes` of the type at place `i` among those
    /// that have some, by those before the last `age` updates.
    pub(super) fn restore_rows(&self, age: u64, i: usize, nodes: &[NodeId], rows: &mut Matrix) {
        let since = || self.0.iter().skip(self.0.len() - age as usize).map(|version| &version.rows[i]);
        let width = rows.num_cols().max(1);
        for (v, to) in nodes.iter().zip(rows.view_mut().host().chunks_exact_mut(width)) {
            // the first update since then that replaced the row
            let of_update = |of: &'_ ReplacedRows| of.nodes.binary_search(v).ok();
            if let Some((of, at)) = since().find_map(|of| of_update(of).map(|at| (of, at))) {
                to.copy_from_slice(&of.rows.view().host()[at * width..][..width]);
            }
        }
    }

    /// All versions as tensors of a checkpoint.
    pub(super) fn tensors(&self) -> Vec<Tensor> {
        let mut tensors = Vec::new();
        for (age, version) in self.0.iter().rev().enumerate() {
            let dense = version.dense.iter().enumerate();
            tensors.extend(dense.map(|(p, value)| Tensor::copy(&name(age, "dense", p), value)));
            for (i, of) in version.rows.iter().enumerate().filter(|(_, of)| !of.nodes.is_empty()) {
                tensors.push(Tensor::of_words(&name(age, "nodes", i), &of.nodes));
                tensors.push(Tensor::copy(&name(age, "rows", i), &of.rows));
            }
        }
        tensors
    }

    /// [`PastVersions::tensors`] of all ranks, of which each has replaced own rows, on rank 0; none
    /// on the others. All ranks call this at the same time.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(super) fn joined(&self, over: &RowOwners, encoder: &TypedModel) -> Result<Vec<Tensor>> {
        let learned = learned_types(encoder);
        let mut joined = Vec::with_capacity(self.0.len());
        for version in &self.0 {
            let pairs = version.rows.iter().zip(&learned);
            let of_type = |(of, &(t, width)): (&ReplacedRows, &(usize, usize))| -> Result<ReplacedRows> {
                let (nodes, rows) = over.join_rows(t, &of.nodes, (&of.rows, width))?;
                Ok(ReplacedRows { nodes, rows })
            };
            joined.push(Version { dense: Vec::new(), rows: pairs.map(of_type).collect::<Result<_>>()? });
        }
        if over.ranks.rank() > 0 {
            return Ok(Vec::new());
        }
        for (joined, own) in joined.iter_mut().zip(&self.0) {
            joined.dense.clone_from(&own.dense);
        }
        Ok(Self(joined.into()).tensors())
    }

    /// Restores the versions of a model from the tensors of a checkpoint; those of other names are
    /// left. A rank takes the rows of its own nodes.
    ///
    /// # Errors
    /// A message: a version is that of another model.
    pub(super) fn restore(
        &mut self,
        (dense, encoder): (&dyn Parameters, &TypedModel),
        over: Option<&RowOwners>,
        tensors: &[Tensor],
    ) -> Result<(), String> {
        let find = |name: &str| tensors.iter().find(|tensor| tensor.name == name);
        let (mut shapes, mut restored) = (Vec::new(), VecDeque::new());
        dense.each(&mut |param| shapes.push([param.value.num_rows(), param.value.num_cols()]));
        while find(&name(restored.len(), "dense", 0)).is_some() {
            let age = restored.len();
            let matrix = |name: &str, shape: [usize; 2]| match find(name) {
                Some(of) if of.shape == shape => Ok(Matrix::from_slice(shape[0], shape[1], &of.data)),
                _ => Err(format!("{name} is missing, or has another shape than {shape:?}")),
            };
            let values = shapes.iter().enumerate();
            let values = values.map(|(p, &shape)| matrix(&name(age, "dense", p), shape));
            let of_type = |(i, (t, learned)): (usize, (usize, &LearnedRows))| {
                let Some(nodes) = find(&name(age, "nodes", i)).map(Tensor::words) else {
                    return Ok(ReplacedRows::default());
                };
                let rows = matrix(&name(age, "rows", i), [nodes.len(), learned.table().num_cols()])?;
                let (nodes, rows) = match over {
                    Some(over) => over.split_rows(t, &nodes, &rows),
                    None => (nodes, rows),
                };
                Ok(ReplacedRows { nodes, rows })
            };
            let rows = encoder.learned_rows().enumerate().map(of_type).collect::<Result<_, String>>()?;
            restored.push_front(Version { dense: values.collect::<Result<_, String>>()?, rows });
        }
        self.0 = restored;
        Ok(())
    }
}

/// Values of the dense parameters of a model, in the visiting order.
pub(super) fn values(dense: &dyn Parameters) -> Vec<Matrix> {
    let mut values = Vec::new();
    dense.each(&mut |param| values.push(param.value.clone()));
    values
}

/// Name of a tensor of the version before the last `age + 1` updates.
fn name(age: usize, what: &str, index: usize) -> String {
    format!("{PREFIX}.{}.{what}.{index}", age + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_an_earlier_version_are_those_before_the_first_update_since() {
        let replaced = |nodes: &[NodeId], values: &[f32]| ReplacedRows {
            nodes: nodes.to_vec(),
            rows: Matrix::from_slice(nodes.len(), 1, values),
        };
        let version = |rows| Version { dense: Vec::new(), rows: vec![rows] };
        // rows 1 and 3 change in the first update, 3 and 5 in the second
        let first = version(replaced(&[1, 3], &[10.0, 30.0]));
        let second = version(replaced(&[3, 5], &[31.0, 50.0]));
        let past = PastVersions(VecDeque::from([first, second]));
        let nodes = [5, 1, 3, 2, 3];
        for (age, expected) in [
            (0, [51.0, 11.0, 32.0, 20.0, 32.0]),
            (1, [50.0, 11.0, 31.0, 20.0, 31.0]),
            (2, [50.0, 10.0, 30.0, 20.0, 30.0]),
        ] {
            let mut rows = Matrix::from_slice(5, 1, &[51.0, 11.0, 32.0, 20.0, 32.0]);
            past.restore_rows(age, 0, &nodes, &mut rows);
            assert_eq!(rows.view().host(), expected, "{age} updates ago");
        }
    }
}
