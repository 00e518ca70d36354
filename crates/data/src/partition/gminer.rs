//! G-Miner's partitioning: breadth-first blocks from random sources, assigned greedily.
//!
//! # Algorithm
//!
//! 1. Random nodes without a block become sources, each the first node of a block. The blocks grow
//!    breadth first, simultaneously, until they are full or reach no more nodes. This repeats with
//!    twice as many sources among the remaining nodes, up to a tenth of them.
//! 2. The remaining nodes form blocks of their connected components.
//! 3. The blocks, largest first, go to the part with capacity that has the highest score `|P(i) ∩
//!    Γ(B)| (1 - |P(i)| / C)`, where `P(i)` are the nodes of part `i`, `Γ(B)` the distinct
//!    neighbours of the block and `C` the limit of [`Options::slack`]. Ties go to the part with
//!    fewer nodes, then to the lower number.
//!
//! # Source
//!
//! Chen, Liu, Yan, Cheng, Lau and Chen, *G-Miner: an efficient task-oriented graph mining system*,
//! EuroSys 2018, the block-based deterministic greedy partitioner. A baseline of Liu et al., *BGL*,
//! NSDI 2023.
//!
//! # Cost
//!
//! O(V + E + B K) for `B` blocks, sequential.
//!
//! # Memory
//!
//! 14 bytes a node, and a copy of a directed graph with every edge in both directions.
//!
//! # Deviations
//!
//! The authors' system computes the blocks on several machines; here one thread does. A block holds
//! at most a 64th of a part. A block that fits into no part is divided node by node among the parts
//! with the most capacity, so that no part exceeds its limit. Like the authors', the method does
//! not balance training nodes.

use std::{cmp::Reverse, collections::VecDeque};

use graphmill_core::{
    Graph, NodeId, Result, keyed, memory,
    progress::{Progress, Unit},
};

use super::{
    Options, PartitionBook, Partitioner,
    limits::{Limits, fill_empty},
    trains,
};
use crate::reorder::adjacency::both_ways;

/// Separates these draws from others with the same seed.
const DOMAIN: u64 = 0x7061_7274_676d_696e;
/// Full blocks of a part.
const BLOCKS: u64 = 64;
/// Largest share of the nodes that a phase draws as sources.
const MAX_SOURCE_SHARE: f64 = 0.1;
/// Marks a node without a block.
const NONE: u32 = u32::MAX;

/// G-Miner's partitioner with its options.
pub(super) struct GMiner(Options);

impl GMiner {
    pub(super) fn new(options: &Options) -> Self {
        Self(options.clone())
    }
}

impl Partitioner for GMiner {
    fn partition(&self, graph: &Graph, train: &[NodeId], progress: &dyn Progress) -> Result<PartitionBook> {
        let options = &self.0;
        options.check(graph, train)?;
        let nodes = graph.num_nodes();
        let both = both_ways(graph)?;
        progress.check()?;
        progress.stage("growing the blocks", None, Unit::Edges);
        let largest = (nodes as u64 / (u64::from(options.parts) * BLOCKS)).max(1);
        let blocks = blocks(&both, largest as usize, options.seed)?;
        progress.check()?;
        progress.stage("assigning the blocks", None, Unit::Edges);
        let limit = Limits::new(nodes, train.len(), options).nodes;
        let of = assign(&both, &blocks, options.parts, limit)?;
        fill_empty(graph, &trains(nodes, train)?, options.parts, of)
    }
}

/// Block of every node, numbered from 0 without gaps. A block has at most `largest` nodes.
fn blocks(graph: &Graph, largest: usize, seed: u64) -> Result<Vec<u32>> {
    let nodes = graph.num_nodes();
    let mut of: Vec<u32> = memory::reserve(nodes)?;
    of.resize(nodes, NONE);
    let mut sizes: Vec<usize> = Vec::new();
    let mut queue = VecDeque::new();
    let mut share = (1.0 / largest as f64).min(MAX_SOURCE_SHARE);
    for phase in 0.. {
        let key = keyed::key(&[DOMAIN, seed, phase]);
        let threshold = (share * (1u64 << 53) as f64) as u64;
        for v in 0..nodes {
            if of[v] == NONE && keyed::mix(key ^ v as u64) >> 11 < threshold {
                start(v as NodeId, &mut of, &mut sizes, &mut queue);
            }
        }
        grow(graph, largest, &mut of, &mut sizes, &mut queue);
        if share >= MAX_SOURCE_SHARE {
            break;
        }
        share = (share * 2.0).min(MAX_SOURCE_SHARE);
    }
    // the components of the remaining nodes
    for v in 0..nodes {
        if of[v] == NONE {
            start(v as NodeId, &mut of, &mut sizes, &mut queue);
            grow(graph, largest, &mut of, &mut sizes, &mut queue);
        }
    }
    Ok(of)
}

/// Makes `v` the first node of a new block.
fn start(v: NodeId, of: &mut [u32], sizes: &mut Vec<usize>, queue: &mut VecDeque<NodeId>) {
    of[v as usize] = sizes.len() as u32;
    sizes.push(1);
    queue.push_back(v);
}

