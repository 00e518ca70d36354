//! Predictions of an epoch's time on other hardware, by strategy: `graphmill plan`.
//!
//! ```text
//!   profile  (a few minibatches here, or a file)  ─┐
//!   hardware (a name, or a file)                  ─┴─►  memory: what fits, how much is cached  ─►  one simulated epoch for each strategy
//! ```
//!
//! [`measure`] takes a [`Profile`] on this machine, [`plan`] predicts the strategies of one machine
//! with several devices, and [`machines::plan`] those of several machines over a network. The
//! engine does not depend on this crate.
//!
//! A stream of events trains on the processor of this machine, which [`plan_events`] predicts.
//!
//! # Model
//!
//! The model is that of FGNN (sections 3 to 5). A device that samples holds the topology, a device
//! that trains holds a training step, and the rest of its memory caches the hottest feature rows.
//! The host gathers the other rows for a few devices at once and sends them over each device's own
//! link. Times of stages scale with the device's speed, times of the host with its cores.
//!
//! With `--reuse layered`, minibatches are measured with reused rows; with `auto`, the default of a
//! plan, also without. The host makes reused rows, on all cores, beside the epoch of the devices or
//! (with `--hot-prefetch off`) between its parts, their tables take memory of each device that
//! trains, and they cross its link.
//!
//! With `--host-budget`, the rows that neither devices nor the host hold come from the host's disk,
//! before they are gathered.
//!
//! On several types, rows of different widths compete for the same caches, so the link carries the
//! bytes that they miss. Devices that sample do not train, and learned rows cross the link of each
//! device that computes gradients beside others.
//!
//! Devices that train wait for updates as the run's scheduler lets them: by rounds, or up to the
//! staleness of asynchronous updates.
//!
//! # Deviations
//!
//! The prediction omits the loading before the first epoch, evaluation, the differences between
//! batches, and the comparison of allocations in the first epochs of `pipelined`. A profile does
//! not know the memory of devices, so all hot rows are reused with `--hot-split auto`. Rows cross
//! the link of a simulated device as with the access `streamed`, the default of a run.
//!
//! # Example
//!
//! ```
//! use graphmill_plan::{Hardware, HitRate, Profile, Seconds, Sizes, plan};
//!
//! let profile = Profile {
//!     name: "a large graph".into(),
//!     batches: 150,
//!     last_batch: 1.0,
//!     cores: 16.0,
//!     bandwidth: Some(900e9),
//!     seconds: Seconds { sample: 0.006, sample_host: None, gather: 0.036, near: 0.004, train: 0.025 },
//!     bytes: Sizes {
//!         topology: 6.4e9,
//!         features: 53e9,
//!         maps: 0.0,
//!         row_maps: 0.0,
//!         device_maps: None,
//!         batch_rows: 1.7e8,
//!         next_rows: None,
//!         batch: 1e7,
//!         sample: 1.3e9,
//!         sample_thread: None,
//!         train: 3.6e9,
//!         train_gradients: None,
//!         parameters: 6e5,
//!     },
//!     hit_rates: vec![HitRate { ratio: 0.05, rate: 0.96 }, HitRate { ratio: 0.2, rate: 0.99 }],
//!     reuse: None,
//!     layered: None,
//!     without_reuse: None,
//!     types: Vec::new(),
//! };
//! let report = plan(Hardware::find("v100x8")?, profile)?;
//! println!("{report}");
//! assert!(report.strategies.iter().any(|strategy| strategy.fits));
//! # Ok::<(), graphmill_engine::Error>(())
//! ```

#![forbid(unsafe_code)]

mod accelerators;
mod by_core;
mod cores;
mod devices;
mod events;
mod exchange;
mod file;
mod hardware;
pub mod machines;
mod measure;
mod memory;
pub mod network;
mod on_devices;
mod prediction;
mod profile;
mod recommend;
mod request;
mod reuse;
pub mod sim;
mod strategies;
mod talk;
mod text;
mod typed;

use graphmill_core::options::OptionGroup;
use graphmill_engine::{Error, Result, TrainConfig, strategy::reuse::AUTO};
use graphmill_loader::{sampler::draws, time::TimeOptions};
use graphmill_nn::layer;
use recommend::best;
use serde::Serialize;

pub use accelerators::Accelerators;
pub use cores::Cores;
pub use events::{
    EventEpoch, EventPlan, EventRecommendation, OF_MACHINES, plan_events, refuse_of_events,
    refuse_other_machines,
};
pub use hardware::{Devices, Hardware, Host, Link};
pub use measure::measure;
pub use memory::gb;
pub use prediction::{Busy, Prediction, TypeRows};
pub use profile::{HitRate, Profile, Seconds, Sizes};
pub use recommend::{Recommendation, Sweep};
pub use request::Request;
pub use reuse::ReusedRows;
pub use strategies::{NotPlanned, Refused, not_planned};
pub use typed::measure_types;

