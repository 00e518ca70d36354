//! Repair: a part that holds too much gives nodes away until it does not.
//!
//! First training nodes leave parts that have too many for parts that have room for them, whatever else those hold; then nodes that do not
//! train leave parts that have too many nodes. There are always enough of them: a part that keeps to its limit of training nodes is within
//! that of nodes without the others. Those who lose the fewest edges go first. O(E) once for each of the two, where they are needed at all.

use rayon::prelude::*;

use super::{
    super::limits::{Limits, Load},
    level::{Level, Nodes},
    tally::Tally,
};

/// Moves nodes until no part is over its limits.
pub(super) fn repair(nodes: &Nodes, of: &mut [u16], held: &mut [Load], limits: Limits) {
    give(nodes, of, held, true, |part| part.train > limits.train, |part| part.train < limits.train);
    give(nodes, of, held, false, |part| part.nodes > limits.nodes, |part| part.nodes < limits.nodes);
}

/// Moves nodes of which training is `train` from parts that are `over` to the best of those with `room`.
fn give(
    nodes: &Nodes,
    of: &mut [u16],
    held: &mut [Load],
    train: bool,
    over: impl Fn(&Load) -> bool + Sync,
    room: impl Fn(&Load) -> bool + Sync,
) {
    if !held.iter().any(&over) {
        return;
    }
    let (parts, now): (&[u16], &[Load]) = (of, held);
    // what leaving costs, for the best part that has room now
    let one = |tally: &mut Tally, v: u32| {
        let own = parts[v as usize];
        if nodes.trains[v as usize] != train || !over(&now[usize::from(own)]) {
            return None;
        }
        nodes.each(v, |u, weight| tally.add(parts[u as usize].into(), weight));
        let best = tally.keys().iter().copied().filter(|&part| room(&now[part as usize]));
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
        let wanted = Some(usize::from(wanted)).filter(|&part| held.get(part).is_some_and(&room));
        let emptiest =
            || (0..held.len()).filter(|&part| room(&held[part])).min_by_key(|&part| (held[part].nodes, part));
        let Some(part) = wanted.or_else(emptiest) else { continue };
        let load = nodes.load(v);
        held[own].remove(load);
        held[part].add(load);
        of[v as usize] = part as u16;
    }
}
