//! Coarsening: breadth-first search from many sources at once deals the vertices to blocks of limited size.
//!
//! In every phase some of the vertices that have no block yet become sources, each a block of its own (by a keyed hash; twice as many in
//! every phase as in the one before). The blocks then grow breadth first, a step at a time and all at once: a vertex without a block joins the
//! first that comes to it and has room. What no block came to (a hub's sample leaves most of its neighbours out, and edges may be known at
//! one end alone) joins the block that it has most edges to itself. What has no block after the last phase becomes blocks of single vertices;
//! [`merge`](super::merge) folds those into others. At last vertices that have more edges to another block than to their own move there, in
//! two rounds (the size-constrained label propagation of Meyerhenke, Sanders and Schulz, SEA 2014).
//!
//! Vertices look for others in parallel, at the blocks as they were before, and who joins is settled in the order of the vertices, so the
//! outcome is the same for any number of threads. O(E): a vertex grows once, and few are left for a second phase.

use std::cmp::Reverse;

use graphmill_core::{Result, keyed, memory};
use rayon::prelude::*;

use super::{super::limits::Load, level::Level, tally::Tally};

/// Sets these draws apart from others of the same seed.
const DOMAIN: u64 = 0x7061_7274_2062_6673;
/// A phase draws at most that share of the vertices that are left; the last one does.
const MOST: f64 = 0.25;
/// Rounds in which vertices move to the block they have most edges to.
const SMOOTH: u64 = 2;
/// No block.
pub(super) const NONE: u32 = u32::MAX;
/// Neighbours that a vertex looks at.
const LOOK: usize = 16;
/// Vertices that look at once; what they find is at most `LOOK` times as much.
const BATCH: usize = 1 << 14;
/// Parallel tasks that have a table of the blocks each, about.
const TASKS: usize = 16;
/// Vertices of a parallel task.
const MIN_TASK_LEN: usize = 1 << 10;

/// The block of every vertex, numbered from 0 without gaps, and how many there are. Blocks hold at most `most`.
pub(super) fn blocks<L: Level>(level: &L, most: Load, sources: u64, seed: u64) -> Result<(Vec<u32>, usize)> {
    let n = level.len();
    let mut of: Vec<u32> = memory::reserve(n)?;
    of.resize(n, NONE);
    let mut loads: Vec<Load> = Vec::new();
    let mut share = (sources as f64 / n as f64).min(MOST);
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
        if share >= MOST || left.is_empty() {
            break;
        }
        share = (share * 2.0).min(MOST).max(share);
        // few are left: enough sources at once
        if left.len() < n / 16 {
            share = MOST;
        }
    }
    for v in left {
        of[v as usize] = loads.len() as u32;
        loads.push(level.load(v));
    }
    for round in 0..SMOOTH {
        smooth(level, most, round % 2, &mut of, &mut loads);
    }
    Ok(renumber(of, loads.len()))
}

/// Lets the blocks of `front` grow breadth first until they are full or nothing is left that they touch.
fn grow<L: Level>(level: &L, most: Load, mut front: Vec<u32>, of: &mut [u32], loads: &mut [Load]) {
    let mut next: Vec<u32> = Vec::new();
    while !front.is_empty() {
        for batch in front.chunks(BATCH) {
            if batch.len() <= MIN_TASK_LEN {
                for &v in batch {
                    let block = of[v as usize];
                    level.some(v, LOOK, |u, _| {
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
                            level.some(v, LOOK, |u, _| {
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

/// Takes `u` into a block, where that has room.
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

/// The block with room that each of `left` has most edges to; of several the one with the lowest number.
fn wanted<L: Level>(level: &L, of: &[u32], loads: &[Load], most: Load, left: &[u32]) -> Vec<u32> {
    let one = |tally: &mut Tally, &v: &u32| {
        level.some(v, LOOK, |u, weight| {
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

/// The key of the largest sum of those that `may` be, the lowest of several, or [`NONE`].
fn heaviest(tally: &Tally, may: impl Fn(u32, u64) -> bool) -> u32 {
    let sums = tally.keys().iter().map(|&block| (tally.of(block), Reverse(block)));
    sums.filter(|&(sum, Reverse(block))| may(block, sum)).max().map_or(NONE, |(_, Reverse(block))| block)
}

fn fits(block: Load, load: Load, most: Load) -> bool {
    block.nodes + load.nodes <= most.nodes && block.train + load.train <= most.train
}

/// Lets vertices join what they want, in their order, while there is room.
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

/// Moves vertices to the block that they have most edges to: a half of them, by a hash, so that few neighbours change places.
fn smooth<L: Level>(level: &L, most: Load, half: u64, of: &mut [u32], loads: &mut [Load]) {
    let (blocks, now): (&[u32], &[Load]) = (of, loads);
    let one = |tally: &mut Tally, v: u32| {
        if keyed::mix(v.into()) & 1 != half {
            return NONE;
        }
        level.some(v, LOOK, |u, weight| {
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

/// Leaves out the numbers that no vertex has.
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
