//! Command line of the best run, and the options that no predicted run reads.

use graphmill_engine::{
    Error, Result, TrainConfig,
    options::used::refuse_unused_by_all,
    strategy::{
        self,
        reuse::{AUTO, LAYERED, NONE},
    },
};
use graphmill_loader::feature::cached::Placement;
use serde::Serialize;

use crate::{
    hardware::Hardware,
    prediction::{Prediction, digits},
    request::Request,
    strategies,
};

/// Predictions for another number of devices.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sweep {
    /// Number of devices.
    pub devices: usize,
    /// Prediction of each strategy.
    pub strategies: Vec<Prediction>,
    /// Fastest strategy that fits; it reuses rows only if that is clearly faster.
    pub recommended: Option<&'static str>,
    /// Its value of `--reuse`.
    pub reuse: Option<&'static str>,
}

/// Time of an epoch with reused rows relative to the fastest without, at most, if they are
/// recommended: they change the result, and most predictions are within 15 % of a run.
const CLEARLY_FASTER: f64 = 0.85;

/// Fastest of the `rows` that fit; on a tie the first. It reuses rows only if no other row fits or
/// it is clearly faster than these.
pub(crate) fn best(rows: &[Prediction]) -> Option<&Prediction> {
    match [false, true].map(|reuses| quickest(rows.iter().filter(|row| (row.reuse != NONE) == reuses))) {
        [Some((exact, seconds)), Some((_, reused))] if reused > CLEARLY_FASTER * seconds => Some(exact),
        [exact, reused] => reused.or(exact).map(|(row, _)| row),
    }
}

/// Fastest of some rows that fit, with its seconds; on a tie the first.
fn quickest<'r>(rows: impl Iterator<Item = &'r Prediction>) -> Option<(&'r Prediction, f64)> {
    let fitting = rows.filter_map(|row| Some((row, row.epoch_seconds?)));
    fitting.min_by(|a, b| a.1.total_cmp(&b.1))
}

/// Best run of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recommendation {
    /// Name of the strategy.
    pub strategy: &'static str,
    /// Value of `--reuse`: `layered` changes the result, within its staleness bound.
    pub reuse: &'static str,
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
        if let Some((_, value)) = self.given.iter().find(|(name, _)| *name == "devices") {
            return Err(Error::usage(format!(
                "--devices {value}: the plan has the devices of {}; use --device-counts for other numbers of \
                 them, or leave it out",
                hardware.name
            )));
        }
        let mut runs = Vec::new();
        for entry in strategies::rows(hardware, self.is_of_types()) {
            for reuse in self.reuses() {
                runs.push(self.run(hardware, entry.name, reuse)?);
            }
        }
        // Hit rates are measured for caches of many sizes, so `cache` is always used.
        let names = self.given.iter().map(|(name, _)| *name).filter(|name| *name != "cache");
        refuse_unused_by_all(&runs, &names.collect::<Vec<_>>())
    }

    /// Values of `--reuse` that the plan may compare.
    fn reuses(&self) -> Vec<&str> {
        match &*self.config.reuse {
            AUTO if self.is_of_types() => vec![NONE],
            AUTO => vec![NONE, LAYERED],
            given => vec![given],
        }
    }

    /// Options of the run with this strategy and this reuse on the machine.
    fn run(&self, hardware: &Hardware, name: &str, reuse: &str) -> Result<TrainConfig> {
        let mut run = TrainConfig { strategy: name.into(), reuse: reuse.into(), ..self.config.clone() };
        let devices = devices(hardware, name);
        run.devices = devices.parse().map_err(|e| Error::usage(format!("--devices {devices}: {e}")))?;
        Ok(run)
    }

    /// Spread of cached rows over the devices of the strategy's run.
    pub(crate) fn placement(&self, hardware: &Hardware, name: &str, reuse: &str) -> Placement {
        match self.run(hardware, name, reuse) {
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
        if all.iter().any(|row| row.reuse != NONE) {
            command += &format!(" --reuse {}", best.reuse);
        }
        let run = self.run(hardware, best.name, best.reuse);
        let reads =
            |name: &str| name != "reuse" && run.as_ref().is_ok_and(|run| run.refuse_unused(&[name]).is_ok());
        for (name, value) in self.given.iter().filter(|(name, _)| reads(name)) {
            command += &format!(" --{}={}", name.replace('_', "-"), quote(value));
        }
        let mut reason = format!("{} s an epoch", digits(best.epoch_seconds.unwrap_or_default()));
        let of_reuse = |same: bool| all.iter().filter(move |row| (row.reuse == best.reuse) == same);
        if let Some((next, seconds)) = quickest(of_reuse(true).filter(|row| row.name != best.name)) {
            reason += &format!(", {} {} s", next.name, digits(seconds));
        }
        reason += &format!("; the bottleneck is {}", best.bottleneck);
        let other = quickest(of_reuse(false)).map(|(row, seconds)| (row.name, digits(seconds)));
        reason += &match (best.reuse == NONE, other) {
            (true, None) => String::new(),
            (true, Some((name, seconds))) => {
                format!("; {name} with --reuse {LAYERED} takes {seconds} s, which is not clearly less")
            }
            (false, other) => {
                let without = other.map(|(name, seconds)| format!(" (without: {name} {seconds} s)"));
                format!(
                    "; --reuse {LAYERED}{} changes the result, within its staleness bound",
                    without.unwrap_or_default()
                )
            }
        };
        Recommendation { strategy: best.name, reuse: best.reuse, command, reason }
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
        // the model has one device with a link
        (false, true) => "virtual:1".into(),
        (true, false) => format!("cuda:{}", (0..count).map(|i| i.to_string()).collect::<Vec<_>>().join(",")),
        (false, false) => "cuda:0".into(),
    }
}

/// Quotes a word for a shell if it needs quotes.
pub(crate) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,=+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}
