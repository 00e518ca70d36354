//! Notes for the observer of a run: about its choices, once before the first epoch, and about later
//! events.

use graphmill_nn::backend::Precision;

use super::{Inputs, observer::Observer, setup::Tables};
use crate::{
    TrainConfig,
    accelerator::{ComputeDevices, Samplers},
    build,
    memory::MemoryPlacement,
    stage::Loader,
    strategy::Strategy,
    tiers,
};

/// Choices of a run, as the subject of notes.
pub(crate) struct Choices<'c> {
    pub(crate) inputs: Inputs<'c>,
    pub(crate) samplers: &'c Samplers,
    pub(crate) tables: &'c Tables,
    pub(crate) loader: &'c Loader<'c>,
}

/// Description of the only tier of a run whose feature rows are all in host memory.
pub(crate) const ALL_IN_HOST: &str = "feature rows: the host holds all";

/// Note on the precision of products if the processor computes them without instructions for it.
pub(crate) fn emulated(config: &TrainConfig) -> Option<&'static str> {
    match build::precision(config) {
        precision if precision.is_native() || !config.cuda_devices().is_empty() => None,
        Precision::Tf32 => Some("this processor has no AMX: tf32 is computed as f32"),
        _ => Some(
            "this processor has no bf16 instructions: inputs of products are rounded to bf16 and multiplied \
             in f32, which is slower",
        ),
    }
}

/// Note that confirms the tiers of the feature rows and the strategy of a run.
pub(crate) fn opening(strategy: &str, tiers: &str) -> String {
    format!("{tiers}; strategy {strategy}")
}

/// Notes that arise during a run. Each is reported once.
pub(crate) struct LaterNotes<'a> {
    devices: &'a ComputeDevices,
    /// True if it was reported that a device captures no steps.
    reported_refusal: bool,
}

impl<'a> LaterNotes<'a> {
    /// Notes about these devices.
    pub(crate) fn new(devices: &'a ComputeDevices) -> Self {
        Self { devices, reported_refusal: false }
    }

    /// Passes new notes of the strategy and of the devices to the observer.
    pub(crate) fn report(&mut self, strategy: &mut dyn Strategy, observer: &mut dyn Observer) {
        while let Some(note) = strategy.note() {
            observer.note(&note);
        }
        if !self.reported_refusal
            && let Some(note) = self.devices.refusal()
        {
            self.reported_refusal = true;
            observer.note(&note);
        }
    }
}

impl Choices<'_> {
    /// Reports the notes to the observer.
    pub(crate) fn report(&self, observer: &mut dyn Observer) {
        let mut notes = self.of_devices();
        notes.extend(self.loader.order.choice());
        notes.extend(self.of_memory());
        notes.push(opening(&self.inputs.config.strategy, self.tiers()));
        let unused = tiers::unused_policy(self.inputs.config, self.inputs.data);
        notes.extend(unused.filter(|_| self.inputs.view.is_none()));
        notes.extend(self.of_edge_weights());
        notes.iter().for_each(|note| observer.note(note));
    }

    /// Description of the tiers of the feature rows.
    fn tiers(&self) -> &str {
        let Inputs { data, placements, .. } = &self.inputs;
        match &self.tables.tiers {
            Some(tiers) => tiers,
            None if data.features.dim == 0 => "feature rows: none",
            None if placements.features == MemoryPlacement::Mapped => "feature rows: mapped from the file",
            None => ALL_IN_HOST,
        }
    }

    /// Notes about the devices that compute.
    fn of_devices(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let devices = self.inputs.devices;
        if !devices.gpus().is_empty() {
            notes.push(devices.to_string());
            notes.extend(self.samplers.note.clone());
        }
        notes.extend(emulated(self.inputs.config).map(str::to_string));
        notes
    }

    /// Note about tables that are not copied for lack of memory.
    fn of_memory(&self) -> Option<String> {
        if self.inputs.view.is_some() {
            return None; // a rank reads its parts in place
        }
        let mapped = match (self.inputs.placements.graph, self.inputs.placements.features) {
            (MemoryPlacement::Mapped, _) => "graph and features are",
            (_, MemoryPlacement::Mapped) if self.tables.whole.is_table() => "features are",
            _ => return None,
        };
        Some(format!("memory is low: {mapped} read in place instead of from copies in huge pages"))
    }

    /// Note about the use of edge weights that the dataset has or lacks.
    fn of_edge_weights(&self) -> Option<String> {
        let (has_weights, reads) = (
            self.inputs.data.graph.edge_weight().is_some(),
            self.loader.sampler.properties().reads_edge_weights,
        );
        if has_weights && reads {
            let note = "this dataset has edge weights: sampling and inference use them";
            Some(note.into())
        } else if has_weights {
            Some(
                "this dataset has edge weights: training does not use them, all edges have equal weight"
                    .into(),
            )
        } else {
            build::draws_by_stored_weights(self.inputs.config).then(|| {
                format!(
                    "this dataset has no edge weights: --sampler {} with --edge-weights stored gives all \
                     edges equal weight",
                    self.inputs.config.sampler
                )
            })
        }
    }
}
