//! The samplers of the devices of a run.

use std::sync::Arc;

use graphmill_loader::MinibatchSampler;

/// Samplers that draw on devices.
#[derive(Default)]
pub(crate) struct Samplers {
    /// For each device; none where the processor draws.
    pub(crate) each: Vec<Arc<dyn MinibatchSampler>>,
    /// Note about where neighbours are drawn.
    pub(crate) note: Option<String>,
}
