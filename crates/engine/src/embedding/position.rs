//! Files of a run of a table of embeddings: what a checkpoint holds and restores.
//!
//! ```text
//! model.safetensors       embedding.rows, decoder.NAME: the parameters of the relations
//! best.safetensors        the same of the best epoch
//! optimizer.safetensors   0.KIND of rows and 1.KIND of relations
//! history.safetensors     lists of hard negatives, if the run draws them
//! state.json              the position
//! ```

use std::path::Path;

use graphmill_nn::{Matrix, matrix::TableData};

use super::{
    learner::TableLearner,
    model::{ROWS_NAME, TableModel},
};
use crate::{
    Error, Result,
    batchwise::{BatchLearner, NoCounts, RestoredState, RowsOf, SavedTensors, WriteTensors},
    checkpoint::{
        self, GrownRows,
        tensors::{Tensor, TensorRef, Values},
    },
    link::lists,
};

/// The model that `make` makes of its rows, of this shape, with the `tensors` of the file `path`.
/// Rows of a mapped file stay in it.
///
/// # Errors
/// The tensors are those of another model; the message names the first that differs. Or those of
/// `make`.
pub(super) fn load(
    path: &Path,
    mut tensors: Vec<Tensor>,
    shape: [usize; 2],
    make: impl FnOnce(Matrix) -> Result<TableModel>,
) -> Result<TableModel> {
    let at = tensors.iter().position(|tensor| tensor.name == ROWS_NAME);
    let rows = match at.map(|at| tensors.remove(at)) {
        Some(Tensor { data: Values::File(data), shape: found, .. }) if found == shape && !data.is_empty() => {
            Matrix::shared(TableData::F32(data), shape[1])
        }
        rows => {
            let mut matrix = Matrix::zeros(shape[0], shape[1]);
            checkpoint::assign(path, rows.as_slice(), |see| see(ROWS_NAME, &mut matrix))?;
            matrix
        }
    };
    let mut model = make(rows)?;
    checkpoint::assign(path, &tensors, |see| model.visit_rest_mut(see))?;
    Ok(model)
}

impl BatchLearner for TableLearner {
    type Counts = NoCounts;

    fn num_params(&self) -> usize {
        self.model.num_params()
    }

    fn visit(&self, see: &mut dyn FnMut(&str, &Matrix)) {
        self.model.visit(see);
    }

    fn assign_grown(&mut self, path: &Path, tensors: &[Tensor], grown: &GrownRows) -> Result<()> {
        checkpoint::assign_grown(path, tensors, grown, |see| self.model.visit_mut(see))
    }

    fn rows_of(&self, name: &str) -> Option<RowsOf> {
        (name == ROWS_NAME).then_some(RowsOf::All)
    }

    fn restore(&mut self, path: &Path, state: &RestoredState) -> Result<()> {
        self.prepare()?;
        checkpoint::assign(path, state.moments, |see| self.optimizer.visit_state_mut(see))?;
        self.optimizer.set_steps(state.steps);
        match &self.hard {
            Some(lists) => lists::restore(lists, state.history)
                .map_err(|what| Error::format(path, "lists of negatives", format!("{what}; train again"))),
            None => Ok(()),
        }
    }

    fn save(&mut self, write: &mut WriteTensors) -> Result<()> {
        self.prepare()?;
        let moments = self.optimizer.state().into_iter();
        let moments: Vec<TensorRef> = moments
            .map(|(name, table)| (name, [table.num_rows(), table.num_cols()], table.view().host()))
            .collect();
        let (rows, rest) = self.model.tensors();
        let params: Vec<TensorRef> = [rows].into_iter().chain(Tensor::borrow_all(&rest)).collect();
        let steps = self.optimizer.steps();
        let lists: Vec<Tensor> = self.hard.iter().flat_map(|lists| lists::tensors(lists)).collect();
        write(SavedTensors {
            params: &params,
            moments: &moments,
            steps,
            history: &Tensor::borrow_all(&lists),
        })
    }

    fn num_updates(&self) -> u64 {
        self.step
    }

    fn set_num_updates(&mut self, updates: u64) {
        self.step = updates;
    }

    fn is_whole(&self) -> bool {
        self.is_whole
    }
}
