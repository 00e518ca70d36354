//! Choices of a run that reuses rows: the length of its super-batches, and the number of its hot
//! nodes. They are functions of draws and memory, not of times.

use graphmill_core::memory;

use crate::config::Ratio;

/// Candidate lengths if no length is given. Longer super-batches cost more than a point of accuracy
/// on a graph that reuses half of the rows in the first few hundred updates
/// (book/src/results/strategies.md, "W2").
const LENGTHS: [u64; 3] = [2, 4, 8];
/// Largest candidate without a basis: longer super-batches cost attention more than a point, too.
const MAX_LENGTH_WITHOUT_BASIS: u64 = 4;
/// Share of the best candidate's savings that the chosen length must reach.
const MIN_SAVED: f64 = 0.85;
/// Share of the free memory, and of a device's budget, that rows may take if no ratio is given.
const MEMORY_SHARE: f64 = 0.25;

/// Batches per super-batch if no number is given: the shortest candidate that saves most of the
/// possible work, of which `saved` returns the share for a length. `has_basis` is true if rows
/// follow the parameters in some directions.
pub fn shortest_length(has_basis: bool, batches: u64, saved: impl FnMut(u64) -> f64) -> u64 {
    let longest = if has_basis { u64::MAX } else { MAX_LENGTH_WITHOUT_BASIS };
    let lengths = LENGTHS.map(|length| length.min(longest).min(batches));
    let shares = lengths.map(saved);
    let best = shares.iter().copied().fold(0.0, f64::max);
    let mut candidates = lengths.iter().zip(&shares);
    candidates.find(|(_, share)| **share >= MIN_SAVED * best).map_or(1, |(&length, _)| length)
}

/// Largest number of hot nodes among `nodes`: that of `ratio`, or as many as have rows of
/// `row_bytes` bytes, twice, in a part of the free memory and of the device's `budget`.
pub fn max_hot(ratio: Ratio, nodes: usize, row_bytes: usize, budget: Option<u64>) -> usize {
    if let Some(ratio) = ratio.0 {
        return (ratio * nodes as f64).round() as usize;
    }
    let limit = |bytes: u64| MEMORY_SHARE * bytes as f64;
    let of_host = memory::available().map_or(f64::INFINITY, limit);
    let bytes = of_host.min(budget.map_or(f64::INFINITY, limit));
    nodes.min((bytes / (2 * row_bytes.max(1)) as f64) as usize)
}

/// Largest length of a super-batch of at most `longest` batches, in updates of `round` batches, if
/// the largest change of a weight by an update is `change` and by a super-batch may be `max`; 0
/// allows any.
pub fn length_at((longest, round): (u64, u64), max: f64, change: f32) -> u64 {
    if max == 0.0 || change == 0.0 {
        return longest;
    }
    let updates = (max / (2.0 * f64::from(change))) as u64;
    updates.saturating_mul(round).clamp(round, longest)
}
