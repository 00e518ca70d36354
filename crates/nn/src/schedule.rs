//! Learning rate schedules and early stopping.
//!
//! [`Schedule::lr`] is a pure function of the run's progress, so a resumed run continues at the
//! same rate. Only `plateau` also depends on the scores seen; its state and that of [`EarlyStop`]
//! are small and saved in the checkpoint.

#![forbid(unsafe_code)]

use std::ops::Bound;

use clap::Args;
use graphmill_core::{
    options::{Fault, OptionGroup, OptionSet, OwnOptions, range},
    table::{Entry, Table},
};
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Learning rate after the warm-up; every factor is relative to the base rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// Always 1.
    Constant,
    /// `factor ^ floor(epoch / every)`.
    Step {
        /// Epochs between two reductions.
        every: u32,
        /// Factor of each reduction.
        factor: f64,
    },
    /// `floor + (1 - floor) (1 + cos(pi t)) / 2`, where `t` rises from 0 at the end of the warm-up
    /// to 1 after `epochs` epochs and stays there (Loshchilov and Hutter, *SGDR*, ICLR 2017,
    /// equation 5, without restarts).
    Cosine {
        /// Epoch at which the floor is reached, counted from the start of the run.
        epochs: f64,
        /// Final factor.
        floor: f64,
    },
    /// `max(factor ^ reductions, floor)`. A reduction follows more than `patience` scores in a row
    /// that do not improve on the best one; then the count starts again. An improvement exceeds the
    /// best score by more than [`THRESHOLD`] of it, so ties and NaN are not improvements: PyTorch's
    /// `ReduceLROnPlateau` with its defaults.
    Plateau {
        /// Factor of each reduction.
        factor: f64,
        /// Scores without improvement that are tolerated.
        patience: u32,
        /// Lowest factor.
        floor: f64,
    },
}

/// Relative improvement that `plateau` requires of a score (PyTorch's default).
pub const THRESHOLD: f64 = 1e-4;

/// Epochs between steps, and scored epochs of patience, unless `--schedule-epochs` sets them.
const EPOCHS: usize = 10;

/// Options of schedules that count epochs.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeriodOptions {
    /// Epochs of a step, of the descent or of patience; 0 chooses.
    ///
    /// Step: epochs between two steps, 0 for 10. Cosine: epochs of the whole descent, 0 for all.
    /// Plateau: scored epochs of patience, 0 for 10.
    #[arg(long, value_name = "N")]
    pub schedule_epochs: usize,
}

impl OptionSet for PeriodOptions {}

impl PeriodOptions {
    /// Number of epochs between steps, or of patience.
    fn count(self) -> u32 {
        let epochs = if self.schedule_epochs == 0 { EPOCHS } else { self.schedule_epochs };
        u32::try_from(epochs).unwrap_or(u32::MAX)
    }
}

/// Options of schedules that reduce the learning rate by a factor.
#[derive(Args, Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FactorOptions {
    /// Factor of each reduction, above 0 and at most 1.
    #[arg(long, value_name = "F")]
    pub schedule_factor: f64,
}

impl Default for FactorOptions {
    fn default() -> Self {
        Self { schedule_factor: 0.5 }
    }
}

impl OptionSet for FactorOptions {
    fn check(&self) -> Result<(), Fault> {
        range("schedule_factor", self.schedule_factor, (Bound::Excluded(0.0), Bound::Included(1.0)))
    }
}

/// Options of schedules that end at a lowest learning rate.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FloorOptions {
    /// Lowest learning rate; at most --lr.
    #[arg(long, value_name = "LR")]
    pub min_lr: f64,
}

impl OptionSet for FloorOptions {
    fn check(&self) -> Result<(), Fault> {
        range("min_lr", self.min_lr, 0.0..)
    }
}

impl FloorOptions {
    /// Lowest factor for the base learning rate `base`.
    fn floor(self, base: f64) -> Result<f64> {
        if (0.0..=base).contains(&self.min_lr) {
            return Ok(self.min_lr / base);
        }
        let reason = format!("must be between 0 and the learning rate, {base}; lower it or raise --lr");
        Err(Error::config("min_lr", self.min_lr, reason))
    }
}

