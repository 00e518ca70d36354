//! Samplers of the NVIDIA devices of a run.

use std::sync::Arc;

use graphmill_loader::MinibatchSampler;

/// Samplers that draw on NVIDIA devices.
#[derive(Default)]
pub(crate) struct Samplers {
    /// Sampler of each device; empty if the processor draws.
    pub(crate) each: Vec<Arc<dyn MinibatchSampler>>,
    /// Note about the devices that draw neighbours.
    pub(crate) note: Option<String>,
}
