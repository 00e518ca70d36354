//! Files of a run on several types: what a checkpoint holds and restores.
//!
//! ```text
//! model.safetensors       dense parameters by name, and input.TYPE.rows: the learned rows of a type
//! best.safetensors        the same of the best epoch
//! optimizer.safetensors   INDEX.m, INDEX.v, ... of dense parameters, rows.TYPE.m and rows.TYPE.v
//! state.json              the position, and counts by type of the current epoch
//! ```

use std::path::Path;

use graphmill_nn::{
    Matrix,
    optim::{Optimizer, SparseAdam},
    typed::{LearnedRows, TypedModel},
};

use super::{counts::TypeCounts, learner::TypedLearner};
use crate::{
    Result,
    batchwise::{BatchLearner, RestoredState, RowsOf, SavedTensors, WriteTensors},
    checkpoint::{
        self, GrownRows,
        tensors::{Tensor, TensorRef},
    },
};

/// Name of the learned rows of a type in files.
pub(super) fn rows_name(model: &TypedModel, t: usize) -> String {
    format!("input.{}.rows", model.schema().types()[t].name)
}

/// Visits the dense parameters and the learned rows by name, always in the same order.
pub(super) fn visit(model: &TypedModel, see: &mut dyn FnMut(&str, &Matrix)) {
    model.visit(&mut |name, param| see(name, &param.value));
    for (t, rows) in model.learned_rows() {
        see(&rows_name(model, t), rows.table());
    }
}

/// Copies `tensors` of the file `path` to the dense parameters and learned rows.
///
/// # Errors
/// The tensors are those of another model; the message names the first that differs.
pub(super) fn assign(path: &Path, tensors: &[Tensor], model: &mut TypedModel) -> Result<()> {
    checkpoint::assign(path, tensors, |see| visit_mut(model, see))
}

/// Visits the dense parameters and the learned rows mutably, in the order of [`visit`].
pub(super) fn visit_mut(model: &mut TypedModel, see: &mut dyn FnMut(&str, &mut Matrix)) {
    let names: Vec<String> = model.learned_rows().map(|(t, _)| rows_name(model, t)).collect();
    model.visit_mut(&mut |name, param| see(name, &mut param.value));
    for ((_, rows), name) in model.learned_rows_mut().zip(&names) {
        see(name, rows.table_mut());
    }
}

/// Moments of the optimisers of a model, by name.
pub(super) fn moments(model: &TypedModel, optimizer: &dyn Optimizer, sparse: &mut SparseAdam) -> Vec<Tensor> {
    // copies, because the visitors' matrices live only during the call
    let mut moments = Vec::new();
    optimizer.visit_state(&mut |name, matrix| moments.push(Tensor::copy(name, matrix)));
    model.learned_rows().for_each(|(t, rows)| sparse.prepare(t, rows.table()));
    sparse.visit_state_mut(&mut |name, matrix| moments.push(Tensor::copy(&format!("rows.{name}"), matrix)));
    moments
}

/// Restores the moments of the optimisers of a model, of which the dense ones are prepared.
///
/// # Errors
/// The tensors are those of another model; the message names the first that differs.
pub(super) fn restore_moments(
    path: &Path,
    state: &RestoredState,
    (model, optimizer, sparse): (&TypedModel, &mut dyn Optimizer, &mut SparseAdam),
) -> Result<()> {
    model.learned_rows().for_each(|(t, rows)| sparse.prepare(t, rows.table()));
    checkpoint::assign(path, state.moments, |see| {
        optimizer.visit_state_mut(see);
        sparse.visit_state_mut(&mut |name, matrix| see(&format!("rows.{name}"), matrix));
    })?;
    optimizer.set_steps(state.steps);
    sparse.set_steps(state.steps);
    Ok(())
}

/// Reference to a matrix for writing.
fn tensor<'m>(name: String, matrix: &'m Matrix) -> TensorRef<'m> {
    (name, [matrix.num_rows(), matrix.num_cols()], matrix.view().host())
}

