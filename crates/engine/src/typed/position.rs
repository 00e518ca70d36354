//! Files of a run on several types: what a checkpoint holds and restores.
//!
//! ```text
//! model.safetensors       dense parameters by name, and input.TYPE.rows: the learned rows of a type
//! best.safetensors        the same of the best epoch
//! optimizer.safetensors   INDEX.m, INDEX.v, ... of dense parameters, rows.TYPE.m and rows.TYPE.v
//! history.safetensors     counts of reads, if they fill caches during the run; earlier versions of
//!                         the parameters, if gradients are stale; reused rows, and versions of the
//!                         parameters of the first layer since they were made
//! state.json              the position, and counts by type of the current epoch
//! ```

use std::path::Path;

use graphmill_nn::{
    Matrix,
    optim::{Optimizer, SparseAdam},
    typed::{LearnedRows, TypedModel},
};

use super::{
    counts::TypeCounts,
    learner::TypedLearner,
    ranks::{JoinedRows, RowOwners, learned_types},
};
use crate::{
    Error, Result,
    batchwise::{BatchLearner, RestoredState, RowsOf, SavedTensors, WriteTensors},
    checkpoint::{
        self, GrownRows,
        tensors::{Tensor, TensorRef},
    },
    tiers::ReadCounts,
    versions::{Parameters, PastVersions},
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

/// Moments of the optimiser of dense parameters, by name.
pub(super) fn dense_moments(optimizer: &dyn Optimizer) -> Vec<Tensor> {
    // copies, because the visitor's matrices live only during the call
    let mut moments = Vec::new();
    optimizer.visit_state(&mut |name, matrix| moments.push(Tensor::copy(name, matrix)));
    moments
}

/// Moments of the learned rows of a model, by name, which may be in files.
///
/// # Errors
/// They were not allocated yet, and a disk has too little space.
pub(super) fn row_moments<'s>(model: &TypedModel, sparse: &'s mut SparseAdam) -> Result<Vec<TensorRef<'s>>> {
    for (t, rows) in model.learned_rows() {
        sparse.prepare(t, rows.table())?;
    }
    let moments = sparse.state().into_iter();
    Ok(moments.map(|(name, matrix)| tensor(format!("rows.{name}"), matrix)).collect())
}

/// Copies of the moments of the optimisers of a model, by name.
///
/// # Errors
/// As [`row_moments`].
fn moments(model: &TypedModel, optimizer: &dyn Optimizer, sparse: &mut SparseAdam) -> Result<Vec<Tensor>> {
    let mut moments = dense_moments(optimizer);
    let of_rows = row_moments(model, sparse)?.into_iter();
    moments.extend(of_rows.map(|(name, shape, data)| Tensor { name, shape, data: data.to_vec().into() }));
    Ok(moments)
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
    for (t, rows) in model.learned_rows() {
        sparse.prepare(t, rows.table())?;
    }
    checkpoint::assign(path, state.moments, |see| {
        optimizer.visit_state_mut(see);
        sparse.visit_state_mut(&mut |name, matrix| see(&format!("rows.{name}"), matrix));
    })?;
    optimizer.set_steps(state.steps);
    sparse.set_steps(state.steps);
    Ok(())
}

/// Restores the earlier versions of the parameters of a model with this encoder: of a rank, those
/// of its own rows.
///
/// # Errors
/// They are those of another model.
pub(super) fn restore_past(
    path: &Path,
    state: &RestoredState,
    (past, over): (&PastVersions, Option<&RowOwners>),
    (dense, encoder): (&dyn Parameters, &TypedModel),
) -> Result<()> {
    let learned = learned_types(encoder);
    let widths: Vec<usize> = learned.iter().map(|&(_, width)| width).collect();
    past.restore(dense, &widths, state.history)
        .map_err(|what| Error::format(path, "earlier versions", format!("{what}; train again")))?;
    if let Some(over) = over {
        past.split(|i, nodes, rows| over.split_rows(learned[i].0, nodes, rows));
    }
    Ok(())
}

/// Reference to a matrix for writing.
pub(super) fn tensor<'m>(name: String, matrix: &'m Matrix) -> TensorRef<'m> {
    (name, [matrix.num_rows(), matrix.num_cols()], matrix.view().host())
}

