//! Collection of any number of edges in any order.

use graphmill_core::{
    EdgeOptions, Error, Graph, NodeId, Result, build, build_weighted,
    builder::{deal, item::Weighted, no_weight},
    csc::is_no_weight,
    search::position,
};

use super::{
    Needs, Scratch, sort,
    spill::{Counts, Spill},
};

/// Edges distributed to the parts on disk at a time: enough for all threads, even if callers push
/// few at a time.
const SPILL_BATCH: usize = 1 << 20;
/// Edges between two checks for cancellation, even if callers push few at a time.
const CANCEL_CHECK_INTERVAL: u64 = 1 << 16;

/// Edges to be built into a graph: in memory while they and the construction fit the scratch's
/// budget, and in its directory beyond. They must be pushed in an order that depends only on the
/// source, so that a resumed import recognizes the edges it already has.
#[derive(Debug)]
pub struct Edges {
    scratch: Scratch,
    options: EdgeOptions,
    /// Sources of the edges in memory.
    src: Vec<NodeId>,
    dst: Vec<NodeId>,
    /// Weights of the edges in memory, if edges have weights.
    weight: Vec<f32>,
    weighted: bool,
    largest: Option<NodeId>,
    /// Edges pushed, including those skipped.
    pushed: u64,
    /// Edges left by an earlier process that are still to be skipped.
    known: u64,
    /// Counts of the edges pushed, including those skipped.
    counts: Counts,
    spill: Option<Spilled>,
}

/// Edges on disk.
#[derive(Debug)]
enum Spilled {
    Plain(Spill<u64>),
    Weighted(Spill<Weighted>),
}

/// Runs the same code for both variants.
macro_rules! each {
    ($spilled:expr, $spill:ident => $what:expr) => {
        match $spilled {
            Spilled::Plain($spill) => $what,
            Spilled::Weighted($spill) => $what,
        }
    };
}

impl Scratch {
    /// Creates an empty collection of edges, which [`Edges::build`] processes by `options`.
    pub fn edges(&self, options: EdgeOptions) -> Edges {
        Edges::new(self.clone(), options, false)
    }

    /// Creates an empty collection as [`Scratch::edges`] does, for edges with weights if `weighted`
    /// is set.
    pub fn maybe_weighted_edges(&self, options: EdgeOptions, weighted: bool) -> Edges {
        Edges::new(self.clone(), options, weighted)
    }
}

impl Edges {
    pub(super) fn new(scratch: Scratch, options: EdgeOptions, weighted: bool) -> Self {
        let spill = if weighted {
            Spill::resume(&scratch, options).map(Spilled::Weighted)
        } else {
            Spill::resume(&scratch, options).map(Spilled::Plain)
        };
        let known = spill.as_ref().map_or(0, |spill| each!(spill, spill => spill.edges()));
        let largest = spill.as_ref().and_then(|spill| each!(spill, spill => spill.largest()));
        let (src, dst, weight) = (Vec::new(), Vec::new(), Vec::new());
        let counts = Counts::default();
        Self { scratch, options, src, dst, weight, weighted, largest, pushed: 0, known, counts, spill }
    }

