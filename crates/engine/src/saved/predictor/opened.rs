//! The interface of runs that stay open, on datasets of one type or several.

use graphmill_core::{NodeId, progress::Progress};
use graphmill_nn::Matrix;

use super::answers::{Neighborhood, Task};
#[cfg(feature = "tables")]
use super::new_rows::{NewLogits, NewNodes};
use crate::{Error, Result, inference::Output, saved::SavedRun};

/// A run with its dataset, open for any number of threads.
pub(crate) trait OpenRun: Send + Sync {
    /// The run.
    fn run(&self) -> &SavedRun;

    /// Name of the dataset.
    fn dataset(&self) -> &str;

    /// Number of nodes that the run predicts.
    fn num_nodes(&self) -> usize;

    /// Number of features of these nodes.
    fn feature_dim(&self) -> usize;

    /// Task that the run learned, and its number of scores per node.
    fn task(&self) -> (Task, usize);

    /// Checks that `of` can be read for single nodes.
    ///
    /// # Errors
    /// The run's sampler draws for several nodes at once.
    fn check(&self, of: Neighborhood) -> Result<()>;

    /// Rows of `nodes`, which are in the graph and may repeat. Values are at the scale of the
    /// targets.
    ///
    /// # Errors
    /// As [`OpenRun::check`]; features cannot be read.
    fn rows(&self, nodes: &[NodeId], of: Neighborhood, output: Output) -> Result<Matrix>;

    /// Number and width of the input rows of the last layer; `None` if it is the only one.
    ///
    /// # Errors
    /// The rows differ by the node that is asked for.
    fn below_last(&self) -> Result<Option<[usize; 2]>>;

    /// Computes these rows, and keeps them for [`OpenRun::rows`].
    ///
    /// # Errors
    /// Features cannot be read, or `watch` stops the work.
    fn cache_below_last(&mut self, watch: &dyn Progress) -> Result<()>;

    /// Logits of new nodes that are joined to the graph, or values at the scale of the targets.
    ///
    /// # Errors
    /// Those of [`super::Predictor::predict_new`].
    #[cfg(feature = "tables")]
    fn logits_of_new(&self, new: &NewNodes, of: Neighborhood) -> Result<NewLogits>;

    /// Returns true if [`OpenRun::logits_of_new`] takes no copy of the graph.
    #[cfg(feature = "tables")]
    fn reads_part(&self, of: Neighborhood) -> bool;
}

/// Error of a sampler that draws for no single node.
pub(crate) fn refuse_draws(seed: u64, why: &str) -> Error {
    Error::usage(format!(
        "seed {seed}: the run's sampler cannot draw for a single node ({why}); ask without a seed for the \
         exact answer"
    ))
}
