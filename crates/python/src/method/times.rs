//! Times of edges, and draws among those that exist at the time of a seed.
//!
//! # Source
//!
//! Temporal sampling of PyTorch Geometric: an edge exists from its own time on, or from that of its
//! source, and a seed's time bounds all hops. With both times, which PyTorch Geometric refuses, an
//! edge exists from the later one on.

use graphmill_core::{Buffer, NodeId, keyed::Stream};
use graphmill_loader::time::TimeIndex;

use super::draw::{Draws, Scratch};
use crate::topology::Topology;

/// Times that a caller passes.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimeColumns<'t> {
    /// A time per edge, in the order of the user's list.
    pub edges: Option<&'t [i64]>,
    /// A time per source node, whose edges exist from then on.
    pub sources: Option<&'t [i64]>,
    /// Number of source nodes.
    pub num_sources: usize,
}

/// Edges of each row in the order of their times.
#[derive(Clone, Debug)]
pub struct Times {
    index: TimeIndex,
    /// True to draw the last edges instead of random ones.
    is_last: bool,
}

impl Times {
    /// Sorts the edges of a topology by their times.
    ///
    /// # Errors
    /// There are fewer or more times than nodes or edges.
    pub fn new(topology: &Topology, given: TimeColumns<'_>, is_last: bool) -> Result<Self, String> {
        let graph = topology.graph();
        let counts = [(given.edges, graph.num_edges(), "edges"), (given.sources, given.num_sources, "nodes")];
        for (times, expected, what) in counts {
            if let Some(times) = times.filter(|times| times.len() != expected) {
                return Err(format!("{} times for {expected} {what}; pass one for each", times.len()));
            }
        }
        let of_edges = given.edges.map(|times| Buffer::from(topology.arrange(times)));
        let index = TimeIndex::new(graph, of_edges.as_ref(), given.sources).map_err(|e| e.to_string())?;
        Ok(Self { index, is_last })
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