/// Numbers that all schedules share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Basis {
    /// Learning rate after the warm-up.
    pub lr: f64,
    /// Epochs of linear warm-up, possibly fractional; 0 for none.
    pub warmup: f64,
    /// Epochs of the run.
    pub epochs: f64,
}

/// Constructor of a shape.
pub type Make = fn(&Basis, &OwnOptions) -> Result<Shape>;

const PERIOD: OptionGroup = OptionGroup::of::<PeriodOptions>();
const FACTOR: OptionGroup = OptionGroup::of::<FactorOptions>();
const FLOOR: OptionGroup = OptionGroup::of::<FloorOptions>();

/// Table of the shapes.
pub static TABLE: Table<Make> = Table::new(
    "schedule",
    &[
        Entry {
            name: "constant",
            summary: "constant rate",
            source: "",
            options: &[],
            make: |_, _| Ok(Shape::Constant),
        },
        Entry {
            name: "step",
            summary: "multiplied by a factor every N epochs",
            source: "",
            options: &[PERIOD, FACTOR],
            make: |_, own| {
                let every = own.get::<PeriodOptions>().count();
                Ok(Shape::Step { every, factor: own.get::<FactorOptions>().schedule_factor })
            },
        },
        Entry {
            name: "cosine",
            summary: "half a cosine wave, down to a floor at the last epoch",
            source: "Loshchilov and Hutter, ICLR 2017, equation 5",
            options: &[PERIOD, FLOOR],
            make: |basis, own| {
                let given = own.get::<PeriodOptions>().schedule_epochs;
                let epochs = if given == 0 { basis.epochs } else { given as f64 };
                if basis.warmup >= epochs {
                    let reason = format!("must be shorter than the descent of {epochs} epochs; reduce it");
                    return Err(Error::config("warmup", basis.warmup, reason));
                }
                Ok(Shape::Cosine { epochs, floor: own.get::<FloorOptions>().floor(basis.lr)? })
            },
        },
        Entry {
            name: "plateau",
            summary: "multiplied by a factor when the validation score stops improving",
            source: "PyTorch's ReduceLROnPlateau",
            options: &[PERIOD, FACTOR, FLOOR],
            make: |basis, own| {
                Ok(Shape::Plateau {
                    factor: own.get::<FactorOptions>().schedule_factor,
                    patience: own.get::<PeriodOptions>().count(),
                    floor: own.get::<FloorOptions>().floor(basis.lr)?,
                })
            },
        },
    ],
);

/// Counter of scores without improvement. Larger is better; a non-finite score never improves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Patience {
    /// Best score so far.
    pub best: Option<f64>,
    /// Loss of the best score.
    pub loss: Option<f64>,
    /// Scores since the best one.
    pub waited: u32,
}

impl Patience {
    /// Records a score and the loss on the same nodes. Returns true if it is the best so far: a
    /// higher score, or an equal one with a lower loss (on few nodes, many epochs have equal
    /// scores).
    pub fn observe(&mut self, score: f64, loss: f64) -> bool {
        let lower = loss < self.loss.unwrap_or(f64::INFINITY);
        let better =
            score.is_finite() && self.best.is_none_or(|best| score > best || (score == best && lower));
        if better {
            self.best = Some(score);
            self.loss = Some(loss).filter(|loss| loss.is_finite());
            self.waited = 0;
        } else {
            self.waited += 1;
        }
        better
    }
}

/// State of a schedule, saved in the checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Best score so far.
    pub best: Option<f64>,
    /// Scores since the best one or the last reduction.
    pub waited: u32,
    /// Reductions so far.
    pub reductions: u32,
}

/// Learning rate schedule: a base rate, a warm-up and a shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    base: f64,
    warmup: f64,
    shape: Shape,
    state: State,
}

