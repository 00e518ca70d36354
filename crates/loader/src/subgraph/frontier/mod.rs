//! Frontier sampling: a random walk of `m` nodes at once.
//!
//! # Algorithm
//!
//! A frontier of `m` nodes begins with uniform roots, drawn with replacement. Then, `n - m` times,
//! a node is popped with a probability proportional to its degree (at most the degree cap), and a
//! uniform neighbour of it replaces it. The subgraph has all nodes that were ever in the frontier.
//! A node without neighbours has weight 0 and is never popped. If no node of the frontier has
//! neighbours, the subgraph ends early with fewer nodes.
//!
//! Nodes are popped by the paper's Dashboard (`dashboard.rs`) or by a tree of running sums
//! (`sums.rs`), which is as fast on graphs of even degrees and three times as fast on skewed ones
//! ([`PopBy`]). The remaining cost is memory latency, because the next node's degree depends on two
//! random reads. A neighbour drawn when its node joins is as uniform as one drawn when the node
//! leaves. It is therefore drawn at once, which leaves `m` pops on average to fetch it: first the
//! edge, `LAG` pops later the row that it leads to, and after another `LAG` pops the degree.
//!
//! # Source
//!
//! Ribeiro and Towsley, *Estimating and sampling graphs with multidimensional random walks*, IMC
//! 2010; Zeng et al., *Accurate, efficient and scalable training of graph neural networks*, JPDC
//! 2021, algorithms 2 to 4.
//!
//! # Cost
//!
//! O(m + n) pops of O(1) amortised (Dashboard) or O(log m) (tree).
//!
//! # Deviations
//!
//! The JPDC paper's algorithm 2 adds the popped node to the subgraph, and its algorithm 3 the new
//! one. As in the authors' program we add the new one; the two differ by the last frontier only.

mod dashboard;
#[cfg(test)]
mod reference;
mod simd;
mod sums;
#[cfg(test)]
mod tests;
mod tree;
mod words;

use clap::{Args, ValueEnum};
use graphmill_core::{
    Graph, NodeId, Result, by_name,
    keyed::{self, Stream},
    memory,
    options::{Fault, OptionSet, range},
};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{BatchKey, SubgraphSampler, SubgraphScratch, check_roots};
use crate::prefetch::prefetch;
use dashboard::{Dashboard, MAX_TILES};
pub use simd::Level;
use simd::{Portable, Scalar, Simd};
use sums::SumTree;
use words::{WordStream, below};

/// Number of pops between two steps of fetching a node's successor.
const LAG: usize = 16;

/// Keys of the three kinds of draws: roots, neighbours and darts.
const ROOTS: u64 = 0;
const STEPS: u64 = 1;
const DARTS: u64 = 2;

/// Draws the nodes of frontiers.
#[derive(Clone, Debug)]
pub struct Frontier {
    roots: Vec<NodeId>,
    num_nodes: usize,
    budget: usize,
    frontier: usize,
    eta: f64,
    frontier_index: PopBy,
    cap: u32,
    level: Level,
}

/// Method of popping nodes. All have the same distribution and draw different subgraphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PopBy {
    /// Tree of running sums.
    #[default]
    Sums,
    /// Dashboard of the JPDC paper.
    Dashboard,
}

by_name!(PopBy);

/// Options of [`Frontier`].
#[derive(Args, Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FrontierOptions {
    /// Number of nodes of the frontier.
    ///
    /// From 1 to 65536, and at most the size of a subgraph. A larger frontier starts from more
    /// roots and takes fewer steps from each.
    #[arg(long, value_name = "N")]
    pub frontier_size: usize,
    /// Method of popping nodes: sums or dashboard.
    ///
    /// Sums is a tree of running sums, and dashboard the method of GraphSAINT's authors. Both have
    /// the same distribution, and draw different subgraphs.
    #[arg(long, alias = "pop-by", value_name = "NAME")]
    pub frontier_index: PopBy,
    /// Ratio of the dashboard's size to its live part, 1.01 to 64.
    ///
    /// A larger board is cleaned up less often, but more darts miss. Applies to --frontier-index
    /// dashboard.
    #[arg(long, alias = "eta", value_name = "X")]
    pub dashboard_slack: f64,
    /// Maximum weight of a node, for any number of neighbours; 0: no cap.
    ///
    /// Without a cap, as in the papers' algorithm, hubs are in every subgraph. 30 trains at least
    /// as well as the 3000 of GraphSAINT's program, and samples faster.
    #[arg(long, value_name = "N")]
    pub degree_cap: usize,
}

impl Default for FrontierOptions {
    fn default() -> Self {
        Self { frontier_size: 1000, frontier_index: PopBy::default(), dashboard_slack: 2.0, degree_cap: 30 }
    }
}

