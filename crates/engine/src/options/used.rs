//! Refusal of options that a run would ignore. The error names the reason and the nearest
//! alternative.
//!
//! A run reads an option of an algorithm if the chosen row of a table names its group, and neither
//! its set ([`OptionSet::unused`](graphmill_core::options::OptionSet::unused)) nor the strategy
//! ([`Chosen::unused`]) objects. General options have rules (`rules.rs`). A test tries
//! every option with every sampler, strategy and device kind (`tests/options.rs`).

use graphmill_core::options::OptionGroup;

pub(crate) use super::reasons::{Read, Rule};
use super::{
    AXES, Axis,
    command::word,
    embedding, events,
    keys::{Key, keys},
    reasons::{unread, use_or_leave_out},
    rules::{self, RULES},
    typed,
    types::{is_typed, is_typed_row},
};
use crate::{
    Error, Result, TrainConfig,
    config::{Devices, embedding::is_table, events::is_of_events, parse_default},
    strategy::Chosen,
};

impl TrainConfig {
    /// Refuses the `given` options that a run with this configuration would ignore.
    ///
    /// # Errors
    /// Wrong usage: every ignored option with the reason and the nearest alternative.
    pub fn refuse_unused(&self, given: &[&str]) -> Result<()> {
        refuse_unused_by_all(std::slice::from_ref(self), given)
    }

    /// Names among `set` (the options that a file sets) whose values are neither the defaults nor
    /// derived by [`TrainConfig::derive_options`]. The file of an earlier run sets all options,
    /// including those that the run did not read.
    pub fn beyond_defaults(&self, set: &[&'static str]) -> Vec<&'static str> {
        let default = Self::default();
        // value that `derive_options` derives if the option is not given
        let derived = |key: &Key| {
            let mut without = self.clone();
            // cannot fail: the default is valid; a mismatch of layers and fanout is reported when
            // the run itself derives
            let _ = key.read(&mut without, &key.write(&default));
            let _ = without.derive_options(&["layers"]);
            key.write(&without)
        };
        let differs = |key: &Key| {
            let value = key.write(self);
            set.contains(&key.name) && value != key.write(&default) && value != derived(key)
        };
        keys().into_iter().filter(differs).map(|key| key.name).collect()
    }
}

/// Refuses the `given` options that no run of several reads.
///
/// # Errors
/// As [`TrainConfig::refuse_unused`], with the reason of the first run.
pub fn refuse_unused_by_all(runs: &[TrainConfig], given: &[&str]) -> Result<()> {
    refuse_all(runs, given, whole)
}

/// Refuses the `given` options that do not affect the minibatches of any of several runs.
///
/// # Errors
/// As [`refuse_unused_by_all`].
pub fn refuse_undrawn_by_all(runs: &[TrainConfig], given: &[&str]) -> Result<()> {
    refuse_all(runs, given, drawn)
}

/// Refuses the `given` options that `rule` refuses for each of several runs.
pub(crate) fn refuse_all(runs: &[TrainConfig], given: &[&str], rule: Rule) -> Result<()> {
    let reason = |key: &Key| {
        let mut reasons = runs.iter().map(|run| rule(run, key).err());
        let first = reasons.next()??;
        reasons.all(|reason| reason.is_some()).then_some(first)
    };
    let fault = |key: &Key| {
        let value = word(&key.write(&runs[0]));
        Some(format!("--{} {value}: {}", key.flag(), reason(key)?))
    };
    let keys = keys().into_iter().filter(|key| given.contains(&key.name));
    let faults: Vec<String> = keys.filter_map(|key| fault(&key)).collect();
    if faults.is_empty() { Ok(()) } else { Err(Error::usage(faults.join("\n"))) }
}

/// Rule of an option that every run reads.
pub(crate) fn always(_: &TrainConfig, _: &Key) -> Read {
    Ok(())
}

/// Rule of an option that a whole run reads.
pub(crate) fn whole(config: &TrainConfig, key: &Key) -> Read {
    if is_table(config) {
        return embedding::rule(config, key);
    }
    if is_of_events(config) {
        return events::rule(config, key);
    }
    if is_typed(config) {
        return typed::rule(config, key);
    }
    if let Some(group) = key.group {
        own(config, key, group)?;
    }
    let rule = RULES.iter().find(|(of, _)| *of == key.name);
    rule.map_or(Ok(()), |(_, rule)| rule(config, key))
}

/// Rule of an option that affects minibatches. The number of layers does so only with samplers that
/// start from seeds.
pub(crate) fn drawn(config: &TrainConfig, key: &Key) -> Read {
    whole(config, key)?;
    if key.name == "layers" { rules::sampler(config, key) } else { Ok(()) }
}

/// Checks that the chosen row of an axis names the option's group, and that the option has an
/// effect.
fn own(config: &TrainConfig, key: &Key, group: OptionGroup) -> Read {
    let axes: Vec<&Axis> = AXES.iter().filter(|axis| !axis.readers(group).is_empty()).collect();
    // an unknown row passes, because its lookup reports it
    let reads = |axis: &&&Axis| (axis.read)(config).is_none_or(|groups| groups.contains(&group));
    let Some(axis) = axes.iter().find(reads) else {
        // options of links belong to a task, whatever the model
        let of_task = axes.iter().find(|axis| axis.flag == "task");
        let axis = of_task.or(axes.first()).expect("every group belongs to a row");
        return Err(unused_by_all(config, key, axis, group).unwrap_or_else(|| unread_by(config, axis, group)));
    };
    if axis.flag == "order" {
        rules::seed_order(config, key)?;
    }
    let by_strategy = || Chosen::of(config)?.unused(config, key.name);
    match config.own.unused(group, key.name).or_else(by_strategy) {
        None => Ok(()),
        Some(reason) => Err(reason),
    }
}

/// Reason why all strategies that read the group ignore this option, if they do. In this case,
/// choosing another strategy would not help.
fn unused_by_all(config: &TrainConfig, key: &Key, axis: &Axis, group: OptionGroup) -> Option<String> {
    let reason = |name: &str| {
        let other = TrainConfig { strategy: name.into(), ..config.clone() };
        Chosen::of(&other)?.unused(&other, key.name)
    };
    let readers = if axis.flag == "strategy" { axis.readers(group) } else { Vec::new() };
    let reasons: Vec<String> = readers.into_iter().map(reason).collect::<Option<_>>()?;
    reasons.into_iter().next()
}

/// Reason why the chosen row of an axis does not read the options of a group.
fn unread_by(config: &TrainConfig, axis: &Axis, group: OptionGroup) -> String {
    let chosen = (axis.chosen)(config);
    let on_devices = TrainConfig { devices: parse_default("virtual:2"), ..config.clone() };
    let reads = |config: &TrainConfig| (axis.read)(config).is_some_and(|groups| groups.contains(&group));
    if *config.devices == Devices::Cpu && reads(&on_devices) {
        let devices = use_or_leave_out("devices", &["virtual:N", "cuda:N"]);
        return format!("--{} {chosen} uses it only on devices; {devices}", axis.flag);
    }
    let mut readers = axis.readers(group);
    if readers.iter().any(|name| !is_typed_row(axis.flag, name)) {
        readers.retain(|name| !is_typed_row(axis.flag, name));
    }
    unread(axis.flag, chosen, &readers)
}
