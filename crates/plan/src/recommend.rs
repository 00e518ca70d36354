//! Command line of the best run, and the options that no predicted run reads.

use graphmill_engine::{Error, Result, TrainConfig, options::used::refuse_unused_by_all, strategy};
use graphmill_loader::feature::cached::Placement;
use serde::Serialize;

use crate::{devices::Prediction, hardware::Hardware, request::Request, strategies, text::digits};

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

impl Request {
    /// Rejects given options that no predicted run reads.
    ///
    /// # Errors
    /// A usage error with the reason and the nearest alternative.
    pub fn refuse_unused(&self, hardware: &Hardware) -> Result<()> {
        let runs: Vec<TrainConfig> = strategies::rows(self.is_of_types())
            .map(|entry| self.run(hardware, entry.name))
            .collect::<Result<_>>()?;
        // Hit rates are measured for caches of many sizes, so `cache` is always used.
        let names = self.given.iter().map(|(name, _)| *name).filter(|name| *name != "cache");
        refuse_unused_by_all(&runs, &names.collect::<Vec<_>>())
    }

    /// Options of the run with this strategy on the machine.
    fn run(&self, hardware: &Hardware, name: &str) -> Result<TrainConfig> {
        let mut run = TrainConfig { strategy: name.into(), ..self.config.clone() };
        let devices = devices(hardware, name);
        run.devices = devices.parse().map_err(|e| Error::usage(format!("--devices {devices}: {e}")))?;
        Ok(run)
    }

    /// Spread of cached rows over the devices of the strategy's run.
    pub(crate) fn placement(&self, hardware: &Hardware, name: &str) -> Placement {
        match self.run(hardware, name) {
            Ok(run) if run.refuse_unused(&["placement"]).is_ok() => *run.placement,
            _ => Placement::Private,
        }
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
