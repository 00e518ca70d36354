//! Draws sets of nodes whose induced subgraphs are minibatches (GraphSAINT, ICLR 2020; paper 003, section 3.1).
//!
//! What is trained on a subgraph is a complete network over the edges among its nodes, so an epoch is not a pass over seeds but
//! as many subgraphs as hold the training nodes once. A sampler is made for a graph (that of the nodes that may be trained on)
//! and a set of roots, and does all that can be done beforehand then. Drawing is on one thread: subgraphs are independent, so cores have
//! subgraphs of their own.

pub mod frontier;
#[cfg(test)]
mod testing;
mod visited;

use graphmill_graph::{Error, Graph, NodeId, Result, table::Entry};

pub use crate::sampler::BatchKey;
use visited::Visited;

/// Draws sets of nodes.
pub trait SubgraphSampler: Send + Sync {
    /// The size of a subgraph by which epochs are counted: at most so many distinct nodes it has, where the sampler does not say
    /// otherwise.
    fn budget(&self) -> usize;

    /// How many subgraphs an epoch over `training` nodes has: as many as hold them once.
    fn epoch(&self, training: usize) -> usize {
        training.div_ceil(self.budget())
    }

    /// Overwrites `nodes` with distinct ids, ascending. A pure function of the graph, the options and the key: not of `room`, nor
    /// of what `nodes` held. In steady state nothing is allocated.
    ///
    /// # Errors
    /// `graph` has another number of nodes than the one that the sampler was made for, or memory is short.
    fn sample(&self, graph: &Graph, key: BatchKey, room: &mut Room, nodes: &mut Vec<NodeId>) -> Result<()>;
}

/// Memory a worker lends to a subgraph sampler and gets back: any sampler's, of any graph.
#[derive(Clone, Debug, Default)]
pub struct Room {
    visited: Visited,
    frontier: frontier::FrontierRoom,
}

impl Room {
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

/// What a subgraph sampler is made from. One struct serves all; each ignores what it has no use for.
#[derive(Clone, Debug)]
pub struct SubgraphOptions {
    /// Nodes of a subgraph, at most.
    pub budget: usize,
    /// `frontier`: nodes of the frontier, `m`.
    pub frontier: usize,
    /// `frontier`: cells of the dashboard by live cells, above 1.
    pub eta: f64,
    /// `frontier`: a node's weight is at most this, however many neighbours it has.
    pub degree_cap: u32,
}

impl Default for SubgraphOptions {
    fn default() -> Self {
        Self { budget: 8000, frontier: 1000, eta: 2.0, degree_cap: 3000 }
    }
}

/// Makes a sampler for a graph and the nodes that walks may start from, or says in one sentence what is wrong with the options.
pub type Make = fn(&Graph, &[NodeId], &SubgraphOptions) -> Result<Box<dyn SubgraphSampler>, String>;

/// Every subgraph sampler there is.
pub const TABLE: &[Entry<Make>] = &[Entry {
    name: "frontier",
    summary: "a random walk of many nodes at once, popped by degree",
    source: "Ribeiro and Towsley, IMC 2010; Zeng et al., JPDC 2021, section 4",
    make: |graph, roots, options| Ok(Box::new(frontier::Frontier::new(graph, roots, options)?)),
}];