/// Grows the blocks of the queued nodes breadth first until they are full or reach no more nodes.
fn grow(graph: &Graph, largest: usize, of: &mut [u32], sizes: &mut [usize], queue: &mut VecDeque<NodeId>) {
    while let Some(v) = queue.pop_front() {
        let block = of[v as usize];
        for &u in graph.in_neighbors(v) {
            if sizes[block as usize] >= largest {
                break;
            }
            if of[u as usize] == NONE {
                of[u as usize] = block;
                sizes[block as usize] += 1;
                queue.push_back(u);
            }
        }
    }
}

/// Part of every node, by the greedy assignment of whole blocks to parts of at most `limit` nodes.
fn assign(graph: &Graph, block_of: &[u32], parts: u16, limit: u64) -> Result<Vec<u16>> {
    const UNASSIGNED: u16 = u16::MAX;
    let count = block_of.iter().max().map_or(0, |&block| block as usize + 1);
    let (members, starts) = by_block(block_of, count)?;
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_unstable_by_key(|&block| (Reverse(starts[block + 1] - starts[block]), block));
    let mut of: Vec<u16> = memory::reserve(block_of.len())?;
    of.resize(block_of.len(), UNASSIGNED);
    // the last block that counted each node
    let mut counted: Vec<u32> = memory::reserve(block_of.len())?;
    counted.resize(block_of.len(), NONE);
    let mut sizes = vec![0u64; parts.into()];
    let mut shared = vec![0u64; parts.into()];
    for block in order {
        let members = &members[starts[block]..starts[block + 1]];
        shared.fill(0);
        for &u in members.iter().flat_map(|&v| graph.in_neighbors(v)) {
            let part = of[u as usize];
            if part != UNASSIGNED && counted[u as usize] != block as u32 {
                counted[u as usize] = block as u32;
                shared[usize::from(part)] += 1;
            }
        }
        let open = (0..sizes.len()).filter(|&part| sizes[part] + members.len() as u64 <= limit);
        let scored = open.map(|part| (shared[part] as f64 * (1.0 - sizes[part] as f64 / limit as f64), part));
        let best = scored.reduce(|a, b| {
            let less = a.0.total_cmp(&b.0).then(sizes[b.1].cmp(&sizes[a.1]));
            if less.is_lt() { b } else { a }
        });
        for &v in members {
            let emptiest = || (0..sizes.len()).min_by_key(|&part| (sizes[part], part)).unwrap_or(0);
            let part = best.map_or_else(emptiest, |(_, part)| part);
            of[v as usize] = part as u16;
            sizes[part] += 1;
        }
    }
    Ok(of)
}

/// Nodes of every block, concatenated, and the start of each block.
fn by_block(block_of: &[u32], count: usize) -> Result<(Vec<NodeId>, Vec<usize>)> {
    let mut starts: Vec<usize> = memory::zeroed(count + 1)?;
    block_of.iter().for_each(|&block| starts[block as usize + 1] += 1);
    for block in 0..count {
        starts[block + 1] += starts[block];
    }
    let mut next = starts.clone();
    let mut members: Vec<NodeId> = memory::zeroed(block_of.len())?;
    for (v, &block) in block_of.iter().enumerate() {
        members[next[block as usize]] = v as NodeId;
        next[block as usize] += 1;
    }
    Ok((members, starts))
}

#[cfg(test)]
mod tests {
    use graphmill_core::{EdgeOptions, build};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn blocks_are_connected_and_bounded(
            nodes in 1usize..80,
            pairs in prop::collection::vec((0u32..80, 0u32..80), 0..200),
            largest in 1usize..12,
            seed: u64,
        ) {
            let (src, dst): (Vec<_>, Vec<_>) =
                pairs.iter().map(|&(u, v)| (u % nodes as u32, v % nodes as u32)).unzip();
            let graph = build(nodes, &src, &dst, EdgeOptions::UNDIRECTED).unwrap();
            let of = blocks(&graph, largest, seed).unwrap();
            let count = of.iter().max().unwrap() + 1;
            let mut seen = vec![false; nodes];
            for block in 0..count {
                let first = of.iter().position(|&b| b == block).expect("blocks have no gaps");
                let mut stack = vec![first as NodeId];
                seen[first] = true;
                let mut reached = 0;
                while let Some(v) = stack.pop() {
                    reached += 1;
                    for &u in graph.in_neighbors(v).iter().filter(|&&u| of[u as usize] == block) {
                        if !std::mem::replace(&mut seen[u as usize], true) {
                            stack.push(u);
                        }
                    }
                }
                prop_assert!(reached <= largest);
                prop_assert_eq!(reached, of.iter().filter(|&&b| b == block).count());
            }
        }
    }

    #[test]
    fn blocks_go_to_the_part_with_most_neighbours_times_free_capacity() {
        // blocks 0: {0, 1, 2}, 1: {3, 4}, 2: {5}, 3: {6}; 5 and 3 neighbour block 0, 6 block 1
        let (src, dst) = ([0, 1, 3, 5, 5, 6], [1, 2, 4, 0, 1, 4]);
        let graph = build(7, &src, &dst, EdgeOptions::UNDIRECTED).unwrap();
        let of = assign(&graph, &[0, 0, 0, 1, 1, 2, 3], 2, 5).unwrap();
        assert_eq!(of, [0, 0, 0, 1, 1, 0, 1]);
        // part 0 is full before node 5
        assert_eq!(assign(&graph, &[0, 0, 0, 1, 1, 2, 3], 3, 3).unwrap(), [0, 0, 0, 1, 1, 2, 1]);
    }
}
