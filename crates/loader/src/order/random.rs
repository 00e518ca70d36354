//! A uniform shuffle: nodes sorted by a hash of (seed, epoch, node). Parallel, and independent of
//! the number of threads because the keys are.

use graphmill_graph::{NodeId, keyed};
use rayon::prelude::*;

/// See [`super::Order`]. O(n log n), parallel.
pub fn order(nodes: &[NodeId], seed: u64, epoch: u64, out: &mut Vec<NodeId>) {
    let key = keyed::key(&[seed, epoch, 0x006f_7264_6572]);
    out.clear();
    out.extend_from_slice(nodes);
    // mix is a bijection, so distinct nodes have distinct keys and the order is unique
    out.par_sort_unstable_by_key(|&v| keyed::mix(key ^ u64::from(v)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_that_changes_with_epoch_and_seed() {
        let nodes: Vec<u32> = (0..1000).collect();
        let run = |seed, epoch| {
            let mut out = Vec::new();
            order(&nodes, seed, epoch, &mut out);
            out
        };
        let first = run(1, 0);
        assert_eq!(first, run(1, 0));
        assert!(first != run(1, 1) && first != run(2, 0) && first != nodes);
        let mut sorted = first;
        sorted.sort_unstable();
        assert_eq!(sorted, nodes);
    }

    #[test]
    fn the_first_place_is_uniform() {
        let nodes: Vec<u32> = (0..10).collect();
        let mut counts = [0u32; 10];
        let mut out = Vec::new();
        for epoch in 0..10_000 {
            order(&nodes, 3, epoch, &mut out);
            counts[out[0] as usize] += 1;
        }
        // binomial(10^4, 0.1): sigma 30; five sigma
        assert!(counts.iter().all(|c| c.abs_diff(1000) < 150), "{counts:?}");
    }
}
