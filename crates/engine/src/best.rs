//! The best model of a run: kept in memory, written together with checkpoints, so that a run of
//! short epochs does not wait for the disk whenever it improves.
//!
//! It is written before every checkpoint that knows of it. A run killed between the two finds a best model newer than
//! its checkpoint; it repeats the epochs in between, comes to the same model and writes it again.

use graphmill_nn::{Matrix, model::Model};

use crate::{Result, RunDir, checkpoint};

/// The parameters of the best epoch.
#[derive(Debug, Default)]
pub(crate) struct BestModel {
    params: Vec<(String, Matrix)>,
    unsaved: bool,
}

impl BestModel {
    /// Takes `model` as the best so far.
    pub(crate) fn keep(&mut self, model: &Model) {
        let mut index = 0;
        model.visit(&mut |name, param| {
            if index == self.params.len() {
                self.params.push((name.to_string(), Matrix::default()));
            }
            let kept = &mut self.params[index].1;
            kept.resize(param.value.num_rows(), param.value.num_cols());
            kept.view_mut().host().copy_from_slice(param.value.view().host());
            index += 1;
        });
        self.unsaved = true;
    }

    /// Writes it to the run directory, if it is not there already.
    pub(crate) fn save(&mut self, run: &RunDir) -> Result<()> {
        if !self.unsaved {
            return Ok(());
        }
        let mut tensors = Vec::with_capacity(self.params.len());
        for (name, value) in &self.params {
            tensors.push((name.clone(), [value.num_rows(), value.num_cols()], value.view().host()));
        }
        checkpoint::save_params(&run.best_model(), &tensors)?;
        self.unsaved = false;
        Ok(())
    }

    /// Puts the best parameters into `model`: the ones kept here, or those that an earlier part of the run has saved.
    pub(crate) fn restore(&self, run: Option<&RunDir>, model: &mut Model) -> Result<()> {
        if self.params.is_empty() {
            return run.map_or(Ok(()), |run| checkpoint::load_model(&run.best_model(), model));
        }
        let mut kept = self.params.iter();
        model.visit_mut(&mut |_, param| {
            let (_, value) = kept.next().expect("kept from this model");
            param.value.view_mut().host().copy_from_slice(value.view().host());
        });
        Ok(())
    }
}
