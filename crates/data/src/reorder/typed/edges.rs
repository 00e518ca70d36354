//! Edges of a rearranged dataset.

use graphmill_core::{NodeId, Result, progress::Unit};
use rayon::prelude::*;

use super::{Arrangement, NONE, RowOrder};
use crate::{
    reorder::rows::fill_rows,
    typed::{EdgeData, TaskOn},
};

/// Destinations of a task of threads.
const CHUNK_LEN: usize = 1 << 12;

/// Old positions of the edges of a type in their new order.
pub(super) type Positions = Vec<u64>;

impl Arrangement<'_> {
    /// Edges of all types, and the old positions of those that are rows of a task, by edge type.
    pub(super) fn edges(&self) -> Result<(Vec<EdgeData>, Vec<Option<Positions>>)> {
        self.scratch.stage("relabelling the edges", None, Unit::Edges);
        let mut made = (Vec::new(), Vec::new());
        for (e, edges) in self.data.edges.iter().enumerate() {
            let (data, positions) = self.edges_of(e)?;
            let is_of_rows = self.data.tasks.iter().any(|task| {
                let is_it = matches!(&task.on, TaskOn::Edges(on) if *on == edges.edge_type);
                is_it && task.seeds.is_none()
            });
            made.0.push(data);
            made.1.push(is_of_rows.then_some(positions));
        }
        Ok(made)
    }

    /// Edges of edge type number `e`, and their old positions.
    fn edges_of(&self, e: usize) -> Result<(EdgeData, Positions)> {
        let (edges, scratch) = (&self.data.edges[e], self.scratch);
        let (source, destination) = self.schema.ends(e);
        let rank = &self.ranks[source];
        let (indptr, positions) = arrange(edges, &self.orders[destination], rank);
        let name = |what: &str| format!("edges-{e}-{what}");
        let rows = RowOrder { len: positions.len(), at: &|i| positions[i] as usize };
        let new_id = |i: usize, out: &mut [NodeId]| {
            out[0] = rank[edges.indices[positions[i] as usize] as usize];
        };
        let data = EdgeData {
            edge_type: edges.edge_type.clone(),
            reverse: edges.reverse.clone(),
            indptr: indptr.into(),
            indices: fill_rows(1, positions.len(), new_id, scratch.column(&name("indices"))?)?,
            weights: rows.optional(edges.weights.as_ref(), &name("weights"), scratch)?,
            time: rows.optional(edges.time.as_ref(), &name("time"), scratch)?,
            features: rows.features(edges.features.as_ref(), &name("features"), scratch)?,
        };
        Ok((data, positions))
    }
}

/// Row starts of the destinations `order`, and the old positions of their edges: those from sources
/// with a rank, ascending by it, parallel edges in their old order. Parallel.
fn arrange(edges: &EdgeData, order: &[NodeId], rank: &[NodeId]) -> (Vec<u64>, Positions) {
    let of_source = |e: u64| rank[edges.indices[e as usize] as usize];
    let chunks: Vec<(Vec<u64>, Positions)> = order
        .par_chunks(CHUNK_LEN)
        .map(|chunk| {
            let (mut ends, mut positions) = (Vec::with_capacity(chunk.len()), Vec::new());
            for &v in chunk {
                let row = edges.row(v);
                let first = positions.len();
                positions.extend((row.start as u64..row.end as u64).filter(|&e| of_source(e) != NONE));
                positions[first..].sort_by_key(|&e| of_source(e));
                ends.push(positions.len() as u64);
            }
            (ends, positions)
        })
        .collect();
    let mut indptr = Vec::with_capacity(order.len() + 1);
    indptr.push(0);
    let mut before = 0;
    for (ends, positions) in &chunks {
        indptr.extend(ends.iter().map(|end| before + end));
        before += positions.len() as u64;
    }
    let positions: Vec<&[u64]> = chunks.iter().map(|(_, positions)| &positions[..]).collect();
    (indptr, positions.concat())
}
