//! Options of the run that a plan predicts, and the command line of the best run.

use graphmill_engine::strategy::{FactoredOptions, Toggle};
use graphmill_engine::{Error, Result, TrainConfig, options::used::refuse_unused_by_all, strategy};
use graphmill_loader::feature::cached::Placement;
use serde::Serialize;

use crate::{
    devices::Prediction,
    hardware::{Hardware, MAX_DEVICES},
    strategies,
    text::digits,
};

/// Options of the run that a plan predicts.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Dataset in the recommended command.
    pub dataset: String,
    /// Number of sampling devices; 0 balances sampling and training.
    pub num_samplers: usize,
    /// True if devices that have finished sampling may train.
    pub switching: bool,
    /// Spread of cached rows over devices; `None` gives each device a cache of its own.
    pub placement: Option<Placement>,
    /// Further numbers of devices to predict.
    pub device_counts: Vec<usize>,
    config: TrainConfig,
    given: Vec<(&'static str, String)>,
}

/// Predictions for another number of devices.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sweep {
    /// Number of devices.
    pub devices: usize,
    /// Prediction of each strategy.
    pub strategies: Vec<Prediction>,
    /// Fastest strategy that fits.
    pub recommended: Option<&'static str>,
}

/// Best run of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recommendation {
    /// Name of the strategy.
    pub strategy: &'static str,
    /// Command line that trains with it.
    pub command: String,
    /// Reason in words.
    pub reason: String,
}

impl Default for Request {
    fn default() -> Self {
        Self::new(TrainConfig::default(), Vec::new())
    }
}

impl Request {
    /// Options of a training run that the prediction reads besides those of a profile.
    pub const OPTIONS: [&'static str; 3] = ["num_samplers", "switching", "placement"];

    /// Request of a run with these options; `given` has the name and the value of each option on
    /// the command line.
    pub fn new(config: TrainConfig, given: Vec<(&'static str, String)>) -> Self {
        let factored = config.own.get::<FactoredOptions>();
        let placed = given.iter().any(|(name, _)| *name == "placement");
        Self {
            dataset: "DATASET".into(),
            num_samplers: factored.num_samplers,
            switching: factored.switching == Toggle::On,
            placement: placed.then_some(*config.placement),
            device_counts: Vec::new(),
            config,
            given,
        }
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

    /// Rejects given options that no predicted run reads.
    ///
    /// # Errors
    /// A usage error with the reason and the nearest alternative.
    pub fn refuse_unused(&self, hardware: &Hardware) -> Result<()> {
        let runs: Vec<TrainConfig> =
            strategies::rows().map(|entry| self.run(hardware, entry.name)).collect::<Result<_>>()?;
        // Hit rates are measured for caches of many sizes, so `cache` is always used.
        let names = self.given.iter().map(|(name, _)| *name).filter(|name| *name != "cache");
        refuse_unused_by_all(&runs, &names.collect::<Vec<_>>())
    }

    /// Share of each cache that all devices hold.
    pub(crate) fn replicated(&self) -> f64 {
        match self.placement {
            None | Some(Placement::Private) => 1.0,
            Some(Placement::Replicate(share)) => share,
            Some(Placement::Shard | Placement::Interleave | Placement::Blocked) => 0.0,
        }
    }

    /// Options of the run with this strategy on the machine.
    fn run(&self, hardware: &Hardware, name: &str) -> Result<TrainConfig> {
        let mut run = TrainConfig { strategy: name.into(), ..self.config.clone() };
        let devices = devices(hardware, name);
        run.devices = devices.parse().map_err(|e| Error::usage(format!("--devices {devices}: {e}")))?;
        Ok(run)
    }

    /// Command line of the strategy `best`, with the given options that its run reads.
    pub(crate) fn recommend(
        &self,
        hardware: &Hardware,
        all: &[Prediction],
        best: &Prediction,
    ) -> Recommendation {
        let devices = devices(hardware, best.name);
        let mut command =
            format!("graphmill train {} --strategy {} --devices {devices}", quote(&self.dataset), best.name);
        let run = self.run(hardware, best.name);
        let reads = |name: &str| run.as_ref().is_ok_and(|run| run.refuse_unused(&[name]).is_ok());
        for (name, value) in self.given.iter().filter(|(name, _)| reads(name)) {
            command += &format!(" --{}={}", name.replace('_', "-"), quote(value));
        }
        if self.placement.is_none() && reads("placement") {
            command += " --placement=replicate";
        }
        let seconds = best.epoch_seconds.unwrap_or_default();
        let others = all.iter().filter(|row| row.name != best.name && row.fits);
        let next = others.min_by(|a, b| {
            a.epoch_seconds.unwrap_or(f64::MAX).total_cmp(&b.epoch_seconds.unwrap_or(f64::MAX))
        });
        let mut reason = format!("{} s an epoch", digits(seconds));
        if let Some((name, other)) = next.and_then(|row| Some((row.name, row.epoch_seconds?))) {
            reason += &format!(", {name} {} s", digits(other));
        }
        reason += &format!("; the bottleneck is {}", best.bottleneck);
        Recommendation { strategy: best.name, command, reason }
    }
}

/// Value of `--devices` of a strategy on this machine.
fn devices(hardware: &Hardware, name: &str) -> String {
    let (count, shared) = (hardware.devices.count, hardware.devices.shared);
    let on_several: TrainConfig = TrainConfig {
        devices: "virtual:2".parse().unwrap_or(TrainConfig::default().devices),
        ..TrainConfig::default()
    };
    let by_device = strategy::TABLE.get(name).is_some_and(|entry| (entry.make.by_device)(&on_several));
    match (by_device, shared) {
        (true, true) => format!("virtual:{count}"),
        (false, true) => "cpu".into(),
        (true, false) => format!("cuda:{}", (0..count).map(|i| i.to_string()).collect::<Vec<_>>().join(",")),
        (false, false) => "cuda:0".into(),
    }
}

/// Quotes a word for a shell if it needs quotes.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,=+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}
