//! Plan of a sweep: the options of every trial, checked before the first is trained.

use std::{collections::BTreeSet, path::Path};

use graphmill_core::options::Values;

use super::{
    SweepOptions, SweepRecord, TrialRecord,
    rungs::rungs,
    space::{self, Axis},
};
use crate::{
    Error, Result, TrainConfig,
    options::{by_flag, key, used::refuse_unused_by_all},
};

/// Largest number of seeds for the best trial.
const MAX_REPEAT: usize = 1000;

/// A sweep with the options of all its trials.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Record of a sweep that has not begun.
    pub(super) record: SweepRecord,
    /// Options of each trial.
    pub(super) configs: Vec<TrainConfig>,
}

impl Plan {
    /// Plans trials that share `config`, of which the user gave the options `given`, and differ by
    /// the values of `axes`. A trial has no value of an option that it would not read, such as the
    /// heads of a layer without attention, and trials that are then the same are one.
    ///
    /// # Errors
    /// Wrong usage: an axis twice, or also among `given`; a value that its option cannot have;
    /// values that do not go together; an option that no trial reads.
    pub fn new(
        config: &TrainConfig,
        given: &[&'static str],
        axes: Vec<Axis>,
        options: SweepOptions,
    ) -> Result<Self> {
        check(&options)?;
        check_axes(&axes, given)?;
        let values = space::trials(&axes, options.trials, options.seed)?;
        let names: Vec<&'static str> = given.iter().copied().chain(axes.iter().map(|a| a.name)).collect();
        let mut configs = Vec::with_capacity(values.len());
        let mut trials = Vec::with_capacity(values.len());
        let mut reduced = BTreeSet::new();
        for values in &values {
            let trial = trials.len() + 1;
            let (of_trial, read) =
                configure(config, values, given).map_err(|e| in_trial(e, trial, values))?;
            let typed = axes.iter().filter(|axis| read.contains_key(axis.name));
            let typed = typed.filter_map(|axis| Some((axis.name.into(), key(axis.name)?.write(&of_trial))));
            let typed: Values = typed.collect();
            if read.len() < values.len()
                && !reduced.insert(serde_json::Value::from(typed.clone()).to_string())
            {
                continue;
            }
            trials.push(TrialRecord {
                trial,
                run: format!("trial-{trial:03}"),
                values: typed,
                ..TrialRecord::default()
            });
            configs.push(of_trial);
        }
        refuse_unused_by_all(&configs, &names)?;
        for (config, of) in configs.iter_mut().zip(&trials) {
            leave_out_unread(config, given).map_err(|e| in_trial(e, of.trial, &of.values))?;
        }
        config.eval_every.refuse_auto("trials are compared after the same numbers of epochs")?;
        let every = config.eval_every.fixed().unwrap_or(1);
        let rungs = rungs(configs.len(), config.epochs, options.min_epochs, options.eta, every);
        let record = SweepRecord {
            graphmill: env!("CARGO_PKG_VERSION").to_string(),
            config: config.to_json(),
            given: given.iter().map(ToString::to_string).collect(),
            tried: axes.iter().map(|axis| format!("{}={}", axis.name, axis.spec)).collect(),
            options,
            rungs,
            trials,
            ..SweepRecord::default()
        };
        Ok(Self { record, configs })
    }

    /// Plan of the sweep in `dir`, as its record has it.
    ///
    /// # Errors
    /// There is no sweep, or its record is damaged.
    pub fn resume(dir: &Path) -> Result<Self> {
        let path = SweepRecord::path(dir);
        let Some(record) = SweepRecord::read(dir)? else {
            let message = "there is no sweep here (no sweep.json); pass a directory that sweep --out wrote";
            return Err(Error::run(dir, message));
        };
        let damaged = |message: String| Error::format(&path, "config", message);
        let mut config = TrainConfig::default();
        let values = record.config.as_object().ok_or_else(|| damaged("it is not an object".into()))?;
        config.set(values).map_err(|fault| damaged(by_flag(&fault)))?;
        let given: Vec<&'static str> = record.given.iter().filter_map(|name| Some(key(name)?.name)).collect();
        let axes = record.tried.iter().map(|word| Axis::parse(word)).collect::<Result<_>>()?;
        Self::new(&config, &given, axes, record.options)
    }

    /// Number of trials.
    pub fn num_trials(&self) -> usize {
        self.configs.len()
    }

    /// Epochs after which trials are compared; the last is the end.
    pub fn rungs(&self) -> &[usize] {
        &self.record.rungs
    }
}

fn check(options: &SweepOptions) -> Result<()> {
    if options.eta < 2 {
        return Err(Error::usage(format!(
            "--sweep-eta {}: at least half of the trials must end; pass 2 or more",
            options.eta
        )));
    }
    if !(1..=MAX_REPEAT).contains(&options.repeat) {
        return Err(Error::usage(format!(
            "--repeat {}: pass an integer from 1 to {MAX_REPEAT}",
            options.repeat
        )));
    }
    Ok(())
}

fn check_axes(axes: &[Axis], given: &[&str]) -> Result<()> {
    if axes.is_empty() {
        return Err(Error::usage(
            "a sweep needs values to try; pass --try NAME=VALUES, such as --try lr=0.001,0.01",
        ));
    }
    for (at, axis) in axes.iter().enumerate() {
        let flag = axis.name.replace('_', "-");
        if axes[..at].iter().any(|other| other.name == axis.name) {
            return Err(Error::usage(format!("--try {flag} is given twice; list all values in one")));
        }
        if given.contains(&axis.name) {
            return Err(Error::usage(format!("--{flag} is both set and tried; remove one of the two")));
        }
    }
    Ok(())
}

/// Options of a trial, and those of the `values` that it reads.
///
/// # Errors
/// A value that its option cannot have, or that does not go together with the others.
fn configure(config: &TrainConfig, values: &Values, given: &[&'static str]) -> Result<(TrainConfig, Values)> {
    let with = |values: &Values| -> Result<TrainConfig> {
        let mut config = config.clone();
        config.set(values).map_err(|fault| space::refused(&fault))?;
        let tried = values.keys().filter_map(|name| Some(key(name)?.name));
        config.derive_options(&given.iter().copied().chain(tried).collect::<Vec<_>>())?;
        config.check()?;
        Ok(config)
    };
    let whole = with(values)?;
    let mut read = values.clone();
    for name in values.keys() {
        let Err(refused) = whole.refuse_unused(&[name.as_str()]) else { continue };
        let mut others = values.clone();
        others.remove(name);
        // a choice that does not go together with the others, whose own option is read
        if with(&others)?.refuse_unused(&[name.as_str()]).is_ok() {
            return Err(refused);
        }
        read.remove(name);
    }
    let config = if read.len() < values.len() { with(&read)? } else { whole };
    Ok((config, read))
}

/// Gives those of the `given` options that the trial does not read their defaults, so that its
/// command line leaves them out.
///
/// # Errors
/// A choice that does not go together with the values of the trial.
fn leave_out_unread(config: &mut TrainConfig, given: &[&str]) -> Result<()> {
    for key in given.iter().filter_map(|name| key(name)) {
        let Err(refused) = config.refuse_unused(&[key.name]) else { continue };
        // cannot fail: the default is valid
        let _ = key.read(config, &key.write(&TrainConfig::default()));
        if config.refuse_unused(&[key.name]).is_ok() {
            return Err(refused);
        }
    }
    Ok(())
}

/// Error of a trial that names its values.
fn in_trial(error: Error, trial: usize, values: &Values) -> Error {
    let values: Vec<String> = values
        .iter()
        .map(|(name, value)| format!("{} {}", name.replace('_', "-"), crate::options::word(value)))
        .collect();
    Error::usage(format!("trial {trial} ({}): {error}", values.join(", ")))
}

#[cfg(test)]
mod tests {
    use graphmill_data::typed::TypedBuilder;

    use super::*;

    fn plan(axes: &[&str]) -> Result<Plan> {
        let axes = axes.iter().map(|word| Axis::parse(word)).collect::<Result<_>>()?;
        Plan::new(&TrainConfig::default(), &[], axes, SweepOptions::default())
    }

    #[test]
    fn trials_have_only_the_values_that_they_read_and_equal_ones_are_one() {
        let plan = plan(&["model=gat,sage", "heads=2,4"]).unwrap();
        let read = |of: &TrialRecord| {
            let heads = of.values.get("heads").and_then(serde_json::Value::as_u64);
            (of.trial, of.values["model"].as_str().unwrap_or_default().to_string(), heads)
        };
        let trials: Vec<_> = plan.record.trials.iter().map(read).collect();
        let expected = [(1, "gat", Some(2)), (2, "gat", Some(4)), (3, "sage", None)];
        assert_eq!(trials, expected.map(|(trial, model, heads)| (trial, model.to_string(), heads)));
        assert_eq!(plan.record.names(), ["model", "heads"]);
        // the command of any trial can be given
        for (config, trial) in plan.configs.iter().zip(&plan.record.trials) {
            config.refuse_unused(&trial.values.keys().map(String::as_str).collect::<Vec<_>>()).unwrap();
        }
        assert_eq!(plan.configs[2].to_json(), TrainConfig::default().to_json());
    }

    #[test]
    fn a_shared_option_is_left_out_of_trials_that_do_not_read_it() {
        let mut shared = TrainConfig { model: "gat".into(), ..TrainConfig::default() };
        shared.set(&serde_json::from_str(r#"{"heads": 2}"#).unwrap()).unwrap();
        let axes = vec![Axis::parse("model=gat,sage").unwrap()];
        let plan = Plan::new(&shared, &["heads"], axes, SweepOptions::default()).unwrap();
        assert_eq!(plan.configs[0].to_json(), shared.to_json());
        assert_eq!(plan.configs[1].to_json(), TrainConfig::default().to_json());
    }

    #[test]
    fn a_choice_that_the_others_exclude_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut builder = TypedBuilder::new("two");
        builder.node_type("user", 2);
        builder.node_type("item", 2);
        builder.edge_type("user", "likes", "item").edges(vec![0, 1], vec![1, 0]);
        builder.build().unwrap().save(dir.path().join("two")).unwrap();
        let dataset = dir.path().join("two").display().to_string();
        let axes = ["model=rsage", "order=random,proximity"].map(|word| Axis::parse(word).unwrap());
        let config = TrainConfig { dataset, ..TrainConfig::default() };
        let plan = Plan::new(&config, &[], axes.to_vec(), SweepOptions::default());
        let error = plan.unwrap_err().to_string();
        assert!(error.starts_with("trial 2 (model rsage, order proximity): --order proximity: "), "{error}");
    }
}
