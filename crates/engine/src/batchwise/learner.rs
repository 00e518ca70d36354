//! Interface of the model and optimisers of a run.

use std::path::Path;

use graphmill_nn::Matrix;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    Result,
    checkpoint::{
        GrownRows,
        tensors::{Tensor, TensorRef},
    },
    distributed::Ranks,
};

/// Tensors of a checkpoint.
pub(crate) struct SavedTensors<'t> {
    pub(crate) params: &'t [TensorRef<'t>],
    /// Moments of the optimisers.
    pub(crate) moments: &'t [TensorRef<'t>],
    /// Steps of the optimisers.
    pub(crate) steps: u64,
    /// State of the data that the model has seen in the current epoch.
    pub(crate) history: &'t [TensorRef<'t>],
}

/// Writes the tensors of a checkpoint.
pub(crate) type WriteTensors<'w> = dyn FnMut(SavedTensors) -> Result<()> + 'w;

/// State that a checkpoint restores beside the parameters.
pub(crate) struct RestoredState<'t> {
    pub(crate) moments: &'t [Tensor],
    pub(crate) steps: u64,
    pub(crate) history: &'t [Tensor],
}

/// Counts of an epoch beside its totals.
pub(crate) trait EpochCounts: Clone + Default + Serialize + DeserializeOwned {
    /// Replaces the counts of this rank by those of all ranks, which call this at the same time.
    ///
    /// # Errors
    /// A rank did not take part.
    fn add_up(&mut self, _ranks: &Ranks) -> Result<()> {
        Ok(())
    }
}

/// No counts beside the totals of an epoch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct NoCounts {}

impl EpochCounts for NoCounts {}

/// Nodes whose rows a parameter has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowsOf {
    /// Those of the type with this number.
    Type(usize),
    /// Those of all types, in their order.
    All,
}

/// Model and optimisers of a run.
pub(crate) trait BatchLearner {
    /// Counts of an epoch beside its totals.
    type Counts: EpochCounts;

    /// Number of parameters.
    fn num_params(&self) -> usize;

    /// Visits the parameters by name, always in the same order.
    fn visit(&self, see: &mut dyn FnMut(&str, &Matrix));

    /// Copies `tensors` of the file `path` to the parameters.
    ///
    /// # Errors
    /// The tensors are those of another model; the message names the first that differs.
    fn assign(&mut self, path: &Path, tensors: &[Tensor]) -> Result<()> {
        self.assign_grown(path, tensors, &GrownRows::new())
    }

    /// Copies `tensors` as [`BatchLearner::assign`] does, also to tables that have `grown` since.
    ///
    /// # Errors
    /// As for [`BatchLearner::assign`].
    fn assign_grown(&mut self, path: &Path, tensors: &[Tensor], grown: &GrownRows) -> Result<()>;

    /// Nodes whose rows the parameter `name` has; `None` if it has no row for each node.
    fn rows_of(&self, _name: &str) -> Option<RowsOf> {
        None
    }

    /// Restores the optimisers, whose moments the file `path` holds, and the history.
    ///
    /// # Errors
    /// As [`BatchLearner::assign`].
    fn restore(&mut self, path: &Path, state: &RestoredState) -> Result<()>;

    /// Passes the parameters and all that [`BatchLearner::restore`] needs to `write`.
    ///
    /// # Errors
    /// Those of `write`.
    fn save(&mut self, write: &mut WriteTensors) -> Result<()>;

    /// Collects what [`BatchLearner::save`] on rank 0 needs of other ranks. All ranks call this at
    /// the same time.
    ///
    /// # Errors
    /// A rank did not take part.
    fn begin_save(&mut self) -> Result<()> {
        Ok(())
    }

    /// Replaces on rank 0 the parameters of which each rank has its own rows by those of all ranks,
    /// which call this at the same time.
    ///
    /// # Errors
    /// A rank did not take part.
    fn join(&self, _params: &mut [Tensor]) -> Result<()> {
        Ok(())
    }

    /// Replaces parameters and moments of all ranks' rows by those of the rank's own rows.
    fn split(&self, _tensors: &mut [Tensor]) {}

    /// Replaces parameters of all ranks' rows, of a run whose dataset had the first nodes of this
    /// one, by those of the rank's own nodes among them. `growth` has the numbers of nodes of each
    /// type then and now. Returns the same of the own nodes.
    fn split_known(&self, _tensors: &mut [Tensor], growth: &[[usize; 2]]) -> Vec<[usize; 2]> {
        growth.to_vec()
    }

    /// Number of updates so far.
    fn num_updates(&self) -> u64;

    /// Sets the number of updates so far.
    fn set_num_updates(&mut self, updates: u64);

    /// Returns true if the model is that of the last update, false while an update is incomplete.
    fn is_whole(&self) -> bool;
}
