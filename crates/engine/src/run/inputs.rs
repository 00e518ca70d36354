//! The inputs of a run.

use graphmill_core::progress::Progress;
use graphmill_data::Dataset;

use crate::{
    Result, RunDir, TrainConfig, accelerator::ComputeDevices, distributed::RankDataset, link::LinkTask,
    memory::MemoryPlacements, record::DatasetRecord, tiers::Presampling, verification::FeatureFiles,
};

/// Configuration, dataset and devices of a run: everything that is known before its first part is
/// made.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) config: &'a TrainConfig,
    pub(crate) data: &'a Dataset,
    pub(crate) devices: &'a ComputeDevices,
    pub(crate) placements: MemoryPlacements,
    /// Minibatches that are counted for caches.
    pub(crate) presampling: &'a Presampling,
    /// Edges to learn, in a run on links.
    pub(crate) links: Option<&'a LinkTask>,
    /// This rank's part of the dataset, if several ranks train together.
    pub(crate) view: Option<&'a RankDataset>,
    /// Watches the work before the first epoch, and may stop it.
    pub(crate) progress: &'a dyn Progress,
}

impl Inputs<'_> {
    /// Feature files of the dataset, or of this rank's parts.
    pub(crate) fn files(&self) -> FeatureFiles {
        self.view.map_or_else(|| FeatureFiles::of(self.data), |view| view.files.clone())
    }

    /// Record of the dataset, with a checksum if the run records itself in `run` and may be
    /// compared later.
    ///
    /// # Errors
    /// The checksum cannot be computed.
    pub(crate) fn dataset_record(&self, run: Option<&RunDir>) -> Result<DatasetRecord> {
        match (self.view, self.links, run) {
            (Some(view), None, _) => Ok(view.record()),
            (None, _, Some(_)) => DatasetRecord::identified(self.data),
            // links have the checksum of their dataset
            (Some(_), Some(_), _) | (None, _, None) => Ok(self.data.into()),
        }
    }
}