impl Schedule {
    /// Creates the schedule called `name`.
    ///
    /// # Errors
    /// The name is unknown, or a value is out of range.
    pub fn new(name: &str, basis: &Basis, own: &OwnOptions) -> Result<Self> {
        let entry = TABLE.find(name)?;
        let &Basis { lr, warmup, .. } = basis;
        if !(lr > 0.0 && lr.is_finite()) {
            return Err(Error::config("lr", lr, "must be positive, for example 0.01"));
        }
        if !(warmup >= 0.0 && warmup.is_finite()) {
            return Err(Error::config("warmup", warmup, "must be 0 or more epochs; 0 disables the warm-up"));
        }
        for group in entry.options {
            own.check(*group).map_err(|fault| Error::option(&own.write(*group), fault))?;
        }
        let shape = (entry.make)(basis, own)?;
        Ok(Self { base: lr, warmup, shape, state: State::default() })
    }

    /// Learning rate of batch `batch` of `batches` in epoch `epoch`, all counted from 0. The
    /// warm-up rises with every batch, and its first rate is above 0.
    pub fn lr(&self, epoch: u32, batch: usize, batches: usize) -> f64 {
        let batches = batches.max(1) as f64;
        let before = f64::from(epoch) + batch as f64 / batches;
        let after = before + 1.0 / batches;
        let warm = if after < self.warmup { after / self.warmup } else { 1.0 };
        let factor = match self.shape {
            Shape::Constant => 1.0,
            Shape::Step { every, factor } => factor.powf(f64::from(epoch / every)),
            Shape::Cosine { epochs, floor } => {
                let t = ((before - self.warmup) / (epochs - self.warmup)).clamp(0.0, 1.0);
                floor + (1.0 - floor) * 0.5 * (1.0 + (std::f64::consts::PI * t).cos())
            }
            Shape::Plateau { factor, floor, .. } => factor.powf(f64::from(self.state.reductions)).max(floor),
        };
        self.base * warm * factor
    }

    /// Records the validation score of an epoch. Returns true if it reduced the learning rate,
    /// which happens only for `plateau`.
    pub fn observe(&mut self, score: f64) -> bool {
        let Shape::Plateau { factor, patience, floor } = self.shape else { return false };
        let state = &mut self.state;
        // losses come negated, which gives the rule of PyTorch's mode 'min'
        let better = |best: f64| score > best + THRESHOLD * best.abs();
        if score.is_finite() && state.best.is_none_or(better) {
            state.best = Some(score);
            state.waited = 0;
        } else {
            state.waited += 1;
        }
        if state.waited <= patience {
            return false;
        }
        state.waited = 0;
        let reduce = factor.powf(f64::from(state.reductions)) > floor;
        state.reductions += u32::from(reduce);
        reduce
    }

    /// State to save in a checkpoint.
    pub fn state(&self) -> State {
        self.state
    }

    /// Restores the state of a checkpoint.
    pub fn set_state(&mut self, state: State) {
        self.state = state;
    }
}

/// Stops a run when its validation score has not improved for `patience` epochs in a row (Prechelt,
/// *Early stopping, but when?*, 1998, criterion UP with strips of one epoch).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EarlyStop {
    /// Epochs to wait; 0 never stops.
    pub patience: u32,
    /// Best score and the epochs since, saved in the checkpoint.
    pub state: Patience,
}

impl EarlyStop {
    /// Creates a rule that waits `patience` epochs; 0 never stops.
    pub fn new(patience: u32) -> Self {
        Self { patience, state: Patience::default() }
    }

    /// Records the validation score and loss of an epoch. Returns true if it is the best so far
    /// ([`Patience::observe`]).
    pub fn observe(&mut self, score: f64, loss: f64) -> bool {
        self.state.observe(score, loss)
    }

