//! Refinement: vertices move to the part that they have most edges to, while the parts' limits allow.
//!
//! A half-round moves vertices to parts of a higher number only, the next one to parts of a lower number: so two neighbours cannot
//! change places for ever although all look at the same parts (those before the half-round), in parallel. Those who gain most go first.
//! A vertex that gains nothing moves where that levels the parts. Ends when few move. O(E) a half-round, and the sort of those who move;
//! the same for any number of threads.

use std::cmp::Reverse;

use rayon::prelude::*;

use super::{
    super::limits::{Limits, Load},
    level::Level,
    tally::Tally,
};

/// Vertices of a parallel task.
const TASK: usize = 1 << 10;

/// Moves vertices in at most `rounds` rounds; `held` is what the parts hold.
pub(super) fn refine<L: Level>(level: &L, of: &mut [u16], held: &mut [Load], limits: Limits, rounds: usize) {
    let few = level.len() / 1000;
    for _ in 0..rounds {
        let moved = half(level, true, of, held, limits) + half(level, false, of, held, limits);
        if moved <= few {
            break;
        }
    }
}

/// One half-round; how many moved.
fn half<L: Level>(level: &L, up: bool, of: &mut [u16], held: &mut [Load], limits: Limits) -> usize {
    let (parts, now): (&[u16], &[Load]) = (of, held);
    let one = |tally: &mut Tally, v: u32| {
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
            (part > u32::from(own)) == up
                && part != u32::from(own)
                && (tally.of(part) > stays || (tally.of(part) == stays && evens))
                && target.has_room(load, limits)
        };
        let best = tally.keys().iter().filter(may).copied();
        let best = best.max_by_key(|&part| (tally.of(part), Reverse(part)));
        let found = best.map(|part| (Reverse(tally.of(part) - stays), v, part as u16));
        tally.clear();
        found
    };
    let mut moves: Vec<(Reverse<u64>, u32, u16)> = (0..level.len() as u32)
        .into_par_iter()
        .with_min_len(TASK)
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
