//! Alternating runs, so that a slowdown of the machine affects all of them.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::graphs::{number, train};

/// Options of every run: the test score is irrelevant here, and is computed on few nodes.
const FIXED: &str = "--eval-every 1000 --eval-nodes 500";

/// Result of a line of options.
pub(super) struct Timed {
    /// Minimum seconds of an epoch in each round.
    pub(super) rounds: Vec<f64>,
    /// Summary of the last round.
    pub(super) summary: Value,
}

impl Timed {
    /// Minimum seconds of an epoch.
    pub(super) fn least(&self) -> f64 {
        self.rounds.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Record of the last epoch.
    pub(super) fn epoch(&self) -> Result<&Value> {
        self.summary["epochs"].as_array().and_then(|epochs| epochs.last()).context("a summary has epochs")
    }

    /// Seconds of all rounds.
    pub(super) fn all(&self) -> String {
        let each: Vec<String> = self.rounds.iter().map(|seconds| format!("{seconds:.3}")).collect();
        each.join(", ")
    }

    /// Bottom-layer edges aggregated by batches, and those used to compute reused rows.
    pub(super) fn bottom_edges(&self) -> Result<[f64; 2]> {
        let epoch = self.epoch()?;
        let made = &epoch["reuse"]["made_edges"];
        Ok([number(&epoch["bottom_edges"])?, if made.is_null() { 0.0 } else { number(made)? }])
    }
}

/// Trains with every line of options, alternating, for `rounds` rounds. The first epoch, which
/// fills caches and finds allocations, is not counted.
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