    /// Skips the whole source if an earlier process has collected all of its edges; the source need
    /// not be read again.
    pub fn take_up_all(&mut self) -> bool {
        let complete = self.spill.as_ref().is_some_and(|spill| each!(spill, spill => spill.is_complete()));
        if let Some(spill) = self.spill.as_ref().filter(|_| complete) {
            (self.pushed, self.known) = (self.known, 0);
            self.counts = each!(spill, spill => spill.counts());
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
    /// The lists differ in length, the collection is weighted, writing to the scratch directory
    /// fails, or the work is cancelled.
    pub fn extend(&mut self, src: &[NodeId], dst: &[NodeId]) -> Result<()> {
        self.extend_weighted(src, dst, &[])
    }

    /// Adds edges as [`Edges::extend`] does, with weights: one per edge in a weighted collection,
    /// none otherwise.
    ///
    /// # Errors
    /// As for [`Edges::extend`]; a weight is negative or not finite.
    pub fn extend_weighted(&mut self, src: &[NodeId], dst: &[NodeId], weight: &[f32]) -> Result<()> {
        if src.len() != dst.len() {
            return Err(Error::invalid(format!("{} edge sources for {} destinations", src.len(), dst.len())));
        }
        let weights = if self.weighted { src.len() } else { 0 };
        if weight.len() != weights {
            return Err(Error::invalid(format!("{} weights for {weights} edges", weight.len())));
        }
        if let Some(e) = position(weight, is_no_weight) {
            return Err(no_weight(self.pushed + e as u64, weight[e]));
        }
        let most = |ids: &[NodeId]| ids.iter().copied().max();
        self.largest = self.largest.max(most(src)).max(most(dst));
        self.counts.self_loops += src.iter().zip(dst).filter(|(u, v)| u == v).count() as u64;
        let before = self.pushed;
        self.pushed += src.len() as u64;
        if before / CANCEL_CHECK_INTERVAL < self.pushed / CANCEL_CHECK_INTERVAL {
            self.scratch.check()?;
        }
        let passed = self.known.min(src.len() as u64);
        self.known -= passed;
        let (src, dst) = (&src[passed as usize..], &dst[passed as usize..]);
        self.src.extend_from_slice(src);
        self.dst.extend_from_slice(dst);
        // Adding 0 turns -0 into 0, whose bits sort correctly.
        self.weight.extend(weight.iter().skip(passed as usize).map(|w| w + 0.0));
        if self.src.len() as u64 > self.most_in_memory() { self.spill() } else { Ok(()) }
    }

    /// Moves the edges in memory to disk, if the scratch has a directory.
    fn spill(&mut self) -> Result<()> {
        if self.spill.is_none() {
            let sample = deal::sample(&self.src, &self.dst, self.options.undirected);
            self.spill = if self.weighted {
                Spill::create(&self.scratch, self.options, sample)?.map(Spilled::Weighted)
            } else {
                Spill::create(&self.scratch, self.options, sample)?.map(Spilled::Plain)
            };
        }
        if let Some(spill) = &mut self.spill {
            each!(spill, spill => spill.extend(&self.src, &self.dst, &self.weight))?;
            self.src.clear();
            self.dst.clear();
            self.weight.clear();
            // Shrink the buffers after the first spill.
            self.src.shrink_to(2 * SPILL_BATCH);
            self.dst.shrink_to(2 * SPILL_BATCH);
            self.weight.shrink_to(2 * SPILL_BATCH);
        }
        Ok(())
    }

    /// Number of edges kept in memory: building takes 24 bytes per direction (see [`build`]), or 36
    /// with weights, in half of the budget.
    fn most_in_memory(&self) -> u64 {
        if self.spill.is_some() {
            return SPILL_BATCH as u64;
        }
        self.scratch.memory() / Needs::building(self.weighted) / if self.options.undirected { 2 } else { 1 }
    }

    /// Stored edges per added edge: two if edges are stored in both directions.
    pub fn directions(&self) -> u64 {
        if self.options.undirected { 2 } else { 1 }
    }

    /// Returns true if edges have weights.
    pub fn is_weighted(&self) -> bool {
        self.weighted
    }

    /// Number of edges added.
    pub fn len(&self) -> u64 {
        self.pushed
    }

    /// Number of self-loops added.
    pub fn self_loops(&self) -> u64 {
        self.counts.self_loops
    }

    /// Counts edges of the source that are not added.
    pub fn count_dropped(&mut self, edges: u64) {
        self.counts.dropped += edges;
    }

    /// Number of source edges that were not added.
    pub fn dropped(&self) -> u64 {
        self.counts.dropped
    }

    /// Options of [`Edges::build`].
    pub fn options(&self) -> EdgeOptions {
        self.options
    }

    /// Returns true if no edge was added.
    pub fn is_empty(&self) -> bool {
        self.pushed == 0
    }

    /// Edges left by an earlier process that are still to be skipped.
    #[cfg(test)]
    pub(super) fn known(&self) -> u64 {
        self.known
    }

    /// Largest node id of all edges.
    pub fn largest(&self) -> Option<NodeId> {
        self.largest
    }

    /// Builds the graph of `num_nodes` nodes from these edges.
    ///
    /// # Errors
    /// An id is not below `num_nodes`, or the scratch directory cannot be read or written.
    pub fn build(mut self, num_nodes: usize) -> Result<Graph> {
        if self.known > 0 {
            let message = "the source has become shorter since the interrupted import; remove its directory \
                (.importing) and start again";
            return Err(Error::invalid(message));
        }
        if self.spill.is_some() {
            self.spill()?;
        }
        if let Some(spill) = &mut self.spill {
            each!(spill, spill => spill.set_counts(self.counts));
        }
        let Some(spill) = self.spill else {
            return if self.weighted {
                build_weighted(num_nodes, &self.src, &self.dst, &self.weight, self.options)
            } else {
                build(num_nodes, &self.src, &self.dst, self.options)
            };
        };
        if let Some(largest) = self.largest.filter(|&v| v as usize >= num_nodes) {
            return Err(Error::invalid(format!(
                "an edge names node {largest}, but there are {num_nodes} nodes"
            )));
        }
        each!(spill, spill => sort::build(&self.scratch, spill, num_nodes, self.options))
    }
}

impl Default for Edges {
    fn default() -> Self {
        Self::new(Scratch::in_memory(), EdgeOptions::DIRECTED, false)
    }
}
