//! Scores of the model on the nodes that judge it.

use std::sync::Arc;

use graphmill_core::{NodeId, table};
use graphmill_data::Dataset;
use graphmill_loader::Feature;
use graphmill_nn::{Matrix, metric::Metric, model::Model};

use crate::{
    Result,
    distributed::Ranks,
    inference::{Inference, Output, score},
};

/// Scores a model on nodes of a dataset, by full-neighbour inference.
pub(crate) struct Scorer<'a> {
    pub(crate) metric: &'static table::Entry<Metric>,
    data: &'a Dataset,
    inference: Inference<'a>,
    /// The ranks that infer together, and all rows as this one reads them.
    ranks: Option<(Arc<Ranks>, Arc<dyn Feature>)>,
    /// Of the nodes that were scored last; its memory is reused.
    logits: Matrix,
}

impl<'a> Scorer<'a> {
    /// Scores by `metric`, alone or together with other ranks.
    pub(crate) fn new(
        metric: &'static table::Entry<Metric>,
        data: &'a Dataset,
        inference: Inference<'a>,
        ranks: Option<(Arc<Ranks>, Arc<dyn Feature>)>,
    ) -> Self {
        Self { metric, data, inference, ranks, logits: Matrix::default() }
    }

    /// Score of the model on `nodes`; `None` where it is not defined.
    ///
    /// # Errors
    /// Features cannot be read, or a rank did not take part.
    pub(crate) fn score(&mut self, model: &Model, nodes: &[NodeId]) -> Result<Option<f64>> {
        let Self { inference, logits, .. } = self;
        match &self.ranks {
            Some((ranks, rows)) => ranks.infer(inference, &**rows, model, nodes, logits)?,
            None => inference.run(model, nodes, Output::Logits, logits)?,
        }
        Ok(score(self.metric.make, logits, self.data, nodes))
    }

    /// Logits of the nodes that were scored last.
    pub(crate) fn logits(&self) -> &Matrix {
        &self.logits
    }
}
