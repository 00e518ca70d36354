//! Batching of edges for [`Edges`], which adds many at a time more cheaply than one by one.

use graphmill_core::{NodeId, Result};

use crate::external::Edges;

/// Edges per batch.
const BLOCK: usize = 1 << 16;

/// Collection of edges that are pushed one by one.
#[derive(Debug)]
pub(super) struct Blocks {
    edges: Edges,
    src: Vec<NodeId>,
    dst: Vec<NodeId>,
    weight: Vec<f32>,
}

impl Blocks {
    /// Creates a batch that pushes into `edges`.
    pub(super) fn new(edges: Edges) -> Self {
        let (src, dst) = (Vec::with_capacity(BLOCK), Vec::with_capacity(BLOCK));
        Self { edges, src, dst, weight: Vec::new() }
    }

    /// Adds an edge.
    #[inline]
    pub(super) fn push(&mut self, src: NodeId, dst: NodeId) -> Result<()> {
        self.src.push(src);
        self.dst.push(dst);
        if self.src.len() == BLOCK { self.flush() } else { Ok(()) }
    }

    /// Adds an edge, with a `weight` if the collection is weighted.
    #[inline]
    pub(super) fn push_weighted(&mut self, src: NodeId, dst: NodeId, weight: Option<f32>) -> Result<()> {
        self.weight.extend(weight);
        self.push(src, dst)
    }

    #[cold]
    fn flush(&mut self) -> Result<()> {
        self.edges.extend_weighted(&self.src, &self.dst, &self.weight)?;
        self.src.clear();
        self.dst.clear();
        self.weight.clear();
        Ok(())
    }

    /// Returns the collection with all edges.
    pub(super) fn finish(mut self) -> Result<Edges> {
        self.flush()?;
        Ok(self.edges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_keep_every_edge() {
        let mut blocks = Blocks::new(Edges::default());
        let count = 2 * BLOCK as u32 + 3;
        for v in 0..count {
            blocks.push(v, 0).unwrap();
        }
        let graph = blocks.finish().unwrap().build(count as usize).unwrap();
        assert!(graph.in_neighbors(0).iter().copied().eq(0..count));
    }
}
