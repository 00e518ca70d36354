//! Neighbour sampling that names the drawn edges, for layers that read a feature row of each.

use graphmill_core::{Error, Result, memory};

use super::{BatchRequest, EdgeSampler, HopRequest, HopSampler, Workspace, neighbor::Neighbor};
use crate::{Fanout, Sampled, Seeds};

/// Uniform neighbour sampling with the positions of the drawn edges.
///
/// It draws the blocks of a [`HopStack`](super::HopStack) over
/// [`Neighbor`](super::neighbor::Neighbor). A hop is drawn on the calling thread.
///
/// ```
/// use graphmill_core::Graph;
/// use graphmill_loader::{BatchKey, Seeds, Workspace, sampler::{BatchRequest, EdgeNeighbors}};
///
/// let graph = Graph::new(vec![0, 0, 2, 3].into(), vec![0, 2, 1].into())?;
/// let sampler = EdgeNeighbors::new([-1]).expect("one hop");
/// let request = BatchRequest::new(&graph, BatchKey { seed: 1, epoch: 0, batch: 0 });
/// let batch = sampler.sample(&request, &mut Workspace::new(3), Seeds::new(0, [2, 1]))?;
/// // the edge of node 2 is the last of the graph
/// assert_eq!(batch.edges, [[2, 0, 1]]);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct EdgeNeighbors(Neighbor);

/// A minibatch with the positions of its edges.
#[derive(Debug)]
pub struct EdgeSampled {
    /// Seeds, blocks and input nodes.
    pub sampled: Sampled,
    /// Position in the graph of each edge, a list for each block, in the order of its edges.
    pub edges: Vec<Vec<u64>>,
}

impl EdgeNeighbors {
    /// Draws `fanout[h]` neighbours per node at hop `h` from the seeds; -1 takes all.
    ///
    /// # Errors
    /// There are no hops or more than 64, or a fanout is neither -1 nor positive.
    pub fn new(fanout: impl Into<Fanout>) -> Result<Self, String> {
        Neighbor::new(fanout).map(Self)
    }

    /// Draws the blocks around the seeds. A pure function of the request and the seeds.
    ///
    /// # Errors
    /// The request asks for a global block or symmetric weights, or a block would have more edges
    /// than 32-bit positions can number.
    pub fn sample(
        &self,
        request: &BatchRequest,
        workspace: &mut Workspace,
        seeds: Seeds,
    ) -> Result<EdgeSampled> {
        let &BatchRequest { graph, key, layout } = request;
        if layout.fused || layout.symmetric.is_some() {
            return Err(Error::invalid(
                "sampling with the positions of edges: global blocks and symmetric weights are not \
                 supported; use local blocks without weights, or the neighbor sampler",
            ));
        }
        let layers = self.0.num_layers();
        let mut batch = seeds.into_sampled(layers);
        let Sampled { seeds, blocks, input_nodes: nodes, .. } = &mut batch;
        memory::demand_append(nodes, &seeds.nodes);
        workspace.relabel.start(nodes);
        let mut edges = vec![Vec::new(); layers];
        let mut new = Vec::new();
        for hop in 0..layers {
            let at = layers - 1 - hop;
            let block = &mut blocks[at];
            block.clear();
            block.num_dst = nodes.len();
            let excluded = seeds.excluded();
            let draw = HopRequest { excluded, ..HopRequest::new(graph, hop, nodes, key) };
            self.0.sample_hop_edges(&draw, &mut workspace.hop, block, &mut edges[at])?;
            new.clear();
            workspace.relabel.relabel(&mut block.indices, nodes, &mut new);
            memory::demand_append(nodes, &new);
            block.num_src = nodes.len();
            if layout.transposed >> at & 1 == 1 {
                workspace.transpose(&mut blocks[at]);
            }
        }
        Ok(EdgeSampled { sampled: batch, edges })
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::keyed::{Stream, key};

    use super::*;
    use crate::{
        BatchKey, MinibatchSampler,
        sampler::{BlockLayout, HopStack, neighbor::Neighbor},
        subgraph::testing::graph_of,
    };

    #[test]
    fn blocks_are_those_of_neighbour_sampling_and_edges_name_their_sources() {
        let mut stream = Stream::new(key(&[1]));
        let rows: Vec<Vec<u32>> =
            (0..60).map(|v| (0..v % 13).map(|_| stream.below(60) as u32).collect()).collect();
        let graph = graph_of(&rows.iter().map(|row| &row[..]).collect::<Vec<_>>());
        let key = BatchKey { seed: 2, epoch: 1, batch: 3 };
        let layout = BlockLayout { transposed: 3, ..BlockLayout::default() };
        let request = BatchRequest::new(&graph, key).with_layout(layout);
        for fanout in [[4, 3], [-1, 2]] {
            let seeds = || Seeds::new(0, [50, 3, 12, 40]);
            let found = EdgeNeighbors::new(fanout)
                .unwrap()
                .sample(&request, &mut Workspace::new(60), seeds())
                .unwrap();
            let plain = HopStack::new(Neighbor::new(fanout).unwrap());
            let plain = plain.sample(&request, &mut Workspace::new(60), seeds()).unwrap();
            assert_eq!(found.sampled.input_nodes, plain.input_nodes);
            for ((a, b), edges) in found.sampled.blocks.iter().zip(&plain.blocks).zip(&found.edges) {
                assert_eq!((&a.indptr, &a.indices), (&b.indptr, &b.indices));
                assert_eq!(a.transposed.edge, b.transposed.edge);
                for v in 0..a.num_dst {
                    let row = graph.indptr()[found.sampled.input_nodes[v] as usize]..;
                    for e in a.edges(v) {
                        assert!(row.contains(&edges[e]));
                        let source = found.sampled.input_nodes[a.indices[e] as usize];
                        assert_eq!(graph.indices()[edges[e] as usize], source);
                    }
                }
            }
        }
        let fused = request.with_layout(BlockLayout { fused: true, ..layout });
        let sampler = EdgeNeighbors::new([1]).unwrap();
        let error = sampler.sample(&fused, &mut Workspace::new(60), Seeds::new(0, [1])).unwrap_err();
        assert!(error.to_string().contains("use local blocks without weights"));
    }
}
