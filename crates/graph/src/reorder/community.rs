//! Communities side by side: nodes that are densely joined get ids next to each other.
//!
//! Communities come from moving every node to the one among its neighbours' that raises modularity most, round after round: the
//! first level of Blondel et al., *Fast unfolding of communities in large networks*, 2008, with rounds in the place of
//! one node after the other. In each round half of the nodes move, by a keyed draw, on what the round before left: the
//! outcome does not depend on threads, and two neighbours do not change places for ever. Communities stand in the order in
//! which a breadth-first walk meets them, and so do the nodes of each: neighbouring communities are mostly
//! neighbours again. (Layered label propagation, Boldi et al., WWW 2011, and Rabbit Order, Arai et al., IPDPS 2016, nest
//! communities in communities in the walk's place.)
//!
//! O(E log d) a round, parallel; `20 V` bytes.

use std::cell::RefCell;

use rayon::prelude::*;

use super::{adjacency::both_ways, bfs, keys::by_keys};
use crate::{Graph, NodeId, Result, keyed};

/// Rounds, in each of which half of the nodes move; later ones move few.
const ROUNDS: u64 = 10;
/// Sets these draws apart from others of the same seed.
const DOMAIN: u64 = 0x636f_6d6d_756e_6974;

/// The order. Edges are followed both ways.
pub(super) fn order(graph: &Graph, seed: u64) -> Result<Vec<NodeId>> {
    let graph = both_ways(graph)?;
    let community = communities(&graph, seed);
    let walk = bfs::walk(&graph)?;
    // what a community's first node is in the walk
    let mut place = vec![u32::MAX; walk.len()];
    let mut met = vec![u32::MAX; walk.len()];
    for (i, &v) in walk.iter().enumerate() {
        place[v as usize] = i as u32;
        let met = &mut met[community[v as usize] as usize];
        *met = (*met).min(i as u32);
    }
    by_keys(walk.len(), |v| {
        u64::from(met[community[v as usize] as usize]) << 32 | u64::from(place[v as usize])
    })
}

/// The community of every node, called by one of its nodes.
fn communities(graph: &Graph, seed: u64) -> Vec<NodeId> {
    thread_local!(static ROW: RefCell<Vec<NodeId>> = const { RefCell::new(Vec::new()) });
    let nodes = 0..graph.num_nodes() as NodeId;
    let mut of: Vec<NodeId> = nodes.clone().collect();
    let mut next = of.clone();
    // sums of degrees
    let mut volume: Vec<f64> = nodes.clone().map(|v| graph.in_degree(v) as f64).collect();
    let per_edge = 1.0 / graph.num_edges().max(1) as f64;
    for round in 0..ROUNDS {
        let choose = |v: NodeId, row: &mut Vec<NodeId>| {
            let own = of[v as usize];
            let degree = graph.in_degree(v) as f64;
            row.clear();
            row.extend(graph.in_neighbors(v).iter().filter(|&&u| u != v).map(|&u| of[u as usize]));
            row.sort_unstable();
            // edges into a community, less those that its volume and ours would give by chance
            let gain = |c: NodeId, edges: usize| {
                let others = volume[c as usize] - if c == own { degree } else { 0.0 };
                edges as f64 - degree * others * per_edge
            };
            let mut best = (gain(own, row.iter().filter(|&&c| c == own).count()), own);
            for run in row.chunk_by(|a, b| a == b) {
                let found = gain(run[0], run.len());
                if found > best.0 {
                    best = (found, run[0]);
                }
            }
            best.1
        };
        next.par_iter_mut().enumerate().with_min_len(1 << 8).for_each(|(v, slot)| {
            let moves = keyed::key(&[DOMAIN, seed, round, v as u64]) & 1 == 0;
            *slot = if moves { ROW.with_borrow_mut(|row| choose(v as NodeId, row)) } else { of[v] };
        });
        for v in nodes.clone().filter(|&v| next[v as usize] != of[v as usize]) {
            let degree = graph.in_degree(v) as f64;
            volume[of[v as usize] as usize] -= degree;
            volume[next[v as usize] as usize] += degree;
        }
        of.copy_from_slice(&next);
    }
    of
}
