//! The tiers of a run's feature rows, for programs that train by other means.

use std::sync::Arc;

use graphmill_core::progress::Progress;
use graphmill_data::Dataset;
use graphmill_loader::Feature;

use crate::{
    Error, Result, TrainConfig, build,
    cache_kind::counts_training,
    memory,
    run::notices::ALL_IN_HOST,
    strategy,
    tiers::{Batches, BuiltTiers, Plan, unused_policy},
};

/// A dataset's feature rows in tiers.
pub struct Tiers {
    /// The rows, read as f32 from any tier and storage type.
    pub feature: Arc<dyn Feature>,
    /// Description of the tiers and of their contents.
    pub description: String,
    /// True if simulated devices hold the nearest tier.
    pub has_devices: bool,
}

/// Refuses options of tiers that only runs support.
///
/// # Errors
/// They name NVIDIA devices, a device's budget, or a cache that the first epochs of training fill.
pub(crate) fn check(config: &TrainConfig) -> Result<()> {
    if !config.cuda_devices().is_empty() {
        return Err(Error::usage(format!(
            "--devices {}: tiers outside a run read rows into host memory; use cpu or virtual:N",
            config.devices
        )));
    }
    if config.device_budget.0 > 0 {
        return Err(Error::usage(
            "--device-budget: only a run knows the memory that a training step leaves; use --cache-ratio",
        ));
    }
    for (flag, cache) in [("cache", &config.cache), ("host-cache", &config.host_cache)] {
        if counts_training(cache) {
            return Err(Error::usage(format!(
                "--{flag} {cache}: only a run counts its first epochs; use presc:2, which counts minibatches \
                 that are drawn for it"
            )));
        }
    }
    Ok(())
}

/// Opens the tiers from which a run with these options reads its rows. Hotness is computed for the
/// minibatches of such a run: for its seeds (the training nodes of `data`), sampler, fanout, batch
/// size and seed.
///
/// # Errors
/// The options contradict each other or the dataset, or name NVIDIA devices, a device's budget or
/// counts of training, which only runs support; the rows cannot be read; a cache cannot be
/// allocated; `watch` cancels the work.
pub fn open(config: &TrainConfig, data: &Dataset, watch: &dyn Progress) -> Result<Tiers> {
    check(config)?;
    let residence = memory::placements(config, data);
    let Some(plan) = Plan::new(config, data)? else {
        let host = build::rows(config, data, residence.features)?;
        let unused = unused_policy(config, data).map_or(String::new(), |unused| format!("; {unused}"));
        let description = format!("{ALL_IN_HOST}{unused}");
        return Ok(Tiers { feature: Arc::new(host), description, has_devices: false });
    };
    let mut plan = plan.by_device(strategy::is_by_device(config));
    let sampler = &*strategy::sampler_watched(config, data, watch)?;
    let order = &*build::order_of(config, data, None, watch)?;
    let (reuse, own, cost, progress) = (None, None, None, watch);
    let batches = Batches { config, data, sampler, order, reuse, own, links: None, cost, progress };
    let BuiltTiers { feature, .. } = plan.build(batches, residence)?;
    let unused = unused_policy(config, data).map_or(String::new(), |unused| format!("; {unused}"));
    Ok(Tiers { feature, description: format!("{plan}{unused}"), has_devices: plan.has_devices() })
}
