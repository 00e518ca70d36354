//! Methods that draw the nodes and edges of a minibatch from its seeds.

#![forbid(unsafe_code)]

pub mod bidirectional;
pub mod draw;
pub mod ego;
pub mod neighbors;
pub mod subgraphs;
pub mod times;

use graphmill_core::{Block, block::Induce};
use graphmill_loader::{BatchKey, Relabel, sampler::HopScratch, subgraph};
use rustc_hash::FxHashMap;

use crate::{batch::Drawn, topology::Topology};

/// Method of drawing minibatches.
pub trait Method: Send + Sync {
    /// Draws the nodes and edges for `seeds` (each below `V`) into `out`, which is overwritten. The
    /// result is a function of the topology, the key, the seeds and their times
    /// ([`Scratch::seed_times`]) alone.
    ///
    /// # Errors
    /// The batch has 2^32 edges or more.
    fn draw(
        &self,
        topology: &Topology,
        key: BatchKey,
        seeds: &[u32],
        scratch: &mut Scratch,
        out: &mut Drawn,
    ) -> Result<(), String>;

    /// Number of batches in an epoch, if the method chooses nodes itself instead of taking seeds.
    fn batches(&self) -> Option<u64> {
        None
    }
}

/// Nodes in ascending order, which [`Induce`] takes.
#[derive(Default)]
struct Ascending {
    nodes: Vec<u32>,
    /// Position of each in the given order.
    given: Vec<u32>,
    /// Place of each given node in this order.
    place: Vec<u32>,
    /// Positions of the edges in the graph.
    edges: Vec<u64>,
}

impl Ascending {
    /// Replaces the nodes.
    fn set(&mut self, nodes: &[u32]) {
        self.given.clear();
        self.given.extend(0..nodes.len() as u32);
        self.given.sort_unstable_by_key(|&i| nodes[i as usize]);
        self.nodes.clear();
        self.nodes.extend(self.given.iter().map(|&i| nodes[i as usize]));
        self.place.resize(nodes.len(), 0);
        (0..).zip(&self.given).for_each(|(place, &i)| self.place[i as usize] = place);
        self.edges.clear();
    }
}

/// Scratch buffers of a method, one set per thread.
pub struct Scratch {
    relabel: Relabel,
    hop: HopScratch,
    induce: Induce,
    block: Block,
    ascending: Ascending,
    subgraph: subgraph::SubgraphScratch,
    draw: draw::Scratch,
    indptr: Vec<u32>,
    offsets: Vec<u32>,
    ids: Vec<u32>,
    /// Positions of nodes by tree (upper 32 bits) and id.
    places: FxHashMap<u64, u32>,
    /// Time of each seed, of inputs that have times.
    pub seed_times: Vec<i64>,
}

impl Scratch {
    /// Creates buffers for a graph of `num_nodes` nodes.
    pub fn new(num_nodes: usize) -> Self {
        Self {
            relabel: Relabel::new(num_nodes),
            hop: HopScratch::default(),
            induce: Induce::default(),
            block: Block::default(),
            ascending: Ascending::default(),
            subgraph: subgraph::SubgraphScratch::default(),
            draw: draw::Scratch::default(),
            indptr: Vec::new(),
            offsets: Vec::new(),
            ids: Vec::new(),
            places: FxHashMap::default(),
            seed_times: Vec::new(),
        }
    }
}

/// Replaces the edges of `out` by all edges among its nodes, which are distinct: destination by
/// destination, sources in the graph's order. O(sum of the nodes' in-degrees).
fn induce(topology: &Topology, scratch: &mut Scratch, out: &mut Drawn) -> Result<(), String> {
    let Drawn { nodes, src, dst, edges, .. } = out;
    let Scratch { induce, block, ascending, .. } = scratch;
    ascending.set(nodes);
    let Ascending { nodes: sorted, given, place, edges: found } = ascending;
    let see = |position: u64| found.push(position);
    induce.block(topology.graph(), sorted, block, see).map_err(|e| e.to_string())?;
    edges.clear();
    src.clear();
    dst.clear();
    for (v, &at) in (0..).zip(&*place) {
        for e in block.edges(at as usize) {
            src.push(given[block.indices[e] as usize]);
            dst.push(v);
            edges.push(found[e]);
        }
    }
    topology.number(edges);
    Ok(())
}
