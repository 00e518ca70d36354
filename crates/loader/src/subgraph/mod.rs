//! Draws sets of nodes whose induced subgraphs are minibatches (GraphSAINT).
//!
//! A model trains on a subgraph as on a complete graph of the edges among its nodes, so an epoch is
//! not a pass over seeds, but as many subgraphs as it takes to hold the training nodes once. A
//! sampler is made for a graph (of the nodes that may be trained on) and a set of roots, and
//! precomputes what it can. Drawing runs on one thread: subgraphs are independent, so each core
//! draws its own.
//!
//! The method is that of Zeng et al., "GraphSAINT: graph sampling based inductive learning method",
//! ICLR 2020, and its parallel form that of Zeng et al., "Accurate, efficient and scalable training
//! of graph neural networks", JPDC 2021, section 3.1.

pub mod cluster;
pub mod edge;
pub mod forest_fire;
pub mod frontier;
pub mod node;
pub mod random_walk;
#[cfg(test)]
pub(crate) mod testing;
mod visited;

use graphmill_core::{Error, Graph, NodeId, Result, options::OwnOptions, progress::Progress};

pub use crate::BatchKey;
pub use frontier::PopBy;
use visited::Visited;

/// Draws sets of nodes.
///
/// ```
/// use graphmill_core::{Graph, NodeId, Result, keyed};
/// use graphmill_loader::subgraph::{BatchKey, SubgraphSampler, SubgraphScratch};
///
/// /// A run of ten nodes that begins at a random one.
/// struct Run;
///
/// impl SubgraphSampler for Run {
///     fn budget(&self) -> usize {
///         10
///     }
///
///     fn sample(
///         &self,
///         graph: &Graph,
///         key: BatchKey,
///         _: &mut SubgraphScratch,
///         nodes: &mut Vec<NodeId>,
///     ) -> Result<()> {
///         let starts = graph.num_nodes() as u64 - 9;
///         let first = (keyed::key(&[key.seed, key.epoch, key.batch]) % starts) as NodeId;
///         nodes.clear();
///         nodes.extend(first..first + 10);
///         Ok(())
///     }
/// }
///
/// assert_eq!(Run.epoch(95), 10); // subgraphs of an epoch over 95 training nodes
/// ```
pub trait SubgraphSampler: Send + Sync {
    /// Size of a subgraph, by which epochs are counted: an upper bound of its distinct nodes,
    /// unless the sampler documents otherwise.
    fn budget(&self) -> usize;

    /// Number of subgraphs in an epoch over `training` nodes: enough to hold them once.
    fn epoch(&self, training: usize) -> usize {
        training.div_ceil(self.budget())
    }

    /// Overwrites `nodes` with distinct ids in ascending order. A pure function of the graph, the
    /// options and the key, independent of `scratch` and of the former `nodes`. In steady state
    /// nothing is allocated.
    ///
    /// # Errors
    /// The number of nodes of `graph` differs from that of the graph for which the sampler was
    /// made, or memory runs out.
    fn sample(
        &self,
        graph: &Graph,
        key: BatchKey,
        scratch: &mut SubgraphScratch,
        nodes: &mut Vec<NodeId>,
    ) -> Result<()>;
}

/// Scratch buffers that a worker passes to a subgraph sampler: of any sampler, for any graph.
#[derive(Clone, Debug, Default)]
pub struct SubgraphScratch {
    visited: Visited,
    frontier: frontier::FrontierScratch,
    /// Position of each draw's edge, or the random word that chooses it.
    starts: Vec<u64>,
    list: Vec<u32>,
}

impl SubgraphScratch {
    /// Grows for `graph`, which must have `num_nodes` nodes.
    fn start(&mut self, graph: &Graph, num_nodes: usize) -> Result<()> {
        if graph.num_nodes() != num_nodes {
            return Err(Error::invalid(format!(
                "a subgraph sampler made for {num_nodes} nodes cannot draw from a graph of {}",
                graph.num_nodes()
            )));
        }
        self.visited.fit(num_nodes);
        Ok(())
    }
}

/// Checks the nodes from which walks may start.
fn check_roots(graph: &Graph, roots: &[NodeId]) -> Result<(), String> {
    if roots.is_empty() {
        return Err("there are no nodes to start from; use a dataset with training nodes".into());
    }
    match roots.iter().find(|&&v| v as usize >= graph.num_nodes()) {
        Some(v) => Err(format!("cannot start from node {v}: the graph has {} nodes", graph.num_nodes())),
        None => Ok(()),
    }
}

/// Values from which subgraph samplers are made.
#[derive(Clone, Copy, Debug)]
pub struct SubgraphContext<'a> {
    /// Size of a subgraph: the number of draws (`saint-node`), two for each edge (`saint-edge`),
    /// walks times steps (`saint-rw`) or nodes (`frontier`, `forest-fire`).
    pub budget: usize,
    /// Options of each sampler.
    pub own: &'a OwnOptions,
    /// Part of every node, for a sampler of the parts of a given partition (`cluster`).
    pub partition: Option<&'a [u32]>,
    /// Watches long precomputations, and may stop them.
    pub progress: &'a dyn Progress,
}

impl SubgraphContext<'_> {
    /// Returns the budget.
    ///
    /// # Errors
    /// The budget is 0 or above 2^30.
    pub fn checked_budget(&self) -> Result<usize, String> {
        match self.budget {
            1..=0x4000_0000 => Ok(self.budget),
            budget => Err(format!("subgraphs of {budget} nodes are not possible; use 1 to 2^30")),
        }
    }
}

/// Constructor of a sampler for a graph and the nodes that it may start from (at least one, below
/// `V`, usually the training nodes); an error is one sentence about the options. If only a part of
/// the graph is trained on, `graph` has no edges of the rest.
pub type Make = fn(&Graph, &[NodeId], &SubgraphContext) -> Result<Box<dyn SubgraphSampler>, String>;

#[cfg(test)]
mod tests;
