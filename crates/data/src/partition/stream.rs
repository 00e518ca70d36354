//! One pass over the nodes that gives each to the part where a score is highest: what LDG and Fennel share.
//!
//! A node comes when its number does. Its neighbours are those of both directions, of which the earlier ones have a part. Ties go to the
//! part with fewer nodes, then to the lower number. O(E + V K), one thread: every choice depends on the one before.

use graphmill_core::{
    Graph, NodeId, Result, memory,
    progress::{Progress, Unit},
};

use super::{Options, PartitionBook, limits::fill_empty, trains};
use crate::reorder::adjacency::both_ways;

/// Nodes between two words to the watcher.
const TOLD: usize = 1 << 14;

/// Deals the nodes by `score(neighbours in the part, nodes in the part)`; a part with `capacity` nodes takes no more.
pub(super) fn stream(
    graph: &Graph,
    train: &[NodeId],
    options: &Options,
    progress: &dyn Progress,
    capacity: usize,
    score: impl Fn(u64, u64) -> f64,
) -> Result<PartitionBook> {
    const NONE: u16 = u16::MAX;
    let nodes = graph.num_nodes();
    let both = both_ways(graph)?;
    let mut of: Vec<u16> = memory::reserve(nodes)?;
    of.resize(nodes, NONE);
    let mut sizes = vec![0u64; options.parts.into()];
    let mut inside = vec![0u64; options.parts.into()];
    progress.stage("dealing the nodes", Some(nodes as u64), Unit::Rows);
    for v in 0..nodes {
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
        // the capacities add up to at least all nodes
        let part = best.map_or(0, |(_, part)| part);
        of[v] = part as u16;
        sizes[part] += 1;
        if v % TOLD == 0 {
            progress.check()?;
            progress.done(v as u64);
        }
    }
    fill_empty(graph, &trains(nodes, train)?, options.parts, of)
}
