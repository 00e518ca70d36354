//! Any number of edges in any order.

use super::Scratch;
use crate::{EdgeOptions, Error, Graph, NodeId, Result, build};

/// Edges on their way to a graph. They are pushed in an order that the source alone decides, so that an import that
/// goes on after it was killed can tell which of them it already has.
#[derive(Clone, Debug)]
pub struct Edges {
    scratch: Scratch,
    options: EdgeOptions,
    src: Vec<NodeId>,
    dst: Vec<NodeId>,
    largest: Option<NodeId>,
}

impl Edges {
    pub(super) fn new(scratch: Scratch, options: EdgeOptions) -> Self {
        Self { scratch, options, src: Vec::new(), dst: Vec::new(), largest: None }
    }

    /// Adds the edge from `src` to `dst`.
    ///
    /// # Errors
    /// Writing to the scratch directory fails.
    #[inline]
    pub fn push(&mut self, src: NodeId, dst: NodeId) -> Result<()> {
        self.extend(&[src], &[dst])
    }

    /// Adds an edge from each `src[i]` to `dst[i]`.
    ///
    /// # Errors
    /// The lists differ in length, or writing to the scratch directory fails.
    pub fn extend(&mut self, src: &[NodeId], dst: &[NodeId]) -> Result<()> {
        if src.len() != dst.len() {
            return Err(Error::invalid(format!("{} edge sources for {} destinations", src.len(), dst.len())));
        }
        self.largest = src.iter().chain(dst).copied().max().max(self.largest);
        self.src.extend_from_slice(src);
        self.dst.extend_from_slice(dst);
        Ok(())
    }

    /// How many edges were added.
    pub fn len(&self) -> u64 {
        self.src.len() as u64
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The largest id of all ends.
    pub fn largest(&self) -> Option<NodeId> {
        self.largest
    }

    /// The graph of `num_nodes` nodes that these edges make.
    ///
    /// # Errors
    /// An id is not below `num_nodes`, or the scratch directory cannot be read or written.
    pub fn build(self, num_nodes: usize) -> Result<Graph> {
        let _ = &self.scratch;
        build(num_nodes, &self.src, &self.dst, self.options)
    }
}

impl Default for Edges {
    fn default() -> Self {
        Self::new(Scratch::in_memory(), EdgeOptions::DIRECTED)
    }
}
