//! Subgraphs of drawn sets of nodes (GraphSAINT), and how often each node and edge is in one.

use graphmill_core::{NodeId, progress::Progress};
use graphmill_loader::{BatchKey, subgraph::SubgraphSampler};
use rayon::prelude::*;

use super::{Method, Room, induce};
use crate::{batch::Drawn, topology::Topology};

/// The epoch that counting draws in: no run comes that far.
const COUNTING: u64 = u64::MAX;
/// Subgraphs drawn between two looks at how many nodes have come up: the same for any number of
/// threads.
const GROUP: u64 = 32;

/// Draws sets of nodes and takes all edges among them.
pub struct Subgraphs {
    sampler: Box<dyn SubgraphSampler>,
    batches: u64,
}

impl Subgraphs {
    /// `batches` of them an epoch.
    pub fn new(sampler: Box<dyn SubgraphSampler>, batches: u64) -> Self {
        Self { sampler, batches }
    }

    /// How subgraphs stand for the graph (GraphSAINT, section 3.2), from as many as hold `coverage`
    /// times `V` nodes: of every node 1 / (`V` x the share of subgraphs that it is in), and of
    /// every edge, by the user's numbers, how often its destination was in a subgraph for each time
    /// that it was. What never came up counts as a tenth of a time, and no edge weighs more than
    /// 10^4, as in PyG. Parallel; the same numbers for any number of threads.
    ///
    /// # Errors
    /// A subgraph cannot be drawn, or `progress` ends the work.
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
                    || Room::new(nodes),
                    |room, batch| {
                        let mut out = Drawn::default();
                        self.draw(topology, BatchKey { seed, epoch: COUNTING, batch }, &[], room, &mut out)?;
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
                return Err("subgraphs have no nodes: there is nothing to count".into());
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
        room: &mut Room,
        out: &mut Drawn,
    ) -> Result<(), String> {
        out.clear();
        self.sampler
            .sample(topology.graph(), key, &mut room.subgraph, &mut out.nodes)
            .map_err(|e| e.to_string())?;
        induce(topology, room, out)
    }

    fn batches(&self) -> Option<u64> {
        Some(self.batches)
    }
}
