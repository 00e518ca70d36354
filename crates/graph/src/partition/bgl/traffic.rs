//! What cutting an edge would cost: how often a neighbour sampler is expected to walk it in an epoch.
//!
//! A node that is reached draws `K` of its `d` in-neighbours, each edge with probability `min(1, K / d)`. A training node is reached once;
//! another as often as edges to it are walked, but in a minibatch once at most however many reach it. So with `B` minibatches
//!
//! ```text
//! s_0(v) = 1 if v trains, else 0        s_j(u) = min(B, Σ over edges u -> v of s_{j-1}(v) min(1, K / d(v)))
//! f(v) = min(B, s_0(v) + s_1(v) + s_2(v)) min(1, K / d(v))
//! ```
//!
//! is what each edge into `v` is walked, and `f(u) + f(v)` what an edge that stands both ways is. Numbers are those of the paper's
//! evaluation: `K = 10`, 1000 training nodes in a minibatch. Without training nodes every node counts as one. O(E), parallel; 12 bytes a node.

use rayon::prelude::*;

use crate::{Graph, NodeId, Result, memory};

/// Neighbours that are drawn.
const FANOUT: f32 = 10.0;
/// Training nodes of a minibatch.
const BATCH: f32 = 1000.0;
/// Weight of the edge that is walked the most.
const SCALE: f32 = 255.0;
/// Nodes of a parallel task.
const TASK: usize = 1 << 10;

/// `f` of every node, scaled to `1..=256`. `both` has every edge both ways.
pub(super) fn traffic(both: &Graph, trains: &[bool]) -> Result<Vec<u16>> {
    let nodes = both.num_nodes();
    let train = trains.iter().filter(|&&trains| trains).count();
    let batches = (if train == 0 { nodes } else { train } as f32 / BATCH).ceil();
    let share = |v: usize| (FANOUT / (both.in_degree(v as NodeId).max(1) as f32)).min(1.0);
    let mut first: Vec<f32> = memory::reserve(nodes)?;
    first.par_extend(trains.par_iter().map(|&trains| f32::from(trains || train == 0)));
    let step = |from: &[f32]| -> Result<Vec<f32>> {
        // what each edge from a node carries
        let mut carried: Vec<f32> = memory::reserve(nodes)?;
        carried.par_extend(from.par_iter().enumerate().map(|(v, s)| s * share(v)));
        let reached =
            |u: usize| -> f32 { both.in_neighbors(u as NodeId).iter().map(|&v| carried[v as usize]).sum() };
        let mut to: Vec<f32> = memory::reserve(nodes)?;
        to.par_extend((0..nodes).into_par_iter().with_min_len(TASK).map(|u| reached(u).min(batches)));
        Ok(to)
    };
    let second = step(&first)?;
    let third = step(&second)?;
    let walked = |v: usize| (first[v] + second[v] + third[v]).min(batches) * share(v);
    let most = (0..nodes).into_par_iter().map(walked).reduce(|| f32::MIN_POSITIVE, f32::max);
    let mut scaled = memory::reserve(nodes)?;
    scaled.par_extend((0..nodes).into_par_iter().map(|v| 1 + (walked(v) / most * SCALE) as u16));
    Ok(scaled)
}
