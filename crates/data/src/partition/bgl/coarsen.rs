//! Coarsening by breadth-first search from many sources.
//!
//! # Algorithm
//!
//! In every phase some vertices without a block become sources, each the first vertex of a new
//! block (selected by a keyed hash; twice as many in every phase as before). The blocks grow
//! breadth first, simultaneously: a vertex without a block joins the first block that reaches it
//! and has capacity. A vertex that no block reaches (a hub's sample omits most of its neighbours,
//! and edges may be known at one end only) joins the block with which it shares the most edges.
//! Vertices without a block after the last phase become single-vertex blocks, which
//! [`merge`](super::merge) folds into others. Finally, unless smoothing is off, vertices with more
//! edges to another block move there, in two rounds.
//!
//! Vertices search in parallel on the blocks of the previous step, and joins are resolved in vertex
//! order, so the result does not depend on the number of threads.
//!
//! # Source
//!
//! Liu et al., *BGL*, NSDI 2023, Graph Partition Module; the final rounds are the size-constrained
//! label propagation of Meyerhenke, Sanders and Schulz, *Partitioning complex networks via
//! size-constrained clustering*, SEA 2014.
//!
//! # Cost
//!
//! O(E): a vertex expands once, and few remain for a second phase.

use std::cmp::Reverse;

use graphmill_core::{Result, keyed, memory};
use rayon::prelude::*;

use super::{super::limits::Load, level::Level, tally::Tally};

/// Separates these draws from others with the same seed.
const DOMAIN: u64 = 0x7061_7274_2062_6673;
/// Largest share of the remaining vertices that a phase draws as sources; the last phase takes all.
const MAX_SOURCE_SHARE: f64 = 0.25;
/// Rounds of label propagation.
const SMOOTH: u64 = 2;
/// Marks a vertex without a block.
pub(super) const NONE: u32 = u32::MAX;
/// Number of neighbours that a vertex visits.
const MAX_VISITED_NEIGHBORS: usize = 16;
/// Vertices processed together; their candidates are at most `MAX_VISITED_NEIGHBORS` times as many.
const BATCH: usize = 1 << 14;
/// Approximate number of parallel tasks, each with a table of the blocks.
const TASKS: usize = 16;
/// Minimum number of vertices of a parallel task.
const MIN_TASK_LEN: usize = 1 << 10;

/// Block of every vertex, numbered from 0 without gaps, and the number of blocks. A block holds at
/// most `most`.
///
/// If `smoothing` is true, vertices move between the finished blocks.
pub(super) fn blocks<L: Level>(
    level: &L,
    most: Load,
    sources: u64,
    seed: u64,
    smoothing: bool,
) -> Result<(Vec<u32>, usize)> {
    let n = level.len();
    let mut of: Vec<u32> = memory::reserve(n)?;
    of.resize(n, NONE);
    let mut loads: Vec<Load> = Vec::new();
    let mut share = (sources as f64 / n as f64).min(MAX_SOURCE_SHARE);
    let mut left: Vec<u32> = Vec::new();
    for phase in 0.. {
        let key = keyed::key(&[DOMAIN, seed, phase]);
        let threshold = (share * (1u64 << 53) as f64) as u64;
        let drawn = |v: &u32| keyed::mix(key ^ u64::from(*v)) >> 11 < threshold;
        let front: Vec<u32> = match phase {
            0 => (0..n as u32).filter(drawn).collect(),
            _ => left.iter().copied().filter(drawn).collect(),
        };
        for &v in &front {
            of[v as usize] = loads.len() as u32;
            loads.push(level.load(v));
        }
        grow(level, most, front, &mut of, &mut loads);
        match phase {
            0 => left = (0..n as u32).filter(|&v| of[v as usize] == NONE).collect(),
            _ => left.retain(|&v| of[v as usize] == NONE),
        }
        let wanted = wanted(level, &of, &loads, most, &left);
        admit(level, &left, &wanted, most, &mut of, &mut loads);
        left.retain(|&v| of[v as usize] == NONE);
        if share >= MAX_SOURCE_SHARE || left.is_empty() {
            break;
        }
        share = (share * 2.0).min(MAX_SOURCE_SHARE).max(share);
        // Few vertices remain: draw enough sources for all of them.
        if left.len() < n / 16 {
            share = MAX_SOURCE_SHARE;
        }
    }
    for v in left {
        of[v as usize] = loads.len() as u32;
        loads.push(level.load(v));
    }
    for round in 0..if smoothing { SMOOTH } else { 0 } {
        smooth(level, most, round % 2, &mut of, &mut loads);
    }
    Ok(renumber(of, loads.len()))
}

