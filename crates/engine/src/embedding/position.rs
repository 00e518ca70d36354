//! Files of a run of a table of embeddings: what a checkpoint holds and restores.
//!
//! ```text
//! model.safetensors       embedding.rows, decoder.NAME: the parameters of the relations
//! best.safetensors        the same of the best epoch
//! optimizer.safetensors   0.KIND of rows and 1.KIND of relations
//! state.json              the position
//! ```

use std::path::Path;

use graphmill_nn::Matrix;
use serde::{Deserialize, Serialize};

use super::{learner::TableLearner, model::TableModel};
use crate::{
    Result,
    batchwise::{BatchLearner, WriteTensors},
    checkpoint::{
        self,
        tensors::{Tensor, TensorRef},
    },
};

/// No counts beside the totals of an epoch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct NoCounts {}

/// Copies `tensors` of the file `path` to the model.
///
/// # Errors
/// The tensors are those of another model; the message names the first that differs.
pub(super) fn assign(path: &Path, tensors: &[Tensor], model: &mut TableModel) -> Result<()> {
    checkpoint::assign(path, tensors, |see| model.visit_mut(see))
}

/// Copies of the matrices that `visit` passes, which live only during its call.
fn copies(visit: impl FnOnce(&mut dyn FnMut(&str, &Matrix))) -> Vec<Tensor> {
    let mut all = Vec::new();
    visit(&mut |name, matrix| {
        let shape = [matrix.num_rows(), matrix.num_cols()];
        all.push(Tensor { name: name.into(), shape, data: matrix.view().host().to_vec() });
    });
    all
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

    fn assign_moments(&mut self, path: &Path, tensors: &[Tensor], steps: u64) -> Result<()> {
        self.prepare();
        checkpoint::assign(path, tensors, |see| self.optimizer.visit_state_mut(see))?;
        self.optimizer.set_steps(steps);
        Ok(())
    }

    fn save(&mut self, write: &mut WriteTensors) -> Result<()> {
        self.prepare();
        let moments = copies(|see| self.optimizer.visit_state(see));
        let params = copies(|see| self.model.visit(see));
        let [moments, params] = [&moments, &params].map(|of| of.iter().map(Tensor::borrow).collect());
        let (moments, params): (Vec<TensorRef>, Vec<TensorRef>) = (moments, params);
        write(&params, &moments, self.optimizer.steps())
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
