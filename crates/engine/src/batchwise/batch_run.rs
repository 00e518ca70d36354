//! Interface of a run: its seeds, batches and scores.

use std::{ops::Range, sync::Arc};

use graphmill_core::NodeId;
use graphmill_data::typed::TypedDataset;
use graphmill_nn::{
    metric::{classes::ClassReport, diagnostics::Diagnostics},
    regression::TargetScale,
};

use super::{learner::BatchLearner, session::Session};
use crate::{
    Result,
    config::Work,
    distributed::Ranks,
    record::{
        Baseline, DatasetRecord, EpochRecord, EpochTotals, LinkRelation, NvidiaRecord, PresamplingRecord,
    },
    strategy::Flow,
};

/// Part of the split that is scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Validation.
    Valid,
    /// Test.
    Test,
    /// Some training seeds, for diagnostics.
    Train,
}

impl Part {
    /// Part of this name in diagnostics.
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "train" => Self::Train,
            "valid" => Self::Valid,
            _ => Self::Test,
        }
    }
}

/// Score of a part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scored {
    /// Score by the run's metric.
    pub(crate) score: f64,
    /// Mean loss; NaN if it is not computed.
    pub(crate) loss: f64,
    /// Number by which epochs are compared, the larger the better.
    pub(crate) judged: f64,
}

/// A run of batches.
pub(crate) trait BatchRun {
    /// Its model and optimisers.
    type Learner: BatchLearner;

    /// The dataset.
    fn data(&self) -> &TypedDataset;

    /// Record of the dataset.
    fn dataset(&self) -> DatasetRecord;

    /// Name of its task in the dataset; empty for all.
    fn task(&self) -> &str;

    /// Relations that it learns, of links.
    fn relations(&self) -> Vec<LinkRelation> {
        Vec::new()
    }

    /// Number of seeds of an epoch.
    fn num_seeds(&self) -> usize;

    /// Number of batches of an epoch.
    fn num_batches(&self) -> u64;

    /// Name of the metric.
    fn metric(&self) -> String;

    /// Computes the order of the seeds in an epoch.
    fn order(&self, epoch: u64, order: &mut Vec<NodeId>);

    /// Trains on these batches of the current epoch, and reports each by [`Session::complete`].
    ///
    /// # Errors
    /// A stage or the report fails.
    fn train(
        &mut self,
        session: &mut Session<Self::Learner>,
        order: &[NodeId],
        batches: Range<u64>,
    ) -> Result<Flow>;

    /// Number of seeds of a part that are scored.
    fn num_scored(&self, part: Part) -> usize;

    /// Scores the model on a part; `None` if the score is not defined.
    ///
    /// # Errors
    /// Rows cannot be read.
    fn score(&mut self, learner: &mut Self::Learner, part: Part) -> Result<Option<Scored>>;

    /// Work of an epoch with these totals, and of the last score, each over all ranks.
    ///
    /// # Errors
    /// The work is not counted, or a rank did not take part.
    fn work(&self, learner: &Self::Learner, epoch: &EpochTotals) -> Result<[Work; 2]>;

    /// Ends an epoch that another one follows, after its score and before its checkpoint.
    ///
    /// # Errors
    /// Rows cannot be read.
    fn end_epoch(&mut self, _learner: &mut Self::Learner) -> Result<()> {
        Ok(())
    }

    /// Scores by class of the part that was scored last, if the seeds have classes.
    fn by_class(&self) -> Option<ClassReport> {
        None
    }

    /// Parts besides the test seeds whose diagnostics a finished run records.
    fn diagnosed(&self) -> &'static [&'static str] {
        &[]
    }

    /// Diagnostics of the part that was scored last, called `part`, if the seeds have targets.
    fn diagnostics(&self, _part: &str) -> Option<Diagnostics> {
        None
    }

    /// Scores of a method without a model on the validation and test seeds, if there is one.
    ///
    /// # Errors
    /// The method fails.
    fn baseline(&self) -> Result<Option<Baseline>> {
        Ok(None)
    }

    /// Target scale of a run that learns values.
    fn target_scale(&self) -> Option<TargetScale> {
        None
    }

    /// Adds the counts of an epoch to its record.
    fn complete(
        &self,
        record: EpochRecord,
        _counts: &<Self::Learner as BatchLearner>::Counts,
    ) -> EpochRecord {
        record
    }

    /// Largest staleness of a gradient, in updates.
    fn staleness_bound(&self) -> u64 {
        0
    }

    /// Returns true if devices hold the nearest rows.
    fn has_devices(&self) -> bool {
        false
    }

    /// Records of the NVIDIA devices that train.
    fn nvidia(&self) -> Vec<NvidiaRecord> {
        Vec::new()
    }

    /// The ranks that train together, if there are several.
    fn ranks(&self) -> Option<&Arc<Ranks>> {
        None
    }

    /// Checksum of the partition, if the dataset is partitioned.
    fn partition(&self) -> Option<String> {
        None
    }

    /// Note for the user that arose since the last call.
    fn note(&mut self) -> Option<String> {
        None
    }

    /// Cost of the minibatches that were counted for caches.
    fn presampling(&self) -> Option<PresamplingRecord> {
        None
    }
}
