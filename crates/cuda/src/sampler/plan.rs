//! Mapping from the loader's samplers to draws on a device.

use graphmill_core::alias::RowAlias;
use graphmill_loader::{
    Fanout,
    sampler::{DescribeDraws, DeviceDraws, DrawMethod, HopStack, SamplerOptions, Source, TABLE},
};

use super::{Draw, hop::ALL};

/// Maximum number of visits of a node's walks in a warp's part of shared memory.
const MAX_VISITS: usize = 512;

/// Mapping of a sampler to draws on devices.
pub(super) enum Plan {
    /// Devices draw.
    OnDevices {
        /// The CPU's sampler, which defines the expected draws and handles all other requests.
        inner: HopStack,
        draw: Draw,
        /// Neighbours per node, by hop; [`ALL`] for all.
        fanout: Vec<u32>,
        /// Tables of [`Draw::Alias`].
        alias: Option<RowAlias>,
    },
    /// The CPU must draw; the reason.
    OnHost(String),
}

/// Description of the draws of the sampler of that name, if devices support it.
fn description(name: &str) -> Option<DescribeDraws> {
    TABLE.find(name).ok()?.make.device_draws
}

/// Returns true if devices support the sampler of that name. Some of its options may still require
/// the CPU: see [`super::make`].
pub fn is_drawn_on_devices(name: &str) -> bool {
    description(name).is_some()
}

/// Creates the plan for the sampler of that name. The error is one sentence about an invalid
/// option.
pub(super) fn make(name: &str, options: &SamplerOptions, source: &Source) -> Result<Plan, String> {
    let Some(describe) = description(name) else {
        return Ok(Plan::OnHost(format!("the sampler {name}")));
    };
    let (sampler, method, fanout) = match describe(options, source)? {
        DeviceDraws::Supported { sampler, method, fanout } => (sampler, method, fanout),
        DeviceDraws::Unsupported(why) => return Ok(Plan::OnHost(why)),
    };
    let (draw, alias) = match method {
        DrawMethod::Distinct => (Draw::Distinct, None),
        DrawMethod::WithReplacement => (Draw::WithReplacement, None),
        DrawMethod::Alias(tables) => (Draw::Alias, Some(tables)),
        DrawMethod::Walks { walks, length, .. } if walks * length > MAX_VISITS => {
            return Ok(Plan::OnHost(format!("walks of more than {MAX_VISITS} steps in all")));
        }
        DrawMethod::Walks { walks, length, restart } => {
            (Draw::Walks { walks: walks as u32, length: length as u32, restart }, None)
        }
    };
    let fanout = fanout.iter().map(|&k| if k == Fanout::ALL { ALL } else { k as u32 }).collect();
    Ok(Plan::OnDevices { inner: HopStack::from(sampler), draw, fanout, alias })
}
