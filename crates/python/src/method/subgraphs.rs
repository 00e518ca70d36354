//! Subgraphs of drawn sets of nodes (GraphSAINT), and the normalization of their nodes and edges.

use graphmill_core::{NodeId, progress::Progress};
use graphmill_loader::{BatchKey, subgraph::SubgraphSampler};
use rayon::prelude::*;

use super::{Method, Scratch, induce};
use crate::{batch::Drawn, topology::Topology};

/// Epoch of the draws that estimate the normalization; no run reaches it.
const COUNTING: u64 = u64::MAX;
/// Subgraphs drawn between two checks of the number of drawn nodes, independent of the threads.
const GROUP: u64 = 32;

/// Method that draws sets of nodes and takes all edges among them.
pub struct Subgraphs {
    sampler: Box<dyn SubgraphSampler>,
    batches: u64,
}

impl Subgraphs {
    /// Draws `batches` subgraphs per epoch.
    pub fn new(sampler: Box<dyn SubgraphSampler>, batches: u64) -> Self {
        Self { sampler, batches }
    }

    /// Estimates the normalization of nodes and edges (GraphSAINT, section 3.2) from as many
    /// subgraphs as have `coverage` x `V` nodes in total. For a node: 1 / (`V` x the fraction of
    /// subgraphs with the node). For an edge, by the user's numbers: subgraphs with its destination
    /// divided by subgraphs with the edge. Counts of 0 become 0.1, and the norm of an edge is at
    /// most 10^4, as in PyG. Parallel; independent of the number of threads.
    ///
    /// # Errors
    /// A subgraph cannot be drawn, or `progress` cancels the work.
    pub fn norms(
        &self,
        topology: &Topology,
        seed: u64,
        coverage: u64,
        progress: &dyn Progress,
    ) -> Result<(Vec<f32>, Vec<f32>), String> {
        let (nodes, edges) = (topology.graph().num_nodes(), topology.graph().num_edges());
        let (mut of_nodes, mut of_edges) = (vec![0u32; nodes], vec![0u32; edges]);
        let (mut drawn, mut seen) = (0, 0);
        let wanted = coverage.saturating_mul(nodes as u64);
        while seen < wanted {
            progress.check().map_err(|e| e.to_string())?;
            let group: Result<Vec<Drawn>, String> = (drawn..drawn + GROUP)
                .into_par_iter()
                .map_init(
                    || Scratch::new(nodes),
                    |scratch, batch| {
                        let mut out = Drawn::default();
                        self.draw(
                            topology,
                            BatchKey { seed, epoch: COUNTING, batch },
                            &[],
                            scratch,
                            &mut out,
                        )?;
                        Ok(out)
                    },
                )
                .collect();
            let before = seen;
            for subgraph in group? {
                if seen >= wanted {
                    break;
                }
                drawn += 1;
                seen += subgraph.nodes.len() as u64;
                subgraph.nodes.iter().for_each(|&v| of_nodes[v as usize] += 1);
                subgraph.edges.iter().for_each(|&e| of_edges[e as usize] += 1);
            }
            if seen == before {
                return Err("the subgraphs have no nodes, so the normalization cannot be estimated".into());
            }
        }
        let times = |count: u32| f64::from(count).max(0.1);
        let node = |&count: &u32| (drawn as f64 / times(count) / nodes as f64) as f32;
        let mut edge_norm = vec![0.0; edges];
        for v in 0..nodes as NodeId {
            let indptr = topology.graph().indptr();
            let mut row: Vec<u64> = (indptr[v as usize]..indptr[v as usize + 1]).collect();
            topology.number(&mut row);
            for e in row {
                edge_norm[e as usize] =
                    (times(of_nodes[v as usize]) / times(of_edges[e as usize])).min(1e4) as f32;
            }
        }
        Ok((of_nodes.iter().map(node).collect(), edge_norm))
    }
}

impl Method for Subgraphs {
    fn draw(
        &self,
        topology: &Topology,
        key: BatchKey,
        _seeds: &[u32],
        scratch: &mut Scratch,
        out: &mut Drawn,
    ) -> Result<(), String> {
        out.clear();
        self.sampler
            .sample(topology.graph(), key, &mut scratch.subgraph, &mut out.nodes)
            .map_err(|e| e.to_string())?;
        induce(topology, scratch, out)
    }

    fn batches(&self) -> Option<u64> {
        Some(self.batches)
    }
}
