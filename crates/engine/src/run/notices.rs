//! Notes for the observer of a run: about its choices, once before the first epoch, and about what
//! comes up later.

use super::{Inputs, observer::Observer, setup::Tables};
use crate::{
    accelerator::{ComputeDevices, Samplers},
    build,
    memory::MemoryPlacement,
    stage::Loader,
    strategy::Strategy,
    tiers::{self, AllRows},
};

/// The choices of a run that notes are about.
pub(crate) struct Choices<'c> {
    pub(crate) inputs: Inputs<'c>,
    pub(crate) samplers: &'c Samplers,
    pub(crate) tables: &'c Tables,
    pub(crate) loader: &'c Loader<'c>,
}

/// Notes that come up while a run goes on. Each is reported once.
pub(crate) struct LaterNotes<'a> {
    computers: &'a ComputeDevices,
    /// Whether it was reported that a device captures no steps.
    reported_refusal: bool,
}

impl<'a> LaterNotes<'a> {
    /// Notes about these devices.
    pub(crate) fn new(computers: &'a ComputeDevices) -> Self {
        Self { computers, reported_refusal: false }
    }

    /// Passes new notes of the strategy and the devices on to the observer.
    pub(crate) fn report(&mut self, strategy: &mut dyn Strategy, observer: &mut dyn Observer) {
        while let Some(note) = strategy.note() {
            observer.note(&note);
        }
        if !self.reported_refusal
            && let Some(note) = self.computers.refusal()
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
        notes.extend(self.tables.tiers.clone());
        let unused = tiers::unused_policy(self.inputs.config, self.inputs.data);
        notes.extend(unused.filter(|_| self.inputs.view.is_none()));
        notes.extend(self.of_edge_weights());
        notes.iter().for_each(|note| observer.note(note));
    }

    /// The devices that compute, and whether they compute as the options say.
    fn of_devices(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let computers = self.inputs.computers;
        if !computers.gpus().is_empty() {
            notes.push(computers.to_string());
            notes.extend(self.samplers.note.clone());
        } else if !computers.cpu().precision.is_native() {
            notes.push(
                "this processor has no instructions for bf16: products are rounded to it and computed in f32, slower"
                    .into(),
            );
        }
        notes
    }

    /// Tables that memory is too short to copy.
    fn of_memory(&self) -> Option<String> {
        let mapped = match (self.inputs.placements.graph, self.inputs.placements.features) {
            (MemoryPlacement::Mapped, _) => "graph and features are",
            (_, MemoryPlacement::Mapped) if matches!(self.tables.whole, AllRows::Table(_)) => "features are",
            _ => return None,
        };
        Some(format!("memory is short: {mapped} read in place instead of from copies in huge pages"))
    }

    /// The use of edge weights that the dataset has or lacks.
    fn of_edge_weights(&self) -> Option<String> {
        let (has_weights, reads) = (
            self.inputs.data.graph.edge_weight().is_some(),
            self.loader.sampler.properties().reads_edge_weights,
        );
        if has_weights && reads {
            let note = "this dataset has edge weights: neighbours are drawn by them, and scores weigh edges as draws do";
            Some(note.into())
        } else if has_weights {
            Some("this dataset has edge weights: training does not use them, all edges count alike".into())
        } else {
            build::draws_by_stored_weights(self.inputs.config).then(|| {
                format!(
                    "this dataset has no edge weights: --sampler {} with --edge-weights stored draws all edges alike",
                    self.inputs.config.sampler
                )
            })
        }
    }
}
