//! The chance that a minibatch asks for a node, propagated hop by hop: no sampling, no noise, O(L
//! (V + E)).
//!
//! A batch's frontier holds a training node with probability `B / train`. A node `u` of it draws
//! each of its `d(u)` neighbours with probability `min(1, k / d(u))`, so `v` joins the next
//! frontier unless it is in this one already or none of those that hear from it draw it:
//!
//! `p'(v) = 1 - (1 - p(v)) * product over u that hear from v of (1 - p(u) min(1, k / d(u)))`
//!
//! as if neighbours were in a frontier independently of each other. Quiver's `sample_prob` starts
//! at 1 on all training nodes, which is the chance of an epoch rather than of a batch: on graphs
//! where an epoch touches most nodes it can no longer tell them apart.

use graphmill_core::rank::spread;
use rayon::prelude::*;

use super::{Setting, no_argument};

/// The largest logarithm: a product beyond is none.
const CERTAIN: f64 = 40.0;

/// See the module's text. Neighbours count alike, whatever the sampler's weights are.
pub(super) fn score(setting: &Setting, argument: Option<&str>) -> Result<Vec<f64>, String> {
    no_argument("analytic", argument)?;
    let graph = setting.graph;
    let mut chance = vec![0.0f64; graph.num_nodes()];
    let seed = (setting.batch_size as f64 / setting.train.len().max(1) as f64).min(1.0);
    setting.train.iter().for_each(|&v| chance[v as usize] = seed);
    for &fanout in setting.fanout.iter() {
        // minus the logarithm of 1 - p(u) min(1, k / d(u)), of which sums are taken
        let unlikely: Vec<f64> = chance
            .par_iter()
            .enumerate()
            .map(|(u, p)| {
                let degree = graph.in_degree(u as u32).max(1) as f64;
                let part = if fanout < 0 { 1.0 } else { (fanout as f64 / degree).min(1.0) };
                (-(-p * part).ln_1p()).min(CERTAIN)
            })
            .collect();
        let none = spread(graph, |u, _| unlikely[u as usize]);
        chance.par_iter_mut().zip(none).for_each(|(p, none)| *p = 1.0 - (1.0 - *p) * (-none).exp());
    }
    Ok(chance)
}
