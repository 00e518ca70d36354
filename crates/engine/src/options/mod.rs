//! The options of a run by name: reading, writing and checking them, and refusing those that a run
//! would ignore.
//!
//! General options are fields of [`TrainConfig`]. The others belong to algorithms: a row of a table
//! names the structs ([`OptionGroup`]) that its algorithm reads. Both follow from the structs and
//! the tables alone, also from rows that other crates register.

mod check;
mod files;
mod keys;
mod reasons;
mod rules;
pub mod used;

use graphmill_core::options::OptionGroup;
use graphmill_loader::{order, sampler};
use graphmill_nn::{layer, optim, schedule};

pub use files::place;
pub use keys::{Key, by_flag, key, keys, names, suggestion};

use crate::{TrainConfig, strategy};

/// A choice among the rows of a table.
pub(crate) struct Axis {
    /// The option that names the row.
    pub(crate) flag: &'static str,
    /// The name that a run gives.
    pub(crate) chosen: fn(&TrainConfig) -> &str,
    /// The rows, with the options of each.
    rows: fn() -> Vec<(&'static str, Vec<OptionGroup>)>,
    /// The options of the chosen row, if it exists.
    read: fn(&TrainConfig) -> Option<Vec<OptionGroup>>,
}

/// The axis of a table whose rows' options are all there is.
macro_rules! axis {
    ($flag:ident, $table:expr) => {
        Axis {
            flag: stringify!($flag),
            chosen: |config| &config.$flag,
            rows: || $table.groups().into_iter().map(|(name, groups)| (name, groups.to_vec())).collect(),
            read: |config| $table.get(&config.$flag).map(|entry| entry.options.to_vec()),
        }
    };
}

/// All choices among algorithms, in the order of help and files.
pub(crate) static AXES: [Axis; 6] = [
    axis!(sampler, sampler::TABLE),
    axis!(order, order::TABLE),
    axis!(model, layer::TABLE),
    axis!(optimizer, optim::TABLE),
    axis!(schedule, schedule::TABLE),
    Axis {
        flag: "strategy",
        chosen: |config| &config.strategy,
        rows: strategy::options_of_all,
        read: |config| strategy::of(config).map(|_| strategy::options_of(config)),
    },
];

impl Axis {
    /// The names of the rows that read an option of `group`.
    fn readers(&self, group: OptionGroup) -> Vec<&'static str> {
        let reads = |(_, groups): &(&str, Vec<OptionGroup>)| groups.contains(&group);
        (self.rows)().into_iter().filter(reads).map(|(name, _)| name).collect()
    }
}

/// The groups of all options that algorithms own, in the order of the tables.
pub(crate) fn groups() -> Vec<OptionGroup> {
    let mut all = Vec::new();
    for group in AXES.iter().flat_map(|axis| (axis.rows)()).flat_map(|(_, groups)| groups) {
        if !all.contains(&group) {
            all.push(group);
        }
    }
    all
}

#[cfg(test)]
mod tests;
