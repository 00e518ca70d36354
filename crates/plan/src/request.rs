//! Options of the run that a plan predicts.

use graphmill_engine::{
    Error, Result, TrainConfig,
    strategy::{FactoredOptions, Toggle},
};

use crate::{hardware::MAX_DEVICES, profile::Profile};

/// Options of the run that a plan predicts.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Dataset in the recommended command.
    pub dataset: String,
    /// Number of sampling devices; 0 balances sampling and training.
    pub num_samplers: usize,
    /// True if devices that have finished sampling may train.
    pub switching: bool,
    /// Further numbers of devices to predict.
    pub device_counts: Vec<usize>,
    /// Options of the run.
    pub(crate) config: TrainConfig,
    /// Name and value of each given option.
    pub(crate) given: Vec<(&'static str, String)>,
}

impl Default for Request {
    fn default() -> Self {
        Self::new(TrainConfig::default(), Vec::new())
    }
}

impl Request {
    /// Options of a training run that the prediction reads besides those of a profile.
    pub const OPTIONS: [&'static str; 9] = [
        "num_samplers",
        "switching",
        "placement",
        "updates",
        "staleness",
        "batches_per_update",
        "overlap",
        "cache_ratio",
        "host_budget",
    ];

    /// Request of a run with these options; `given` has the name and the value of each option on
    /// the command line.
    pub fn new(config: TrainConfig, given: Vec<(&'static str, String)>) -> Self {
        let factored = config.own.get::<FactoredOptions>();
        Self {
            dataset: "DATASET".into(),
            num_samplers: factored.num_samplers,
            switching: factored.switching == Toggle::On,
            device_counts: Vec::new(),
            config,
            given,
        }
    }

    /// Options of the run.
    pub fn config(&self) -> &TrainConfig {
        &self.config
    }

    /// Returns true if the run is on several types.
    pub(crate) fn is_of_types(&self) -> bool {
        graphmill_nn::typed::TABLE.get(&self.config.model).is_some()
    }

    /// The same request of the run that `profile` measured: on several types, by a typed model.
    pub(crate) fn of(&self, profile: &Profile) -> Self {
        let mut request = self.clone();
        let models = &graphmill_nn::typed::TABLE;
        if let Some(model) = models.iter().next().filter(|_| !profile.types.is_empty() && !self.is_of_types())
        {
            request.config.model = model.name.into();
        }
        request
    }

    /// Parses numbers of devices such as `1,2,4`.
    ///
    /// # Errors
    /// A number is invalid.
    pub fn set_device_counts(&mut self, word: &str) -> Result<()> {
        let count = |word: &str| word.trim().parse().ok().filter(|n| (1..=MAX_DEVICES).contains(n));
        let counts: Option<Vec<usize>> = word.split(',').map(count).collect();
        self.device_counts = counts.ok_or_else(|| {
            let range = format!("not numbers from 1 to {MAX_DEVICES}; use a list such as 1,2,4");
            Error::usage(format!("--device-counts {word}: {range}"))
        })?;
        Ok(())
    }
}
