//! Interface of the models that devices train together.

use graphmill_core::NodeId;
use graphmill_loader::typed::TypedExtracted;
use graphmill_nn::{
    Matrix,
    typed::{TypedActivations, TypedModel},
};

use super::super::{counts::TypeCounts, ranks::RowGradients};
use crate::{
    Result,
    batchwise::BatchLearner,
    record::{BatchOutcome, PresamplingCost},
    versions::{Parameters, PastVersions},
};

/// A model with its optimisers, of which each device has a copy that computes gradients on the
/// processor.
pub(in crate::typed) trait RoundLearner: BatchLearner<Counts = TypeCounts> + Send {
    /// The layers that read feature rows and learned rows.
    fn encoder(&self) -> &TypedModel;

    /// The same, mutably.
    fn encoder_mut(&mut self) -> &mut TypedModel;

    /// All dense parameters: those of the encoder first.
    fn dense(&self) -> &dyn Parameters;

    /// The same, mutably.
    fn dense_mut(&mut self) -> &mut dyn Parameters;

    /// Earlier versions of the parameters.
    fn past(&self) -> &PastVersions;

    /// Number of seeds of a batch whose losses are averaged.
    fn num_seeds(&self, batch: &TypedExtracted) -> usize;

    /// Share of a batch in an update by several, before division by the sum of these.
    fn weight(&self, batch: &TypedExtracted) -> usize;

    /// Computes the gradient of the mean loss of a batch. Returns the loss, or `None` without
    /// seeds; the gradient is meaningless if it is not finite.
    ///
    /// # Errors
    /// The batch does not fit the model.
    fn batch_gradient(&mut self, batch: &TypedExtracted) -> Result<Option<f64>>;

    /// Forward, loss, backward, update by a batch of `all` seeds on all ranks, `None` if every rank
    /// draws its own subgraph. If the loss is not finite, no parameter changes.
    ///
    /// # Errors
    /// The batch does not fit the model, a rank did not take part, or a device failed.
    fn train(&mut self, batch: &mut TypedExtracted, lr: f64, all: Option<usize>) -> Result<BatchOutcome>;

    /// Activations of the encoder, with their gradients, for the last batch.
    fn activations(&self) -> &TypedActivations;

    /// Copy of the gradient of the learned rows of type `t` of the input nodes of the last batch.
    fn row_gradient(&self, t: usize) -> Matrix {
        let grad = self.activations().input_grad(t);
        Matrix::from_slice(grad.num_rows(), grad.num_cols(), grad.host())
    }

    /// Marks the model as that of the last update, or as incomplete until
    /// [`RoundLearner::update`].
    fn set_whole(&mut self, is_whole: bool);

    /// Returns true if `--clip` limits gradients.
    fn clips(&self) -> bool;

    /// Scales the gradient of the dense parameters and `rows`, those of learned rows, to a norm of
    /// at most `--clip`, if that is given. Returns the norm before; if it is not finite, the caller
    /// must stop. If several ranks train together, all call this at the same time.
    ///
    /// # Errors
    /// A rank did not take part.
    fn clip(&mut self, rows: &mut [RowGradients]) -> Result<Option<f64>>;

    /// Updates the model by its gradient, and the learned rows by `rows`; without, by those of the
    /// last batch for its input `nodes`.
    ///
    /// # Errors
    /// The state of rows is in files, for which the disk has too little space.
    fn update(&mut self, lr: f64, nodes: &[Vec<NodeId>], rows: Option<&[RowGradients]>) -> Result<()>;

    /// Counts the rows that a batch of this epoch has read, if counts fill caches.
    fn see(&mut self, _epoch: u64, _batch: &TypedExtracted, _cost: &PresamplingCost) {}
}
