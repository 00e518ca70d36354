//! Repair of parts that exceed their limits.
//!
//! # Algorithm
//!
//! First, training nodes leave parts with too many for parts with capacity for training nodes,
//! regardless of their other load; then other nodes leave parts with too many nodes. A solution
//! always exists: a part within its limit of training nodes is within the limit of nodes without
//! the others. The nodes that lose the fewest edges move first.
//!
//! # Source
//!
//! Ours; not part of BGL (Liu et al., NSDI 2023).
//!
//! # Cost
//!
//! O(E) for each of the two steps, only if it is needed.

use rayon::prelude::*;

use super::{
    super::limits::{Limits, Load},
    level::{Level, Nodes},
    tally::Tally,
};

/// Moves nodes until no part exceeds its limits.
pub(super) fn repair(nodes: &Nodes, of: &mut [u16], held: &mut [Load], limits: Limits) {
    give(nodes, of, held, true, |part| part.train > limits.train, |part| part.train < limits.train);
    give(nodes, of, held, false, |part| part.nodes > limits.nodes, |part| part.nodes < limits.nodes);
}

/// Moves nodes whose training flag is `train` from parts for which `over` holds to the best part
/// for which `fits` holds.
fn give(
    nodes: &Nodes,
    of: &mut [u16],
    held: &mut [Load],
    train: bool,
    over: impl Fn(&Load) -> bool + Sync,
    fits: impl Fn(&Load) -> bool + Sync,
) {
    if !held.iter().any(&over) {
        return;
    }
    let (parts, now): (&[u16], &[Load]) = (of, held);
    // Cost of leaving, for the best part that has capacity now.
    let one = |tally: &mut Tally, v: u32| {
        let own = parts[v as usize];
        if nodes.trains[v as usize] != train || !over(&now[usize::from(own)]) {
            return None;
        }
        nodes.each(v, |u, weight| tally.add(parts[u as usize].into(), weight));
        let best = tally.keys().iter().copied().filter(|&part| fits(&now[part as usize]));
        let best = best.max_by_key(|&part| (tally.of(part), std::cmp::Reverse(part)));
        let gain = best.map_or(0, |part| tally.of(part) as i64) - tally.of(own.into()) as i64;
        tally.clear();
        Some((-gain, v, best.map_or(u16::MAX, |part| part as u16)))
    };
    let all = (0..of.len() as u32).into_par_iter().with_min_len(1 << 10);
    let mut moves: Vec<(i64, u32, u16)> =
        all.map_init(|| Tally::new(now.len()), one).flatten_iter().collect();
    moves.par_sort_unstable();
    for (_, v, wanted) in moves {
        let own = usize::from(of[v as usize]);
        if !over(&held[own]) {
            continue;
        }
        let wanted = Some(usize::from(wanted)).filter(|&part| held.get(part).is_some_and(&fits));
        let emptiest =
            || (0..held.len()).filter(|&part| fits(&held[part])).min_by_key(|&part| (held[part].nodes, part));
        let Some(part) = wanted.or_else(emptiest) else { continue };
        let load = nodes.load(v);
        held[own].remove(load);
        held[part].add(load);
        of[v as usize] = part as u16;
    }
}
