//! Times of edges, and draws among those that exist at the time of a seed.
//!
//! # Source
//!
//! Temporal sampling of PyTorch Geometric: an edge exists from its own time on, or from that of its
//! source, and a seed's time bounds all hops.

use graphmill_core::{Buffer, NodeId, keyed::Stream};
use graphmill_loader::time::TimeIndex;

use super::draw::{Draws, Scratch};
use crate::topology::Topology;

/// Owner of the times that a caller passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimesOf {
    /// A time per node: an edge exists from that of its source on.
    Nodes,
    /// A time per source of a relation between two types, of this many.
    Sources(usize),
    /// A time per edge, in the order of the user's list.
    Edges,
}

/// Edges of each row in the order of their times.
#[derive(Clone, Debug)]
pub struct Times {
    index: TimeIndex,
    /// True to draw the last edges instead of random ones.
    is_last: bool,
}

impl Times {
    /// Sorts the edges of a topology by `times`.
    ///
    /// # Errors
    /// There are fewer or more times than nodes or edges.
    pub fn new(topology: &Topology, of: TimesOf, times: &[i64], is_last: bool) -> Result<Self, String> {
        let graph = topology.graph();
        let (expected, what) = match of {
            TimesOf::Nodes => (graph.num_nodes(), "nodes"),
            TimesOf::Sources(count) => (count, "nodes"),
            TimesOf::Edges => (graph.num_edges(), "edges"),
        };
        if times.len() != expected {
            return Err(format!("{} times for {expected} {what}; pass one for each", times.len()));
        }
        let index = match of {
            TimesOf::Nodes | TimesOf::Sources(_) => TimeIndex::new(graph, None, Some(times)),
            TimesOf::Edges => TimeIndex::new(graph, Some(&Buffer::from(topology.arrange(times))), None),
        };
        Ok(Self { index: index.map_err(|e| e.to_string())?, is_last })
    }

    /// Appends the drawn positions of the edges of `v` that exist at `latest` to `out`, relative to
    /// the start of its row. Draws by `draws`, which has no weights.
    pub(crate) fn draw(
        &self,
        (topology, draws): (&Topology, &Draws),
        (v, latest): (NodeId, i64),
        fanout: Option<usize>,
        stream: Stream,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) {
        let graph = topology.graph();
        let start = graph.indptr()[v as usize];
        let admitted = self.index.admitted(graph, v, None, latest);
        let from = out.len();
        if self.is_last {
            let count = fanout.unwrap_or(usize::MAX).min(admitted.len());
            out.extend(admitted.end - count as u32..admitted.end);
        } else {
            draws.draw((0, admitted.len() as u64), fanout, stream, scratch, out);
        }
        for place in &mut out[from..] {
            *place = (self.index.position(start, *place) - start) as u32;
        }
    }
}
