//! A uniform shuffle: nodes sorted by a hash of (seed, epoch, node). Parallel, and independent of
//! the number of threads because the sort keys are.

use graphmill_core::{NodeId, keyed};
use rayon::prelude::*;

use super::SeedOrder;

/// Uniformly random order, new in every epoch.
#[derive(Clone, Copy, Debug)]
pub struct Random<'a> {
    train: &'a [NodeId],
    seed: u64,
}

impl<'a> Random<'a> {
    /// Creates the order of the nodes `train`.
    pub fn new(train: &'a [NodeId], seed: u64) -> Self {
        Self { train, seed }
    }
}

impl SeedOrder for Random<'_> {
    /// Writes the order of `epoch`. O(T log T), parallel.
    fn order(&self, epoch: u64, out: &mut Vec<NodeId>) {
        let key = keyed::key(&[self.seed, epoch, 0x006f_7264_6572]);
        out.clear();
        out.extend_from_slice(self.train);
        // mix is a bijection, so distinct nodes have distinct keys and the order is unique
        out.par_sort_unstable_by_key(|&v| keyed::mix(key ^ u64::from(v)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_permutations_that_change_with_epoch_and_seed() {
        let nodes: Vec<u32> = (0..1000).collect();
        let run = |seed, epoch| {
            let mut out = Vec::new();
            Random::new(&nodes, seed).order(epoch, &mut out);
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
    fn the_first_node_is_uniform() {
        let nodes: Vec<u32> = (0..10).collect();
        let mut counts = [0u32; 10];
        let mut out = Vec::new();
        for epoch in 0..10_000 {
            Random::new(&nodes, 3).order(epoch, &mut out);
            counts[out[0] as usize] += 1;
        }
        // binomial(10^4, 0.1): sigma 30; five sigma
        assert!(counts.iter().all(|c| c.abs_diff(1000) < 150), "{counts:?}");
    }
}