    /// Returns true if the run should stop.
    pub fn stops(&self) -> bool {
        self.patience > 0 && self.state.waited >= self.patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Options of all schedules.
    #[derive(Clone, Copy)]
    struct Options {
        every: usize,
        factor: f64,
        epochs: f64,
        min_lr: f64,
        patience: usize,
        warmup: f64,
    }

    impl Default for Options {
        fn default() -> Self {
            Self { every: 0, factor: 0.5, epochs: 10.0, min_lr: 0.0, patience: 0, warmup: 0.0 }
        }
    }

    fn schedule(name: &str, lr: f64, options: &Options) -> Result<Schedule> {
        let &Options { every, factor, epochs, min_lr, patience, warmup } = options;
        let schedule_epochs = match name {
            "plateau" => patience,
            "cosine" => 0,
            _ => every,
        };
        let own = OwnOptions::default()
            .with(PeriodOptions { schedule_epochs })
            .with(FactorOptions { schedule_factor: factor })
            .with(FloorOptions { min_lr });
        Schedule::new(name, &Basis { lr, warmup, epochs }, &own)
    }

    /// Factors at the starts of the first `n` epochs.
    fn by_epoch(of: &Schedule, n: u32) -> Vec<f64> {
        (0..n).map(|epoch| of.lr(epoch, 0, 1)).collect()
    }

    fn close(got: &[f64], expected: &[f64]) {
        assert_eq!(got.len(), expected.len());
        for (a, b) in got.iter().zip(expected) {
            assert!((a - b).abs() < 1e-12, "{got:?} instead of {expected:?}");
        }
    }

    #[test]
    fn constant_stays_and_step_multiplies() {
        let options = Options { every: 2, factor: 0.1, ..Options::default() };
        close(&by_epoch(&schedule("constant", 0.5, &options).unwrap(), 3), &[0.5, 0.5, 0.5]);
        close(&by_epoch(&schedule("step", 1.0, &options).unwrap(), 5), &[1.0, 1.0, 0.1, 0.1, 0.01]);
    }

    #[test]
    fn cosine_ends_at_its_floor() {
        let options = Options { epochs: 4.0, min_lr: 0.2, ..Options::default() };
        let schedule = schedule("cosine", 1.0, &options).unwrap();
        let half = 0.5 * std::f64::consts::FRAC_1_SQRT_2;
        close(
            &by_epoch(&schedule, 6),
            &[1.0, 0.2 + 0.8 * (0.5 + half), 0.6, 0.2 + 0.8 * (0.5 - half), 0.2, 0.2],
        );
        // by batch: the middle of epoch 1 is 3/8 of the descent
        let expected = 0.2 + 0.4 * (1.0 + (0.375 * std::f64::consts::PI).cos());
        close(&[schedule.lr(1, 5, 10)], &[expected]);
    }

    #[test]
    fn warm_up_rises_per_batch_for_every_shape() {
        let options = Options { warmup: 1.5, epochs: 3.5, every: 1, patience: 1, ..Options::default() };
        for entry in &TABLE {
            let schedule = schedule(entry.name, 1.0, &options).unwrap();
            close(&[schedule.lr(0, 0, 2), schedule.lr(0, 1, 2)], &[1.0 / 3.0, 2.0 / 3.0]);
        }
        let cosine = schedule("cosine", 1.0, &options).unwrap();
        close(&[cosine.lr(1, 0, 2), cosine.lr(1, 1, 2), cosine.lr(2, 1, 2)], &[1.0, 1.0, 0.5]);
        let step = schedule("step", 1.0, &options).unwrap();
        close(&[step.lr(1, 0, 2), step.lr(2, 1, 2)], &[0.5, 0.25]);
    }

    #[test]
    fn plateau_reduces_after_its_patience_down_to_its_floor() {
        let options = Options { factor: 0.5, patience: 1, min_lr: 0.3, ..Options::default() };
        let mut first = schedule("plateau", 1.0, &options).unwrap();
        let scores = [0.5, 0.6, 0.6, f64::NAN, 0.7, 0.1, 0.1, 0.1, 0.1];
        let reduced: Vec<bool> = scores.iter().map(|&score| first.observe(score)).collect();
        assert_eq!(reduced, [false, false, false, true, false, false, true, false, false]);
        close(&[first.lr(9, 0, 1)], &[0.3]);

        // a resumed schedule continues like the uninterrupted one
        let mut whole = schedule("plateau", 1.0, &options).unwrap();
        whole.observe(0.5);
        whole.observe(0.4);
        let mut resumed = schedule("plateau", 1.0, &options).unwrap();
        resumed.set_state(whole.state());
        assert!(resumed.observe(0.5) && whole.observe(0.5));
        assert_eq!(resumed, whole);
    }

    /// `torch.optim.lr_scheduler.ReduceLROnPlateau`, line by line, with all defaults except factor
    /// and patience.
    fn torch(mode: &str, factor: f64, patience: u32, metrics: &[f64]) -> Vec<f64> {
        let (mut best, mut bad, mut lr) =
            (if mode == "min" { f64::INFINITY } else { f64::NEG_INFINITY }, 0, 1.0f64);
        let mut rates = Vec::new();
        for &current in metrics {
            let better = match mode {
                "min" => current < best * (1.0 - 1e-4),
                _ => current > best * (1.0 + 1e-4),
            };
            if better {
                (best, bad) = (current, 0);
            } else {
                bad += 1;
            }
            if bad > patience {
                lr = (lr * factor).max(0.0);
                bad = 0;
            }
            rates.push(lr);
        }
        rates
    }

    #[test]
    fn plateau_matches_pytorch() {
        // ties, steps around the threshold, NaN first and in the middle, falls, and a recovery
        let scores =
            [f64::NAN, 0.5, 0.5, 0.50004, 0.50006, 0.50006, f64::NAN, 0.4, 0.4, 0.9, 0.1, 0.1, 0.1, 0.1, 0.1];
        for patience in 0..4 {
            for (mode, sign) in [("max", 1.0), ("min", -1.0)] {
                // as a loss: smaller is better
                let metrics = scores.map(|score| if mode == "max" { score } else { 1.3 - score });
                let shape = Shape::Plateau { factor: 0.5, patience, floor: 0.0 };
                let mut schedule = Schedule { base: 1.0, warmup: 0.0, shape, state: State::default() };
                let rate = |&metric: &f64| {
                    schedule.observe(sign * metric);
                    schedule.lr(0, 0, 1)
                };
                let rates: Vec<f64> = metrics.iter().map(rate).collect();
                assert_eq!(rates, torch(mode, 0.5, patience, &metrics), "{mode}, patience {patience}");
            }
        }
    }

    #[test]
    fn early_stopping_waits_for_its_patience() {
        let mut stop = EarlyStop::new(2);
        let seen: Vec<_> =
            [0.1, 0.3, 0.3, 0.2, 0.4].iter().map(|&score| (stop.observe(score, 1.0), stop.stops())).collect();
        assert_eq!(seen, [(true, false), (true, false), (false, false), (false, true), (true, false)]);
        let mut never = EarlyStop::new(0);
        let mut ties = EarlyStop::new(2);
        assert!(
            ties.observe(0.5, 1.0) && ties.observe(0.5, 0.9) && !ties.observe(0.5, 0.9),
            "a tie is decided by the loss"
        );
        assert!(!(0..100).any(|_| never.observe(f64::NAN, 0.0) || never.stops()));
    }

    #[test]
    fn errors_name_the_field_the_value_and_the_range() {
        let options = Options::default();
        let message = |name, lr, options: Options| schedule(name, lr, &options).unwrap_err().to_string();
        assert_eq!(message("constant", -1.0, options), "lr = -1: must be positive, for example 0.01");
        let by_default = schedule("step", 0.1, &options).unwrap();
        assert_eq!(by_default.shape, Shape::Step { every: 10, factor: 0.5 }, "0 epochs select the default");
        assert!(
            message("plateau", 0.1, Options { factor: 1.5, ..options }).starts_with("schedule_factor = 1.5")
        );
        assert!(message("plateau", 0.1, Options { min_lr: 0.2, ..options }).starts_with("min_lr = 0.2"));
        assert_eq!(
            message("cosine", 0.1, Options { warmup: 12.0, ..options }),
            "warmup = 12: must be shorter than the descent of 10 epochs; reduce it"
        );
        assert_eq!(
            message("linear", 0.1, options),
            "unknown schedule 'linear'; known: constant, step, cosine, plateau"
        );
    }
}
