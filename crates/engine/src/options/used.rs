//! Options that a run would ignore: an option that was given and is not read is refused with the
//! reason and the nearest alternative.
//!
//! An option of an algorithm is read if the chosen row of a table names its group, and neither its
//! set ([`OptionSet::unused`](graphmill_core::options::OptionSet::unused)) nor the strategy
//! ([`strategy::Kind::unused`]) objects. General options have rules (`rules.rs`). A test tries
//! every option with every sampler, strategy and device kind (`tests/options.rs`).

use graphmill_core::options::OptionGroup;

pub(crate) use super::reasons::{Read, Rule};
use super::{
    AXES, Axis,
    keys::{Key, keys, shown},
    reasons::{unread, use_or_leave_out},
    rules::{self, RULES},
};
use crate::{
    Error, Result, TrainConfig,
    config::{Devices, spelled},
    strategy,
};

impl TrainConfig {
    /// Refuses the `given` options that a run with this configuration would ignore.
    ///
    /// # Errors
    /// Wrong usage: every ignored option with the reason and the nearest alternative.
    pub fn refuse_unused(&self, given: &[&str]) -> Result<()> {
        refuse_unused_by_all(std::slice::from_ref(self), given)
    }

    /// Names among `set`, the options that a file sets, whose values are neither the defaults nor
    /// what [`TrainConfig::settle`] derives. The file of an earlier run sets all options, also
    /// those that the run did not read.
    pub fn beyond_defaults(&self, set: &[&'static str]) -> Vec<&'static str> {
        let default = Self::default();
        // what `settle` makes of the option where it is not given
        let derived = |key: &Key| {
            let mut without = self.clone();
            // the default is a value that it can have, and a depth that does not fit is reported by
            // `settle` itself
            let _ = key.read(&mut without, &key.write(&default));
            let _ = without.settle(&["layers"]);
            key.write(&without)
        };
        let differs = |key: &Key| {
            let value = key.write(self);
            set.contains(&key.name) && value != key.write(&default) && value != derived(key)
        };
        keys().into_iter().filter(differs).map(|key| key.name).collect()
    }
}

/// Refuses the `given` options that none of several runs reads.
///
/// # Errors
/// As [`TrainConfig::refuse_unused`], with the reason of the first run.
pub fn refuse_unused_by_all(runs: &[TrainConfig], given: &[&str]) -> Result<()> {
    refuse_all(runs, given, whole)
}

/// Refuses the `given` options by which none of several runs draws its minibatches.
///
/// # Errors
/// As [`refuse_unused_by_all`].
pub fn refuse_undrawn_by_all(runs: &[TrainConfig], given: &[&str]) -> Result<()> {
    refuse_all(runs, given, drawn)
}

/// Refuses the `given` options that `rule` refuses for all of several runs.
pub(crate) fn refuse_all(runs: &[TrainConfig], given: &[&str], rule: Rule) -> Result<()> {
    let reason = |key: &Key| {
        let mut reasons = runs.iter().map(|run| rule(run, key).err());
        let first = reasons.next()??;
        reasons.all(|reason| reason.is_some()).then_some(first)
    };
    let fault = |key: &Key| {
        let value = shown(&key.write(&runs[0]));
        Some(format!("--{} {value}: {}", key.flag(), reason(key)?))
    };
    let keys = keys().into_iter().filter(|key| given.contains(&key.name));
    let faults: Vec<String> = keys.filter_map(|key| fault(&key)).collect();
    if faults.is_empty() { Ok(()) } else { Err(Error::usage(faults.join("\n"))) }
}

/// Every run reads it.
pub(crate) fn always(_: &TrainConfig, _: &Key) -> Read {
    Ok(())
}

/// A whole run reads it.
pub(crate) fn whole(config: &TrainConfig, key: &Key) -> Read {
    if let Some(group) = key.group {
        own(config, key, group)?;
    }
    let rule = RULES.iter().find(|(of, _)| *of == key.name);
    rule.map_or(Ok(()), |(_, rule)| rule(config, key))
}

/// The minibatches of a run depend on it: the number of layers does so with samplers that go from
/// seeds alone.
pub(crate) fn drawn(config: &TrainConfig, key: &Key) -> Read {
    whole(config, key)?;
    if key.name == "layers" { rules::sampler(config, key) } else { Ok(()) }
}

/// The chosen row of an axis names the group of the option, and nothing leaves it without effect.
fn own(config: &TrainConfig, key: &Key, group: OptionGroup) -> Read {
    let axes: Vec<&Axis> = AXES.iter().filter(|axis| !axis.readers(group).is_empty()).collect();
    // a row that does not exist is reported where it is looked up
    let reads = |axis: &&&Axis| (axis.read)(config).is_none_or(|groups| groups.contains(&group));
    let Some(axis) = axes.iter().find(reads) else {
        let axis = axes.first().expect("a group is that of some row");
        return Err(unused_by_all(config, key, axis, group).unwrap_or_else(|| unread_by(config, axis, group)));
    };
    if axis.flag == "order" {
        rules::seed_order(config, key)?;
    }
    let by_strategy = || (strategy::of(config)?.make.unused)(config, key.name);
    match config.own.unused(group, key.name).or_else(by_strategy) {
        None => Ok(()),
        Some(reason) => Err(reason),
    }
}

/// Reason for which all strategies that read the options of a group ignore this one, if they do:
/// then no other strategy would help.
fn unused_by_all(config: &TrainConfig, key: &Key, axis: &Axis, group: OptionGroup) -> Option<String> {
    let reason = |name: &str| {
        let other = TrainConfig { strategy: name.into(), ..config.clone() };
        (strategy::of(&other)?.make.unused)(&other, key.name)
    };
    let readers = if axis.flag == "strategy" { axis.readers(group) } else { Vec::new() };
    let reasons: Vec<String> = readers.into_iter().map(reason).collect::<Option<_>>()?;
    reasons.into_iter().next()
}

/// Why the chosen row of an axis does not read the options of a group.
fn unread_by(config: &TrainConfig, axis: &Axis, group: OptionGroup) -> String {
    let chosen = (axis.chosen)(config);
    let on_devices = TrainConfig { devices: spelled("virtual:2"), ..config.clone() };
    let reads = |config: &TrainConfig| (axis.read)(config).is_some_and(|groups| groups.contains(&group));
    if *config.devices == Devices::Cpu && reads(&on_devices) {
        let devices = use_or_leave_out("devices", &["virtual:N", "cuda:N"]);
        return format!("--{} {chosen} uses it on devices alone; {devices}", axis.flag);
    }
    unread(axis.flag, chosen, &axis.readers(group))
}
