//! `graphmill plan`: what an epoch would take on a machine, by strategy, before anything is run there.
//!
//! ```text
//!   profile  (a few minibatches here, or a file)  ─┐
//!   hardware (a name, or a file)                  ─┴─►  memory: what fits, how much is cached  ─►  one simulated epoch for each strategy
//! ```
//!
//! The model is that of FGNN (sections 3 to 5): a device's memory holds the topology where it samples, a training step where it trains,
//! and in what is left the hottest feature rows; the rows that it lacks are gathered by the host, which serves a few devices at once, and
//! go over the device's own link. Times of stages scale with the device's speed, those of the host with its cores. What it leaves out:
//! the first epoch's loading, evaluation, and how much batches differ.

mod file;
mod hardware;
pub mod machines;
mod measure;
pub mod paper;
mod profile;
mod room;
mod sim;
mod strategies;
mod talk;
mod text;
pub mod user_item;

use serde::Serialize;

use crate::{Error, Result};

pub use hardware::{Devices, Hardware, Host, Link};
pub use measure::measure;
pub use profile::{HitRate, Profile, Seconds, Sizes};
pub use strategies::{Busy, Prediction};

/// What [`plan`] finds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The machine.
    pub hardware: Hardware,
    /// How many times as fast as the profile's executor a device is.
    pub speed: f64,
    /// What was reckoned with.
    pub profile: Profile,
    /// By strategy.
    pub strategies: Vec<Prediction>,
    /// The quickest that fits; of two that are equally quick the simpler one.
    pub recommended: Option<&'static str>,
}

/// Predicts. The same report for the same machine and profile.
///
/// # Errors
/// A profile with an impossible number, or nothing that tells how fast the devices are.
pub fn plan(hardware: Hardware, profile: Profile) -> Result<Report> {
    profile
        .check()
        .map_err(|(place, message)| Error::usage(format!("profile {}: {place} {message}", profile.name)))?;
    let speed = match (hardware.devices.speed, hardware.devices.bandwidth, profile.bandwidth) {
        (Some(speed), _, _) => speed,
        (None, Some(device), Some(profiled)) => device / profiled,
        _ => {
            return Err(Error::usage(format!(
                "--hardware {}: nothing tells how fast its devices are; give devices.speed, or devices.bandwidth and the profile's \
                 bandwidth",
                hardware.name
            )));
        }
    };
    let strategies = strategies::predict(&hardware, &profile, speed);
    let quicker = |best: Option<&'static str>, seconds: f64| {
        best.is_none_or(|best| {
            strategies.iter().any(|other| other.name == best && other.epoch_seconds > Some(seconds))
        })
    };
    let recommended = strategies.iter().fold(None, |best, strategy| match strategy.epoch_seconds {
        Some(seconds) if quicker(best, seconds) => Some(strategy.name),
        _ => best,
    });
    Ok(Report { hardware, speed, profile, strategies, recommended })
}

#[cfg(test)]
mod tests;
