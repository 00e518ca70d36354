//! Probability that a minibatch reads a node, propagated hop by hop, without sampling.
//!
//! # Algorithm
//!
//! A batch's frontier holds a training node with probability `B / train`. A node `u` of the
//! frontier draws each of its `d(u)` neighbours with probability `min(1, k / d(u))`, so `v` is not
//! in the next frontier only if it is not in this one and none of its out-neighbours draws it:
//!
//! `p'(v) = 1 - (1 - p(v)) * product over out-neighbours u of v of (1 - p(u) min(1, k / d(u)))`
//!
//! This treats neighbours as if they were in a frontier independently of each other.
//!
//! # Source
//!
//! `sample_prob` of Quiver (Tan et al., *Quiver: supporting GPUs for low-latency, high-throughput
//! GNN serving with workload awareness*, 2023).
//!
//! # Cost
//!
//! O(L (V + E)).
//!
//! # Deviations
//!
//! Quiver starts with probability 1 on all training nodes, which gives the probability per epoch
//! rather than per batch and cannot rank nodes of graphs where an epoch reads most of them.

use graphmill_core::rank::spread;
use rayon::prelude::*;

use super::{Setting, no_argument};

/// Maximum negative logarithm of a product: anything beyond counts as certain.
const CERTAIN: f64 = 40.0;

/// Probability of each node. Neighbours count equally, whatever the sampler's weights are.
pub(super) fn score(setting: &Setting, argument: Option<&str>) -> Result<Vec<f64>, String> {
    no_argument("analytic", argument)?;
    let graph = setting.graph;
    let mut chance = vec![0.0f64; graph.num_nodes()];
    let seed = (setting.batch_size as f64 / setting.train.len().max(1) as f64).min(1.0);
    setting.train.iter().for_each(|&v| chance[v as usize] = seed);
    for &fanout in setting.fanout.iter() {
        // minus the logarithm of 1 - p(u) min(1, k / d(u)), so that the product is a sum
        let unlikely: Vec<f64> = chance
            .par_iter()
            .enumerate()
            .map(|(u, p)| {
                let degree = graph.in_degree(u as u32).max(1) as f64;
                let part = if fanout < 0 { 1.0 } else { (fanout as f64 / degree).min(1.0) };
                (-(-p * part).ln_1p()).min(CERTAIN)
            })
            .collect();
        let log_none = spread(graph, |u, _| unlikely[u as usize]);
        chance.par_iter_mut().zip(log_none).for_each(|(p, none)| *p = 1.0 - (1.0 - *p) * (-none).exp());
    }
    Ok(chance)
}
