//! The best model of a run: kept in memory, written together with checkpoints, so that a run of
//! short epochs does not wait for the disk whenever it improves.
//!
//! It is written before the checkpoint that knows of it. A run killed between the two finds a best model newer than
//! its checkpoint; it repeats the epochs in between, comes to the same model and writes it again.

use graphmill_nn::{Matrix, model::Model};

use crate::{Result, RunDir, checkpoint};

/// The parameters of the best epoch.
#[derive(Debug, Default)]
pub(crate) struct BestModel {
    values: Vec<Matrix>,
    unsaved: bool,
}

impl BestModel {
    /// Takes `model` as the best so far.
    pub(crate) fn keep(&mut self, model: &Model) {
        let mut values = std::mem::take(&mut self.values).into_iter();
        let mut kept = Vec::new();
        model.visit(&mut |_, param| {
            let mut value = values.next().unwrap_or_default();
            value.resize(param.value.num_rows(), param.value.num_cols());
            value.view_mut().host().copy_from_slice(param.value.view().host());
            kept.push(value);
        });
        self.values = kept;
        self.unsaved = true;
    }

    /// Writes it to the run directory, if it is not there already. `model` lends its shape and gets its own values back.
    pub(crate) fn save(&mut self, run: &RunDir, model: &mut Model) -> Result<()> {
        if !self.unsaved {
            return Ok(());
        }
        self.swap(model);
        let saved = checkpoint::save_model(&run.best_model(), model);
        self.swap(model);
        self.unsaved = saved.is_err();
        saved
    }

    /// Puts the best parameters into `model`: the ones kept here, or those that an earlier part of the run has saved.
    pub(crate) fn restore(&mut self, run: Option<&RunDir>, model: &mut Model) -> Result<()> {
        match run {
            _ if !self.values.is_empty() => self.swap(model),
            Some(run) => checkpoint::load_model(&run.best_model(), model)?,
            None => {}
        }
        Ok(())
    }

    fn swap(&mut self, model: &mut Model) {
        let mut values = self.values.iter_mut();
        model.visit_mut(&mut |_, param| {
            let value = values.next().expect("kept from this model");
            std::mem::swap(value, &mut param.value);
        });
    }
}
