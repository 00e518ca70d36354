//! Uniform random walks (GraphSAINT, section 3.2; paper 003, Algorithm 5): `budget / walk_length`
//! roots, drawn uniformly with replacement, walk `walk_length` steps each to a uniform neighbour;
//! the subgraph has the roots and all that was met.
//!
//! A walk that meets a node without neighbours ends there. All walks take a step before any takes
//! the next, so that their reads overlap. As in the authors' program an epoch counts the steps'
//! nodes only: a subgraph may have `roots` more than its budget.

use graphmill_core::{
    Graph, NodeId, Result,
    keyed::{self, Stream},
};

use super::{BatchKey, SubgraphSampler, SubgraphScratch, check_roots};
use crate::prefetch::prefetch;

/// Steps of a walk, unless `--walk-length` gives another number.
pub const LENGTH: usize = 2;

/// See the module's text. Memory: 4 bytes a root.
#[derive(Clone, Debug)]
pub struct RandomWalk {
    roots: Vec<NodeId>,
    num_nodes: usize,
    walks: usize,
    length: usize,
}

impl RandomWalk {
    /// From `roots` (below `V`).
    ///
    /// # Errors
    /// There are no roots, no steps, or fewer nodes in the budget than steps in a walk.
    pub fn new(graph: &Graph, roots: &[NodeId], budget: usize, length: usize) -> Result<Self, String> {
        check_roots(graph, roots)?;
        if length == 0 || length > budget {
            return Err(format!(
                "walks of {length} steps in subgraphs of {budget} nodes: give 1 to {budget} steps"
            ));
        }
        Ok(Self { roots: roots.to_vec(), num_nodes: graph.num_nodes(), walks: budget / length, length })
    }

    /// The roots, then where every walk is after one step, and so on.
    fn walk(&self, graph: &Graph, key: BatchKey, starts: &mut Vec<u64>, nodes: &mut Vec<NodeId>) {
        let (rows, neighbors) = (graph.indptr(), graph.indices());
        let mut stream = Stream::new(keyed::key(&[key.seed, key.epoch, key.batch]));
        nodes.clear();
        nodes.extend((0..self.walks).map(|_| self.roots[stream.below(self.roots.len() as u64) as usize]));
        for _ in 0..self.length {
            let last = nodes.len() - self.walks;
            starts.clear();
            nodes[last..].iter().for_each(|&v| prefetch(rows, v as usize));
            for &v in &nodes[last..] {
                let (start, end) = (rows[v as usize], rows[v as usize + 1]);
                let next = start + stream.below(end - start);
                prefetch(neighbors, next as usize);
                starts.push(if start == end { STUCK } else { next });
            }
            for (i, &start) in starts.iter().enumerate() {
                let stay = nodes[last + i];
                nodes.push(if start == STUCK { stay } else { neighbors[start as usize] });
            }
        }
    }
}

/// In the place of an edge: there is none.
const STUCK: u64 = u64::MAX;

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
    fn steps_are_uniform_and_walks_end_where_they_must() {
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
        // steps depend on one another: each by itself
        for step in 0..4 {
            fits(&counts[step * 6..][..6], &weights[step * 6..][..6]);
        }
    }

    #[test]
    fn wrong_lengths_are_refused() {
        let graph = graph_of(&[&[0]]);
        for length in [0, 11] {
            assert!(RandomWalk::new(&graph, &[0], 10, length).unwrap_err().contains("1 to 10 steps"));
        }
    }
}
