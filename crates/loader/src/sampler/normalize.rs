//! GraphSAINT's normalisation: how often nodes and edges come up, counted beforehand, and what follows for the aggregation and
//! the loss (Zeng et al., *GraphSAINT*, ICLR 2020, section 3.2 and algorithm 1).
//!
//! An edge `u -> v` of a subgraph stands for `C_v / C_uv` of the edge, `C` being the subgraphs among `N` that hold the node or the
//! edge: given that `v` is in a subgraph, the weighted sum over its neighbours there estimates the sum over all of them without
//! bias (or by ratio: [`super::Estimator`]). A training node's loss counts `N / (C_v |V_train|)`, whose sum over a subgraph estimates the mean over the training
//! nodes.
//!
//! The authors' code gives 10,000 to an edge and ten times `N / |V_train|` to a node that the counted subgraphs missed; here what was
//! missed counts as seen once.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use graphmill_graph::{Block, Error, Graph, NodeId, Oriented, Result, block::Induce};
use rayon::prelude::*;

use super::BatchKey;
use crate::subgraph::Room;

/// Subgraphs that are drawn before any of them is counted.
const ROUND: u64 = 64;
/// An edge stands for at most so many: as in the authors' code.
const MOST: f32 = 1e4;
/// The epoch number under which subgraphs are counted: no training epoch has it.
const EPOCH: u64 = u64::MAX;

/// What a subgraph's edges and nodes stand for.
#[derive(Clone, Debug)]
pub(super) struct Normalization {
    /// `C_uv`, by the edge's position in the graph, `E`, or in the oriented one, `E / 2`.
    pub(super) edge: Vec<u32>,
    /// `C_v`, `V`.
    node: Vec<u32>,
    /// `N`.
    subgraphs: u64,
}

/// A count: what was missed counts as seen once.
pub(super) fn seen(count: u32) -> f32 {
    count.max(1) as f32
}

/// Draws the subgraph of a key.
pub(super) type Draw<'a> = dyn Fn(BatchKey, &mut Room, &mut Vec<NodeId>) -> Result<()> + Sync + 'a;

impl Normalization {
    /// Counts over subgraphs of a run's `seed` until they have `enough` nodes in all: edges by their positions in `oriented`, where there is
    /// one. A function of the graph, the sampler and the seed; parallel over subgraphs. Memory: 4 bytes an edge (half of that where oriented)
    /// and 4 a node, and a worker's room a thread.
    ///
    /// # Errors
    /// Drawing fails, or draws nothing.
    pub(super) fn new(
        graph: &Graph,
        oriented: Option<&Oriented>,
        draw: &Draw,
        seed: u64,
        enough: u64,
    ) -> Result<Self> {
        let zeros = |n: usize| (0..n).map(|_| AtomicU32::new(0)).collect::<Vec<_>>();
        let edges = oriented.map_or(graph.num_edges(), Oriented::num_edges);
        let (of_node, of_edge) = (zeros(graph.num_nodes()), zeros(edges));
        let (mut subgraphs, mut drawn) = (0, 0u64);
        let mut round: Vec<Vec<NodeId>> = vec![Vec::new(); ROUND as usize];
        while drawn < enough {
            let fill = |room: &mut Room, (i, nodes): (usize, &mut Vec<NodeId>)| {
                draw(BatchKey { seed, epoch: EPOCH, batch: subgraphs + i as u64 }, room, nodes)
            };
            round.par_iter_mut().enumerate().try_for_each_init(Room::default, fill)?;
            // as many as it takes: the same for any number of threads
            let before = drawn;
            let taken = round.iter().take_while(|nodes| {
                let wanted = drawn < enough;
                drawn += if wanted { nodes.len() as u64 } else { 0 };
                wanted
            });
            let taken = taken.count();
            if drawn == before {
                return Err(Error::invalid("the sampler draws no nodes at all: is the graph without edges?"));
            }
            subgraphs += taken as u64;
            // Sums of whole numbers: the order of the additions does not matter.
            let add = |count: &AtomicU32| {
                count.fetch_add(1, Relaxed);
            };
            let count = |(induce, block): &mut (Induce, Block), nodes: &Vec<NodeId>| {
                nodes.iter().for_each(|&v| add(&of_node[v as usize]));
                match oriented {
                    Some(oriented) => induce.each_edge(oriented, nodes, |e| add(&of_edge[e as usize])),
                    None => induce.block(graph, nodes, block, |e| add(&of_edge[e as usize]))?,
                }
                Ok(())
            };
            round[..taken].par_iter().try_for_each_init(<(Induce, Block)>::default, count)?;
        }
        let counts = |counts: Vec<AtomicU32>| counts.into_iter().map(AtomicU32::into_inner).collect();
        Ok(Self { edge: counts(of_edge), node: counts(of_node), subgraphs })
    }

    /// `N / C_v`.
    pub(super) fn node(&self, v: NodeId) -> f32 {
        self.subgraphs as f32 / seen(self.node[v as usize])
    }

    /// Makes `C_uv` of the edges into `v`, as [`seen`] has them, into `C_v / C_uv`.
    pub(super) fn stand_for(&self, v: NodeId, edges: &mut [f32]) {
        let of_node = seen(self.node[v as usize]);
        edges.iter_mut().for_each(|of_edge| *of_edge = (of_node / *of_edge).min(MOST));
    }
}
