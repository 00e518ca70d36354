//! Options of a run by name: reading, writing, checking, and refusing those that a run would
//! ignore.
//!
//! General options are fields of [`TrainConfig`]. The others belong to algorithms: a row of a table
//! names the structs ([`OptionGroup`]) that its algorithm reads. Flags, files and help are derived
//! from the structs and the tables, including rows that other crates register.

#![forbid(unsafe_code)]

mod at_times;
mod check;
mod command;
mod derived;
mod embedding;
mod events;
mod fanout;
mod files;
mod keys;
pub mod link;
mod reasons;
mod rules;
mod targets;
mod typed;
mod types;
pub mod used;

use graphmill_core::options::OptionGroup;
use graphmill_loader::{order, sampler};
use graphmill_nn::{layer, optim, schedule};

use derived::Derived;

pub use command::{Changed, changed, command_line, quoted, word};
pub use files::place;
pub use keys::{Key, by_flag, key, keys, names, suggestion};
pub(crate) use rules::label_columns;
pub(crate) use typed::{
    NO_REUSE_OF_LINKS, NO_REUSE_OVER_RANKS, label_columns as typed_label_columns, reuse as typed_reuse,
};
pub(crate) use types::is_typed;

use crate::{
    TrainConfig,
    strategy::{self, Chosen},
};

/// An option that chooses a row of a table.
pub(crate) struct Axis {
    /// Name of the option.
    pub(crate) flag: &'static str,
    /// Name of the chosen row.
    pub(crate) chosen: fn(&TrainConfig) -> &str,
    /// Names of all rows, with the option groups of each.
    rows: fn() -> Vec<(&'static str, &'static [OptionGroup])>,
    /// Option groups of the chosen row, if it exists.
    read: fn(&TrainConfig) -> Option<&'static [OptionGroup]>,
}

/// Builds the axis of a table whose rows list all their options.
macro_rules! axis {
    ($flag:ident, $table:expr) => {
        Axis {
            flag: stringify!($flag),
            chosen: |config| &config.$flag,
            rows: || $table.groups(),
            read: |config| $table.get(&config.$flag).map(|entry| entry.options),
        }
    };
}

/// Builds the axis of a table, followed by rows of a table for datasets of several types.
macro_rules! axis_with_types {
    ($flag:ident, $table:expr, $typed:expr) => {
        Axis {
            flag: stringify!($flag),
            chosen: |config| &config.$flag,
            rows: || {
                let mut rows = $table.groups();
                let is_new = |(name, _): &(&'static str, _)| $table.get(name).is_none();
                rows.extend($typed.groups().into_iter().filter(is_new));
                rows
            },
            read: |config| {
                let options = $table.get(&config.$flag).map(|entry| entry.options);
                let options = options.or_else(|| $typed.get(&config.$flag).map(|entry| entry.options));
                options
            },
        }
    };
}

/// All choices among algorithms, in the order of help and files.
pub(crate) static AXES: [Axis; 8] = [
    axis_with_types!(sampler, sampler::TABLE, graphmill_loader::typed::TABLE),
    axis!(order, order::TABLE),
    Axis {
        flag: "model",
        chosen: |config| &config.model,
        rows: || {
            let mut rows = layer::TABLE.groups();
            // models of events that also learn nodes have the options of both rows
            let is_new = |(name, _): &(&str, _)| crate::config::events::TABLE.get(name).is_none();
            rows.extend(graphmill_nn::typed::TABLE.groups().into_iter().filter(is_new));
            rows.extend(crate::config::embedding::TABLE.groups());
            rows.extend(crate::config::events::TABLE.groups());
            rows
        },
        read: |config| {
            let name = &config.model;
            let options = layer::TABLE.get(name).map(|entry| entry.options);
            let options = options.or_else(|| graphmill_nn::typed::TABLE.get(name).map(|entry| entry.options));
            let of_table = || crate::config::embedding::TABLE.get(name).map(|entry| entry.options);
            let of_events = || crate::config::events::TABLE.get(name).map(|entry| entry.options);
            options.or_else(of_table).or_else(of_events)
        },
    },
    axis!(optimizer, optim::TABLE),
    axis!(schedule, schedule::TABLE),
    Axis {
        flag: "strategy",
        chosen: |config| &config.strategy,
        rows: || strategy::TABLE.groups(),
        read: |config| Chosen::of(config).map(|chosen| chosen.strategy.options),
    },
    Axis {
        flag: "reuse",
        chosen: |config| &config.reuse,
        rows: || strategy::reuse::TABLE.groups(),
        read: |config| Chosen::of(config).map(|chosen| chosen.reuse.options),
    },
    Axis {
        flag: "task",
        chosen: |config| if config.task.is_empty() { "(none)" } else { &config.task },
        rows: || vec![(link::LINK, LINK_GROUPS)],
        read: |config| {
            Some(if link::is_link(config) || link::is_typed_link(config) { LINK_GROUPS } else { &[] })
        },
    },
];

/// Options of runs that learn links.
const LINK_GROUPS: &[OptionGroup] =
    &[OptionGroup::of::<link::LinkOptions>(), OptionGroup::of::<graphmill_nn::link::loss::LinkLossOptions>()];

impl Axis {
    /// Names of the rows that read an option of `group`.
    fn readers(&self, group: OptionGroup) -> Vec<&'static str> {
        let reads = |(_, groups): &(&str, &[OptionGroup])| groups.contains(&group);
        (self.rows)().into_iter().filter(reads).map(|(name, _)| name).collect()
    }
}

/// Names of the rows that the option `name` chooses among; empty if it chooses none.
pub fn rows(name: &str) -> Vec<&'static str> {
    let axis = AXES.iter().find(|axis| axis.flag == name);
    axis.map_or(Vec::new(), |axis| (axis.rows)().into_iter().map(|(row, _)| row).collect())
}

/// Option groups of all algorithms, in the order of the tables.
pub(crate) fn groups() -> Vec<OptionGroup> {
    static GROUPS: Derived<Vec<OptionGroup>> = Derived::new(all_groups);
    GROUPS.get()
}

fn all_groups() -> Vec<OptionGroup> {
    let mut all = Vec::new();
    for group in AXES.iter().flat_map(|axis| (axis.rows)()).flat_map(|(_, groups)| groups) {
        if !all.contains(group) {
            all.push(*group);
        }
    }
    all
}

#[cfg(test)]
mod tests;
