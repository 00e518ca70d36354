//! Memory left by a device's data for cached rows.

use graphmill_engine::tiers::CacheBytes;

/// Share of all feature rows that `memory` bytes hold beside `parts`, pairs of a name and its
/// bytes. The rows of `cache` are shares of the whole table.
///
/// # Errors
/// The parts alone do not fit; the error lists them, the largest first.
pub(crate) fn cache_ratio(
    owner: &str,
    memory: u64,
    cache: CacheBytes,
    parts: &[(&str, f64)],
) -> Result<f64, String> {
    let left = left(owner, memory, parts)?;
    if cache.of_row == 0.0 {
        return Ok(1.0);
    }
    Ok(cache.rows_within(left).unwrap_or(0.0).min(1.0))
}

/// Bytes that `parts` leave of `memory`.
///
/// # Errors
/// The parts do not fit; the error lists them, the largest first.
pub(crate) fn left(owner: &str, memory: u64, parts: &[(&str, f64)]) -> Result<f64, String> {
    let taken: f64 = parts.iter().map(|(_, bytes)| bytes).sum();
    if taken <= memory as f64 {
        return Ok(memory as f64 - taken);
    }
    let mut parts = parts.to_vec();
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let listed: Vec<String> = parts.iter().map(|(name, bytes)| format!("{name} {}", gb(*bytes))).collect();
    Err(format!("{owner} has {}, but it takes {}: {}", gb(memory as f64), gb(taken), listed.join(", ")))
}

/// Formats bytes as gigabytes, or as megabytes if they are few.
pub fn gb(bytes: f64) -> String {
    if bytes >= 1e8 { format!("{:.1} GB", bytes / 1e9) } else { format!("{:.1} MB", bytes / 1e6) }
}
