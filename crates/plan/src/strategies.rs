//! Models of strategies: one row of [`MODELS`] for each formula that a strategy's row of the table
//! names.

use graphmill_core::table::Entry;
use graphmill_engine::strategy::{self, Cost, Kind};
use serde::Serialize;

use crate::{
    devices::Costs,
    hardware::Hardware,
    network::{Epoch, Machines},
    prediction::Prediction,
    profile::Profile,
    request::Request,
};

/// Epoch on the devices of one machine, or the memory that does not fit.
type OnDevices = fn(&Costs) -> Result<Prediction, String>;

/// Epoch over several machines, or the reason why the options do not allow it.
type OverMachines = fn(&Machines) -> Result<Epoch, String>;

/// The models of every formula, the simpler of two equally quick strategies first.
const MODELS: &[(Cost, OnDevices, OverMachines)] = &[
    (Cost::Sequential, |costs| costs.sequential(), |machines| Ok(machines.sequential())),
    (Cost::Pipelined, |costs| costs.pipelined(), |machines| Ok(machines.pipelined())),
    (Cost::TimeSharing, |costs| costs.time_sharing(), |machines| Ok(machines.time_sharing())),
    (Cost::Factored, |costs| costs.factored(), Machines::factored),
];

/// Strategies that are predicted, in the order of their models.
fn planned() -> Vec<(&'static Entry<Kind>, OnDevices, OverMachines)> {
    let rows = |&(cost, on_devices, over_machines): &(Cost, OnDevices, OverMachines)| {
        let rows = strategy::TABLE.iter().filter(move |entry| entry.make.cost == cost);
        rows.map(move |entry| (entry, on_devices, over_machines))
    };
    MODELS.iter().flat_map(rows).collect()
}

/// Strategies predicted on the devices of one machine, of runs on several types if `of_types`.
pub(crate) fn rows(hardware: &Hardware, of_types: bool) -> impl Iterator<Item = &'static Entry<Kind>> {
    let are_simulated = hardware.devices.shared;
    planned().into_iter().map(|(entry, ..)| entry).filter(move |entry| runs(entry, of_types, are_simulated))
}

/// Returns true if runs that are predicted train with this strategy, on several types if
/// `of_types`. On these, devices work independently if they `are_simulated`; over ranks, such runs
/// are not predicted.
fn runs(entry: &Entry<Kind>, of_types: bool, are_simulated: bool) -> bool {
    !of_types || entry.make.over_types.is_some_and(|order| are_simulated || !order.is_on_devices())
}

/// Strategy that is not predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NotPlanned {
    /// Name of the strategy.
    pub name: &'static str,
    /// Reason.
    pub reason: &'static str,
}

/// Strategies that are not predicted, except names that stand for others.
pub fn not_planned() -> Vec<NotPlanned> {
    let own = strategy::TABLE.iter().filter(|entry| entry.make.alias.is_none());
    let reason = |entry: &'static Entry<Kind>| match entry.make.cost {
        Cost::Unknown(reason) => Some(NotPlanned { name: entry.name, reason }),
        _ => None,
    };
    own.filter_map(reason).collect()
}

/// Strategies of runs on several types that are not predicted on the devices of `hardware`.
pub(crate) fn not_on_types(hardware: &Hardware) -> Vec<NotPlanned> {
    let reason = "on several types one NVIDIA device trains, and only simulated devices work independently";
    let on_devices = |entry: &&Entry<Kind>| entry.make.over_types.is_some_and(|order| order.is_on_devices());
    let rows = strategy::TABLE.iter().filter(|entry| on_devices(entry) && !hardware.devices.shared);
    rows.map(|entry| NotPlanned { name: entry.name, reason }).collect()
}

/// Predicts every strategy on the devices of one machine, with each profile that is compared.
pub(crate) fn on_devices(
    hardware: &Hardware,
    profile: &Profile,
    speed: f64,
    request: &Request,
) -> Vec<Prediction> {
    let predict = |(entry, on_devices, _): (&'static Entry<Kind>, OnDevices, _)| {
        profile.compared().map(move |profile| {
            let reuse = profile.reuse_name();
            let placement = request.placement(hardware, entry.name, reuse);
            let costs = Costs { hardware, profile, speed, request, placement };
            let fitting = costs.check_host().and_then(|()| on_devices(&costs));
            Prediction { name: entry.name, reuse, ..fitting.unwrap_or_else(Prediction::does_not_fit) }
        })
    };
    let of_types = !profile.types.is_empty();
    let is_run = |entry: &Entry<Kind>| runs(entry, of_types, hardware.devices.shared);
    planned().into_iter().filter(|(entry, ..)| is_run(entry)).flat_map(predict).collect()
}

/// Strategies predicted over several machines, of runs on several types if `of_types`.
pub(crate) fn rows_over_machines(of_types: bool) -> impl Iterator<Item = &'static Entry<Kind>> {
    let is_run = move |entry: &&Entry<Kind>| entry.make.over_ranks && runs(entry, of_types, false);
    planned().into_iter().map(|(entry, ..)| entry).filter(is_run)
}

/// Predicts the epoch of every strategy that runs over several machines, on several types if
/// `of_types`. Also returns the strategies that the options do not allow, with the reasons.
pub(crate) fn over_machines(machines: &Machines, of_types: bool) -> (Vec<Epoch>, Vec<Refused>) {
    let is_run = |entry: &Entry<Kind>| entry.make.over_ranks && runs(entry, of_types, false);
    let (mut epochs, mut refused) = (Vec::new(), Vec::new());
    for (entry, _, model) in planned().into_iter().filter(|(entry, ..)| is_run(entry)) {
        match model(machines) {
            Ok(epoch) => epochs.push(Epoch { name: entry.name, ..epoch }),
            Err(reason) => refused.push(Refused { name: entry.name, reason }),
        }
    }
    (epochs, refused)
}

/// Strategy that the options do not allow over several machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// Name of the strategy.
    pub name: &'static str,
    /// Reason.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_strategy_is_planned_or_has_a_reason() {
        let mut names: Vec<&str> = planned().iter().map(|(entry, ..)| entry.name).collect();
        names.extend(not_planned().iter().map(|row| row.name));
        let own = strategy::TABLE.iter().filter(|entry| entry.make.alias.is_none());
        let mut engine: Vec<&str> = own.map(|entry| entry.name).collect();
        names.sort_unstable();
        engine.sort_unstable();
        assert_eq!(names, engine, "every formula has a model in MODELS of plan/src/strategies.rs");
        assert!(not_planned().iter().all(|row| !row.reason.is_empty()));
    }
}