/// Learned rows of a model, of which each rank has those of its own nodes if several ranks train.
#[derive(Clone, Copy)]
pub(super) struct SharedRows<'m> {
    pub(super) model: &'m TypedModel,
    pub(super) over: Option<&'m RowOwners>,
}

impl SharedRows<'_> {
    /// Number of parameters of the model on all ranks.
    pub(super) fn num_params(&self) -> usize {
        let of_others = |over: &RowOwners| {
            let of_type = |(t, rows): (usize, &LearnedRows)| {
                (over.owners[t].num_nodes() - rows.table().num_rows()) * rows.table().num_cols()
            };
            self.model.learned_rows().map(of_type).sum::<usize>()
        };
        self.model.num_params() + self.over.map_or(0, of_others)
    }

    /// Type whose learned rows, or their moments, a tensor of this name holds.
    fn type_of(&self, name: &str) -> Option<usize> {
        let is_named = |&t: &usize| {
            let (rows, moments) = (rows_name(self.model, t), format!("rows.{t}."));
            name == rows || name.starts_with(&moments)
        };
        self.model.learned_rows().map(|(t, _)| t).find(is_named)
    }

    /// Type whose learned rows the parameter `name` has.
    pub(super) fn rows_of(&self, name: &str) -> Option<RowsOf> {
        self.type_of(name).map(RowsOf::Type)
    }

    /// Returns true if this rank has all rows. Without the other ranks, rank 0 cannot save those of
    /// several ranks.
    pub(super) fn are_here(&self) -> bool {
        self.over.is_none() || self.model.learned_rows().next().is_none()
    }

    /// Learned rows and moments of all ranks, and all of the earlier versions `past`, on rank 0, if
    /// the ranks share rows. All ranks call this at the same time.
    ///
    /// # Errors
    /// A rank did not take part.
    pub(super) fn joined(
        &self,
        optimizer: &dyn Optimizer,
        sparse: &mut SparseAdam,
        past: &PastVersions,
    ) -> Result<Option<JoinedRows>> {
        let Some(over) = self.over.filter(|_| !self.are_here()) else { return Ok(None) };
        let mut moments = moments(self.model, optimizer, sparse)?;
        self.join(&mut moments)?;
        let of_type =
            |(t, rows): (usize, &LearnedRows)| Tensor::copy(&rows_name(self.model, t), rows.table());
        let mut rows: Vec<Tensor> = self.model.learned_rows().map(of_type).collect();
        self.join(&mut rows)?;
        let (learned, writes) = (learned_types(self.model), over.ranks.rank() == 0);
        let past = past.joined(writes, |i, nodes, rows| {
            let (t, width) = learned[i];
            over.join_rows(t, nodes, (rows, width))
        })?;
        Ok(writes.then_some([rows, moments, past]))
    }

    /// Joins rows and moments on rank 0, as [`BatchLearner::join`].
    ///
    /// # Errors
    /// A rank did not take part.
    pub(super) fn join(&self, params: &mut [Tensor]) -> Result<()> {
        let Some(over) = self.over else { return Ok(()) };
        params.iter_mut().try_for_each(|tensor| match self.type_of(&tensor.name) {
            Some(t) => over.join(t, tensor),
            None => Ok(()),
        })
    }

    /// Keeps the own rows and moments, as [`BatchLearner::split`].
    pub(super) fn split(&self, tensors: &mut [Tensor]) {
        let Some(over) = self.over else { return };
        for tensor in tensors {
            if let Some(t) = self.type_of(&tensor.name) {
                over.split(t, tensor);
            }
        }
    }

    /// Keeps the own ones of fewer rows, as [`BatchLearner::split_known`].
    pub(super) fn split_known(&self, tensors: &mut [Tensor], growth: &[[usize; 2]]) -> Vec<[usize; 2]> {
        let Some(over) = self.over else { return growth.to_vec() };
        for tensor in tensors {
            let known = self.type_of(&tensor.name).and_then(|t| Some((t, growth.get(t)?[0])));
            if let Some((t, before)) = known {
                over.split_known(t, tensor, before);
            }
        }
        let own = |(t, counts): (usize, &[usize; 2])| counts.map(|count| over.own_below(t, count).count());
        growth.iter().enumerate().map(own).collect()
    }
}

