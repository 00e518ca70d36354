//! Models of the strategies: one row of [`TABLE`] for each strategy that the planner predicts.

use crate::{
    devices::{Costs, Prediction},
    hardware::Hardware,
    network::{Epoch, Machines},
    profile::Profile,
};

/// Models of a strategy.
struct Planned {
    /// Name of the strategy in the engine's table.
    name: &'static str,
    /// Epoch on the devices of one machine, or the memory shortage.
    on_devices: fn(&Costs) -> Result<Prediction, String>,
    /// Epoch over several machines, for a strategy that runs over ranks.
    over_machines: Option<fn(&Machines) -> Epoch>,
}

/// Predicted strategies; of two equally fast ones the simpler comes first.
const TABLE: &[Planned] = &[
    Planned {
        name: "sequential",
        on_devices: |costs| costs.sequential(),
        over_machines: Some(Machines::sequential),
    },
    Planned {
        name: "pipelined",
        on_devices: |costs| costs.pipelined(),
        over_machines: Some(Machines::pipelined),
    },
    Planned { name: "time-sharing", on_devices: |costs| costs.time_sharing(), over_machines: None },
    Planned { name: "factored", on_devices: |costs| costs.factored(), over_machines: None },
];

/// Engine strategies without a prediction, each with the reason.
pub const NOT_PLANNED: &[(&str, &str)] = &[
    ("layered", "the profile does not count how many rows of hot nodes a super-batch reuses"),
    ("historical", "the profile does not count how many rows are reused"),
];

/// Predicts every strategy on the devices of one machine.
pub(crate) fn on_devices(hardware: &Hardware, profile: &Profile, speed: f64) -> Vec<Prediction> {
    let costs = Costs { hardware, profile, speed };
    let predict = |row: &Planned| {
        let fitting = costs.check_host().and_then(|()| (row.on_devices)(&costs));
        Prediction { name: row.name, ..fitting.unwrap_or_else(Prediction::does_not_fit) }
    };
    TABLE.iter().map(predict).collect()
}

/// Predicts the epoch of every strategy that runs over several machines.
pub(crate) fn over_machines(machines: &Machines) -> Vec<Epoch> {
    let predict = |row: &Planned| Some(Epoch { name: row.name, ..row.over_machines?(machines) });
    TABLE.iter().filter_map(predict).collect()
}

#[cfg(test)]
mod tests {
    use graphmill_engine::strategy;

    use super::*;

    #[test]
    fn every_strategy_is_planned_or_listed_as_not_planned() {
        let names = TABLE.iter().map(|row| row.name).chain(NOT_PLANNED.iter().map(|(name, _)| *name));
        let mut planner: Vec<&str> = names.collect();
        let mut engine: Vec<&str> = strategy::TABLE.iter().map(|entry| entry.name).collect();
        planner.sort_unstable();
        engine.sort_unstable();
        assert_eq!(
            planner, engine,
            "a strategy needs a row in TABLE or in NOT_PLANNED of plan/src/strategies.rs"
        );
    }
}
