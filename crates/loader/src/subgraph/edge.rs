//! Edges drawn with replacement, `p(u, v)` proportional to `1 / deg(u) + 1 / deg(v)` (GraphSAINT,
//! section 3.2; paper 003, Algorithm 5).
//!
//! No table over the edges is needed. A uniform node with neighbours, and a uniform neighbour of
//! it: that draws each edge by `1 / deg` of its first end, and as every undirected edge is stored
//! both ways, the sum over its ends is the distribution (a random walk of one step, as the paper
//! remarks). Where edges are not stored both ways, `deg` is the in-degree of the end that receives
//! and the out-degree of the one that sends: the draw then begins at a receiver or at a sender, in
//! proportion to how many there are of each. A draw is O(1): two reads, one after the other, of
//! which many draws' overlap. The weights of edges are not asked.
//!
//! A node without any edge begins a draw as often as others, and is drawn alone: else it would
//! never train.
//!
//! (PyTorch Geometric's sampler adds the degrees instead of their inverses.)

use graphmill_core::{
    Graph, NodeId, Result,
    keyed::{self, Stream},
    symmetry::is_symmetric,
};
use rayon::prelude::*;

use super::{BatchKey, SubgraphSampler, SubgraphScratch};
use crate::prefetch::prefetch;

/// See the module's text. Memory: 4 bytes a node; where edges are not stored both ways, 8 more and
/// 4 an edge.
#[derive(Clone, Debug)]
pub struct Edge {
    /// Nodes with in-neighbours, and those without any edge; the latter are senders, too.
    receivers: Vec<NodeId>,
    /// Nodes with out-neighbours, and the edges by them; `None` where every edge is stored both
    /// ways.
    sent: Option<(Vec<NodeId>, Graph)>,
    num_nodes: usize,
    edges: usize,
}

impl Edge {
    /// Draws `budget / 2` of the edges of `graph`. O(V + E), parallel where edges are stored both
    /// ways.
    ///
    /// # Errors
    /// The budget is below 2, or there are no edges.
    pub fn new(graph: &Graph, budget: usize) -> Result<Self, String> {
        if budget < 2 {
            return Err(format!("a budget of {budget} nodes: an edge has two, give 2 or more"));
        }
        if graph.num_edges() == 0 {
            return Err(
                "there are no edges among the training nodes: the edge sampler has nothing to draw".into()
            );
        }
        let nodes = || (0..graph.num_nodes() as NodeId).into_par_iter();
        let (receivers, sent) = if is_symmetric(graph, false) {
            (nodes().collect(), None)
        } else {
            let sent = reverse(graph).map_err(|e| e.to_string())?;
            let (receives, sends) = (|v| graph.in_degree(v) > 0, |v| sent.in_degree(v) > 0);
            let receivers = nodes().filter(|&v| receives(v) || !sends(v)).collect();
            let senders = nodes().filter(|&v| sends(v) || !receives(v)).collect();
            (receivers, Some((senders, sent)))
        };
        Ok(Self { receivers, sent, num_nodes: graph.num_nodes(), edges: budget / 2 })
    }

    /// The ends of the drawn edges, two by two, the node that the draw began at first.
    fn draw(&self, graph: &Graph, key: BatchKey, starts: &mut Vec<u64>, nodes: &mut Vec<NodeId>) {
        let mut stream = Stream::new(keyed::key(&[key.seed, key.epoch, key.batch]));
        let receivers = self.receivers.len() as u64;
        let (senders, reversed) = match &self.sent {
            Some((senders, reversed)) => (&senders[..], reversed),
            None => (&[][..], graph),
        };
        // Each loop's reads hang on nothing of their own loop, so they overlap. The words that
        // choose a neighbour wait in `starts`.
        nodes.clear();
        starts.clear();
        for _ in 0..self.edges {
            let first = stream.below(receivers + senders.len() as u64);
            // the side, until the neighbour stands there
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
        let of = |side: NodeId| if side == 0 { graph } else { reversed };
        for (edge, start) in nodes.chunks_exact(2).zip(starts.iter_mut()) {
            let graph = of(edge[1]);
            let row = graph.indptr()[edge[0] as usize];
            let degree = graph.indptr()[edge[0] as usize + 1] - row;
            *start = if degree > 0 {
                row + ((u128::from(*start) * u128::from(degree)) >> 64) as u64
            } else {
                u64::MAX
            };
            prefetch(graph.indices(), *start as usize);
        }
        for (edge, start) in nodes.chunks_exact_mut(2).zip(starts) {
            // a node alone is both ends
            edge[1] = if *start == u64::MAX { edge[0] } else { of(edge[1]).indices()[*start as usize] };
        }
    }
}

/// The same edges the other way, by counting.
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

    fn check(graph: &Graph) {
        let sampler = Edge::new(graph, 1000).unwrap();
        let n = graph.num_nodes();
        let mut sent = vec![0.0; n];
        graph.indices().iter().for_each(|&u| sent[u as usize] += 1.0);
        let mut weights = vec![0.0; n * n];
        for v in 0..n {
            for &u in graph.in_neighbors(v as u32) {
                let weight = 1.0 / graph.in_degree(v as u32) as f64 + 1.0 / sent[u as usize];
                // an edge and its reverse are one kind, as they are one pair
                weights[v.min(u as usize) * n + v.max(u as usize)] += weight;
            }
            if graph.in_degree(v as u32) == 0 && sent[v] == 0.0 {
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
    fn edges_come_by_the_inverse_degrees_of_their_ends() {
        let undirected = graph_of(&[&[1, 2, 3, 4], &[0, 2], &[0, 1, 3], &[0, 2], &[0], &[], &[]]);
        assert!(is_symmetric(&undirected, false));
        check(&undirected);
        let directed = graph_of(&[&[1, 2, 3, 4], &[2, 2], &[3], &[], &[4], &[], &[]]);
        assert!(!is_symmetric(&directed, false));
        check(&directed);
    }

    #[test]
    fn graphs_without_edges_are_refused() {
        assert!(Edge::new(&graph_of(&[&[], &[]]), 8000).unwrap_err().contains("no edges"));
        assert!(Edge::new(&graph_of(&[&[0]]), 1).unwrap_err().contains("budget of 1"));
    }
}
