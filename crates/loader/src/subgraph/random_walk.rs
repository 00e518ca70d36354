//! Uniform random walks from uniform roots (GraphSAINT's walk sampler).
//!
//! # Algorithm
//!
//! `budget / walk_length` roots, drawn uniformly with replacement, walk `walk_length` steps each to
//! a uniform neighbour; the subgraph has the roots and all visited nodes. A walk ends at a node
//! without neighbours. All walks take a step before any takes the next, so that their reads
//! overlap.
//!
//! # Source
//!
//! Zeng et al., *GraphSAINT: graph sampling based inductive learning method*, ICLR 2020, section
//! 3.2; Zeng et al., *Accurate, efficient and scalable training of graph neural networks*, JPDC
//! 2021, algorithm 5.
//!
//! # Cost
//!
//! O(1) per step.
//!
//! # Memory
//!
//! 4 bytes per root.
//!
//! # Deviations
//!
//! None. As in the authors' program, an epoch counts only the nodes of steps, so a subgraph may
//! exceed its budget by the number of roots.

use graphmill_core::{
    Graph, NodeId, Result,
    keyed::{self, Stream},
    memory,
};

use super::{BatchKey, SubgraphSampler, SubgraphScratch, check_roots};
use crate::prefetch::prefetch;

/// Default number of steps of a walk, unless `--walk-length` sets it.
pub const LENGTH: usize = 2;

/// Draws the nodes that random walks visit. Memory: 4 bytes per root.
#[derive(Clone, Debug)]
pub struct RandomWalk {
    roots: Vec<NodeId>,
    num_nodes: usize,
    walks: usize,
    length: usize,
}

impl RandomWalk {
    /// Creates a sampler with walks from `roots` (below `V`).
    ///
    /// # Errors
    /// There are no roots, or the walk length is 0 or above the budget.
    pub fn new(graph: &Graph, roots: &[NodeId], budget: usize, length: usize) -> Result<Self, String> {
        check_roots(graph, roots)?;
        if length == 0 || length > budget {
            return Err(format!(
                "walks of {length} steps do not fit in subgraphs of {budget} nodes; use 1 to {budget} steps"
            ));
        }
        Ok(Self { roots: roots.to_vec(), num_nodes: graph.num_nodes(), walks: budget / length, length })
    }

    /// Writes the roots, then the nodes of all walks after one step, and so on.
    fn walk(&self, graph: &Graph, key: BatchKey, starts: &mut Vec<u64>, nodes: &mut Vec<NodeId>) {
        let (rows, neighbors) = (graph.indptr(), graph.indices());
        let mut stream = Stream::new(keyed::key(&[key.seed, key.epoch, key.batch]));
        nodes.clear();
        memory::demand(nodes, self.walks * (self.length + 1));
        nodes.extend((0..self.walks).map(|_| self.roots[stream.below(self.roots.len() as u64) as usize]));
        for _ in 0..self.length {
            let last = nodes.len() - self.walks;
            starts.clear();
            memory::demand(starts, self.walks);
            nodes[last..].iter().for_each(|&v| prefetch(rows, v as usize));
            for &v in &nodes[last..] {
                let (start, end) = (rows[v as usize], rows[v as usize + 1]);
                let next = start + stream.below(end - start);
                prefetch(neighbors, next as usize);
                starts.push(if start == end { DEAD_END } else { next });
            }
            for (i, &start) in starts.iter().enumerate() {
                let stay = nodes[last + i];
                nodes.push(if start == DEAD_END { stay } else { neighbors[start as usize] });
            }
        }
    }
}

/// Marks a walk at a node without neighbours, instead of the position of an edge.
const DEAD_END: u64 = u64::MAX;

impl SubgraphSampler for RandomWalk {
    fn budget(&self) -> usize {
        self.walks * self.length
    }

    fn sample(
        &self,
        graph: &Graph,
        key: BatchKey,
        scratch: &mut SubgraphScratch,
        nodes: &mut Vec<NodeId>,
    ) -> Result<()> {
        scratch.start(graph, self.num_nodes)?;
        self.walk(graph, key, &mut scratch.starts, nodes);
        scratch.visited.distinct(nodes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subgraph::testing::{fits, graph_of};

    #[test]
    fn steps_are_uniform_and_walks_end_at_dead_ends() {
        let graph = graph_of(&[&[1, 2, 3, 4], &[0, 2], &[0, 1, 3], &[0, 2], &[], &[]]);
        let sampler = RandomWalk::new(&graph, &[0, 1, 5], 30_000, 3).unwrap();
        let (mut starts, mut nodes) = (Vec::new(), Vec::new());
        let (mut counts, mut weights) = (vec![0; 4 * 6], vec![0.0; 4 * 6]);
        for batch in 0..10 {
            sampler.walk(&graph, BatchKey { seed: 0, epoch: 0, batch }, &mut starts, &mut nodes);
            assert_eq!(nodes.len(), 40_000);
            nodes.iter().enumerate().for_each(|(i, &v)| counts[i / 10_000 * 6 + v as usize] += 1);
        }
        for root in [0, 1, 5] {
            weights[root] = 1.0 / 3.0;
        }
        for step in 0..3 {
            for v in 0..6 {
                let row = graph.in_neighbors(v as u32);
                if row.is_empty() {
                    weights[step * 6 + 6 + v] += weights[step * 6 + v];
                }
                for &u in row {
                    weights[step * 6 + 6 + u as usize] += weights[step * 6 + v] / row.len() as f64;
                }
            }
        }
        // steps depend on one another, so each is tested alone
        for step in 0..4 {
            fits(&counts[step * 6..][..6], &weights[step * 6..][..6]);
        }
    }

    #[test]
    fn invalid_lengths_are_rejected() {
        let graph = graph_of(&[&[0]]);
        for length in [0, 11] {
            assert!(RandomWalk::new(&graph, &[0], 10, length).unwrap_err().contains("1 to 10 steps"));
        }
    }
}
