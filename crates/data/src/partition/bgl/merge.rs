//! Merging of small blocks.
//!
//! # Algorithm
//!
//! A block of less than an eighth of the maximum joins the neighbouring block to which it has the
//! most edges, if that has capacity; the remaining small blocks are combined in order. Smaller
//! blocks are processed first, so that a block that others joined may stay.
//!
//! # Source
//!
//! Liu et al., *BGL*, NSDI 2023, Graph Partition Module.
//!
//! # Cost
//!
//! O(E) of the block graph.

use super::{
    super::limits::Load,
    coarsen::renumber,
    level::{Blocks, Level},
};

/// Merged block of every block, numbered without gaps, and their number.
pub(super) fn merge(blocks: &Blocks, most: Load) -> (Vec<u32>, usize) {
    let n = blocks.len();
    let mut into: Vec<u32> = (0..n as u32).collect();
    let mut loads = blocks.loads.clone();
    let small = |load: Load| load.nodes * 8 < most.nodes;
    let fits = |a: Load, b: Load| a.nodes + b.nodes <= most.nodes && a.train + b.train <= most.train;
    let mut order: Vec<u32> = (0..n as u32).filter(|&b| small(loads[b as usize])).collect();
    order.sort_unstable_by_key(|&b| (blocks.loads[b as usize].nodes, b));
    let mut pool: Option<u32> = None;
    for b in order {
        let load = loads[b as usize];
        if find(&mut into, b) != b || !small(load) {
            continue;
        }
        let mut best: Option<(u64, u32)> = None;
        blocks.each(b, |u, weight| {
            let u = find(&mut into, u);
            if u != b && fits(loads[u as usize], load) && best.is_none_or(|(w, c)| (w, c) < (weight, u)) {
                best = Some((weight, u));
            }
        });
        let target = best.map(|(_, u)| u).or_else(|| {
            let open = pool
                .map(|pool| find(&mut into, pool))
                .filter(|&pool| pool != b && fits(loads[pool as usize], load));
            if open.is_none() {
                pool = Some(b);
            }
            open
        });
        if let Some(u) = target {
            into[b as usize] = u;
            loads[u as usize].add(load);
        }
    }
    let roots = (0..n as u32).map(|b| find(&mut into, b)).collect();
    renumber(roots, n)
}

/// Current block of `b`, with path halving.
fn find(into: &mut [u32], mut b: u32) -> u32 {
    while into[b as usize] != b {
        into[b as usize] = into[into[b as usize] as usize];
        b = into[b as usize];
    }
    b
}
