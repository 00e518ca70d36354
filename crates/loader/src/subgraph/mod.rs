//! Draws sets of nodes whose induced subgraphs are minibatches (GraphSAINT, ICLR 2020; paper 003, section 3.1).
//!
//! What is trained on a subgraph is a complete network over the edges among its nodes, so an epoch is not a pass over seeds but
//! as many subgraphs as hold the training nodes once. A sampler is made for a graph (that of the nodes that may be trained on)
//! and a set of roots, and does all that can be done beforehand then. Drawing is on one thread: subgraphs are independent, so cores have
//! subgraphs of their own.

pub mod cluster;
pub mod edge;
pub mod forest_fire;
pub mod frontier;
pub mod node;
pub mod random_walk;
#[cfg(test)]
pub(crate) mod testing;
mod visited;

use std::sync::Arc;

use graphmill_core::{Error, Graph, NodeId, Result, table::Entry};

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
    /// The size of a subgraph by which epochs are counted: at most so many distinct nodes it has, where the sampler does not say
    /// otherwise.
    fn budget(&self) -> usize;

    /// How many subgraphs an epoch over `training` nodes has: as many as hold them once.
    fn epoch(&self, training: usize) -> usize {
        training.div_ceil(self.budget())
    }

    /// Overwrites `nodes` with distinct ids, ascending. A pure function of the graph, the options and the key: not of `scratch`, nor
    /// of what `nodes` held. In steady state nothing is allocated.
    ///
    /// # Errors
    /// `graph` has another number of nodes than the one that the sampler was made for, or memory is short.
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

/// What a subgraph sampler is made from. One struct serves all; each ignores what it has no use for.
#[derive(Clone, Debug)]
pub struct SubgraphOptions {
    /// The size of a subgraph. `saint-node`: draws; `saint-edge`: two for each edge; `saint-rw`: walks times steps; `frontier`, `forest-fire`:
    /// nodes. Default 8000.
    pub budget: usize,
    /// `saint-rw`: steps of a walk. Default 2.
    pub walk_length: usize,
    /// `frontier`: nodes of the frontier, `m`. Default 1000.
    pub frontier: usize,
    /// `frontier`: how nodes are popped. Default by running sums.
    pub pop_by: PopBy,
    /// `frontier`, popped by the paper's Dashboard: how much larger than its live part the board is laid out, 1.01 to 64. Larger is cleaned up
    /// less often, but more darts miss. Default 2.
    pub eta: f64,
    /// `frontier`: a node's weight is at most this, however many neighbours it has: without, hubs are in every subgraph. Default 30, which
    /// trains as well as the 3000 of the authors' program or better, and is sampled faster.
    pub degree_cap: u32,
    /// `forest-fire`: the probability that a burning node sets fire to one more neighbour. Default 0.7, as its authors recommend.
    pub burning: f64,
    /// `cluster`: the part of each node (`V`); where not given, parts are grown.
    pub partition: Option<Arc<[u32]>>,
    /// `cluster`: how many parts to grow where no partition is given. Default 50.
    pub parts: usize,
    /// `cluster`: parts of a subgraph. Default 5.
    pub parts_per_batch: usize,
}

impl Default for SubgraphOptions {
    fn default() -> Self {
        Self {
            budget: 8000,
            walk_length: 2,
            frontier: 1000,
            pop_by: PopBy::default(),
            eta: 2.0,
            degree_cap: 30,
            burning: 0.7,
            partition: None,
            parts: 50,
            parts_per_batch: 5,
        }
    }
}

/// Makes a sampler for a graph and the nodes that it may start from (not none, below `V`; in general the training nodes), or says in one
/// sentence what is wrong with the options. Where `graph` is to be trained on in part only, it is given without the rest's edges.
pub type Make = fn(&Graph, &[NodeId], &SubgraphOptions) -> Result<Box<dyn SubgraphSampler>, String>;

/// The rows of the built-in subgraph samplers in [`crate::sampler::TABLE`].
pub(crate) const ROWS: &[Entry<Make>] = &[
    Entry {
        name: "saint-node",
        summary: "nodes drawn by degree",
        source: "Zeng et al., GraphSAINT, ICLR 2020, section 3.2",
        options: &["batch_size", "inductive", "coverage", "estimator"],
        make: |graph, roots, options| Ok(Box::new(node::Node::new(graph, roots, sized(options)?)?)),
    },
    Entry {
        name: "saint-edge",
        summary: "edges drawn by the inverse degrees of their ends",
        source: "Zeng et al., GraphSAINT, ICLR 2020, section 3.2",
        options: &["batch_size", "inductive", "coverage", "estimator"],
        make: |graph, _, options| Ok(Box::new(edge::Edge::new(graph, sized(options)?)?)),
    },
    Entry {
        name: "saint-rw",
        summary: "uniform random walks from uniform roots",
        source: "Zeng et al., GraphSAINT, ICLR 2020, section 3.2",
        options: &["batch_size", "inductive", "coverage", "estimator", "walk_length"],
        make: |graph, roots, options| {
            Ok(Box::new(random_walk::RandomWalk::new(graph, roots, sized(options)?)?))
        },
    },
    Entry {
        name: "frontier",
        summary: "a random walk of many nodes at once, popped by degree",
        source: "Ribeiro and Towsley, IMC 2010; Zeng et al., JPDC 2021, section 4",
        options: &[
            "batch_size",
            "inductive",
            "coverage",
            "estimator",
            "frontier_size",
            "pop_by",
            "eta",
            "degree_cap",
        ],
        make: |graph, roots, options| Ok(Box::new(frontier::Frontier::new(graph, roots, sized(options)?)?)),
    },
    Entry {
        name: "forest-fire",
        summary: "fires that spread from uniform roots to some of a node's neighbours",
        source: "Leskovec and Faloutsos, KDD 2006, section 3.3",
        options: &["batch_size", "inductive", "coverage", "estimator", "burning"],
        make: |graph, roots, options| {
            Ok(Box::new(forest_fire::ForestFire::new(graph, roots, sized(options)?)?))
        },
    },
    Entry {
        name: "cluster",
        summary: "unions of a partition's parts",
        source: "Chiang et al., Cluster-GCN, KDD 2019, section 3.2",
        options: &["inductive", "coverage", "estimator", "parts", "parts_per_batch"],
        make: |graph, roots, options| Ok(Box::new(cluster::Cluster::new(graph, roots, options)?)),
    },
];

/// The options, unless their subgraphs have no nodes, or more than memory should be lent for.
fn sized(options: &SubgraphOptions) -> Result<&SubgraphOptions, String> {
    match options.budget {
        1..=0x4000_0000 => Ok(options),
        budget => Err(format!("subgraphs of {budget} nodes: give 1 to 2^30")),
    }
}

#[cfg(test)]
mod tests;