/// Result of [`plan`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Machine of the plan.
    pub hardware: Hardware,
    /// Speed of a device relative to the profile's executor.
    pub speed: f64,
    /// Profile of the plan.
    pub profile: Profile,
    /// Prediction of each strategy.
    pub strategies: Vec<Prediction>,
    /// Strategies that are not predicted: of one type, if the run is on one, else those that train
    /// on several types, but not on these devices.
    pub not_planned: Vec<NotPlanned>,
    /// Fastest strategy that fits; on a tie the simpler one. It reuses rows only if that is clearly
    /// faster.
    pub recommended: Option<&'static str>,
    /// Command line of the recommended run.
    pub recommendation: Option<Recommendation>,
    /// Predictions for other numbers of devices, if asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sweep: Vec<Sweep>,
}

/// Refuses the `given` options except those that are `predicted`, because `source` ("profile" or
/// "paper") holds the measurements of a run.
///
/// # Errors
/// Wrong usage, with the first of these options.
pub fn refuse_measured(source: &str, predicted: &[&str], given: &[&str]) -> Result<()> {
    match given.iter().find(|name| !predicted.contains(name)) {
        None => Ok(()),
        Some(option) => Err(Error::usage(format!(
            "--{}: --{source} already holds the measurements of a run, so the option would have no effect; \
             pass a dataset instead of --{source}, or leave the option out",
            option.replace('_', "-")
        ))),
    }
}

/// Options of a run that affect [`measure`]: the sampling and computation of a minibatch, and the
/// contents of a cache. The plan itself varies strategies, devices and memory sizes;
/// [`Request::OPTIONS`] fix parts of them.
pub fn options() -> Vec<&'static str> {
    let computed = [
        "sample_coverage",
        "sparse",
        "model",
        "hidden",
        "activation",
        "norm",
        "residual",
        "input_layer",
        "head_layers",
        "dropout",
        "input_dropout",
        "optimizer",
        "reuse",
        "hot_ratio",
        "super_batch",
        "hot_metric",
        "hot_rank",
        "hot_gradient",
        "hot_prefetch",
        "hot_split",
        "cache",
        "precision",
        "feature_precision",
        "seed",
        "threads",
    ];
    let groups = layer::TABLE.groups().into_iter().flat_map(|(_, groups)| groups);
    let of_layers = groups.flat_map(|group| group.keys()).map(|key| key.name.as_str());
    draws().into_iter().chain(computed).chain(of_layers).collect()
}

/// Options of a run that a plan takes for a dataset of one type or of several: those of
/// [`options`], of a request, of several machines, of typed models, of draws at times, the task,
/// and those of a stream of events.
pub fn all_options() -> Vec<&'static str> {
    let mut names = options_of_others();
    for name in events::options() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Options of a run that a plan takes for datasets that are no streams of events.
pub(crate) fn options_of_others() -> Vec<&'static str> {
    let mut names = [options(), Request::OPTIONS.to_vec(), machines::OPTIONS.to_vec(), vec!["task"]].concat();
    let groups = graphmill_nn::typed::TABLE.groups().into_iter().flat_map(|(_, groups)| groups);
    let of_times = [OptionGroup::of::<TimeOptions>()];
    let groups = groups.chain(&of_times);
    for name in groups.flat_map(|group| group.keys()).map(|key| key.name.as_str()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Sets `--reuse auto`, with which [`measure()`] profiles a run without and with reused rows,
/// unless the option is `given`.
pub fn compare_reuse(config: &mut TrainConfig, given: &[&str]) {
    if !given.contains(&"reuse") {
        config.reuse = AUTO.into();
    }
}

/// Predicts every strategy. The report depends only on the machine and the profile.
///
/// # Errors
/// The profile contains an impossible number, or the speed of the devices is undetermined.
pub fn plan(hardware: Hardware, profile: Profile) -> Result<Report> {
    plan_run(hardware, profile, &Request::default())
}

/// Predicts every strategy of a run with these options.
///
/// # Errors
/// As [`plan`]; an option that no predicted run reads.
pub fn plan_run(hardware: Hardware, profile: Profile, request: &Request) -> Result<Report> {
    let request = &request.of(&profile);
    request.refuse_unused(&hardware)?;
    profile
        .check()
        .map_err(|(place, message)| Error::usage(format!("profile {}: {place} {message}", profile.name)))?;
    let speed = hardware.speed(profile.bandwidth)?;
    let strategies = strategies::on_devices(&hardware, &profile, speed, request);
    let chosen = best(&strategies);
    let recommended = chosen.map(|row| row.name);
    let recommendation = chosen.map(|chosen| request.recommend(&hardware, &strategies, chosen));
    let sweep = request.device_counts.iter().map(|&count| {
        let mut hardware = hardware.clone();
        hardware.devices.count = count;
        let strategies = strategies::on_devices(&hardware, &profile, speed, request);
        let (recommended, reuse) = best(&strategies).map(|row| (row.name, row.reuse)).unzip();
        Sweep { devices: count, recommended, reuse, strategies }
    });
    let sweep = sweep.collect();
    let not_planned =
        if profile.types.is_empty() { not_planned() } else { strategies::not_on_types(&hardware) };
    Ok(Report { hardware, speed, profile, strategies, not_planned, recommended, recommendation, sweep })
}

#[cfg(test)]
mod tests;
