//! Edges drawn with replacement by the inverse degrees of their ends (GraphSAINT's edge sampler).
//!
//! # Algorithm
//!
//! The probability `p(u, v)` of an edge is proportional to `1 / deg(u) + 1 / deg(v)`. A draw takes
//! a uniform node with neighbours, and a uniform neighbour of it. That draws each edge by `1 / deg`
//! of its first end, and because every undirected edge is stored both ways, the sum over its ends
//! is the distribution (a random walk of one step, as the paper remarks). If edges are not stored
//! both ways, `deg` is the in-degree of the receiving end and the out-degree of the sending end:
//! the draw begins at a receiver or at a sender, in proportion to their numbers. Edge weights are
//! ignored.
//!
//! A root without edges begins a draw as often as others and is drawn alone, because otherwise it
//! would never train. Other nodes without edges are not drawn: they pass no messages. The graph of
//! a rank has the nodes of other ranks as such nodes.
//!
//! # Source
//!
//! Zeng et al., *GraphSAINT: graph sampling based inductive learning method*, ICLR 2020, section
//! 3.2; Zeng et al., *Accurate, efficient and scalable training of graph neural networks*, JPDC
//! 2021, algorithm 5.
//!
//! # Cost
//!
//! O(1) per draw: two dependent reads, which overlap with those of other draws.
//!
//! # Memory
//!
//! 4 bytes per node, without a table over the edges; if edges are not stored both ways, 8 more and
//! 4 per edge.
//!
//! # Deviations
//!
//! None. PyTorch Geometric's sampler adds the degrees instead of their inverses.

use graphmill_core::{
    Graph, NodeId, Result,
    keyed::{self, Stream},
    memory,
    symmetry::is_symmetric,
};
use rayon::prelude::*;

use super::{BatchKey, SubgraphSampler, SubgraphScratch};
use crate::prefetch::prefetch;

/// Draws edges by the inverse degrees of their ends.
///
/// Memory: 4 bytes per node; if edges are not stored both ways, 8 more and 4 per edge.
#[derive(Clone, Debug)]
pub struct Edge {
    /// Nodes with in-neighbours, and roots without any edge, which are senders as well.
    receivers: Vec<NodeId>,
    /// Nodes with out-neighbours, and the reversed graph; `None` if every edge is stored both ways.
    sent: Option<(Vec<NodeId>, Graph)>,
    num_nodes: usize,
    edges: usize,
}

impl Edge {
    /// Draws `budget / 2` of the edges of `graph`, and of the `roots` (below `V`) without edges.
    /// O(V + E), parallel if edges are stored both ways.
    ///
    /// # Errors
    /// The budget is below 2, or there are no edges.
    pub fn new(graph: &Graph, roots: &[NodeId], budget: usize) -> Result<Self, String> {
        if budget < 2 {
            return Err(format!("a budget of {budget} nodes holds no edge; use 2 or more"));
        }
        if graph.num_edges() == 0 {
            return Err(
                "there are no edges among the training nodes; use --sampler saint-node, or no --inductive"
                    .into(),
            );
        }
        let mut is_root = vec![false; graph.num_nodes()];
        if let Some(v) = roots.iter().find(|&&v| v as usize >= graph.num_nodes()) {
            return Err(format!("cannot start from node {v}: the graph has {} nodes", graph.num_nodes()));
        }
        roots.iter().for_each(|&v| is_root[v as usize] = true);
        let is_root = |v: NodeId| is_root[v as usize];
        let nodes = || (0..graph.num_nodes() as NodeId).into_par_iter();
        let (receivers, sent) = if is_symmetric(graph, false) {
            (nodes().filter(|&v| graph.in_degree(v) > 0 || is_root(v)).collect(), None)
        } else {
            let sent = reverse(graph).map_err(|e| e.to_string())?;
            let (receives, sends) = (|v| graph.in_degree(v) > 0, |v| sent.in_degree(v) > 0);
            let receivers = nodes().filter(|&v| receives(v) || !sends(v) && is_root(v)).collect();
            let senders = nodes().filter(|&v| sends(v) || !receives(v) && is_root(v)).collect();
            (receivers, Some((senders, sent)))
        };
        Ok(Self { receivers, sent, num_nodes: graph.num_nodes(), edges: budget / 2 })
    }

