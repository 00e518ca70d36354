//! Neighbours of every node by the events of a stream, in the order of their times.

use graphmill_core::{Graph, NodeId};
use graphmill_loader::time::{Events, TimedGraph};

use crate::Result;

/// Graph of events: each is an edge into both of its ends.
pub(super) struct History {
    pub(super) graph: TimedGraph,
    /// Event of each edge.
    pub(super) event: Vec<u32>,
}

impl History {
    /// Builds the graph of the events `of`, ascending. O(V + E).
    ///
    /// # Errors
    /// None in practice: the stream was checked.
    pub(super) fn new(events: &Events, of: &[u32], num_nodes: usize) -> Result<Self> {
        let ends = |e: u32| [events.source()[e as usize], events.destination()[e as usize]];
        let mut indptr = vec![0u64; num_nodes + 1];
        of.iter().flat_map(|&e| ends(e)).for_each(|v| indptr[v as usize + 1] += 1);
        for v in 0..num_nodes {
            indptr[v + 1] += indptr[v];
        }
        let mut next = indptr.clone();
        let count = 2 * of.len();
        let (mut indices, mut event, mut time) = (vec![0 as NodeId; count], vec![0; count], vec![0; count]);
        for &e in of {
            let [source, destination] = ends(e);
            for (own, other) in [(source, destination), (destination, source)] {
                let at = &mut next[own as usize];
                indices[*at as usize] = other;
                event[*at as usize] = e;
                time[*at as usize] = events.time()[e as usize];
                *at += 1;
            }
        }
        let graph = Graph::new(indptr.into(), indices.into())?;
        Ok(Self { graph: TimedGraph::of_one_type(graph, Some(time.into()), None)?, event })
    }
}
