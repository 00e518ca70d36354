//! GraphSAINT's normalisation: frequencies of nodes and edges in subgraphs, and the resulting
//! weights of the aggregation and the loss.
//!
//! # Algorithm
//!
//! Let `C` be the number of subgraphs among `N` that hold a node or an edge. An edge `u -> v` of a
//! subgraph has weight `C_v / C_uv`: given that `v` is in a subgraph, the weighted sum over its
//! neighbours there estimates the sum over all of them without bias (or by ratio:
//! [`super::Estimator`]). A training node's loss has weight `N / (C_v |V_train|)`, so the sum over
//! a subgraph estimates the mean over the training nodes.
//!
//! # Source
//!
//! Zeng et al., *GraphSAINT: graph sampling based inductive learning method*, ICLR 2020, section
//! 3.2 and algorithm 1.
//!
//! # Cost
//!
//! As expensive as drawing the counted subgraphs; parallel.
//!
//! # Memory
//!
//! 4 bytes per edge and 4 per node.
//!
//! # Deviations
//!
//! The authors' code gives a weight of 10,000 to an edge, and ten times `N / |V_train|` to a node,
//! that no counted subgraph holds; here both count as seen once.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use graphmill_core::{
    Block, Error, Graph, NodeId, Result,
    block::Induce,
    progress::{Progress, Unit},
};
use rayon::prelude::*;

use crate::{BatchKey, subgraph::SubgraphScratch};

/// Number of subgraphs drawn before any of them is counted.
const ROUND: u64 = 64;
/// Maximum weight of an edge, as in the authors' code.
const MAX_WEIGHT: f32 = 1e4;
/// Epoch under which subgraphs are counted, distinct from all training epochs.
const EPOCH: u64 = u64::MAX;

/// Weights of the edges and nodes of subgraphs.
#[derive(Clone, Debug)]
pub(super) struct Normalization {
    /// `C_v / C_uv` of each edge of the graph, by its position (`E`).
    pub(super) edge: Vec<f32>,
    /// `N / C_v` of each node (`V`).
    pub(super) node: Vec<f32>,
}

/// Function that draws the subgraph of a key.
pub(super) type Draw<'a> = dyn Fn(BatchKey, &mut SubgraphScratch, &mut Vec<NodeId>) -> Result<()> + Sync + 'a;

impl Normalization {
    /// Counts over subgraphs of a run's `seed` until they have `enough` nodes in total. A function
    /// of the graph, the sampler and the seed; parallel over subgraphs. Memory: 4 bytes per edge
    /// and 4 per node, and a worker's scratch buffers per thread.
    ///
    /// # Errors
    /// Drawing fails or returns no nodes, or `progress` stops the counting.
    pub(super) fn new(
        graph: &Graph,
        draw: &Draw,
        seed: u64,
        enough: u64,
        progress: &dyn Progress,
    ) -> Result<Self> {
        progress.stage("counting subgraphs to normalise", Some(enough), Unit::Rows);
        let zeros = |n: usize| (0..n).map(|_| AtomicU32::new(0)).collect::<Vec<_>>();
        let (of_node, of_edge) = (zeros(graph.num_nodes()), zeros(graph.num_edges()));
        let (mut subgraphs, mut drawn) = (0, 0u64);
        let mut round: Vec<Vec<NodeId>> = vec![Vec::new(); ROUND as usize];
        while drawn < enough {
            progress.check()?;
            let fill = |scratch: &mut SubgraphScratch, (i, nodes): (usize, &mut Vec<NodeId>)| {
                draw(BatchKey { seed, epoch: EPOCH, batch: subgraphs + i as u64 }, scratch, nodes)
            };
            round.par_iter_mut().enumerate().try_for_each_init(SubgraphScratch::default, fill)?;
            // stop at the same subgraph for any number of threads
            let before = drawn;
            let taken = round.iter().take_while(|nodes| {
                let wanted = drawn < enough;
                drawn += if wanted { nodes.len() as u64 } else { 0 };
                wanted
            });
            let taken = taken.count();
            if drawn == before {
                return Err(Error::invalid(
                    "the sampler draws no nodes at all; use a graph with edges, or another --sampler",
                ));
            }
            subgraphs += taken as u64;
            // sums of integers, so the order of the additions does not matter
            let add = |count: &AtomicU32| {
                count.fetch_add(1, Relaxed);
            };
            let count = |(induce, block): &mut (Induce, Block), nodes: &Vec<NodeId>| {
                nodes.iter().for_each(|&v| add(&of_node[v as usize]));
                induce.block(graph, nodes, block, |e| add(&of_edge[e as usize]))
            };
            round[..taken].par_iter().try_for_each_init(<(Induce, Block)>::default, count)?;
            progress.done(drawn.min(enough));
        }
        let mut edge = vec![0.0; graph.num_edges()];
        let weigh = |(v, of_edge, out): (usize, &[AtomicU32], &mut [f32])| {
            let of_node = of_node[v].load(Relaxed).max(1) as f32;
            for (of_edge, out) in of_edge.iter().zip(out) {
                *out = (of_node / of_edge.load(Relaxed).max(1) as f32).min(MAX_WEIGHT);
            }
        };
        rows(graph, &of_edge, &mut edge, 0, &weigh);
        let node = of_node.iter().map(|of_node| subgraphs as f32 / of_node.load(Relaxed).max(1) as f32);
        Ok(Self { edge, node: node.collect() })
    }
}

/// Maximum number of nodes whose edges one task weights.
const MAX_TASK_LEN: usize = 1 << 12;

/// Passes the counts and weights of every node from `first` on to `each`; `counts` and `out` begin
/// with the edges of that node.
fn rows<'a>(
    graph: &Graph,
    counts: &'a [AtomicU32],
    out: &'a mut [f32],
    first: usize,
    each: &(impl Fn((usize, &'a [AtomicU32], &'a mut [f32])) + Sync),
) {
    let indptr = graph.indptr();
    let base = indptr.get(first).copied().unwrap_or(0);
    let end = base + out.len() as u64;
    let last = first + indptr[first..].partition_point(|&x| x < end);
    if last - first > MAX_TASK_LEN {
        let middle = first + (last - first) / 2;
        let at = (indptr[middle] - base) as usize;
        let (counts, out) = (counts.split_at(at), out.split_at_mut(at));
        rayon::join(
            || rows(graph, counts.0, out.0, first, each),
            || rows(graph, counts.1, out.1, middle, each),
        );
        return;
    }
    let (mut counts, mut out) = (counts, out);
    for v in first..last {
        let degree = (indptr[v + 1] - indptr[v]) as usize;
        let row;
        (row, out) = out.split_at_mut(degree);
        each((v, &counts[..degree], row));
        counts = &counts[degree..];
    }
}
