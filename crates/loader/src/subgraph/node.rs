//! Nodes drawn by degree (GraphSAINT's node sampler).
//!
//! # Algorithm
//!
//! `budget` draws with replacement, with `p(v)` proportional to the degree; the subgraph has the
//! distinct nodes among them. A node without neighbours counts as one of degree 1, because
//! otherwise it would never train.
//!
//! # Source
//!
//! Zeng et al., *GraphSAINT: graph sampling based inductive learning method*, ICLR 2020, section
//! 3.2; the probability is that of the authors' program.
//!
//! # Cost
//!
//! O(1) per draw, from an alias table.
//!
//! # Memory
//!
//! 12 bytes per root.

use graphmill_core::{
    Graph, NodeId, Result,
    alias::Alias,
    keyed::{self, Stream},
    memory,
};
use rayon::prelude::*;

use super::{BatchKey, SubgraphSampler, SubgraphScratch, check_roots};

/// Draws nodes by degree. Memory: 12 bytes per root.
#[derive(Clone, Debug)]
pub struct Node {
    roots: Vec<NodeId>,
    table: Alias,
    num_nodes: usize,
    budget: usize,
}

impl Node {
    /// Draws among `roots` (below `V`) by their degree in `graph`. O(roots), parallel.
    ///
    /// # Errors
    /// There are no roots.
    pub fn new(graph: &Graph, roots: &[NodeId], budget: usize) -> Result<Self, String> {
        check_roots(graph, roots)?;
        let degrees: Vec<f64> = roots.par_iter().map(|&v| graph.in_degree(v).max(1) as f64).collect();
        let table = Alias::new(&degrees)
            .map_err(|e| format!("cannot draw nodes by their degree among the training nodes: {e}"))?;
        Ok(Self { roots: roots.to_vec(), table, num_nodes: graph.num_nodes(), budget })
    }
}

impl SubgraphSampler for Node {
    fn budget(&self) -> usize {
        self.budget
    }

    fn sample(
        &self,
        graph: &Graph,
        key: BatchKey,
        scratch: &mut SubgraphScratch,
        nodes: &mut Vec<NodeId>,
    ) -> Result<()> {
        scratch.start(graph, self.num_nodes)?;
        let mut stream = Stream::new(keyed::key(&[key.seed, key.epoch, key.batch]));
        nodes.clear();
        memory::demand_extend(nodes, (0..self.budget).map(|_| self.table.draw(&mut stream)));
        nodes.iter_mut().for_each(|i| *i = self.roots[*i as usize]);
        scratch.visited.distinct(nodes);
        Ok(())
    }
}