    /// Writes the ends of the drawn edges to `nodes`, in pairs that begin with the draw's first
    /// node.
    fn draw(&self, graph: &Graph, key: BatchKey, starts: &mut Vec<u64>, nodes: &mut Vec<NodeId>) {
        let mut stream = Stream::new(keyed::key(&[key.seed, key.epoch, key.batch]));
        let receivers = self.receivers.len() as u64;
        let (senders, reversed) = match &self.sent {
            Some((senders, reversed)) => (&senders[..], reversed),
            None => (&[][..], graph),
        };
        // The reads of each loop are independent of one another, so they overlap. `starts` keeps
        // the random words that choose a neighbour.
        nodes.clear();
        starts.clear();
        memory::demand(nodes, 2 * self.edges);
        memory::demand(starts, self.edges);
        for _ in 0..self.edges {
            let first = stream.below(receivers + senders.len() as u64);
            // the side of the draw, until the neighbour replaces it
            let side = NodeId::from(first >= receivers);
            let node = if side == 0 {
                self.receivers[first as usize]
            } else {
                senders[(first - receivers) as usize]
            };
            prefetch(if side == 0 { graph.indptr() } else { reversed.indptr() }, node as usize);
            nodes.extend([node, side]);
            starts.push(stream.next_u64());
        }
        let graph_of = |side: NodeId| if side == 0 { graph } else { reversed };
        for (edge, start) in nodes.chunks_exact(2).zip(starts.iter_mut()) {
            let graph = graph_of(edge[1]);
            let row = graph.indptr()[edge[0] as usize];
            let degree = graph.indptr()[edge[0] as usize + 1] - row;
            *start = if degree > 0 { row + keyed::scaled(*start, degree) } else { u64::MAX };
            prefetch(graph.indices(), *start as usize);
        }
        for (edge, start) in nodes.chunks_exact_mut(2).zip(starts) {
            // a node without edges is both ends
            edge[1] = if *start == u64::MAX { edge[0] } else { graph_of(edge[1]).indices()[*start as usize] };
        }
    }
}

/// Reverses all edges, by counting.
fn reverse(graph: &Graph) -> Result<Graph> {
    let mut ends = vec![0u64; graph.num_nodes() + 1];
    for &u in graph.indices() {
        ends[u as usize + 1] += 1;
    }
    for v in 0..graph.num_nodes() {
        ends[v + 1] += ends[v];
    }
    let mut next = ends.clone();
    let mut indices = vec![0; graph.num_edges()];
    for v in 0..graph.num_nodes() as NodeId {
        for &u in graph.in_neighbors(v) {
            indices[next[u as usize] as usize] = v;
            next[u as usize] += 1;
        }
    }
    Graph::new(ends.into(), indices.into())
}

impl SubgraphSampler for Edge {
    fn budget(&self) -> usize {
        2 * self.edges
    }

    fn sample(
        &self,
        graph: &Graph,
        key: BatchKey,
        scratch: &mut SubgraphScratch,
        nodes: &mut Vec<NodeId>,
    ) -> Result<()> {
        scratch.start(graph, self.num_nodes)?;
        self.draw(graph, key, &mut scratch.starts, nodes);
        scratch.visited.distinct(nodes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subgraph::testing::{fits, graph_of};

    fn check(graph: &Graph, roots: &[NodeId]) {
        let sampler = Edge::new(graph, roots, 1000).unwrap();
        let n = graph.num_nodes();
        let mut sent = vec![0.0; n];
        graph.indices().iter().for_each(|&u| sent[u as usize] += 1.0);
        let mut weights = vec![0.0; n * n];
        for v in 0..n {
            for &u in graph.in_neighbors(v as u32) {
                let weight = 1.0 / graph.in_degree(v as u32) as f64 + 1.0 / sent[u as usize];
                // an edge and its reverse are counted together
                weights[v.min(u as usize) * n + v.max(u as usize)] += weight;
            }
            if graph.in_degree(v as u32) == 0 && sent[v] == 0.0 && roots.contains(&(v as u32)) {
                weights[v * n + v] += 2.0;
            }
        }
        let mut counts = vec![0; n * n];
        let (mut starts, mut nodes) = (Vec::new(), Vec::new());
        for batch in 0..200 {
            sampler.draw(graph, BatchKey { seed: 1, epoch: 2, batch }, &mut starts, &mut nodes);
            for edge in nodes.chunks_exact(2) {
                counts[edge[0].min(edge[1]) as usize * n + edge[0].max(edge[1]) as usize] += 1;
            }
        }
        fits(&counts, &weights);
    }

    #[test]
    fn edges_are_drawn_by_the_inverse_degrees_of_their_ends() {
        let undirected = graph_of(&[&[1, 2, 3, 4], &[0, 2], &[0, 1, 3], &[0, 2], &[0], &[], &[]]);
        assert!(is_symmetric(&undirected, false));
        check(&undirected, &[0, 1, 2, 3, 4, 5, 6]);
        // a node without edges is drawn if it is a root; no other node needs to be one
        check(&undirected, &[0, 6]);
        let directed = graph_of(&[&[1, 2, 3, 4], &[2, 2], &[3], &[], &[4], &[], &[]]);
        assert!(!is_symmetric(&directed, false));
        check(&directed, &[0, 1, 2, 3, 4, 5, 6]);
        check(&directed, &[5]);
    }

    #[test]
    fn graphs_without_edges_are_rejected() {
        assert!(Edge::new(&graph_of(&[&[], &[]]), &[0], 8000).unwrap_err().contains("no edges"));
        assert!(Edge::new(&graph_of(&[&[0]]), &[0], 1).unwrap_err().contains("budget of 1"));
    }
}
