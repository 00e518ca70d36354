//! Rejects records whose counters are implausibly large, so that later sums cannot overflow.

use serde_json::Value;

use super::{EpochRecord, Summary};

/// Maximum counter of an epoch. Sums over ten thousand epochs and all tiers fit into 64 bits.
const MAX_COUNT: u64 = 1 << 48;

/// Parses the record of epoch `at`; `None` if the line is damaged.
pub(super) fn epoch(line: &str, at: usize) -> Option<EpochRecord> {
    let epoch: EpochRecord = serde_json::from_str(line).ok()?;
    (epoch.epoch == at && largest(&serde_json::from_str(line).ok()?) <= MAX_COUNT).then_some(epoch)
}

/// Checks the summary that was parsed from `text`.
///
/// # Errors
/// The damaged part, and the reason.
pub(super) fn summary(summary: &Summary, text: &str) -> Result<(), (&'static str, String)> {
    if let Some((at, other)) = (1..).zip(&summary.epochs).find(|(at, epoch)| epoch.epoch != *at) {
        return Err(("epochs", format!("epoch {at} is recorded as epoch {}", other.epoch)));
    }
    let all: Value = serde_json::from_str(text).map_err(|e| ("summary", e.to_string()))?;
    match largest(&all["epochs"]) {
        count if count > MAX_COUNT => {
            Err(("epochs", format!("counter {count} exceeds the maximum {MAX_COUNT}")))
        }
        _ => Ok(()),
    }
}

/// The largest whole number anywhere in `value`.
fn largest(value: &Value) -> u64 {
    match value {
        Value::Number(number) => number.as_u64().unwrap_or(0),
        Value::Array(items) => items.iter().map(largest).max().unwrap_or(0),
        Value::Object(fields) => fields.values().map(largest).max().unwrap_or(0),
        _ => 0,
    }
}
