//! The best model of a run: held in memory and written inside every checkpoint, so that model and
//! checkpoint never disagree. `best.safetensors` in the run directory is a copy for users, written
//! after the checkpoint; the run does not depend on it, and a run that is killed in between writes
//! it again.

use graphmill_nn::{Matrix, model::Model};

use crate::{
    Result, RunDir,
    checkpoint::{
        self,
        tensors::{Tensor, TensorRef, Values},
    },
};

/// Parameters of the best epoch; empty at first.
#[derive(Debug, Default)]
pub(crate) struct BestModel {
    params: Vec<Tensor>,
    exported: bool,
}

impl BestModel {
    /// Best model of a checkpoint.
    pub(crate) fn saved(params: Vec<Tensor>) -> Self {
        Self { params, exported: false }
    }

    /// Takes `model` as the best so far.
    ///
    /// # Errors
    /// A parameter is not finite.
    pub(crate) fn keep(&mut self, model: &Model) -> Result<()> {
        self.keep_all(|see| model.visit(&mut |name, param| see(name, &param.value)))
    }

    /// Takes the matrices that `visit` passes, always the same ones, as the best so far.
    ///
    /// # Errors
    /// A value is not finite, or a disk has no space for a table in a file. The run must end then,
    /// because the former best is lost.
    pub(crate) fn keep_all(&mut self, visit: impl FnOnce(&mut dyn FnMut(&str, &Matrix))) -> Result<()> {
        // the memory is reused: a run may improve in every epoch
        let mut kept = std::mem::take(&mut self.params).into_iter();
        let mut failed = None;
        visit(&mut |name, value| {
            let shape = [value.num_rows(), value.num_cols()];
            let data = match kept.next() {
                // a table that may be larger than memory
                _ if value.is_in_file() => match value.copy_in_place() {
                    Ok(copy) => Values::File(copy),
                    Err(error) => return failed = Some(error),
                },
                Some(Tensor { data: Values::Memory(mut data), .. }) => {
                    data.clear();
                    data.extend_from_slice(value.view().host());
                    data.into()
                }
                _ => value.view().host().to_vec().into(),
            };
            self.params.push(Tensor { name: name.to_string(), shape, data });
        });
        self.exported = false;
        failed.map_or(Ok(()), Err)?;
        checkpoint::check_finite("best.safetensors".as_ref(), &self.tensors())
    }

    /// Parameters of the best epoch; empty at first.
    pub(crate) fn params(&self) -> &[Tensor] {
        &self.params
    }

    /// Parameters of the best epoch, mutably.
    pub(crate) fn params_mut(&mut self) -> &mut [Tensor] {
        &mut self.params
    }

    /// Tensors for a checkpoint.
    pub(crate) fn tensors(&self) -> Vec<TensorRef<'_>> {
        self.params.iter().map(Tensor::borrow).collect()
    }

    /// Writes the copy in the run directory, unless it is there already.
    pub(crate) fn export(&mut self, run: &RunDir) -> Result<()> {
        if !self.exported && !self.params.is_empty() {
            checkpoint::save_params(&run.best_model(), &self.tensors())?;
            self.exported = true;
        }
        Ok(())
    }

    /// Puts the best parameters into `model`.
    ///
    /// # Errors
    /// The parameters are those of another model.
    pub(crate) fn restore(&self, model: &mut Model) -> Result<()> {
        checkpoint::assign_model("best.safetensors".as_ref(), &self.params, model)
    }
}
