//! Rows for whoever trains by other means than a run.

use std::sync::Arc;

use graphmill_graph::{Dataset, external::Watch};
use graphmill_loader::Feature;

use super::Plan;
use crate::{Error, Result, TrainConfig, build, memory};

/// A dataset's feature rows in tiers.
pub struct Tiers {
    /// The rows, as f32 wherever and however they are stored.
    pub feature: Arc<dyn Feature>,
    /// Which tiers there are and what each holds, in words.
    pub description: String,
    /// Whether devices that are made up hold the nearest of them.
    pub has_devices: bool,
}

/// The chain of tiers that a run with these options reads its rows from. Hotness is that of the minibatches of such a run: of its seeds
/// (the training nodes of `data`), sampler, fanout, batch size and seed.
///
/// # Errors
/// Options that contradict each other or the dataset, or name NVIDIA devices or a device's budget, which are a run's; the rows cannot be
/// read; a cache's memory cannot be had; `watch` ends the work.
pub fn open(config: &TrainConfig, data: &Dataset, watch: &dyn Watch) -> Result<Tiers> {
    if !config.cuda_devices()?.is_empty() {
        return Err(Error::usage(format!(
            "--devices {}: rows are read into host memory here; use cpu or virtual:N",
            config.devices
        )));
    }
    if config.device_budget.0 > 0 {
        return Err(Error::usage(
            "--device-budget: what a training step leaves of it is known to a run alone; use --cache-ratio",
        ));
    }
    let residence = memory::residence(config, data);
    let Some(mut plan) = Plan::new(config, data)? else {
        let (host, _) = build::features(config, data, residence.features)?;
        let description = "feature rows: the host holds all".to_string();
        return Ok(Tiers { feature: Arc::new(host), description, has_devices: false });
    };
    let (sampler, order) = (build::sampler(config, data)?, build::order(config, data)?);
    let (feature, _) = plan.build(config, data, residence, &*sampler, &*order, watch)?;
    Ok(Tiers { feature: feature.into(), description: plan.to_string(), has_devices: plan.devices > 0 })
}
