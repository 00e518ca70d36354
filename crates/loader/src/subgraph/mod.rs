//! Draws sets of nodes whose induced subgraphs are minibatches (GraphSAINT, ICLR 2020; paper 003,
//! section 3.1).
//!
//! What is trained on a subgraph is a complete network over the edges among its nodes, so an epoch
//! is not a pass over seeds but as many subgraphs as hold the training nodes once. A sampler is
//! made for a graph (that of the nodes that may be trained on) and a set of roots, and does all
//! that can be done beforehand then. Drawing is on one thread: subgraphs are independent, so cores
//! have subgraphs of their own.

pub mod cluster;
pub mod edge;
pub mod forest_fire;
pub mod frontier;
pub mod node;
pub mod random_walk;
#[cfg(test)]
pub(crate) mod testing;
mod visited;

use graphmill_core::{Error, Graph, NodeId, Result, options::OwnOptions};

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
    /// The size of a subgraph by which epochs are counted: at most so many distinct nodes it has,
    /// where the sampler does not say otherwise.
    fn budget(&self) -> usize;

    /// How many subgraphs an epoch over `training` nodes has: as many as hold them once.
    fn epoch(&self, training: usize) -> usize {
        training.div_ceil(self.budget())
    }

    /// Overwrites `nodes` with distinct ids, ascending. A pure function of the graph, the options
    /// and the key: not of `scratch`, nor of what `nodes` held. In steady state nothing is
    /// allocated.
    ///
    /// # Errors
    /// `graph` has another number of nodes than the one that the sampler was made for, or memory is
    /// short.
    fn sample(
        &self,
        graph: &Graph,
        key: BatchKey,
        scratch: &mut SubgraphScratch,
        nodes: &mut Vec<NodeId>,
    ) -> Result<()>;
}

/// Memory a worker lends to a subgraph sampler and gets back: any sampler's, of any graph.
#[derive(Clone, Debug, Default)]
pub struct SubgraphScratch {
    visited: Visited,
    frontier: frontier::FrontierScratch,
    /// Per draw: an edge's place, or the word that chooses it.
    starts: Vec<u64>,
    list: Vec<u32>,
}

impl SubgraphScratch {
    /// Makes room for `graph`, which must have `num_nodes` nodes.
    fn start(&mut self, graph: &Graph, num_nodes: usize) -> Result<()> {
        if graph.num_nodes() != num_nodes {
            return Err(Error::invalid(format!(
                "a subgraph sampler made for {num_nodes} nodes was given a graph of {}",
                graph.num_nodes()
            )));
        }
        self.visited.fit(num_nodes);
        Ok(())
    }
}

/// What is wrong with the nodes that walks may start from.
fn check_roots(graph: &Graph, roots: &[NodeId]) -> Result<(), String> {
    if roots.is_empty() {
        return Err("there are no nodes to start from: the dataset needs training nodes".into());
    }
    match roots.iter().find(|&&v| v as usize >= graph.num_nodes()) {
        Some(v) => Err(format!("node {v} to start from, but there are {} nodes", graph.num_nodes())),
        None => Ok(()),
    }
}

/// The values that subgraph samplers are made from.
#[derive(Clone, Copy, Debug)]
pub struct SubgraphContext<'a> {
    /// Size of a subgraph. `saint-node`: draws; `saint-edge`: two for each edge; `saint-rw`: walks
    /// times steps; `frontier`, `forest-fire`: nodes.
    pub budget: usize,
    /// Options of the samplers.
    pub own: &'a OwnOptions,
}

impl SubgraphContext<'_> {
    /// The budget.
    ///
    /// # Errors
    /// Subgraphs have no nodes, or more than memory is reserved for.
    pub fn checked_budget(&self) -> Result<usize, String> {
        match self.budget {
            1..=0x4000_0000 => Ok(self.budget),
            budget => Err(format!("subgraphs of {budget} nodes: give 1 to 2^30")),
        }
    }
}

/// Makes a sampler for a graph and the nodes that it may start from (not none, below `V`; in
/// general the training nodes), or says in one sentence what is wrong with the options. Where
/// `graph` is to be trained on in part only, it is given without the rest's edges.
pub type Make = fn(&Graph, &[NodeId], &SubgraphContext) -> Result<Box<dyn SubgraphSampler>, String>;

#[cfg(test)]
mod tests;
