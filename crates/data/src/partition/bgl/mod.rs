//! BGL's partitioning (Liu et al., *BGL: GPU-efficient GNN training by optimizing graph data I/O and preprocessing*, NSDI 2023,
//! Graph Partition Module), with refinement.
//!
//! 1. [`coarsen`]: breadth-first search from many sources at once deals the nodes to small blocks; [`merge`]: small blocks are folded
//!    into others; [`contract`]: the graph of blocks. All again with larger blocks, until a part has a few dozen: the paper's multi-level
//!    coarsening.
//! 2. [`assign`]: blocks go to parts greedily, by edges within two hops and by how full the parts are. The largest blocks are few, so
//!    several orders are tried.
//! 3. [`uncoarsen`]: a block's part is that of its blocks and nodes. At every level what has more edges to another part moves there
//!    ([`refine`], [`climb`]), and at the end [`repair`] enforces the limits.
//!
//! The paper maps blocks back and leaves it at that; the tries and what moves in step 3 are ours, after multilevel partitioners.
//!
//! The graph is read as it is, by in-neighbours, and no more than sixteen of a node's ([`level`]); the first graph of blocks, far smaller, gets
//! every edge both ways. O(V + E) time, of which the E is at most 16 V and is passed some ten times, and 30 bytes a node beside the levels of
//! blocks, each smaller than the one before. Rows are read in their order in most passes, so the graph may be a mapped file. Parallel, with
//! the same outcome for any number of threads.

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

/// Blocks of a part at the level where they are assigned, were they all full.
const BLOCKS: u64 = 16;
/// How many times as large blocks may be a level further.
const GROWTH: u64 = 8;
/// What blocks of the first level hold at least, where there are several levels.
const LEAST: u64 = 4;
/// Edges that are looked at for one between blocks of the first level, were there one between each two.
const DENSITY: u64 = 4;
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
                None => coarser(&fine, most, sources, seed)?,
                Some((_, blocks)) => coarser(blocks, most, sources, seed)?,
            });
        }
        let coarsest = levels.last().map(|(_, blocks)| blocks);
        progress.check()?;
        progress.stage("assigning the blocks", None, Unit::Edges);
        let (of, held) = assign::best_of_several(coarsest, options, limits);
        progress.check()?;
        progress.stage("refining", None, Unit::Edges);
        let of = uncoarsen::uncoarsen(&fine, levels, of, held, limits);
        fill_empty(graph, &trains, options.parts, of)
    }
}

/// What blocks of each level hold at most, the first level's first. A level further down has more blocks, as long as those of `nodes` nodes, were
/// they full, would have [`DENSITY`] times fewer edges between each two of them than the `edges` that are looked at.
fn sizes(limits: Limits, nodes: usize, edges: usize) -> Vec<Load> {
    let last = limits.nodes.div_ceil(BLOCKS);
    let most = (edges as u64 / DENSITY).isqrt();
    let mut sizes = vec![last];
    let mut size = last / GROWTH;
    while size >= LEAST && nodes as u64 / size < most {
        sizes.push(size);
        size /= GROWTH;
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