impl OptionSet for FrontierOptions {
    fn check(&self) -> Result<(), Fault> {
        range("frontier_size", self.frontier_size, 1..=MAX_TILES)?;
        range("dashboard_slack", self.dashboard_slack, 1.01..=64.0)
    }

    fn unused(&self, option: &str) -> Option<String> {
        let why = "does not use it; use --frontier-index dashboard, or leave it out";
        (option == "dashboard_slack" && self.frontier_index != PopBy::Dashboard)
            .then(|| format!("--frontier-index {} {why}", self.frontier_index))
    }
}

/// Replacement of a node when it leaves, and the state of its prefetch.
#[derive(Clone, Copy, Debug, Default)]
struct Successor {
    /// Until fetched, the position of the edge to the node; then the start of its row.
    at: u64,
    node: NodeId,
    /// Degree, or [`PENDING`] until fetched.
    degree: u32,
}

/// Marks the degree of a successor that is not fetched yet.
const PENDING: u32 = u32::MAX;

/// Weights of a frontier, from which nodes are popped.
trait FrontierIndex {
    /// Starts with `weights`; a dashboard is `eta` times as large as its live part.
    ///
    /// # Errors
    /// The weights exceed the range of numbers, or memory runs out.
    fn start<S: Simd>(&mut self, eta: f64, weights: impl ExactSizeIterator<Item = u32>) -> Result<()>;

    /// Draws a position with a probability proportional to its weight; `None` if all weights are 0.
    fn pop<S: Simd>(&mut self, words: &mut WordStream) -> Option<usize>;

    /// Assigns position `at` to a node of another weight, at most once after a pop.
    ///
    /// # Errors
    /// As [`FrontierIndex::start`].
    fn replace<S: Simd>(&mut self, at: usize, weight: u32) -> Result<()>;
}

/// Scratch buffers of the frontier sampler.
#[derive(Clone, Debug, Default)]
pub struct FrontierScratch {
    sums: SumTree,
    dashboard: Dashboard,
    successors: Vec<Successor>,
}

impl Frontier {
    /// Creates a sampler for `graph` with walks from `roots` (at least one, below `V`) and
    /// subgraphs of `budget` nodes. O(V).
    ///
    /// # Errors
    /// An option is out of range.
    pub fn new(
        graph: &Graph,
        roots: &[NodeId],
        budget: usize,
        options: &FrontierOptions,
    ) -> Result<Self, String> {
        let &FrontierOptions { frontier_size: frontier, dashboard_slack: eta, degree_cap, frontier_index } =
            options;
        check_roots(graph, roots)?;
        options.check().map_err(|fault| fault.to_string())?;
        if frontier > budget {
            return Err(format!(
                "a frontier of {frontier} nodes does not fit in subgraphs of {budget}; use a larger \
                 budget or a smaller frontier"
            ));
        }
        let longest = graph.indptr().par_windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
        if longest >= u64::from(PENDING) {
            return Err(format!(
                "a node has {longest} neighbours; a frontier walks rows of fewer than 2^32 - 1"
            ));
        }
        Ok(Self {
            roots: roots.to_vec(),
            num_nodes: graph.num_nodes(),
            budget,
            frontier,
            eta,
            frontier_index,
            cap: if degree_cap == 0 { u32::MAX } else { u32::try_from(degree_cap).unwrap_or(u32::MAX) },
            level: Level::best(),
        })
    }

    /// Restricts the sampler to one instruction set, for tests and measurements.
    ///
    /// # Panics
    /// The machine lacks the instructions.
    pub fn with_level(self, level: Level) -> Self {
        assert!(level.is_available(), "this machine has no {level:?}");
        Self { level, ..self }
    }

    /// Overwrites `nodes` with all nodes that were ever in the frontier, in the order in which they
    /// joined.
    #[inline(always)]
    fn walk<S: Simd>(
        &self,
        graph: &Graph,
        key: BatchKey,
        scratch: &mut FrontierScratch,
        nodes: &mut Vec<NodeId>,
    ) -> Result<()> {
        let FrontierScratch { sums, dashboard, successors } = scratch;
        match self.frontier_index {
            PopBy::Sums => self.walk_by::<S>(sums, graph, key, successors, nodes),
            PopBy::Dashboard => self.walk_by::<S>(dashboard, graph, key, successors, nodes),
        }
    }

