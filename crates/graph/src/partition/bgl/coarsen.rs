//! Coarsening: breadth-first search from many sources at once deals the vertices to blocks of limited size.
//!
//! In every phase some of the vertices that have no block yet become sources, each a block of its own (by a keyed hash; twice as many in
//! every phase as in the one before). Blocks then grow by a step at a time: a vertex that touches blocks joins the one with room that it has
//! most edges to. After [`HOPS`] steps, or when none joined, the next phase begins. What has no block after the last phase becomes blocks
//! of single vertices; [`merge`](super::merge) folds those into others. At last vertices that have more edges to another block than to
//! their own move there, in two rounds (the size-constrained label propagation of Meyerhenke, Sanders and Schulz, SEA 2014).
//!
//! Every step reads the blocks of the one before, in parallel, and admits those who want to join in ascending order, so the outcome is the
//! same for any number of threads. O(E) a step; nearly all vertices join in the first few.

use std::cmp::Reverse;

use rayon::prelude::*;

use super::{super::limits::Load, level::Level, tally::Few};
use crate::{Result, keyed, memory};

/// Sets these draws apart from others of the same seed.
const DOMAIN: u64 = 0x7061_7274_2062_6673;
/// Steps of a phase.
const HOPS: usize = 10;
/// A phase draws at most that share of the vertices that are left; the last one does.
const MOST: f64 = 0.25;
/// Rounds in which vertices move to the block they have most edges to.
const SMOOTH: usize = 2;
/// No block.
pub(super) const NONE: u32 = u32::MAX;
/// Neighbours that a vertex looks at.
const LOOK: usize = 16;
/// Vertices of a parallel task.
const TASK: usize = 1 << 10;

/// The block of every vertex, numbered from 0 without gaps, and how many there are. Blocks hold at most `most`.
pub(super) fn blocks<L: Level>(level: &L, most: Load, sources: u64, seed: u64) -> Result<(Vec<u32>, usize)> {
    let n = level.len();
    let mut of: Vec<u32> = memory::reserve(n)?;
    of.resize(n, NONE);
    let mut left: Vec<u32> = (0..n as u32).collect();
    let mut loads: Vec<Load> = Vec::new();
    let mut share = (sources as f64 / n as f64).min(MOST);
    for phase in 0.. {
        let threshold = (share * (1u64 << 53) as f64) as u64;
        for &v in &left {
            if keyed::key(&[DOMAIN, seed, phase, v.into()]) >> 11 < threshold {
                of[v as usize] = loads.len() as u32;
                loads.push(level.load(v));
            }
        }
        left.retain(|&v| of[v as usize] == NONE);
        for _ in 0..HOPS {
            let wanted = wanted(level, &of, &loads, most, &left);
            let before = left.len();
            admit(level, &left, &wanted, most, &mut of, &mut loads);
            left.retain(|&v| of[v as usize] == NONE);
            if before - left.len() <= before / 64 {
                break;
            }
        }
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
        smooth(level, most, round % 2 == 0, &mut of, &mut loads);
    }
    Ok(renumber(of, loads.len()))
}

/// The block with room that each of `left` has most edges to; of several the one with the lowest number.
fn wanted<L: Level>(level: &L, of: &[u32], loads: &[Load], most: Load, left: &[u32]) -> Vec<u32> {
    let one = |few: &mut Few, &v: &u32| {
        few.clear();
        level.some(v, LOOK, |u, weight| {
            let block = of[u as usize];
            if block != NONE {
                few.add(block, weight);
            }
        });
        let load = level.load(v);
        let open = few.iter().filter(|&(block, _)| fits(loads[block as usize], load, most));
        open.max_by_key(|&(block, sum)| (sum, Reverse(block))).map_or(NONE, |(block, _)| block)
    };
    left.par_iter().with_min_len(TASK).map_init(Few::default, one).collect()
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

/// Moves vertices to the block that they have most edges to: to those of a higher number, or of a lower one, so that two neighbours
/// do not change places for ever.
fn smooth<L: Level>(level: &L, most: Load, up: bool, of: &mut [u32], loads: &mut [Load]) {
    let snapshot: &[u32] = of;
    let one = |few: &mut Few, v: u32| {
        few.clear();
        let own = snapshot[v as usize];
        level.some(v, LOOK, |u, weight| {
            if u != v {
                few.add(snapshot[u as usize], weight);
            }
        });
        let (load, stays) = (level.load(v), few.of(own));
        let better = few.iter().filter(|&(block, sum)| {
            (block > own) == up && sum > stays && fits(loads[block as usize], load, most)
        });
        better.max_by_key(|&(block, sum)| (sum, Reverse(block))).map_or(NONE, |(block, _)| block)
    };
    let all = (0..level.len() as u32).into_par_iter().with_min_len(TASK);
    let wanted: Vec<u32> = all.map_init(Few::default, one).collect();
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
    of.par_iter_mut().with_min_len(TASK).for_each(|block| *block = new[*block as usize]);
    (of, next as usize)
}
