//! Any number of edges in any order.

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

/// Edges that are dealt to parts on the disk together: enough for all threads, however few at a time are pushed.
const TOGETHER: usize = 1 << 20;
/// Edges after which the watcher is asked whether to go on, however few at a time are pushed.
const OFTEN: u64 = 1 << 16;

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
    /// Their weights, where edges have weights.
    weight: Vec<f32>,
    weighted: bool,
    largest: Option<NodeId>,
    /// Edges pushed, those passed over included.
    pushed: u64,
    /// Edges that an earlier process left, still to be passed over.
    known: u64,
    /// Counts of the edges pushed, those passed over included.
    counts: Counts,
    spill: Option<Spilled>,
}

/// Edges on the disk.
#[derive(Debug)]
enum Spilled {
    Plain(Spill<u64>),
    Weighted(Spill<Weighted>),
}

/// The same of both.
macro_rules! each {
    ($spilled:expr, $spill:ident => $what:expr) => {
        match $spilled {
            Spilled::Plain($spill) => $what,
            Spilled::Weighted($spill) => $what,
        }
    };
}

impl Scratch {
    /// An empty collection of edges, which [`Edges::build`] treats by `options`.
    pub fn edges(&self, options: EdgeOptions) -> Edges {
        Edges::new(self.clone(), options, false)
    }

    /// As [`Scratch::edges`], for edges that have weights where `weighted` says so.
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

    /// Passes over all edges of the source, where an earlier process has collected them all: then there is no need to
    /// read them again.
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
    /// The lists differ in length, edges have weights here, writing to the scratch directory fails, or the watcher ends the work.
    pub fn extend(&mut self, src: &[NodeId], dst: &[NodeId]) -> Result<()> {
        self.extend_weighted(src, dst, &[])
    }

    /// As [`Edges::extend`], with the weight of each edge: `weight[i]` where edges have weights here, none otherwise.
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
        if before / OFTEN < self.pushed / OFTEN {
            self.scratch.check()?;
        }
        let passed = self.known.min(src.len() as u64);
        self.known -= passed;
        let (src, dst) = (&src[passed as usize..], &dst[passed as usize..]);
        self.src.extend_from_slice(src);
        self.dst.extend_from_slice(dst);
        // + 0: the bits of -0 are not in order
        self.weight.extend(weight.iter().skip(passed as usize).map(|w| w + 0.0));
        if self.src.len() as u64 > self.most_in_memory() { self.deal() } else { Ok(()) }
    }

    /// Moves the edges in memory to the disk, where there is one.
    fn deal(&mut self) -> Result<()> {
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
            // the first time there were more
            self.src.shrink_to(2 * TOGETHER);
            self.dst.shrink_to(2 * TOGETHER);
            self.weight.shrink_to(2 * TOGETHER);
        }
        Ok(())
    }

    /// How many edges are kept in memory: building takes 24 bytes for each direction (see [`build`]), or 36 with weights, in
    /// half of the budget.
    fn most_in_memory(&self) -> u64 {
        if self.spill.is_some() {
            return TOGETHER as u64;
        }
        self.scratch.memory() / Needs::building(self.weighted) / if self.options.undirected { 2 } else { 1 }
    }

    /// How many stored edges become of one: two where they are stored both ways.
    pub fn directions(&self) -> u64 {
        if self.options.undirected { 2 } else { 1 }
    }

    /// Whether edges have weights here.
    pub fn is_weighted(&self) -> bool {
        self.weighted
    }

    /// How many edges were added.
    pub fn len(&self) -> u64 {
        self.pushed
    }

    /// How many of the added edges lead from a node to itself.
    pub fn self_loops(&self) -> u64 {
        self.counts.self_loops
    }

    /// Counts edges of the source that are not added.
    pub fn count_dropped(&mut self, edges: u64) {
        self.counts.dropped += edges;
    }

    /// How many edges of the source were not added.
    pub fn dropped(&self) -> u64 {
        self.counts.dropped
    }

    /// What [`Edges::build`] does to the edges.
    pub fn options(&self) -> EdgeOptions {
        self.options
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
