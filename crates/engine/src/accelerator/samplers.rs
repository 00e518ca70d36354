//! Samplers of the NVIDIA devices of a run, and the devices that only sample.

use std::sync::Arc;

use graphmill_loader::MinibatchSampler;

/// Devices of a run that only sample until they have drawn all batches of an epoch: the first
/// devices. The others never sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplingDevices {
    /// Number of devices, fewer than the run has; `None` if it follows from the times of the first
    /// batches.
    pub count: Option<usize>,
    /// True if they may train for the rest of an epoch.
    pub may_train: bool,
}

/// Samplers that draw on NVIDIA devices.
#[derive(Default)]
pub(crate) struct Samplers {
    /// Sampler of each device that draws; empty if the processor draws.
    pub(crate) each: Vec<Arc<dyn MinibatchSampler>>,
    /// Note about the devices that draw neighbours.
    pub(crate) note: Option<String>,
}
