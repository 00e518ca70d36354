//! Parameters and learned rows of a model, as devices read them between updates.

use std::sync::Arc;

use graphmill_loader::typed::TypedExtracted;
use graphmill_nn::Matrix;

use super::{super::computing::PROCESSOR, learner::RoundLearner, rows::RowVersions};
use crate::{
    Result,
    batchwise::Session,
    strategy::ModelLink,
    versions::{PublishedParameters, VersionRule},
};

/// Parameters and learned rows, the newest and as many earlier versions as gradients may be stale.
pub(super) struct Published<'r> {
    /// The dense parameters. They change only while `rows` is locked for writing.
    dense: Arc<PublishedParameters>,
    rows: &'r RowVersions,
}

impl<'r> Published<'r> {
    /// Takes the learned rows of the model before the batches of `rule` to `rows`, until
    /// [`Published::end`].
    pub(super) fn new(learner: &mut impl RoundLearner, rule: VersionRule, rows: &'r RowVersions) -> Self {
        let dense = PublishedParameters::new(learner.dense(), learner.num_updates(), learner.past(), rule);
        let dense = Arc::new(dense);
        rows.begin(learner, dense.clone());
        Self { dense, rows }
    }

    /// Returns the learned rows to the model.
    pub(super) fn end(self, learner: &mut impl RoundLearner) {
        self.rows.end(learner);
    }

    /// Calls `work`, which updates the model and publishes its parameters, with all learned rows in
    /// the model. No device reads some meanwhile.
    pub(super) fn update<L: RoundLearner, R>(
        &self,
        session: &mut Session<L>,
        work: impl FnOnce(&mut Session<L>, &PublishedParameters) -> R,
    ) -> R {
        let mut rows = self.rows.write();
        rows.swap(session.learner());
        let result = work(session, &self.dense);
        rows.swap(session.learner());
        result
    }

    /// Copies a version of the parameters to the copy of the model at the other end of `link`, and
    /// the learned rows of a batch's nodes to its features.
    ///
    /// # Errors
    /// A node has no row, or a rank did not take part.
    ///
    /// # Panics
    /// This version is not yet made, or was removed: a bug in the scheduler's rules.
    pub(super) fn copy_to(
        &self,
        learner: &mut impl RoundLearner,
        version: u64,
        batch: &mut TypedExtracted,
        link: &mut ModelLink,
    ) -> Result<()> {
        let requests = self.rows.request(version, batch);
        let rows = self.rows.read();
        let of_run = self.dense.copy_to(version, learner.dense_mut(), &PROCESSOR);
        let bytes = self.rows.copy_own(&rows, version, batch)?;
        // an update waits neither for other ranks nor for the link
        drop(rows);
        self.rows.receive(requests, batch)?;
        link.cross_once(of_run);
        link.transfer(bytes);
        Ok(())
    }
}

/// Bytes of a matrix of `f32`.
pub(super) fn bytes_of(matrix: &Matrix) -> u64 {
    (matrix.num_rows() * matrix.num_cols() * size_of::<f32>()) as u64
}
