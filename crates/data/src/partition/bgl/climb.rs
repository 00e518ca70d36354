//! Hill climbing on the part of each vertex.
//!
//! # Algorithm
//!
//! Vertices move one by one, each at most once, to the part with the largest gain or smallest loss;
//! afterwards the sequence is cut where the fewest edges were cut. Unlike [`refine`](super::refine)
//! this can leave a local minimum, but it is sequential, so it serves only the levels of blocks. A
//! pass ends after [`PATIENCE`] moves without improvement, or after visiting [`WORK`] times the
//! level's edges.
//!
//! # Source
//!
//! Fiduccia and Mattheyses, *A linear-time heuristic for improving network partitions*, DAC 1982.
//!
//! # Cost
//!
//! O(E log E).
//!
//! # Deviations
//!
//! Several parts instead of two, and a heap instead of buckets.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{
    super::limits::{Limits, Load},
    level::{Blocks, Level},
    tally::Tally,
};

/// Largest level, in edges, for this sequential step: without a limit it took half the time of a
/// Kronecker graph of 2^18 nodes.
const MAX_EDGES: usize = 1 << 18;
/// Moves without improvement after which a pass ends.
const PATIENCE: usize = 200;
/// Edges visited in a pass, as a multiple of the level's edges.
const WORK: usize = 4;

/// Best part for a vertex among those with capacity, and its gain.
fn best(
    blocks: &Blocks,
    v: u32,
    of: &[u16],
    held: &[Load],
    limits: Limits,
    tally: &mut Tally,
) -> Option<(i64, u16)> {
    let own = u32::from(of[v as usize]);
    blocks.each(v, |u, weight| tally.add(of[u as usize].into(), weight));
    let load = blocks.load(v);
    let may = |part: &u32| *part != own && held[*part as usize].has_capacity(load, limits);
    let found = tally.keys().iter().copied().filter(may).max_by_key(|&part| (tally.of(part), Reverse(part)));
    let found = found.map(|part| (tally.of(part) as i64 - tally.of(own) as i64, part as u16));
    tally.clear();
    found
}

/// Climbs until a pass brings no improvement, at most `passes` times; skips levels of more than
/// [`MAX_EDGES`] edges.
pub(super) fn climb(blocks: &Blocks, of: &mut [u16], held: &mut [Load], limits: Limits, passes: usize) {
    if blocks.indices.len() > MAX_EDGES {
        return;
    }
    for _ in 0..passes {
        if pass(blocks, of, held, limits) <= 0 {
            break;
        }
    }
}

/// Runs one pass and returns the decrease of the cut.
fn pass(blocks: &Blocks, of: &mut [u16], held: &mut [Load], limits: Limits) -> i64 {
    let n = blocks.len();
    let mut tally = Tally::new(held.len());
    let mut heap: BinaryHeap<(i64, Reverse<u32>, u16)> = BinaryHeap::new();
    for v in 0..n as u32 {
        if let Some((gain, part)) = best(blocks, v, of, held, limits, &mut tally) {
            heap.push((gain, Reverse(v), part));
        }
    }
    let mut moved = vec![false; n];
    let mut log: Vec<(u32, u16)> = Vec::new();
    let (mut sum, mut most, mut kept) = (0, 0, 0);
    let mut work = WORK * blocks.indices.len();
    while let Some((gain, Reverse(v), part)) = heap.pop() {
        if moved[v as usize] {
            continue;
        }
        let now = best(blocks, v, of, held, limits, &mut tally);
        work = work.saturating_sub(1 + (blocks.indptr[v as usize + 1] - blocks.indptr[v as usize]) as usize);
        if now != Some((gain, part)) {
            // The heap entry may be outdated.
            if let Some((gain, part)) = now {
                heap.push((gain, Reverse(v), part));
            }
            if work == 0 {
                break;
            }
            continue;
        }
        let (own, load) = (of[v as usize], blocks.load(v));
        held[usize::from(own)].remove(load);
        held[usize::from(part)].add(load);
        of[v as usize] = part;
        moved[v as usize] = true;
        log.push((v, own));
        sum += gain;
        if sum > most {
            (most, kept) = (sum, log.len());
        }
        if log.len() - kept >= PATIENCE || work == 0 {
            break;
        }
        blocks.each(v, |u, weight| {
            // Upper bound of the neighbour's new gain; the exact gain is computed when its entry is
            // popped.
            if !moved[u as usize] && of[u as usize] != part {
                heap.push((gain.max(0) + 2 * weight as i64, Reverse(u), part));
            }
        });
    }
    for (v, own) in log.drain(kept..).rev() {
        let load = blocks.load(v);
        held[usize::from(of[v as usize])].remove(load);
        held[usize::from(own)].add(load);
        of[v as usize] = own;
    }
    most
}
