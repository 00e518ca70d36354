//! Which seeds come when: a permutation of the training nodes per epoch, cut into batches.

pub mod random;
pub mod sequential;

use graphmill_graph::{NodeId, table::Entry};

/// An ordering: writes this epoch's order of `nodes` to `out`. A pure function of (nodes, seed,
/// epoch), for any number of threads.
pub type Order = fn(nodes: &[NodeId], seed: u64, epoch: u64, out: &mut Vec<NodeId>);

/// Every ordering there is.
pub const TABLE: &[Entry<Order>] = &[
    Entry { name: "random", summary: "a fresh uniform shuffle every epoch", source: "", make: random::order },
    Entry {
        name: "sequential",
        summary: "ascending node ids, every epoch",
        source: "",
        make: sequential::order,
    },
];