impl BatchLearner for TypedLearner<'_> {
    type Counts = TypeCounts;

    fn num_params(&self) -> usize {
        let Some(over) = &self.over else { return self.model.num_params() };
        let of_others = self.model.learned_rows().map(|(t, rows)| {
            (over.owners[t].num_nodes() - rows.table().num_rows()) * rows.table().num_cols()
        });
        self.model.num_params() + of_others.sum::<usize>()
    }

    fn visit(&self, see: &mut dyn FnMut(&str, &Matrix)) {
        visit(&self.model, see);
    }

    fn assign_grown(&mut self, path: &Path, tensors: &[Tensor], grown: &GrownRows) -> Result<()> {
        checkpoint::assign_grown(path, tensors, grown, |see| visit_mut(&mut self.model, see))
    }

    fn rows_of(&self, name: &str) -> Option<RowsOf> {
        self.type_of_rows(name).map(RowsOf::Type)
    }

    fn restore(&mut self, path: &Path, state: &RestoredState) -> Result<()> {
        let Self { model, optimizer, sparse, .. } = self;
        let mut index = 0;
        model.visit(&mut |_, param| {
            optimizer.prepare(index, param);
            index += 1;
        });
        restore_moments(path, state, (model, &mut **optimizer, sparse))
    }

    fn save(&mut self, write: &mut WriteTensors) -> Result<()> {
        let Self { model, optimizer, sparse, joined, .. } = self;
        let (joined, mut params) = (joined.take(), Vec::new());
        model.visit(&mut |name, param| params.push(tensor(name.into(), &param.value)));
        let steps = optimizer.steps();
        if let Some([rows, moments]) = &joined {
            params.extend(rows.iter().map(Tensor::borrow));
            let moments = Tensor::borrow_all(moments);
            return write(SavedTensors { params: &params, moments: &moments, steps, history: &[] });
        }
        let moments = moments(model, &**optimizer, sparse);
        let moments: Vec<TensorRef> = moments.iter().map(Tensor::borrow).collect();
        params.extend(model.learned_rows().map(|(t, rows)| tensor(rows_name(model, t), rows.table())));
        write(SavedTensors { params: &params, moments: &moments, steps, history: &[] })
    }

    fn begin_save(&mut self) -> Result<()> {
        let Some(over) = &self.over else { return Ok(()) };
        if self.model.learned_rows().next().is_none() {
            return Ok(());
        }
        let rank = over.ranks.rank();
        let mut moments = moments(&self.model, &*self.optimizer, &mut self.sparse);
        self.join(&mut moments)?;
        let of_type =
            |(t, rows): (usize, &LearnedRows)| Tensor::copy(&rows_name(&self.model, t), rows.table());
        let mut rows: Vec<Tensor> = self.model.learned_rows().map(of_type).collect();
        self.join(&mut rows)?;
        self.joined = (rank == 0).then_some([rows, moments]);
        Ok(())
    }

    fn join(&self, params: &mut [Tensor]) -> Result<()> {
        let Some(over) = &self.over else { return Ok(()) };
        params.iter_mut().try_for_each(|tensor| match self.type_of_rows(&tensor.name) {
            Some(t) => over.join(t, tensor),
            None => Ok(()),
        })
    }

    fn split(&self, tensors: &mut [Tensor]) {
        let Some(over) = &self.over else { return };
        for tensor in tensors {
            if let Some(t) = self.type_of_rows(&tensor.name) {
                over.split(t, tensor);
            }
        }
    }

    fn split_known(&self, tensors: &mut [Tensor], growth: &[[usize; 2]]) -> Vec<[usize; 2]> {
        let Some(over) = &self.over else { return growth.to_vec() };
        for tensor in tensors {
            let known = self.type_of_rows(&tensor.name).and_then(|t| Some((t, growth.get(t)?[0])));
            if let Some((t, before)) = known {
                over.split_known(t, tensor, before);
            }
        }
        let own = |(t, counts): (usize, &[usize; 2])| counts.map(|count| over.own_below(t, count).count());
        growth.iter().enumerate().map(own).collect()
    }

    fn num_updates(&self) -> u64 {
        self.step
    }

    fn set_num_updates(&mut self, updates: u64) {
        self.step = updates;
    }

    /// Without the other ranks, rank 0 cannot save their learned rows.
    fn is_whole(&self) -> bool {
        self.is_whole && (self.over.is_none() || self.model.learned_rows().next().is_none())
    }
}

impl TypedLearner<'_> {
    /// Type whose learned rows, or their moments, a tensor of this name holds.
    fn type_of_rows(&self, name: &str) -> Option<usize> {
        let is_named = |&t: &usize| {
            let (rows, moments) = (rows_name(&self.model, t), format!("rows.{t}."));
            name == rows || name.starts_with(&moments)
        };
        self.model.learned_rows().map(|(t, _)| t).find(is_named)
    }
}