/// Grows the blocks of `front` breadth first until they are full or reach no more vertices.
fn grow<L: Level>(level: &L, most: Load, mut front: Vec<u32>, of: &mut [u32], loads: &mut [Load]) {
    let mut next: Vec<u32> = Vec::new();
    while !front.is_empty() {
        for batch in front.chunks(BATCH) {
            if batch.len() <= MIN_TASK_LEN {
                for &v in batch {
                    let block = of[v as usize];
                    level.some(v, MAX_VISITED_NEIGHBORS, |u, _| {
                        if of[u as usize] == NONE {
                            claim(level, most, u, block, of, loads, &mut next);
                        }
                    });
                }
                continue;
            }
            let (blocks, now): (&[u32], &[Load]) = (of, loads);
            let touched: Vec<Vec<(u32, u32)>> = batch
                .par_chunks(MIN_TASK_LEN)
                .map(|chunk| {
                    let mut found = Vec::new();
                    for &v in chunk {
                        let block = blocks[v as usize];
                        if now[block as usize].nodes < most.nodes {
                            level.some(v, MAX_VISITED_NEIGHBORS, |u, _| {
                                if blocks[u as usize] == NONE {
                                    found.push((u, block));
                                }
                            });
                        }
                    }
                    found
                })
                .collect();
            for (u, block) in touched.into_iter().flatten() {
                if of[u as usize] == NONE {
                    claim(level, most, u, block, of, loads, &mut next);
                }
            }
        }
        std::mem::swap(&mut front, &mut next);
        next.clear();
    }
}

/// Adds `u` to a block with capacity.
#[inline]
fn claim<L: Level>(
    level: &L,
    most: Load,
    u: u32,
    block: u32,
    of: &mut [u32],
    loads: &mut [Load],
    next: &mut Vec<u32>,
) {
    let load = level.load(u);
    if fits(loads[block as usize], load, most) {
        loads[block as usize].add(load);
        of[u as usize] = block;
        next.push(u);
    }
}

/// For each vertex of `left`, the block with capacity to which it has the most edges; ties go to
/// the lowest number.
fn wanted<L: Level>(level: &L, of: &[u32], loads: &[Load], most: Load, left: &[u32]) -> Vec<u32> {
    let one = |tally: &mut Tally, &v: &u32| {
        level.some(v, MAX_VISITED_NEIGHBORS, |u, weight| {
            let block = of[u as usize];
            if block != NONE {
                tally.add(block, weight);
            }
        });
        let load = level.load(v);
        let best = heaviest(tally, |block, _| fits(loads[block as usize], load, most));
        tally.clear();
        best
    };
    let tasks = left.par_iter().with_min_len(MIN_TASK_LEN.max(left.len() / TASKS));
    tasks.map_init(|| Tally::new(loads.len()), one).collect()
}

/// Key of the largest sum among those for which `may` holds, lowest key first, or [`NONE`].
fn heaviest(tally: &Tally, may: impl Fn(u32, u64) -> bool) -> u32 {
    let sums = tally.keys().iter().map(|&block| (tally.of(block), Reverse(block)));
    sums.filter(|&(sum, Reverse(block))| may(block, sum)).max().map_or(NONE, |(_, Reverse(block))| block)
}

fn fits(block: Load, load: Load, most: Load) -> bool {
    block.nodes + load.nodes <= most.nodes && block.train + load.train <= most.train
}

/// Adds vertices to the blocks they selected, in vertex order, while capacity lasts.
fn admit<L: Level>(
    level: &L,
    vertices: &[u32],
    wanted: &[u32],
    most: Load,
    of: &mut [u32],
    loads: &mut [Load],
) {
    for (&v, &block) in vertices.iter().zip(wanted).filter(|&(_, &block)| block != NONE) {
        let load = level.load(v);
        if fits(loads[block as usize], load, most) {
            loads[block as usize].add(load);
            of[v as usize] = block;
        }
    }
}

/// Moves vertices to the block to which they have the most edges; only one half (by a hash) at a
/// time, so that few neighbours swap blocks.
fn smooth<L: Level>(level: &L, most: Load, half: u64, of: &mut [u32], loads: &mut [Load]) {
    let (blocks, now): (&[u32], &[Load]) = (of, loads);
    let one = |tally: &mut Tally, v: u32| {
        if keyed::mix(v.into()) & 1 != half {
            return NONE;
        }
        level.some(v, MAX_VISITED_NEIGHBORS, |u, weight| {
            if u != v {
                tally.add(blocks[u as usize], weight);
            }
        });
        let (load, stays) = (level.load(v), tally.of(blocks[v as usize]));
        let best = heaviest(tally, |block, sum| sum > stays && fits(now[block as usize], load, most));
        tally.clear();
        best
    };
    let all = (0..level.len() as u32).into_par_iter().with_min_len(MIN_TASK_LEN.max(level.len() / TASKS));
    let wanted: Vec<u32> = all.map_init(|| Tally::new(now.len()), one).collect();
    for (v, &block) in wanted.iter().enumerate().filter(|&(_, &block)| block != NONE) {
        let load = level.load(v as u32);
        if fits(loads[block as usize], load, most) {
            loads[of[v] as usize].remove(load);
            loads[block as usize].add(load);
            of[v] = block;
        }
    }
}

/// Renumbers the blocks without gaps.
pub(super) fn renumber(mut of: Vec<u32>, blocks: usize) -> (Vec<u32>, usize) {
    let mut new = vec![NONE; blocks];
    of.iter().for_each(|&block| new[block as usize] = 0);
    let mut next = 0;
    for number in new.iter_mut().filter(|number| **number == 0) {
        *number = next;
        next += 1;
    }
    of.par_iter_mut().with_min_len(MIN_TASK_LEN).for_each(|block| *block = new[*block as usize]);
    (of, next as usize)
}
