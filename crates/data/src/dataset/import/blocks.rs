//! Edges collected to blocks on their way to [`Edges`], which takes many at once cheaper than one by one.

use graphmill_core::{NodeId, Result};

use crate::external::Edges;

/// Edges of a block.
const BLOCK: usize = 1 << 16;

/// A collection of edges that are pushed one by one.
#[derive(Debug)]
pub(super) struct Blocks {
    edges: Edges,
    src: Vec<NodeId>,
    dst: Vec<NodeId>,
    weight: Vec<f32>,
}

impl Blocks {
    /// Pushes into `edges`.
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

    /// Adds an edge; `weight` where edges have weights in what this pushes into.
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

    /// The collection with all edges.
    pub(super) fn finish(mut self) -> Result<Edges> {
        self.flush()?;
        Ok(self.edges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_edge_is_lost_between_blocks() {
        let mut blocks = Blocks::new(Edges::default());
        let count = 2 * BLOCK as u32 + 3;
        for v in 0..count {
            blocks.push(v, 0).unwrap();
        }
        let graph = blocks.finish().unwrap().build(count as usize).unwrap();
        assert!(graph.in_neighbors(0).iter().copied().eq(0..count));
    }
}
