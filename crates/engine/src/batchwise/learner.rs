//! Interface of the model and optimisers of a run.

use std::path::Path;

use graphmill_nn::Matrix;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    Result,
    checkpoint::tensors::{Tensor, TensorRef},
};

/// Writes parameters, moments of optimisers, and the steps of these.
pub(crate) type WriteTensors<'w> = dyn FnMut(&[TensorRef], &[TensorRef], u64) -> Result<()> + 'w;

/// Model and optimisers of a run.
pub(crate) trait BatchLearner {
    /// Counts of an epoch beside its totals.
    type Counts: Clone + Default + Serialize + DeserializeOwned;

    /// Number of parameters.
    fn num_params(&self) -> usize;

    /// Visits the parameters by name, always in the same order.
    fn visit(&self, see: &mut dyn FnMut(&str, &Matrix));

    /// Copies `tensors` of the file `path` to the parameters.
    ///
    /// # Errors
    /// The tensors are those of another model; the message names the first that differs.
    fn assign(&mut self, path: &Path, tensors: &[Tensor]) -> Result<()>;

    /// Copies `tensors` of the file `path`, saved after `steps` steps, to the optimisers.
    ///
    /// # Errors
    /// As [`BatchLearner::assign`].
    fn assign_moments(&mut self, path: &Path, tensors: &[Tensor], steps: u64) -> Result<()>;

    /// Passes the parameters and the state of the optimisers to `write`.
    ///
    /// # Errors
    /// Those of `write`.
    fn save(&mut self, write: &mut WriteTensors) -> Result<()>;

    /// Number of updates so far.
    fn num_updates(&self) -> u64;

    /// Sets the number of updates so far.
    fn set_num_updates(&mut self, updates: u64);

    /// Returns true if the model is that of the last update, false while an update is incomplete.
    fn is_whole(&self) -> bool;
}
