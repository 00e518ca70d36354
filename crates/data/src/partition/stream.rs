//! Streaming partitioning shared by LDG, Fennel and PaGraph's partitioner.
//!
//! # Algorithm
//!
//! One pass over the nodes without a part, in id order, which assigns each to the part with the
//! highest score. Neighbours in both directions count; later ones have no part. Ties go to the part
//! with fewer nodes, then to the lower number.
//!
//! # Source
//!
//! Stanton and Kliot, KDD 2012 ([`ldg`](super::ldg)); Tsourakakis et al., WSDM 2014
//! ([`fennel`](super::fennel)).
//!
//! # Cost
//!
//! O(E + V K), sequential, because every choice depends on the previous ones.

use graphmill_core::{
    Graph, NodeId, Result, memory,
    progress::{Progress, Unit},
};

use super::{Options, PartitionBook, limits::fill_empty, trains};
use crate::reorder::adjacency::both_ways;

/// Nodes between two progress reports.
const REPORT_INTERVAL: usize = 1 << 14;

/// Marks a node without a part.
pub(super) const NONE: u16 = u16::MAX;

/// Assigns the nodes by `score(neighbours in the part, nodes in the part)`; a part with `capacity`
/// nodes accepts no more.
pub(super) fn stream(
    graph: &Graph,
    train: &[NodeId],
    options: &Options,
    progress: &dyn Progress,
    capacity: usize,
    score: impl Fn(u64, u64) -> f64,
) -> Result<PartitionBook> {
    let mut of: Vec<u16> = memory::reserve(graph.num_nodes())?;
    of.resize(graph.num_nodes(), NONE);
    assign_rest(graph, train, options, progress, of, capacity, score)
}

/// Assigns the nodes that are [`NONE`] in `of` as [`stream`] does; the parts of the others count.
pub(super) fn assign_rest(
    graph: &Graph,
    train: &[NodeId],
    options: &Options,
    progress: &dyn Progress,
    mut of: Vec<u16>,
    capacity: usize,
    score: impl Fn(u64, u64) -> f64,
) -> Result<PartitionBook> {
    let nodes = graph.num_nodes();
    let both = both_ways(graph)?;
    let mut sizes = vec![0u64; options.parts.into()];
    of.iter().filter(|&&part| part != NONE).for_each(|&part| sizes[usize::from(part)] += 1);
    let mut inside = vec![0u64; options.parts.into()];
    progress.stage("assigning the nodes", Some(nodes as u64), Unit::Rows);
    for v in 0..nodes {
        if of[v] != NONE {
            continue;
        }
        inside.fill(0);
        for &u in both.in_neighbors(v as NodeId) {
            if of[u as usize] != NONE {
                inside[usize::from(of[u as usize])] += 1;
            }
        }
        let open = (0..sizes.len()).filter(|&part| sizes[part] < capacity as u64);
        let best = open.map(|part| (score(inside[part], sizes[part]), part));
        let best = best.reduce(|a, b| {
            let less = a.0.total_cmp(&b.0).then(sizes[b.1].cmp(&sizes[a.1]));
            if less.is_lt() { b } else { a }
        });
        // The capacities add up to at least the number of nodes.
        let part = best.map_or(0, |(_, part)| part);
        of[v] = part as u16;
        sizes[part] += 1;
        if v % REPORT_INTERVAL == 0 {
            progress.check()?;
            progress.done(v as u64);
        }
    }
    fill_empty(graph, &trains(nodes, train)?, options.parts, of)
}
