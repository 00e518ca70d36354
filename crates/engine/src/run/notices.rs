//! Notes about a run that its observer receives once, before the first epoch.

use graphmill_data::Dataset;

use super::setup::Tables;
use crate::{
    TrainConfig,
    accelerator::{ComputeDevices, Samplers},
    build,
    memory::{MemoryPlacement, MemoryPlacements},
    stage::Loader,
    tiers::{self, Whole},
};

/// The choices of a run that notes are about.
pub(crate) struct Choices<'c> {
    pub(crate) config: &'c TrainConfig,
    pub(crate) data: &'c Dataset,
    pub(crate) computers: &'c ComputeDevices,
    pub(crate) samplers: &'c Samplers,
    pub(crate) placements: MemoryPlacements,
    pub(crate) tables: &'c Tables,
    pub(crate) loader: &'c Loader<'c>,
    /// Whether the run is one of several ranks.
    pub(crate) over_ranks: bool,
}

impl Choices<'_> {
    /// The notes, in the order in which they are reported.
    pub(crate) fn notices(&self) -> Vec<String> {
        let mut notes = self.of_devices();
        notes.extend(self.loader.order.choice());
        notes.extend(self.of_memory());
        notes.extend(self.tables.tiers.clone());
        notes.extend(tiers::unused_policy(self.config, self.data).filter(|_| !self.over_ranks));
        notes.extend(self.of_edge_weights());
        notes
    }

    /// The devices that compute, and whether they compute as the options say.
    fn of_devices(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.computers.gpus().is_empty() {
            notes.push(self.computers.to_string());
            notes.extend(self.samplers.note.clone());
        } else if !self.computers.cpu().precision.is_native() {
            notes.push(
                "this processor has no instructions for bf16: products are rounded to it and computed in f32, slower"
                    .into(),
            );
        }
        notes
    }

    /// Tables that memory is too short to copy.
    fn of_memory(&self) -> Option<String> {
        let mapped = match (self.placements.graph, self.placements.features) {
            (MemoryPlacement::Mapped, _) => "graph and features are",
            (_, MemoryPlacement::Mapped) if matches!(self.tables.whole, Whole::Table(_)) => "features are",
            _ => return None,
        };
        Some(format!("memory is short: {mapped} read in place instead of from copies in huge pages"))
    }

    /// The use of edge weights that the dataset has or lacks.
    fn of_edge_weights(&self) -> Option<String> {
        let (has_weights, reads) =
            (self.data.graph.edge_weight().is_some(), self.loader.sampler.properties().reads_edge_weights);
        if has_weights && reads {
            let note = "this dataset has edge weights: neighbours are drawn by them, and scores weigh edges as draws do";
            Some(note.into())
        } else if has_weights {
            Some("this dataset has edge weights: training does not use them, all edges count alike".into())
        } else {
            build::draws_by_stored_weights(self.config).then(|| {
                format!(
                    "this dataset has no edge weights: --sampler {} with --edge-weights stored draws all edges alike",
                    self.config.sampler
                )
            })
        }
    }
}
