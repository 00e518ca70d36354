//! The two kinds of cache that `--cache` names: static rows pinned by a metric, and dynamic rows
//! that a policy admits and evicts.

#![forbid(unsafe_code)]

use graphmill_core::{Error::Unknown, NodeId};
use graphmill_loader::{hotness, order, policy};

use crate::{Error, Result};

/// Name that leaves the choice of the cache to the run.
pub(crate) const AUTO: &str = "auto";
/// Choice of `auto` if the hot rows are the same in all epochs.
pub(crate) const POSTERIOR: &str = "posterior:2";
/// Choice of `auto` in a run on links, whose seeds are not training nodes.
pub(crate) const OF_LINKS: &str = "presc:2";

/// Resolves a cache name: `auto` is `local` if successive batches of `order` lie close together,
/// else [`POSTERIOR`].
pub(crate) fn resolve_cache<'a>(name: &'a str, order: &str, local: &'a str) -> &'a str {
    match order::TABLE.get(order) {
        _ if name != AUTO => name,
        Some(entry) if entry.make.is_local => local,
        _ => POSTERIOR,
    }
}

/// Names of all caches, as `--cache` and `graphmill hotness --policies` accept them.
pub fn known() -> String {
    format!("{}, {}", hotness::TABLE.names(), policy::TABLE.names())
}

/// Names of the metrics.
pub fn metrics() -> String {
    hotness::TABLE.names()
}

/// Returns true if `name` is a metric, with or without an argument after a colon.
pub fn is_metric(name: &str) -> bool {
    metric(name).is_some()
}

/// Returns true if a cache called `name` holds the first rows of the table.
pub(crate) fn follows_ids(name: &str) -> bool {
    metric(name).is_some_and(|metric| metric.follows_ids)
}

/// Returns true if a cache called `name` is filled by the minibatches of the first epochs of
/// training.
pub(crate) fn counts_training(name: &str) -> bool {
    metric(name).is_some_and(|metric| metric.counted_epochs.is_some())
}

/// Returns true if the metric called `name` expects the same fanout for all neighbours, and seeds
/// that are training nodes.
pub(crate) fn expects_nodes(name: &str) -> bool {
    metric(name).is_some_and(|metric| metric.has_one_fanout)
}

fn metric(name: &str) -> Option<&'static hotness::Metric> {
    let name = name.split(':').next().unwrap_or(name);
    hotness::TABLE.get(name).map(|entry| &entry.make)
}

/// Loads the hottest rows of a ranking of all nodes into a cache.
pub(crate) type Fill = Box<dyn Fn(&[NodeId]) -> Result<()> + Send + Sync>;

/// Kind of a cache.
pub(crate) enum Kind {
    /// The hottest rows by a metric, fixed for the run.
    Pinned,
    /// Rows that a policy admits and evicts.
    Dynamic(policy::Make),
}

/// Kind of the cache called `name`.
pub(crate) fn kind(name: &str) -> Result<Kind> {
    if is_metric(name) {
        return Ok(Kind::Pinned);
    }
    let dynamic = policy::TABLE.get(name);
    dynamic
        .map(|entry| Kind::Dynamic(entry.make))
        .ok_or_else(|| Error::name(Unknown { axis: "policy", name: name.into(), known: known() }))
}
