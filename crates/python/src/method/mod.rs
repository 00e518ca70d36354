//! From seeds to nodes and edges.

pub mod bidirectional;
pub mod draw;
pub mod ego;
pub mod neighbors;
pub mod subgraphs;

use graphmill_core::{Block, block::Induce};
use graphmill_loader::{BatchKey, Relabel, sampler::HopScratch, subgraph};
use rustc_hash::FxHashMap;

use crate::{batch::Drawn, topology::Topology};

/// Draws a minibatch.
pub trait Method: Send + Sync {
    /// Overwrites `out` by what is drawn for `seeds` (each below `V`): a function of the topology,
    /// the key and the seeds alone.
    ///
    /// # Errors
    /// There are more edges than fit.
    fn draw(
        &self,
        topology: &Topology,
        key: BatchKey,
        seeds: &[u32],
        room: &mut Room,
        out: &mut Drawn,
    ) -> Result<(), String>;

    /// How many batches an epoch has, where it picks its nodes by itself and there are no seeds.
    fn batches(&self) -> Option<u64> {
        None
    }
}

/// Memory that a thread lends to a method and gets back.
pub struct Room {
    relabel: Relabel,
    scratch: HopScratch,
    induce: Induce,
    block: Block,
    subgraph: subgraph::SubgraphScratch,
    draw: draw::Room,
    indptr: Vec<u32>,
    offsets: Vec<u32>,
    ids: Vec<u32>,
    /// Places of nodes by tree and id.
    places: FxHashMap<u64, u32>,
}

impl Room {
    /// For a graph of `num_nodes` nodes.
    pub fn new(num_nodes: usize) -> Self {
        Self {
            relabel: Relabel::new(num_nodes),
            scratch: HopScratch::default(),
            induce: Induce::default(),
            block: Block::default(),
            subgraph: subgraph::SubgraphScratch::default(),
            draw: draw::Room::default(),
            indptr: Vec::new(),
            offsets: Vec::new(),
            ids: Vec::new(),
            places: FxHashMap::default(),
        }
    }
}

/// Overwrites the edges of `out` by all those among its nodes, which are distinct: destination
/// after destination, sources in the graph's order. O(in-degrees of the nodes).
fn induce(topology: &Topology, room: &mut Room, out: &mut Drawn) -> Result<(), String> {
    let Drawn { nodes, src, dst, edges, .. } = out;
    let Room { induce, block, .. } = room;
    edges.clear();
    induce.block(topology.graph(), nodes, block, |place| edges.push(place)).map_err(|e| e.to_string())?;
    topology.number(edges);
    src.clear();
    src.extend_from_slice(&block.indices);
    dst.clear();
    for (v, ends) in (0..).zip(block.indptr.windows(2)) {
        dst.resize(ends[1] as usize, v);
    }
    Ok(())
}
