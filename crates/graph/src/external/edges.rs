//! Any number of edges in any order.

use super::{Scratch, sort, spill::Spill};
use crate::{EdgeOptions, Error, Graph, NodeId, Result, build, builder::deal};

/// Edges that are dealt to parts on the disk together: enough for all threads, however few at a time are pushed.
const TOGETHER: usize = 1 << 20;

/// Edges on their way to a graph, in memory while they and the work of building from them fit the scratch's budget,
/// and in its directory beyond. They are pushed in an order that the source alone decides, so that an import that
/// goes on after it was killed can tell which of them it already has.
#[derive(Debug)]
pub struct Edges {
    scratch: Scratch,
    options: EdgeOptions,
    /// Edges that are not on the disk.
    src: Vec<NodeId>,
    dst: Vec<NodeId>,
    largest: Option<NodeId>,
    /// Edges pushed, those passed over included.
    pushed: u64,
    /// Edges that an earlier process left, still to be passed over.
    known: u64,
    spill: Option<Spill>,
}

impl Edges {
    pub(super) fn new(scratch: Scratch, options: EdgeOptions) -> Self {
        let spill = Spill::resume(&scratch, options);
        let known = spill.as_ref().map_or(0, Spill::edges);
        let largest = spill.as_ref().and_then(Spill::largest);
        Self { scratch, options, src: Vec::new(), dst: Vec::new(), largest, pushed: 0, known, spill }
    }

    /// Passes over all edges of the source, where an earlier process has collected them all: then there is no need to
    /// read them again.
    pub fn take_up_all(&mut self) -> bool {
        let complete = self.spill.as_ref().is_some_and(Spill::is_complete);
        if complete {
            (self.pushed, self.known) = (self.known, 0);
        }
        complete
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
        let most = |ids: &[NodeId]| ids.iter().copied().max();
        self.largest = self.largest.max(most(src)).max(most(dst));
        self.pushed += src.len() as u64;
        let passed = self.known.min(src.len() as u64);
        self.known -= passed;
        let (src, dst) = (&src[passed as usize..], &dst[passed as usize..]);
        self.src.extend_from_slice(src);
        self.dst.extend_from_slice(dst);
        if self.src.len() as u64 > self.most_in_memory() { self.deal() } else { Ok(()) }
    }

    /// Moves the edges in memory to the disk, where there is one.
    fn deal(&mut self) -> Result<()> {
        if self.spill.is_none() {
            let sample = deal::sample(&self.src, &self.dst, self.options.undirected);
            self.spill = Spill::create(&self.scratch, self.options, sample)?;
        }
        if let Some(spill) = &mut self.spill {
            spill.extend(&self.src, &self.dst)?;
            self.src.clear();
            self.dst.clear();
            // the first time there were more
            self.src.shrink_to(2 * TOGETHER);
            self.dst.shrink_to(2 * TOGETHER);
        }
        Ok(())
    }

    /// How many edges are kept in memory: building takes 24 bytes for each direction (see [`build`]), in half of the
    /// budget.
    fn most_in_memory(&self) -> u64 {
        if self.spill.is_some() {
            return TOGETHER as u64;
        }
        self.scratch.memory() / 48 / if self.options.undirected { 2 } else { 1 }
    }

    /// How many stored edges become of one: two where they are stored both ways.
    pub fn directions(&self) -> u64 {
        if self.options.undirected { 2 } else { 1 }
    }

    /// How many edges were added.
    pub fn len(&self) -> u64 {
        self.pushed
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.pushed == 0
    }

    /// How many of the first edges an earlier process left, still to be passed over.
    #[cfg(test)]
    pub(super) fn known(&self) -> u64 {
        self.known
    }

    /// The largest id of all ends.
    pub fn largest(&self) -> Option<NodeId> {
        self.largest
    }

    /// The graph of `num_nodes` nodes that these edges make.
    ///
    /// # Errors
    /// An id is not below `num_nodes`, or the scratch directory cannot be read or written.
    pub fn build(mut self, num_nodes: usize) -> Result<Graph> {
        if self.known > 0 {
            let message = "the source has become shorter since the import was stopped; start again without what it left";
            return Err(Error::invalid(message));
        }
        if self.spill.is_some() {
            self.deal()?;
        }
        let Some(spill) = self.spill else {
            return build(num_nodes, &self.src, &self.dst, self.options);
        };
        if let Some(largest) = self.largest.filter(|&v| v as usize >= num_nodes) {
            return Err(Error::invalid(format!(
                "an edge names node {largest}, but there are {num_nodes} nodes"
            )));
        }
        sort::build(&self.scratch, spill, num_nodes, self.options)
    }
}

impl Default for Edges {
    fn default() -> Self {
        Self::new(Scratch::in_memory(), EdgeOptions::DIRECTED)
    }
}
