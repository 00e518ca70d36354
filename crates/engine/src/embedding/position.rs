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

use graphmill_nn::Matrix;

use super::{learner::TableLearner, model::TableModel};
use crate::{
    Error, Result,
    batchwise::{BatchLearner, NoCounts, RestoredState, SavedTensors, WriteTensors},
    checkpoint::{self, tensors::Tensor},
    link::lists,
};

/// Copies `tensors` of the file `path` to the model.
///
/// # Errors
/// The tensors are those of another model; the message names the first that differs.
pub(super) fn assign(path: &Path, tensors: &[Tensor], model: &mut TableModel) -> Result<()> {
    checkpoint::assign(path, tensors, |see| model.visit_mut(see))
}

impl BatchLearner for TableLearner {
    type Counts = NoCounts;

    fn num_params(&self) -> usize {
        self.model.num_params()
    }

    fn visit(&self, see: &mut dyn FnMut(&str, &Matrix)) {
        self.model.visit(see);
    }

    fn assign(&mut self, path: &Path, tensors: &[Tensor]) -> Result<()> {
        assign(path, tensors, &mut self.model)
    }

    fn restore(&mut self, path: &Path, state: &RestoredState) -> Result<()> {
        self.prepare();
        checkpoint::assign(path, state.moments, |see| self.optimizer.visit_state_mut(see))?;
        self.optimizer.set_steps(state.steps);
        match &self.hard {
            Some(lists) => lists::restore(lists, state.history)
                .map_err(|what| Error::format(path, "lists of negatives", format!("{what}; train again"))),
            None => Ok(()),
        }
    }

    fn save(&mut self, write: &mut WriteTensors) -> Result<()> {
        self.prepare();
        let (mut moments, mut params) = (Vec::new(), Vec::new());
        self.optimizer.visit_state(&mut |name, matrix| moments.push(Tensor::copy(name, matrix)));
        self.model.visit(&mut |name, matrix| params.push(Tensor::copy(name, matrix)));
        let [moments, params] = [&moments, &params].map(|of| Tensor::borrow_all(of));
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