impl TypedLearner<'_> {
    /// The learned rows.
    fn rows(&self) -> SharedRows<'_> {
        SharedRows { model: &self.model, over: self.over.as_ref() }
    }
}

impl BatchLearner for TypedLearner<'_> {
    type Counts = TypeCounts;

    fn num_params(&self) -> usize {
        self.rows().num_params()
    }

    fn visit(&self, see: &mut dyn FnMut(&str, &Matrix)) {
        visit(&self.model, see);
    }

    fn assign_grown(&mut self, path: &Path, tensors: &[Tensor], grown: &GrownRows) -> Result<()> {
        checkpoint::assign_grown(path, tensors, grown, |see| visit_mut(&mut self.model, see))
    }

    fn rows_of(&self, name: &str) -> Option<RowsOf> {
        self.rows().rows_of(name)
    }

    fn restore(&mut self, path: &Path, state: &RestoredState) -> Result<()> {
        let Self { model, optimizer, sparse, .. } = self;
        let mut index = 0;
        model.visit(&mut |_, param| {
            optimizer.prepare(index, param);
            index += 1;
        });
        restore_moments(path, state, (model, &mut **optimizer, sparse))?;
        self.reuse.restore(state.history);
        let past = (&self.past, self.over.as_ref());
        restore_past(path, state, past, (&self.model, &self.model))?;
        match &mut self.reads {
            Some(reads) => reads
                .restore(state.history)
                .map_err(|what| Error::format(path, "counts of reads", format!("{what}; train again"))),
            None => Ok(()),
        }
    }

    fn save(&mut self, write: &mut WriteTensors) -> Result<()> {
        let Self { model, optimizer, sparse, joined, saved_reads, past, reuse, .. } = self;
        let (joined, mut params) = (joined.take(), Vec::new());
        let (reads, own) = (std::mem::take(saved_reads), past.tensors());
        let past = joined.as_ref().map_or(&own, |[_, _, past]| past);
        let reused = reuse.tensors();
        let history: Vec<TensorRef> = reads.iter().chain(past).chain(&reused).map(Tensor::borrow).collect();
        model.visit(&mut |name, param| params.push(tensor(name.into(), &param.value)));
        let steps = optimizer.steps();
        if let Some([rows, moments, _]) = &joined {
            params.extend(rows.iter().map(Tensor::borrow));
            let moments = Tensor::borrow_all(moments);
            return write(SavedTensors { params: &params, moments: &moments, steps, history: &history });
        }
        let dense = dense_moments(&**optimizer);
        let mut moments: Vec<TensorRef> = dense.iter().map(Tensor::borrow).collect();
        moments.extend(row_moments(model, sparse)?);
        params.extend(model.learned_rows().map(|(t, rows)| tensor(rows_name(model, t), rows.table())));
        write(SavedTensors { params: &params, moments: &moments, steps, history: &history })
    }

    fn begin_save(&mut self) -> Result<()> {
        let Self { model, optimizer, sparse, over, reads, past, .. } = self;
        self.joined = SharedRows { model, over: over.as_ref() }.joined(&**optimizer, sparse, past)?;
        self.saved_reads = reads.as_ref().map_or(Ok(Vec::new()), ReadCounts::tensors)?;
        Ok(())
    }

    fn join(&self, params: &mut [Tensor]) -> Result<()> {
        self.rows().join(params)
    }

    fn split(&self, tensors: &mut [Tensor]) {
        self.rows().split(tensors);
    }

    fn split_known(&self, tensors: &mut [Tensor], growth: &[[usize; 2]]) -> Vec<[usize; 2]> {
        self.rows().split_known(tensors, growth)
    }

    fn num_updates(&self) -> u64 {
        self.step
    }

    fn set_num_updates(&mut self, updates: u64) {
        self.step = updates;
    }

    fn is_whole(&self) -> bool {
        // without the other ranks, rank 0 cannot save what they have counted
        let is_alone = self.reads.as_ref().is_none_or(|reads| !reads.is_collected());
        self.is_whole && is_alone && self.rows().are_here()
    }
}
