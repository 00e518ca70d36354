//! Parameters and learned rows of a model, as devices read them between updates.

use std::sync::{PoisonError, RwLock};

use graphmill_loader::typed::TypedExtracted;
use graphmill_nn::{
    Matrix,
    typed::{LearnedRows, TypedModel},
};

use super::{
    super::{computing::PROCESSOR, versions::PastVersions},
    learner::RoundLearner,
};
use crate::{
    Result,
    batchwise::Session,
    strategy::{ModelLink, PublishedParameters},
};

/// Parameters and learned rows, the newest and as many earlier versions as gradients may be stale.
pub(super) struct Published {
    /// The newest dense parameters. They change only while `rows` is locked for writing.
    dense: PublishedParameters,
    /// Updates of the epoch before the first version.
    first: u64,
    rows: RwLock<PublishedRows>,
}

/// The learned rows of each type that has some, and the earlier versions; the model has none
/// meanwhile.
struct PublishedRows {
    newest: Vec<LearnedRows>,
    past: PastVersions,
}

impl PublishedRows {
    /// Exchanges the rows and versions of a model with these.
    fn swap(&mut self, learner: &mut impl RoundLearner) {
        let rows = learner.encoder_mut().learned_rows_mut().zip(&mut self.newest);
        rows.for_each(|((_, rows), other)| std::mem::swap(rows, other));
        std::mem::swap(learner.past_mut(), &mut self.past);
    }
}

impl Published {
    /// Takes the learned rows of the model after `updates` of the epoch, until [`Published::end`].
    pub(super) fn new(learner: &mut impl RoundLearner, updates: u64) -> Self {
        let dense = PublishedParameters::new(learner.dense(), learner.num_updates());
        let none = |(_, rows): (usize, &LearnedRows)| LearnedRows::of_nodes(&[], rows.table().num_cols(), 0);
        let newest = learner.encoder().learned_rows().map(none).collect();
        let mut rows = PublishedRows { newest, past: PastVersions::default() };
        rows.swap(learner);
        Self { dense, first: updates, rows: RwLock::new(rows) }
    }

    /// Returns the learned rows to the model.
    pub(super) fn end(self, learner: &mut impl RoundLearner) {
        self.rows.into_inner().unwrap_or_else(PoisonError::into_inner).swap(learner);
    }

    /// Calls `work`, which updates the model and publishes its parameters, with all learned rows in
    /// the model. No device reads some meanwhile.
    pub(super) fn update<L: RoundLearner, R>(
        &self,
        session: &mut Session<L>,
        work: impl FnOnce(&mut Session<L>, &PublishedParameters) -> R,
    ) -> R {
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        rows.swap(session.learner());
        let result = work(session, &self.dense);
        rows.swap(session.learner());
        result
    }

    /// Copies the parameters after `updates` of the epoch to the copy of the model at the other end
    /// of `link`, and the learned rows of a batch's nodes to its features.
    ///
    /// # Errors
    /// A node has no row.
    ///
    /// # Panics
    /// This version is not yet made, or was removed: a bug in the scheduler's rules.
    pub(super) fn copy_to(
        &self,
        learner: &mut impl RoundLearner,
        updates: u64,
        batch: &mut TypedExtracted,
        link: &mut ModelLink,
    ) -> Result<()> {
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        let newest = self.first + self.dense.version();
        let age = newest.checked_sub(updates).filter(|&age| age <= rows.past.len());
        let Some(age) = age else {
            panic!("version {updates} of the parameters is read, but the newest is {newest}");
        };
        let [_, of_run] = match age {
            0 => self.dense.copy_values(learner.dense_mut(), &PROCESSOR),
            age => self.dense.copy_past(rows.past.dense(age), age, learner.dense_mut()),
        };
        let bytes = rows.fetch(learner.encoder(), age, batch)?;
        // an update does not wait for the link
        drop(rows);
        link.cross_once(of_run);
        link.transfer(bytes);
        Ok(())
    }
}

impl PublishedRows {
    /// Copies the learned rows of a batch's nodes before the last `age` updates to its features.
    /// Returns their bytes.
    ///
    /// # Errors
    /// A node has no row.
    fn fetch(&self, model: &TypedModel, age: u64, batch: &mut TypedExtracted) -> Result<u64> {
        let TypedExtracted { sampled, features, .. } = batch;
        let mut bytes = 0;
        for (i, ((t, _), rows)) in model.learned_rows().zip(&self.newest).enumerate() {
            let nodes = &sampled.input_nodes[t];
            rows.gather(nodes, &mut features[t])?;
            self.past.restore_rows(age, i, nodes, &mut features[t]);
            bytes += bytes_of(&features[t]);
        }
        Ok(bytes)
    }
}

/// Bytes of a matrix of `f32`.
pub(super) fn bytes_of(matrix: &Matrix) -> u64 {
    (matrix.num_rows() * matrix.num_cols() * size_of::<f32>()) as u64
}
