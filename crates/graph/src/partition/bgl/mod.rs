//! BGL's partitioning (Liu et al., *BGL: GPU-efficient GNN training by optimizing graph data I/O and preprocessing*, NSDI 2023,
//! Graph Partition Module), with refinement.
//!
//! 1. [`traffic`]: what cutting an edge would cost in training.
//! 2. [`coarsen`]: breadth-first search from many sources at once deals the nodes to small blocks; [`merge`]: small blocks are folded
//!    into others; [`contract`]: the graph of blocks. All again with larger blocks, until a part has a few dozen: the paper's multi-level
//!    coarsening.
//! 3. [`assign`]: blocks go to parts greedily, by edges within two hops and by how full the parts are. The largest blocks are few, so
//!    several orders are tried.
//! 4. [`uncoarsen`]: a block's part is that of its blocks and nodes. At every level what has more edges to another part moves there
//!    ([`refine`], [`climb`]), and at the end [`repair`] enforces the limits.
//!
//! The paper maps blocks back and leaves it at that; traffic, the tries and what moves in step 4 are ours, after multilevel partitioners.
//!
//! O(V + E) time and memory: the graph with every edge both ways (itself where it is symmetric), 30 bytes a node, and the levels, each
//! smaller than the one before. Rows are read in their order, so the graph may be a mapped file. Parallel, with the same outcome for any
//! number of threads.

mod assign;
mod climb;
mod coarsen;
mod contract;
mod level;
mod merge;
mod refine;
mod repair;
mod tally;
mod traffic;
mod uncoarsen;

use level::{Blocks, Level, Nodes};

use super::{
    Options, PartitionBook, Partitioner,
    limits::{Limits, Load, fill_empty},
    trains,
};
use crate::{
    Graph, NodeId, Result,
    external::{Unit, Watch},
    memory,
    reorder::adjacency::both_ways,
};

/// Blocks of a part at the level where they are assigned, were they all full.
const BLOCKS: u64 = 32;
/// How many times as large blocks may be a level further.
const GROWTH: u64 = 8;
/// Sources of a level's first phase, as a multiple of the blocks there would be if all were full.
const SOURCES: u64 = 8;

/// See the module's text.
pub(super) struct Bgl(Options);

impl Bgl {
    pub(super) fn new(options: &Options) -> Self {
        Self(options.clone())
    }
}

impl Partitioner for Bgl {
    fn partition(&self, graph: &Graph, train: &[NodeId], watch: &dyn Watch) -> Result<PartitionBook> {
        let options = &self.0;
        options.check(graph, train)?;
        let nodes = graph.num_nodes();
        if options.parts == 1 {
            return PartitionBook::new(1, memory::zeroed::<u16>(nodes)?);
        }
        let limits = Limits::new(nodes, train.len(), options);
        let trains = trains(nodes, train)?;
        watch.stage("weighing the edges", None, Unit::Edges);
        let both = both_ways(graph)?;
        let traffic = traffic::traffic(&both, &trains)?;
        let fine = Nodes { graph: &both, trains: &trains, traffic: &traffic };

        let mut levels: Vec<(Vec<u32>, Blocks)> = Vec::new();
        for (i, most) in sizes(limits, both.num_edges() / nodes).into_iter().enumerate() {
            watch.check()?;
            watch.stage(&format!("coarsening, level {}", i + 1), None, Unit::Edges);
            let sources = (nodes as u64).div_ceil(most.nodes) * SOURCES;
            let seed = options.seed.wrapping_add(i as u64);
            levels.push(match levels.last() {
                None => coarser(&fine, most, sources, seed)?,
                Some((_, blocks)) => coarser(blocks, most, sources, seed)?,
            });
        }
        let coarsest = levels.last().map(|(_, blocks)| blocks);
        watch.check()?;
        watch.stage("assigning the blocks", None, Unit::Edges);
        let (of, held) = assign::best_of_several(coarsest, options, limits);
        watch.check()?;
        watch.stage("refining", None, Unit::Edges);
        let of = uncoarsen::uncoarsen(&fine, levels, of, held, limits);
        fill_empty(graph, &trains, options.parts, of)
    }
}

/// What blocks of each level hold at most, the first level's first. The first level's hold about as many nodes as a node has neighbours: those
/// of fewer would have about as many edges between them as there are edges.
fn sizes(limits: Limits, degree: usize) -> Vec<Load> {
    let last = limits.nodes.div_ceil(BLOCKS);
    let least = GROWTH.max(degree as u64 / 2);
    let mut sizes = vec![last];
    while sizes[sizes.len() - 1] >= GROWTH * least {
        sizes.push(sizes[sizes.len() - 1] / GROWTH);
    }
    // a block's share of the training nodes is that of the nodes; small ones may have a few more
    let train = |nodes: u64| {
        let share = (limits.train * nodes).div_ceil(limits.nodes).max(1);
        if nodes == last { share } else { share + 2.min(limits.train.div_ceil(BLOCKS)) }
    };
    sizes.into_iter().rev().map(|nodes| Load { nodes, train: train(nodes) }).collect()
}

/// A level's vertices dealt to blocks, and the graph of those.
fn coarser<L: Level>(level: &L, most: Load, sources: u64, seed: u64) -> Result<(Vec<u32>, Blocks)> {
    let (mut of, count) = coarsen::blocks(level, most, sources, seed)?;
    let blocks = contract::contract(level, &of, count)?;
    let (into, merged) = merge::merge(&blocks, most);
    let blocks = contract::contract(&blocks, &into, merged)?;
    of.iter_mut().for_each(|block| *block = into[*block as usize]);
    Ok((of, blocks))
}

#[cfg(test)]
mod tests;
