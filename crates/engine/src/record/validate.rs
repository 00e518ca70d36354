//! Whether what a run recorded can be: numbers that nobody could add up are damage, and are found
//! as it is read and not where they are summed.

use serde_json::Value;

use super::{EpochRecord, Summary};

/// No count of an epoch is larger. Sums over ten thousand epochs and all tiers stay in 64 bits.
const MOST: u64 = 1 << 48;

/// The record of epoch `at`; `None` where the line is damaged.
pub(super) fn epoch(line: &str, at: usize) -> Option<EpochRecord> {
    let epoch: EpochRecord = serde_json::from_str(line).ok()?;
    (epoch.epoch == at && largest(&serde_json::from_str(line).ok()?) <= MOST).then_some(epoch)
}

/// Whether the summary that was read from `text` is sound.
///
/// # Errors
/// Which part is not, and why.
pub(super) fn summary(summary: &Summary, text: &str) -> Result<(), (&'static str, String)> {
    if let Some((at, other)) = (1..).zip(&summary.epochs).find(|(at, epoch)| epoch.epoch != *at) {
        return Err(("epochs", format!("epoch {at} is told as {}", other.epoch)));
    }
    let all: Value = serde_json::from_str(text).map_err(|e| ("summary", e.to_string()))?;
    match largest(&all["epochs"]) {
        count if count > MOST => Err(("epochs", format!("nothing is counted up to {count}"))),
        _ => Ok(()),
    }
}

/// The largest whole number anywhere in it.
fn largest(value: &Value) -> u64 {
    match value {
        Value::Number(number) => number.as_u64().unwrap_or(0),
        Value::Array(items) => items.iter().map(largest).max().unwrap_or(0),
        Value::Object(fields) => fields.values().map(largest).max().unwrap_or(0),
        _ => 0,
    }
}
