//! Hill climbing: vertices move to the part where they gain most, or lose least, one by one, each once; what is kept is the beginning of that
//! sequence after which the fewest edges were cut (Fiduccia and Mattheyses, *A linear-time heuristic for improving network partitions*,
//! DAC 1982, with several parts and a heap for their buckets).
//!
//! It leaves a local minimum that [`refine`](super::refine) cannot, and does so one move at a time: for the levels of blocks alone. Ends after
//! [`PATIENCE`] moves that did not lead to fewer edges, or when it has looked at [`WORK`] times the level's edges: O(E log E).

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{
    super::limits::{Limits, Load},
    level::{Blocks, Level},
    tally::Tally,
};

/// Edges of a level that one thread climbs on: it took half the time of a Kronecker graph of 2^18 nodes when it did on any.
const LARGEST: usize = 1 << 18;
/// Moves in vain.
const PATIENCE: usize = 200;
/// Edges looked at, as a multiple of those there are.
const WORK: usize = 4;

/// The part that a vertex would best move to, of those with room, and what it gains.
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
    let may = |part: &u32| *part != own && held[*part as usize].has_room(load, limits);
    let found = tally.keys().iter().copied().filter(may).max_by_key(|&part| (tally.of(part), Reverse(part)));
    let found = found.map(|part| (tally.of(part) as i64 - tally.of(own) as i64, part as u16));
    tally.clear();
    found
}

/// Climbs until a pass brings nothing, at most `passes` times; not at all on a level of more than [`LARGEST`] edges.
pub(super) fn climb(blocks: &Blocks, of: &mut [u16], held: &mut [Load], limits: Limits, passes: usize) {
    if blocks.indices.len() > LARGEST {
        return;
    }
    for _ in 0..passes {
        if pass(blocks, of, held, limits) <= 0 {
            break;
        }
    }
}

/// One pass; how many edges fewer are cut.
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
            // what was in the heap is of an earlier state
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
            // an upper bound of what the neighbour gains now; the truth is found when it comes up
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
