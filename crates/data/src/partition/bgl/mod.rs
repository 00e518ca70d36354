//! BGL's partitioning with refinement.
//!
//! # Algorithm
//!
//! 1. [`coarsen`] groups the nodes into small blocks by breadth-first search from many sources;
//!    [`merge`] folds small blocks into others; [`contract`] builds the graph of blocks. This
//!    repeats with larger blocks until a part consists of a few dozen (the paper's multi-level
//!    coarsening).
//! 2. [`assign`] assigns blocks to parts greedily, by edges within two hops and by the load of the
//!    parts. Because the largest blocks are few, it tries several orders.
//! 3. [`uncoarsen`] maps the parts back to smaller blocks and nodes. At every level, vertices with
//!    more edges to another part move there ([`refine`], [`climb`]); at the end [`repair`] enforces
//!    the limits.
//!
//! Without refinement ([`Options::refine`]) this is the paper's own algorithm: the blocks are not
//! smoothed, step 2 assigns the largest block first, and step 3 only maps the parts back. A part
//! may then exceed a limit by a block, and only a part without nodes receives one from the largest.
//!
//! The result does not depend on the number of threads.
//!
//! # Source
//!
//! Liu et al., *BGL: GPU-efficient GNN training by optimizing graph data I/O and preprocessing*,
//! NSDI 2023, Graph Partition Module.
//!
//! # Cost
//!
//! O(V + E) time, parallel, of which the E is at most 16 V and is traversed about ten times: at
//! most sixteen in-neighbours of a node are visited ([`level`]). Most passes read rows in order, so
//! the graph may be a mapped file.
//!
//! # Memory
//!
//! 30 bytes a node, and the levels of blocks, each smaller than the previous one and with every
//! edge in both directions.
//!
//! # Deviations
//!
//! The paper only maps blocks back. The several orders, the smoothing and the moves of step 3 are
//! additions from multilevel partitioners, which `refine` turns off. In both forms at most sixteen
//! in-neighbours of a node are visited, and edges are counted instead of distinct nodes.

mod assign;
mod climb;
mod coarsen;
mod contract;
mod level;
mod merge;
mod refine;
mod repair;
mod tally;
mod uncoarsen;

use graphmill_core::{
    Graph, NodeId, Result, memory,
    progress::{Progress, Unit},
};
use level::{Blocks, Level, Nodes};

use super::{
    Options, PartitionBook, Partitioner,
    limits::{Limits, Load, fill_empty},
    trains,
};

/// Blocks per part at the level of the assignment, if all were full.
const BLOCKS: u64 = 16;
/// Growth of the block size from level to level.
const GROWTH: u64 = 8;
/// Minimum block size of the first level, if there are several levels.
const LEAST: u64 = 4;
/// Visited edges per pair of blocks of the first level, if every pair had an edge.
const DENSITY: u64 = 4;
/// Sources of a level's first phase, as a multiple of the number of full blocks.
const SOURCES: u64 = 8;

/// BGL partitioner with its options.
pub(super) struct Bgl(Options);

impl Bgl {
    pub(super) fn new(options: &Options) -> Self {
        Self(options.clone())
    }
}

impl Partitioner for Bgl {
    fn partition(&self, graph: &Graph, train: &[NodeId], progress: &dyn Progress) -> Result<PartitionBook> {
        let options = &self.0;
        options.check(graph, train)?;
        let nodes = graph.num_nodes();
        if options.parts == 1 {
            return PartitionBook::new(1, memory::zeroed::<u16>(nodes)?);
        }
        let limits = Limits::new(nodes, train.len(), options);
        let trains = trains(nodes, train)?;
        let fine = Nodes { graph, trains: &trains };

        let mut levels: Vec<(Vec<u32>, Blocks)> = Vec::new();
        for (i, most) in sizes(limits, nodes, fine.sampled()).into_iter().enumerate() {
            progress.check()?;
            progress.stage(&format!("coarsening, level {}", i + 1), None, Unit::Edges);
            let sources = (nodes as u64).div_ceil(most.nodes) * SOURCES;
            let seed = options.seed.wrapping_add(i as u64);
            levels.push(match levels.last() {
                None => coarser(&fine, most, sources, seed, options.refine)?,
                Some((_, blocks)) => coarser(blocks, most, sources, seed, options.refine)?,
            });
        }
        let coarsest = levels.last().map(|(_, blocks)| blocks);
        progress.check()?;
        progress.stage("assigning the blocks", None, Unit::Edges);
        if !options.refine {
            let of = assign::largest_first(coarsest, options.parts, limits);
            return fill_empty(graph, &trains, options.parts, uncoarsen::project(levels, of));
        }
        let (of, held) = assign::best_of_several(coarsest, options, limits);
        progress.check()?;
        progress.stage("refining", None, Unit::Edges);
        let of = uncoarsen::uncoarsen(&fine, levels, of, held, limits);
        fill_empty(graph, &trains, options.parts, of)
    }
}

/// Maximum block load of each level, from the first on. A level is added while its full blocks of
/// `nodes` nodes would have at most [`DENSITY`] times fewer edges between each pair than the
/// `edges` visited.
fn sizes(limits: Limits, nodes: usize, edges: usize) -> Vec<Load> {
    let last = limits.nodes.div_ceil(BLOCKS);
    let most = (edges as u64 / DENSITY).isqrt();
    let mut sizes = vec![last];
    let mut size = last / GROWTH;
    while size >= LEAST && nodes as u64 / size < most {
        sizes.push(size);
        size /= GROWTH;
    }
    // A block's share of the training nodes equals its share of the nodes; small blocks may have a
    // few more.
    let train = |nodes: u64| {
        let share = (limits.train * nodes).div_ceil(limits.nodes).max(1);
        if nodes == last { share } else { share + 2.min(limits.train.div_ceil(BLOCKS)) }
    };
    sizes.into_iter().rev().map(|nodes| Load { nodes, train: train(nodes) }).collect()
}

/// Coarsens a level: the block of each vertex, and the graph of blocks.
fn coarser<L: Level>(
    level: &L,
    most: Load,
    sources: u64,
    seed: u64,
    smooth: bool,
) -> Result<(Vec<u32>, Blocks)> {
    let (mut of, count) = coarsen::blocks(level, most, sources, seed, smooth)?;
    let blocks = contract::contract(level, &of, count)?;
    let (into, merged) = merge::merge(&blocks, most);
    let blocks = contract::contract(&blocks, &into, merged)?;
    of.iter_mut().for_each(|block| *block = into[*block as usize]);
    Ok((of, blocks))
}

#[cfg(test)]
mod tests;
