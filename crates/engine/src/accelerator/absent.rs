//! NVIDIA devices in a build without them: opening one fails, so its type has no values.

use std::sync::Arc;

use graphmill_core::{
    View, ViewMut,
    matrix::{TableData, TableType},
};
use graphmill_loader::{
    Feature,
    feature::{DeviceIds, cached::CacheLayout},
    sampler::{SamplerOptions, Source},
};
use graphmill_nn::Backend;

use super::samplers::Samplers;
use crate::{Error, Result, cache_kind::Fill, record::NvidiaRecord};

/// Arithmetic of dense products.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arithmetic {
    F32,
    Tf32,
    Bf16,
}

/// NVIDIA device; this build cannot open one.
pub(crate) enum Gpu {}

impl Gpu {
    pub(crate) fn open(_: usize, _: u64, _: Arithmetic, _: bool) -> Result<Self> {
        Err(Error::usage(
            "this build has no support for NVIDIA devices; build it with the feature cuda, or use cpu or \
             virtual:N",
        ))
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        match *self {}
    }

    pub(crate) fn with_arithmetic(&self, _: Arithmetic) -> Box<dyn Backend> {
        match *self {}
    }

    pub(crate) fn number(&self) -> usize {
        match *self {}
    }

    pub(crate) fn budget(&self) -> u64 {
        match *self {}
    }

    pub(crate) fn taken(&self) -> (u64, u64) {
        match *self {}
    }

    pub(crate) fn free(&self) -> Result<u64> {
        match *self {}
    }

    pub(crate) fn set_cache_bytes(&self, _: u64) {
        match *self {}
    }

    pub(crate) fn check(&self) -> Result<()> {
        match *self {}
    }

    pub(crate) fn copy_here(&self, _: View) {
        match *self {}
    }

    pub(crate) fn upload(&self, _: &[u32]) -> Result<DeviceIds> {
        match *self {}
    }

    pub(crate) fn refusal(&self) -> Option<String> {
        match *self {}
    }

    pub(crate) fn record(&self) -> NvidiaRecord {
        match *self {}
    }

    pub(crate) fn describe(&self) -> String {
        match *self {}
    }
}

/// No samplers: the processor draws.
pub(super) fn samplers(
    _: &[Gpu],
    _: &str,
    _: &SamplerOptions,
    _: &Source,
    _: u64,
) -> Result<Samplers, String> {
    Ok(Samplers::default())
}

/// Returns false: without devices, the processor draws.
pub(crate) fn draws_on_devices(_: &str) -> bool {
    false
}

/// Rows behind the caches of devices.
pub(crate) enum RowsBehind {}

impl RowsBehind {
    pub(crate) fn table(gpu: &Gpu, _: &TableData, _: usize) -> Result<Self> {
        match *gpu {}
    }

    pub(crate) fn tier(gpu: &Gpu, _: Arc<dyn Feature>, _: TableType) -> Self {
        match *gpu {}
    }

    pub(crate) fn row_bytes(&self) -> usize {
        match *self {}
    }

    pub(crate) fn is_tier(&self) -> bool {
        match *self {}
    }

    pub(crate) fn is_copy(&self) -> bool {
        match *self {}
    }

    pub(crate) fn maps_on_device(&self, _: &str) -> bool {
        match *self {}
    }

    pub(crate) fn dynamic(&self, _: &Gpu, _: usize, _: &str) -> Result<Arc<dyn Feature>> {
        match *self {}
    }

    pub(crate) fn late(&self, _: &Gpu, _: usize) -> Result<(Arc<dyn Feature>, Fill)> {
        match *self {}
    }

    pub(crate) fn tiered(&self, _: &[Gpu], _: &[Gpu], _: &CacheLayout) -> Result<Vec<Arc<dyn Feature>>> {
        match *self {}
    }
}

/// Sums over several devices.
pub(crate) enum AllReduce {}

impl AllReduce {
    pub(crate) fn new(_: &[Gpu]) -> Result<Self, String> {
        Err("this build has no support for NVIDIA devices".into())
    }

    pub(crate) fn name(&self) -> &str {
        match *self {}
    }

    pub(crate) fn sum(&self, _: Vec<Vec<ViewMut>>) -> Result<()> {
        match *self {}
    }
}

/// Benchmark of a device's limits.
pub(crate) enum Meter {}

impl Meter {
    pub(crate) fn new(gpu: &Gpu) -> Self {
        match *gpu {}
    }

    pub(crate) fn copy(&self, _: usize) -> Result<(f64, Vec<f64>)> {
        match *self {}
    }

    pub(crate) fn link(&self, _: usize) -> Result<(f64, Vec<f64>)> {
        match *self {}
    }

    pub(crate) fn product(&self, _: Arithmetic, _: usize) -> Result<Option<(f64, Vec<f64>)>> {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use crate::{TrainConfig, accelerator::ComputeDevices};

    #[test]
    fn nvidia_devices_are_refused_with_the_missing_feature() {
        let config = TrainConfig { devices: "cuda:0".parse().unwrap(), ..TrainConfig::default() };
        let error = ComputeDevices::open(&config).err().unwrap().to_string();
        assert!(
            error.starts_with("--devices cuda:0: this build has no support for NVIDIA devices"),
            "{error}"
        );
        assert!(error.contains("the feature cuda"), "{error}");
    }
}
