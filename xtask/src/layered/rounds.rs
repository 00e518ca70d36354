//! Runs that take turns, so that a machine that gets slower does so for all.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::graphs::{number, train};

/// What is always said: the test score is of no interest here, and of few nodes.
const FIXED: &str = "--eval-every 1000 --eval-nodes 500";

/// What a line of options came to.
pub(super) struct Timed {
    /// The least seconds of an epoch, a round each.
    pub(super) rounds: Vec<f64>,
    /// Of the last round.
    pub(super) summary: Value,
}

impl Timed {
    /// The least seconds of an epoch.
    pub(super) fn least(&self) -> f64 {
        self.rounds.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The last epoch.
    pub(super) fn epoch(&self) -> Result<&Value> {
        self.summary["epochs"].as_array().and_then(|epochs| epochs.last()).context("a summary has epochs")
    }

    /// The seconds of all rounds.
    pub(super) fn all(&self) -> String {
        let each: Vec<String> = self.rounds.iter().map(|seconds| format!("{seconds:.3}")).collect();
        each.join(", ")
    }

    /// Edges of the bottom layer that batches aggregated over, and those that reused rows were made from.
    pub(super) fn bottom_edges(&self) -> Result<[f64; 2]> {
        let epoch = self.epoch()?;
        let made = &epoch["reuse"]["made_edges"];
        Ok([number(&epoch["bottom_edges"])?, if made.is_null() { 0.0 } else { number(made)? }])
    }
}

/// Trains by every line of options, one after the other, for so many rounds. The first epoch makes caches and finds allocations; it
/// is not counted.
pub(super) fn in_turn(graph: &Path, common: &str, lines: &[String], rounds: usize) -> Result<Vec<Timed>> {
    let mut timed: Vec<Timed> =
        lines.iter().map(|_| Timed { rounds: Vec::new(), summary: Value::Null }).collect();
    for _ in 0..rounds {
        for (line, timed) in lines.iter().zip(&mut timed) {
            let summary = train(&format!("{FIXED} {common} {line}"), graph)?;
            let epochs = summary["epochs"].as_array().context("a summary has epochs")?;
            let seconds = epochs.iter().skip(1).map(|epoch| number(&epoch["seconds"]));
            let seconds = seconds.collect::<Result<Vec<f64>>>()?;
            timed.rounds.push(seconds.into_iter().fold(f64::INFINITY, f64::min));
            timed.summary = summary;
        }
    }
    Ok(timed)
}
