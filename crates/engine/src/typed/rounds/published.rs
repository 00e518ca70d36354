//! Parameters and learned rows of a model, as devices read them between updates.

use std::sync::{PoisonError, RwLock};

use graphmill_loader::typed::TypedExtracted;
use graphmill_nn::{Matrix, typed::LearnedRows};

use super::{super::computing::PROCESSOR, learner::RoundLearner};
use crate::{
    Result,
    batchwise::Session,
    strategy::ModelLink,
    versions::{PublishedParameters, VersionRule},
};

/// Parameters and learned rows, the newest and as many earlier versions as gradients may be stale.
pub(super) struct Published {
    /// The dense parameters. They change only while `rows` is locked for writing.
    dense: PublishedParameters,
    /// The newest learned rows of each type that has some; the model has none meanwhile.
    rows: RwLock<Vec<LearnedRows>>,
}

/// Exchanges the learned rows of a model with others.
fn swap(learner: &mut impl RoundLearner, others: &mut [LearnedRows]) {
    let rows = learner.encoder_mut().learned_rows_mut().zip(others);
    rows.for_each(|((_, rows), other)| std::mem::swap(rows, other));
}

impl Published {
    /// Takes the learned rows of the model before the batches of `rule`, until [`Published::end`].
    pub(super) fn new(learner: &mut impl RoundLearner, rule: VersionRule) -> Self {
        let dense = PublishedParameters::new(learner.dense(), learner.num_updates(), learner.past(), rule);
        let none = |(_, rows): (usize, &LearnedRows)| LearnedRows::of_nodes(&[], rows.table().num_cols(), 0);
        let mut rows: Vec<LearnedRows> = learner.encoder().learned_rows().map(none).collect();
        swap(learner, &mut rows);
        Self { dense, rows: RwLock::new(rows) }
    }

    /// Returns the learned rows to the model.
    pub(super) fn end(self, learner: &mut impl RoundLearner) {
        swap(learner, &mut self.rows.into_inner().unwrap_or_else(PoisonError::into_inner));
    }

    /// Calls `work`, which updates the model and publishes its parameters, with all learned rows in
    /// the model. No device reads some meanwhile.
    pub(super) fn update<L: RoundLearner, R>(
        &self,
        session: &mut Session<L>,
        work: impl FnOnce(&mut Session<L>, &PublishedParameters) -> R,
    ) -> R {
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        swap(session.learner(), &mut rows);
        let result = work(session, &self.dense);
        swap(session.learner(), &mut rows);
        result
    }

    /// Copies a version of the parameters to the copy of the model at the other end of `link`, and
    /// the learned rows of a batch's nodes to its features.
    ///
    /// # Errors
    /// A node has no row.
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
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        let of_run = self.dense.copy_to(version, learner.dense_mut(), &PROCESSOR);
        let TypedExtracted { sampled, features, .. } = batch;
        let mut bytes = 0;
        for (i, ((t, _), rows)) in learner.encoder().learned_rows().zip(&*rows).enumerate() {
            let nodes = &sampled.input_nodes[t];
            rows.gather(nodes, &mut features[t])?;
            self.dense.restore_rows(version, i, nodes, &mut features[t]);
            bytes += bytes_of(&features[t]);
        }
        // an update does not wait for the link
        drop(rows);
        link.cross_once(of_run);
        link.transfer(bytes);
        Ok(())
    }
}

/// Bytes of a matrix of `f32`.
pub(super) fn bytes_of(matrix: &Matrix) -> u64 {
    (matrix.num_rows() * matrix.num_cols() * size_of::<f32>()) as u64
}
