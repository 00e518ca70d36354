//! Merging: small blocks go into the neighbouring block that they have most edges to, where that has room; those that no neighbour takes
//! are put together with others of the kind, in their order.
//!
//! Small is less than an eighth of what a block may hold. The smallest go first, so that a block grown by others may stay. O(E) of the
//! block graph.

use super::{
    super::limits::Load,
    coarsen::renumber,
    level::{Blocks, Level},
};

/// The merged block of every block, numbered without gaps, and how many there are.
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

/// The block that `b` is in by now, halving the way there.
fn find(into: &mut [u32], mut b: u32) -> u32 {
    while into[b as usize] != b {
        into[b as usize] = into[into[b as usize] as usize];
        b = into[b as usize];
    }
    b
}
