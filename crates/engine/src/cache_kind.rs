//! The two kinds of cache that `--cache` names: rows pinned by a metric, and rows that come and go
//! by a policy.

use graphmill_loader::{hotness, order, policy};

use crate::{Error, Result};

/// The name that chooses a cache.
pub(crate) const AUTO: &str = "auto";
/// The choice where rows that are read often are so in all epochs.
pub(crate) const POSTERIOR: &str = "posterior:2";

/// The cache of a name; `auto` is `local` if successive batches of that order lie close together.
pub(crate) fn chosen<'a>(name: &'a str, order: &str, local: &'a str) -> &'a str {
    match order::TABLE.get(order) {
        _ if name != AUTO => name,
        Some(entry) if entry.make.is_local => local,
        _ => POSTERIOR,
    }
}

/// Names of all caches, as `--cache` and `graphmill hotness --policies` take them.
pub fn known() -> String {
    format!("{}, {}", hotness::TABLE.names(), policy::TABLE.names())
}

/// The names of the metrics among them.
pub fn metrics() -> String {
    hotness::TABLE.names()
}

/// Whether that is a metric, with an argument behind a colon or without.
pub fn is_metric(name: &str) -> bool {
    let name = name.split(':').next().unwrap_or(name);
    hotness::TABLE.get(name).is_some()
}

/// Either kind of cache.
pub(crate) enum Kind {
    /// The hottest rows by a metric, for good.
    Pinned,
    /// Rows that come and go.
    Dynamic(policy::Make),
}

/// What kind of cache a name stands for.
pub(crate) fn kind(name: &str) -> Result<Kind> {
    if is_metric(name) {
        return Ok(Kind::Pinned);
    }
    let dynamic = policy::TABLE.get(name);
    dynamic
        .map(|entry| Kind::Dynamic(entry.make))
        .ok_or_else(|| Error::usage(format!("unknown policy '{name}'; known: {}", known())))
}
