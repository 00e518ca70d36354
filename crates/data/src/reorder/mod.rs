//! Reordering: the same dataset with its nodes renumbered for locality.
//!
//! An order lists the nodes by their old ids, starting with that of the new node 0. [`TABLE`] lists
//! the orders computed from the graph alone; [`by_scores`](graphmill_core::node_order::by_scores)
//! orders by any score per node, highest first; [`relabel`] applies an order to a dataset
//! (Algorithm 2 of Min et al., *Data tiering*, 2021). Original ids are recorded in
//! [`Dataset::original_ids`].
//!
//! A dataset of several named graphs stays one: each graph keeps its range of ids, and the order
//! applies within it. So do the node types of a dataset of several types ([`reorder_types_to`]),
//! whose orders are computed on the union of all relations.

pub(crate) mod adjacency;
mod bfs;
mod degree;
mod random;
mod rcm;
pub(crate) mod relabel;
pub(crate) mod rows;
mod typed;

use std::{path::Path, time::Instant};

pub use relabel::{Seconds, relabel};
pub use typed::reorder_types_to;
pub(crate) use typed::{Orders, RowOrder, rearrange};

use graphmill_core::{Error, Graph, NodeId, Result, table::Entry};

use crate::{
    Dataset,
    dataset::{Work, work},
};

/// Computes an order from a graph and a seed: the old id of every new one.
pub type Order = fn(&Graph, u64) -> Result<Vec<NodeId>>;

/// Kind of order.
#[derive(Clone, Copy)]
pub struct OrderKind {
    /// Function that computes the order.
    pub make: Order,
    /// True if the order depends on the seed.
    pub is_random: bool,
}

/// Orders computed from the graph alone.
pub const TABLE: &[Entry<OrderKind>] = &[
    Entry {
        name: "degree",
        summary: "nodes that most others list as in-neighbours first",
        source: "Lin et al., PaGraph, SoCC 2020, section 3.3; Min et al., Data Tiering, 2021, section 3.1",
        options: &[],
        make: OrderKind { make: degree::order, is_random: false },
    },
    Entry {
        name: "bfs",
        summary: "breadth-first from the node of highest degree, component by component",
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
        summary: "a shuffle by --seed: the baseline of the other orders",
        source: "",
        options: &[],
        make: OrderKind { make: random::order, is_random: true },
    },
];

/// Writes the dataset directory `dst`: `dataset` in the order that `order` computes. `what`
/// describes that order with everything it depends on besides the dataset ("degree, seed 0").
///
/// Interrupted work resumes when it is started again. Topology and features go to disk as they are
/// computed: memory holds `12 V` bytes and two windows of each, plus the memory of `order`.
///
/// # Errors
/// Errors of `order` and [`relabel`]; the graph has no nodes; `dst` is not empty; the disk is too
/// small.
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
    // A dataset that was not read from a directory is known to this process only.
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
