//! Refinement: vertices move to the part that they have most edges to, while the parts' limits allow.
//!
//! Only those who have an edge to another part at the beginning do. A half-round asks one half of them, by a hash, the next one the other: all
//! look at the same parts (those before the half-round), in parallel, and of two neighbours that would change places only some are in the
//! same half. Those who gain most go first. A vertex that gains nothing moves where that levels the parts. Ends when few move. O(E) a
//! round, and the sort of those who move; the same for any number of threads.

use std::cmp::Reverse;

use graphmill_core::keyed::mix;
use rayon::prelude::*;

use super::{
    super::limits::{Limits, Load},
    level::Level,
    tally::Tally,
};

/// Ends when at most one of so many vertices moved in a round.
const FEW: usize = 1000;
/// Vertices of a parallel task.
const MIN_TASK_LEN: usize = 1 << 10;

/// Moves vertices in at most `rounds` rounds; `held` is what the parts hold.
pub(super) fn refine<L: Level>(level: &L, of: &mut [u16], held: &mut [Load], limits: Limits, rounds: usize) {
    let few = level.len() / FEW;
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

/// One half-round; how many moved.
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
                && target.has_room(load, limits)
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
        if held[usize::from(part)].has_room(load, limits) {
            held[usize::from(of[v as usize])].remove(load);
            held[usize::from(part)].add(load);
            of[v as usize] = part;
            moved += 1;
        }
    }
    moved
}
