//! Reordering: the same dataset with its nodes renumbered, so that what is read together lies together.
//!
//! An order lists the nodes by their old ids, the new node 0 first. [`TABLE`] holds the orders that the graph alone decides;
//! [`by_scores`](graphmill_core::node_order::by_scores) makes one of any score per node, the hottest first; [`relabel`] carries a dataset over to an order
//! (Data Tiering's Algorithm 2). What each node was called before is kept in [`Dataset::original_ids`].
//!
//! A dataset of several named graphs stays one: each graph keeps its run of ids, and the order decides within it.

pub(crate) mod adjacency;
mod bfs;
mod degree;
mod random;
mod rcm;
pub(crate) mod relabel;
pub(crate) mod rows;

use std::{path::Path, time::Instant};

pub use relabel::{Seconds, relabel};

use graphmill_core::{Error, Graph, NodeId, Result, table::Entry};

use crate::{
    Dataset,
    dataset::{Work, work},
};

/// Makes an order of a graph and a seed: the old id of every new one.
pub type Order = fn(&Graph, u64) -> Result<Vec<NodeId>>;

/// A kind of order.
#[derive(Clone, Copy)]
pub struct OrderKind {
    /// Makes the order.
    pub make: Order,
    /// Whether it depends on the seed.
    pub is_random: bool,
}

/// The orders that need nothing but the graph.
pub const TABLE: &[Entry<OrderKind>] = &[
    Entry {
        name: "degree",
        summary: "the nodes that most others list as in-neighbours first",
        source: "Lin et al., PaGraph, SoCC 2020, section 3.3; Min et al., Data Tiering, 2021, section 3.1",
        options: &[],
        make: OrderKind { make: degree::order, is_random: false },
    },
    Entry {
        name: "bfs",
        summary: "breadth first from the node of the highest degree, component by component",
        source: "Cuthill and McKee without their sorting; Faldu et al., IISWC 2019, compares such orders",
        options: &[],
        make: OrderKind { make: bfs::order, is_random: false },
    },
    Entry {
        name: "rcm",
        summary: "reverse Cuthill-McKee: neighbours get ids close to each other",
        source: "Cuthill and McKee, 1969; George and Liu, ACM TOMS 5(3), 1979",
        options: &[],
        make: OrderKind { make: rcm::order, is_random: false },
    },
    Entry {
        name: "random",
        summary: "a shuffle by --seed: what the other orders are measured against",
        source: "",
        options: &[],
        make: OrderKind { make: random::order, is_random: true },
    },
];

/// Writes the dataset directory `dst`: `dataset` in the order that `order` makes of it. `what` names that order with all
/// that it depends on besides the dataset ("degree, seed 0").
///
/// Work that was killed goes on where it was when it is started again. Topology and features go to disk as they are made:
/// memory holds `12 V` bytes and two windows of each beside what `order` takes.
///
/// # Errors
/// Those of `order` and [`relabel`]; there is no node; `dst` holds something already; there is not enough disk.
pub fn reorder_to(
    dataset: &Dataset,
    dst: &Path,
    what: &str,
    order: impl FnOnce(&Dataset) -> Result<Vec<NodeId>>,
    work: Work,
) -> Result<(Dataset, Seconds)> {
    if dataset.num_nodes() == 0 {
        return Err(Error::invalid(format!("{}: there are no nodes to reorder", dataset.name)));
    }
    let began = Instant::now();
    let mut seconds = Seconds::default();
    // a dataset that was not read from a directory is known to this process alone
    let identity = || dataset.checksum.clone().unwrap_or_else(|| format!("process {}", std::process::id()));
    let identity_of_work = || Ok(format!("{} reorder {} by {what}", env!("CARGO_PKG_VERSION"), identity()));
    let made = work::run(work, dst, ".reordering", identity_of_work, |scratch| {
        let order = order(dataset)?;
        let ordered = began.elapsed().as_secs_f64();
        let made = relabel(dataset, &order, scratch)?;
        seconds = Seconds { order: ordered, ..made.1 };
        Ok(made.0)
    })?;
    seconds.finish = began.elapsed().as_secs_f64() - seconds.sum();
    Ok((made, seconds))
}

#[cfg(test)]
pub(crate) mod tests;
