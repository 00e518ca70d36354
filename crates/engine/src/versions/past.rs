//! The versions of a model's parameters before the newest.

use std::{
    collections::VecDeque,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use graphmill_core::NodeId;
use graphmill_nn::{Matrix, typed::LearnedRows};

use super::Parameters;
use crate::{Result, checkpoint::tensors::Tensor};

/// Prefix of the names of their tensors in checkpoints.
pub(crate) const PREFIX: &str = "past.";

/// The last versions of a model's parameters before the newest. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct PastVersions(Arc<RwLock<VecDeque<Version>>>);

/// Parameters before an update.
struct Version {
    /// Values of the dense parameters, in the visiting order.
    dense: Vec<Matrix>,
    /// Learned rows that the update replaced, of each type that has some.
    rows: Vec<ReplacedRows>,
}

/// Learned rows of a type before an update.
#[derive(Default)]
pub(crate) struct ReplacedRows {
    /// Nodes of the rows, ascending; of a rank that has the rows of its own nodes alone, their
    /// places.
    nodes: Vec<NodeId>,
    rows: Matrix,
}

impl ReplacedRows {
    /// Copy of the rows of these nodes (or places), which may repeat, before an update replaces
    /// them.
    ///
    /// # Errors
    /// A node has no row.
    pub(crate) fn new(learned: &LearnedRows, mut nodes: Vec<NodeId>) -> Result<Self> {
        nodes.sort_unstable();
        nodes.dedup();
        let mut rows = Matrix::default();
        learned.gather(&nodes, &mut rows)?;
        Ok(Self { nodes, rows })
    }
}

impl PastVersions {
    fn read(&self) -> RwLockReadGuard<'_, VecDeque<Version>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, VecDeque<Version>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of earlier versions.
    pub(crate) fn len(&self) -> u64 {
        self.read().len() as u64
    }

    /// Removes all versions.
    pub(crate) fn clear(&self) {
        self.write().clear();
    }

    /// Removes all but the last `most` versions. Returns the dense parameters of the last of those
    /// that it removes.
    pub(super) fn keep(&self, most: u64) -> Option<Vec<Matrix>> {
        let mut versions = self.write();
        let removed = (versions.len() as u64).saturating_sub(most) as usize;
        versions.drain(..removed).next_back().map(|version| version.dense)
    }

    /// Adds the version before an update: the dense parameters, in the visiting order, and the
    /// learned rows that the update replaced, of each type that has some.
    pub(super) fn push(&self, dense: Vec<Matrix>, rows: Vec<ReplacedRows>) {
        self.write().push_back(Version { dense, rows });
    }

    /// Calls `see` with the dense parameters before the last `age` updates, at least one.
    pub(super) fn see_dense<R>(&self, age: u64, see: impl FnOnce(&[Matrix]) -> R) -> R {
        let versions = self.read();
        see(&versions[versions.len() - age as usize].dense)
    }

    /// Replaces `rows`, the newest learned rows of `nodes` of the type at place `i` among those
    /// that have some, by those before the last `age` updates.
    pub(super) fn restore_rows(&self, age: u64, i: usize, nodes: &[NodeId], rows: &mut Matrix) {
        let versions = self.read();
        let since = || versions.iter().skip(versions.len() - age as usize).map(|version| &version.rows[i]);
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
    pub(crate) fn tensors(&self) -> Vec<Tensor> {
        let mut tensors = Vec::new();
        for (age, version) in self.read().iter().rev().enumerate() {
            copy_dense(age, &version.dense, &mut tensors);
            for (i, of) in version.rows.iter().enumerate() {
                copy_rows(age, i, (&of.nodes, &of.rows), &mut tensors);
            }
        }
        tensors
    }

    /// [`PastVersions::tensors`] of several ranks, if this one `writes` them; otherwise none.
    /// `join` joins the replaced rows of a type of all ranks. All ranks call this at the same time.
    ///
    /// # Errors
    /// Those of `join`.
    pub(crate) fn joined(
        &self,
        writes: bool,
        join: impl Fn(usize, &[NodeId], &Matrix) -> Result<(Vec<NodeId>, Matrix)>,
    ) -> Result<Vec<Tensor>> {
        let mut tensors = Vec::new();
        for (age, version) in self.read().iter().rev().enumerate() {
            if writes {
                copy_dense(age, &version.dense, &mut tensors);
            }
            for (i, of) in version.rows.iter().enumerate() {
                let (nodes, rows) = join(i, &of.nodes, &of.rows)?;
                if writes {
                    copy_rows(age, i, (&nodes, &rows), &mut tensors);
                }
            }
        }
        Ok(tensors)
    }

    /// Replaces the nodes and rows of each type by those that `own` returns: the rows of a rank.
    pub(crate) fn split(&self, own: impl Fn(usize, &[NodeId], &Matrix) -> (Vec<NodeId>, Matrix)) {
        for version in self.write().iter_mut() {
            for (i, of) in version.rows.iter_mut().enumerate() {
                (of.nodes, of.rows) = own(i, &of.nodes, &of.rows);
            }
        }
    }

    /// Restores the versions of a model from the tensors of a checkpoint; those of other names are
    /// left. `widths` has the width of the learned rows of each type that has some.
    ///
    /// # Errors
    /// A message: a version is that of another model.
    pub(crate) fn restore(
        &self,
        model: &dyn Parameters,
        widths: &[usize],
        tensors: &[Tensor],
    ) -> Result<(), String> {
        let find = |name: &str| tensors.iter().find(|tensor| tensor.name == name);
        let (mut shapes, mut restored) = (Vec::new(), VecDeque::new());
        model.each(&mut |param| shapes.push([param.value.num_rows(), param.value.num_cols()]));
        while find(&name(restored.len(), "dense", 0)).is_some() {
            let age = restored.len();
            let matrix = |name: &str, shape: [usize; 2]| match find(name) {
                Some(of) if of.shape == shape => Ok(Matrix::from_slice(shape[0], shape[1], &of.data)),
                _ => Err(format!("{name} is missing, or has another shape than {shape:?}")),
            };
            let values = shapes.iter().enumerate();
            let values = values.map(|(p, &shape)| matrix(&name(age, "dense", p), shape));
            let of_type = |(i, &width): (usize, &usize)| {
                let Some(nodes) = find(&name(age, "nodes", i)).map(Tensor::words) else {
                    return Ok(ReplacedRows::default());
                };
                let rows = matrix(&name(age, "rows", i), [nodes.len(), width])?;
                Ok(ReplacedRows { nodes, rows })
            };
            let rows = widths.iter().enumerate().map(of_type).collect::<Result<_, String>>()?;
            restored.push_front(Version { dense: values.collect::<Result<_, String>>()?, rows });
        }
        *self.write() = restored;
        Ok(())
    }
}

/// Adds copies of dense parameters to the tensors of a checkpoint.
fn copy_dense(age: usize, values: &[Matrix], tensors: &mut Vec<Tensor>) {
    let values = values.iter().enumerate();
    tensors.extend(values.map(|(p, value)| Tensor::copy(&name(age, "dense", p), value)));
}

/// Adds copies of the replaced rows of a type, if there are some, to the tensors of a checkpoint.
fn copy_rows(age: usize, i: usize, (nodes, rows): (&[NodeId], &Matrix), tensors: &mut Vec<Tensor>) {
    if !nodes.is_empty() {
        tensors.push(Tensor::of_words(&name(age, "nodes", i), nodes));
        tensors.push(Tensor::copy(&name(age, "rows", i), rows));
    }
}

/// Name of a tensor of the version before the last `age + 1` updates.
fn name(age: usize, what: &str, index: usize) -> String {
    format!("{PREFIX}{}.{what}.{index}", age + 1)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use graphmill_nn::Param;

    use super::{super::tests::One, *};

    #[test]
    fn rows_of_an_earlier_version_are_those_before_the_first_update_since() {
        let replaced = |nodes: &[NodeId], values: &[f32]| ReplacedRows {
            nodes: nodes.to_vec(),
            rows: Matrix::from_slice(nodes.len(), 1, values),
        };
        let past = PastVersions::default();
        // rows 1 and 3 change in the first update, 3 and 5 in the second
        past.push(Vec::new(), vec![replaced(&[1, 3], &[10.0, 30.0])]);
        past.push(Vec::new(), vec![replaced(&[3, 5], &[31.0, 50.0])]);
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

    #[test]
    fn ranks_join_and_split_the_rows_that_updates_replaced() {
        let [even, odd, restored] = [(); 3].map(|()| PastVersions::default());
        let rows = |nodes: &[NodeId], values: &[f32]| {
            vec![ReplacedRows { nodes: nodes.to_vec(), rows: Matrix::from_slice(nodes.len(), 1, values) }]
        };
        let dense = |x: f32| vec![Matrix::from_slice(1, 1, &[x])];
        // nodes 2 and 6 are at places 1 and 3 of the rank of even nodes
        even.push(dense(1.0), rows(&[1, 3], &[20.0, 60.0]));
        even.push(dense(2.0), rows(&[], &[]));
        odd.push(dense(1.0), rows(&[], &[]));
        odd.push(dense(2.0), rows(&[1], &[30.0]));
        let all = [(vec![3], vec![30.0]), (vec![2, 6], vec![20.0, 60.0])];
        let joins = Cell::new(0);
        let join = |_: usize, _: &[NodeId], _: &Matrix| {
            let (nodes, values) = &all[joins.replace(joins.get() + 1) % 2];
            Ok((nodes.clone(), Matrix::from_slice(nodes.len(), 1, values)))
        };
        assert!(odd.joined(false, join).unwrap().is_empty());
        let tensors = even.joined(true, join).unwrap();
        assert_eq!(joins.get(), 4, "all ranks join as often");
        let model = One(Param::constant("weight", 1, 1, 0.0));
        restored.restore(&model, &[1], &tensors).unwrap();
        restored.split(|_, nodes, rows| {
            let own = nodes.iter().zip(rows.view().host()).filter(|(v, _)| **v % 2 == 0);
            let (places, values): (Vec<NodeId>, Vec<f32>) = own.map(|(v, x)| (v / 2, *x)).unzip();
            (places, Matrix::from_slice(values.len(), 1, &values))
        });
        assert_eq!(restored.tensors(), even.tensors());
    }

    #[test]
    fn the_oldest_versions_are_removed_first() {
        let past = PastVersions::default();
        let value = |x: f32| vec![Matrix::from_slice(1, 1, &[x])];
        let first = |dense: &[Matrix]| dense[0].view().host()[0];
        assert!(past.keep(0).is_none());
        for x in [1.0, 2.0, 3.0] {
            past.push(value(x), Vec::new());
        }
        assert_eq!([1, 2, 3].map(|age| past.see_dense(age, first)), [3.0, 2.0, 1.0]);
        assert!(past.keep(3).is_none());
        assert_eq!(past.keep(1).map(|dense| first(&dense)), Some(2.0), "the last of those removed");
        assert_eq!((past.len(), past.see_dense(1, first)), (1, 3.0));
        assert_eq!(past.clone().len(), 1, "clones share the versions");
    }
}
