//! Options of sampling with times.

use clap::{Args, ValueEnum};
use graphmill_core::{
    by_name,
    options::{Fault, OptionSet},
};
use serde::{Deserialize, Serialize};

/// Times that a seed admits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimeBound {
    /// Times before the seed's.
    #[default]
    Strict,
    /// Times before the seed's, and equal ones.
    Inclusive,
}

impl TimeBound {
    /// The latest time that a seed of time `seed` admits. [`i64::MIN`] (always) is admitted by
    /// every seed.
    pub fn latest(self, seed: i64) -> i64 {
        match self {
            Self::Strict => seed.saturating_sub(1),
            Self::Inclusive => seed,
        }
    }

    /// Returns true if a seed of time `seed` admits an edge or node of time `time`.
    pub fn admits(self, time: i64, seed: i64) -> bool {
        time <= self.latest(seed)
    }
}

/// Edges that are drawn among the admitted ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimeDraw {
    /// All admitted edges are equally likely, without replacement.
    #[default]
    Uniform,
    /// The last ones.
    Last,
    /// Recent edges are more likely: an edge counts half as much as one that is later by a half
    /// life. Without replacement.
    Recency,
}

/// Time that bounds the hops after the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimeCarry {
    /// The time of the seed.
    #[default]
    Seed,
    /// The time from which the edge that led to the node is visible.
    Edge,
}

by_name!(TimeBound, TimeDraw, TimeCarry);

/// Options of [`super::TimeSampler`].
#[derive(Args, Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimeOptions {
    /// Edges that a seed sees: before its time, or also at its time.
    ///
    /// Use strict if an edge of the seed's own time could reveal the target.
    #[arg(long, value_name = "BOUND")]
    pub time_bound: TimeBound,
    /// Draws among the edges that a seed sees.
    #[arg(long, value_name = "DRAW")]
    pub time_draw: TimeDraw,
    /// Age from which edges are ignored, in units of the times; 0: never.
    #[arg(long, value_name = "TIME")]
    pub time_window: i64,
    /// Age difference that halves the weight of an edge, for recency draws.
    #[arg(long, value_name = "TIME")]
    pub time_half_life: f64,
    /// Time that bounds the hops after the first.
    #[arg(long, value_name = "CARRY")]
    pub time_carry: TimeCarry,
}

impl Default for TimeOptions {
    fn default() -> Self {
        Self {
            time_bound: TimeBound::Strict,
            time_draw: TimeDraw::Uniform,
            time_window: 0,
            time_half_life: 1.0,
            time_carry: TimeCarry::Seed,
        }
    }
}

impl OptionSet for TimeOptions {
    fn check(&self) -> Result<(), Fault> {
        if self.time_window < 0 {
            let wanted = "use a positive age, or 0 for no window";
            return Err(Fault::of("time_window", self.time_window, wanted));
        }
        if !(self.time_half_life > 0.0 && self.time_half_life.is_finite()) {
            return Err(Fault::of("time_half_life", self.time_half_life, "use a positive number"));
        }
        Ok(())
    }

    fn unused(&self, option: &str) -> Option<String> {
        let unused = option == "time_half_life" && self.time_draw != TimeDraw::Recency;
        unused.then(|| "it weights the draws of --time-draw recency; use that, or leave it out".into())
    }
}

impl TimeOptions {
    /// Visible times that a seed of time `seed` admits: above the first (if there is a window), up
    /// to the second.
    pub fn admitted(&self, seed: i64) -> (Option<i64>, i64) {
        let oldest = (self.time_window > 0).then(|| seed.saturating_sub(self.time_window));
        (oldest, self.time_bound.latest(seed))
    }
}
