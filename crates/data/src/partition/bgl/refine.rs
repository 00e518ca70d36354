//! Parallel refinement of the parts.
//!
//! # Algorithm
//!
//! Each vertex moves to the part with which it shares the most edges, within the parts' limits.
//! Only vertices with an edge to another part participate. A round consists of two half-rounds, one
//! per half of the vertices (by a hash); a half-round evaluates all moves in parallel on the
//! previous state, so that of two neighbours that would swap parts only some are in the same half.
//! The moves with the largest gain come first. A vertex without gain moves if that improves the
//! balance. Refinement ends when few vertices move. The result does not depend on the number of
//! threads.
//!
//! # Source
//!
//! Parallel label propagation, as in multilevel partitioners: Meyerhenke, Sanders and Schulz, SEA
//! 2014.
//!
//! # Cost
//!
//! O(E) a round, plus the sort of the moving vertices.

use std::cmp::Reverse;

use graphmill_core::keyed::mix;
use rayon::prelude::*;

use super::{
    super::limits::{Limits, Load},
    level::Level,
    tally::Tally,
};

/// Refinement ends when at most one vertex in this many moved in a round.
const MIN_MOVED_FRACTION: usize = 1000;
/// Minimum number of vertices of a parallel task.
const MIN_TASK_LEN: usize = 1 << 10;

/// Refines in at most `rounds` rounds; `held` is the load of each part.
pub(super) fn refine<L: Level>(level: &L, of: &mut [u16], held: &mut [Load], limits: Limits, rounds: usize) {
    let few = level.len() / MIN_MOVED_FRACTION;
    let (parts, all): (&[u16], u32) = (of, level.len() as u32);
    let beside = |&v: &u32| {
        let mut beside = false;
        level.each(v, |u, _| beside |= parts[u as usize] != parts[v as usize]);
        beside
    };
    let border: Vec<u32> = (0..all).into_par_iter().with_min_len(MIN_TASK_LEN).filter(beside).collect();
    for _ in 0..rounds {
        let moved = half(level, &border, 0, of, held, limits) + half(level, &border, 1, of, held, limits);
        if moved <= few {
            break;
        }
    }
}

/// Runs one half-round and returns the number of moves.
fn half<L: Level>(
    level: &L,
    border: &[u32],
    which: u64,
    of: &mut [u16],
    held: &mut [Load],
    limits: Limits,
) -> usize {
    let (parts, now): (&[u16], &[Load]) = (of, held);
    let one = |tally: &mut Tally, &v: &u32| {
        if mix(v.into()) & 1 != which {
            return None;
        }
        let own = parts[v as usize];
        level.each(v, |u, weight| {
            if u != v {
                tally.add(parts[u as usize].into(), weight);
            }
        });
        let stays = tally.of(own.into());
        let load = level.load(v);
        let may = |&&part: &&u32| {
            let target = now[part as usize];
            let evens = target.nodes + load.nodes < now[usize::from(own)].nodes;
            part != u32::from(own)
                && (tally.of(part) > stays || (tally.of(part) == stays && evens))
                && target.has_capacity(load, limits)
        };
        let best = tally.keys().iter().filter(may).copied();
        let best = best.max_by_key(|&part| (tally.of(part), Reverse(part)));
        let found = best.map(|part| (Reverse(tally.of(part) - stays), v, part as u16));
        tally.clear();
        found
    };
    let mut moves: Vec<(Reverse<u64>, u32, u16)> = border
        .par_iter()
        .with_min_len(MIN_TASK_LEN)
        .map_init(|| Tally::new(now.len()), one)
        .flatten_iter()
        .collect();
    moves.par_sort_unstable();
    let mut moved = 0;
    for (_, v, part) in moves {
        let load = level.load(v);
        if held[usize::from(part)].has_capacity(load, limits) {
            held[usize::from(of[v as usize])].remove(load);
            held[usize::from(part)].add(load);
            of[v as usize] = part;
            moved += 1;
        }
    }
    moved
}