    #[inline(always)]
    fn walk_by<S: Simd>(
        &self,
        board: &mut impl FrontierIndex,
        graph: &Graph,
        key: BatchKey,
        successors: &mut Vec<Successor>,
        nodes: &mut Vec<NodeId>,
    ) -> Result<()> {
        let (rows, neighbors) = (graph.indptr(), graph.indices());
        let key_of = |what| keyed::key(&[key.seed, key.epoch, key.batch, what]);
        let (mut stream, mut steps, mut darts) =
            (Stream::new(key_of(ROOTS)), WordStream::new(key_of(STEPS)), WordStream::new(key_of(DARTS)));
        nodes.clear();
        memory::demand(nodes, self.budget);
        nodes.extend((0..self.frontier).map(|_| self.roots[stream.below(self.roots.len() as u64) as usize]));
        successors.clear();
        memory::demand(successors, nodes.len());
        // the reads of each loop are independent, so they overlap
        for &v in &nodes[..] {
            let (start, end) = (rows[v as usize], rows[v as usize + 1]);
            let degree = (end - start) as u32;
            successors.push(Successor { at: start, node: 0, degree });
        }
        board.start::<S>(self.eta, successors.iter().map(|next| next.degree.min(self.cap)))?;
        for next in successors.iter_mut() {
            *next = draw(next.at, next.degree, &mut steps, neighbors);
        }
        for next in successors.iter() {
            prefetch_row(next, neighbors, rows);
        }
        for next in successors.iter_mut() {
            fetch(next, neighbors, rows);
        }
        // positions whose successors are in flight; initially, fetched ones
        let mut joined = [0u16; 2 * LAG];
        for i in 0..self.budget - self.frontier {
            let Some(pin) = board.pop::<S>(&mut darts) else { break };
            let next = &mut successors[pin];
            fetch(next, neighbors, rows);
            nodes.push(next.node);
            board.replace::<S>(pin, next.degree.min(self.cap))?;
            *next = draw(next.at, next.degree, &mut steps, neighbors);
            let slot = i % (2 * LAG);
            fetch(&mut successors[usize::from(joined[slot])], neighbors, rows);
            joined[slot] = pin as u16;
            prefetch_row(&successors[usize::from(joined[(i + LAG) % (2 * LAG)])], neighbors, rows);
        }
        Ok(())
    }
}

/// Draws the successor of a node whose row begins at `start`, and prefetches the edge.
#[inline(always)]
fn draw(start: u64, degree: u32, words: &mut WordStream, neighbors: &[NodeId]) -> Successor {
    let at = start + below(words.take::<1>()[0], u64::from(degree));
    prefetch(neighbors, at as usize);
    // a node without neighbours has no successor, and is never popped
    Successor { at, node: 0, degree: if degree == 0 { 0 } else { PENDING } }
}

/// Prefetches the row of a successor whose edge has arrived.
#[inline(always)]
fn prefetch_row(next: &Successor, neighbors: &[NodeId], rows: &[u64]) {
    if next.degree == PENDING {
        prefetch(rows, neighbors[next.at as usize] as usize);
    }
}

/// Reads the successor's degree unless it is already known.
#[inline(always)]
fn fetch(next: &mut Successor, neighbors: &[NodeId], rows: &[u64]) {
    if next.degree == PENDING {
        let node = neighbors[next.at as usize];
        let (start, end) = (rows[node as usize], rows[node as usize + 1]);
        *next = Successor { at: start, node, degree: (end - start) as u32 };
    }
}

impl SubgraphSampler for Frontier {
    fn budget(&self) -> usize {
        self.budget
    }

    #[allow(unsafe_code, reason = "vector instructions")]
    fn sample(
        &self,
        graph: &Graph,
        key: BatchKey,
        scratch: &mut SubgraphScratch,
        nodes: &mut Vec<NodeId>,
    ) -> Result<()> {
        scratch.start(graph, self.num_nodes)?;
        let own = &mut scratch.frontier;
        match self.level {
            Level::Scalar => self.walk::<Scalar>(graph, key, own, nodes),
            Level::Portable => self.walk::<Portable>(graph, key, own, nodes),
            // SAFETY: `best` and `with_level` only set levels whose features are available.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { avx2(self, graph, key, own, nodes) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { avx512(self, graph, key, own, nodes) },
            #[cfg(not(target_arch = "x86_64"))]
            _ => self.walk::<Portable>(graph, key, own, nodes),
        }?;
        scratch.visited.distinct(nodes);
        Ok(())
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
fn avx2(
    sampler: &Frontier,
    graph: &Graph,
    key: BatchKey,
    scratch: &mut FrontierScratch,
    nodes: &mut Vec<NodeId>,
) -> Result<()> {
    sampler.walk::<simd::Avx2>(graph, key, scratch, nodes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,popcnt")]
fn avx512(
    sampler: &Frontier,
    graph: &Graph,
    key: BatchKey,
    scratch: &mut FrontierScratch,
    nodes: &mut Vec<NodeId>,
) -> Result<()> {
    sampler.walk::<simd::Avx512>(graph, key, scratch, nodes)
}
