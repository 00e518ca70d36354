//! A uniform shuffle: nodes sorted by a hash of (seed, epoch, node). Parallel, and independent of
//! the number of threads because the sort keys are.
//!
//! Hashes are uniform, so their first bits divide many nodes into ranges of nearly equal length: a
//! task for each range picks its nodes, divides them once more, and sorts parts of some hundred
//! nodes.

use graphmill_core::{NodeId, keyed, memory};
use rayon::prelude::*;

use super::SeedOrder;

/// Number of nodes from which on hashes divide them into ranges.
const MIN_LEN: usize = 1 << 15;
/// Bits of the number of ranges: enough for the threads of a machine, because every range reads all
/// nodes.
const RANGE_BITS: u32 = 4;
const RANGES: usize = 1 << RANGE_BITS;
/// Share of the nodes, one of so many, up to which the first nodes are found without the others.
const FEW: usize = 8;
/// Expected number of nodes that are sorted at once, at least.
const PART_LEN: usize = 128;

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

impl Random<'_> {
    /// Hashes by which the nodes are sorted.
    fn hashes(&self, epoch: u64) -> impl Fn(NodeId) -> u64 + Copy + Send + Sync + use<> {
        let key = keyed::key(&[self.seed, epoch, 0x006f_7264_6572]);
        // mix is a bijection, so distinct nodes have distinct hashes and the order is unique
        move |v| keyed::mix(key ^ u64::from(v))
    }
}

impl SeedOrder for Random<'_> {
    /// Writes the order of `epoch`. O(T log T), parallel.
    fn order(&self, epoch: u64, out: &mut Vec<NodeId>) {
        let hash = self.hashes(epoch);
        memory::demand_copy(out, self.train);
        if out.len() < MIN_LEN {
            return out.par_sort_unstable_by_key(|&v| hash(v));
        }
        let range_of = |v: NodeId| (hash(v) >> (64 - RANGE_BITS)) as usize;
        let counts = self.train.par_chunks(MIN_LEN).map(|nodes| {
            let mut counts = [0; RANGES];
            nodes.iter().for_each(|&v| counts[range_of(v)] += 1);
            counts
        });
        let counts: [usize; RANGES] =
            counts.reduce(|| [0; RANGES], |a, b| std::array::from_fn(|i| a[i] + b[i]));
        let (mut ranges, mut rest) = (Vec::with_capacity(RANGES), &mut out[..]);
        for count in counts {
            let (range, others) = rest.split_at_mut(count);
            ranges.push(range);
            rest = others;
        }
        ranges.into_par_iter().enumerate().for_each(|(number, range)| {
            let nodes = self.train.iter().copied().filter(|&v| range_of(v) == number);
            range.iter_mut().zip(nodes).for_each(|(to, v)| *to = v);
            sort_range(range, hash);
        });
    }

    /// Writes the first nodes of the order: those with the least hashes. O(T + C log C), parallel.
    fn first(&self, epoch: u64, count: usize, out: &mut Vec<NodeId>) {
        let nodes = self.train.len();
        if nodes < MIN_LEN || count > nodes / FEW {
            self.order(epoch, out);
            return out.truncate(count);
        }
        let hash = self.hashes(epoch);
        // twice as many as needed are expected below the bound, and never fewer in practice
        let share = (2 * count + PART_LEN) as f64 / nodes as f64;
        let bound = (share * u64::MAX as f64) as u64;
        let of_chunk =
            |nodes: &[NodeId]| memory::demand_collect(nodes.iter().copied().filter(|&v| hash(v) < bound));
        let found = memory::demand_par_collect(self.train.par_chunks(MIN_LEN).map(of_chunk));
        out.clear();
        found.iter().for_each(|nodes| memory::demand_append(out, nodes));
        if out.len() < count {
            self.order(epoch, out);
        } else {
            out.par_sort_unstable_by_key(|&v| hash(v));
        }
        out.truncate(count);
    }
}

/// Sorts nodes by hashes that are uniform below their first [`RANGE_BITS`] bits. O(N) expected.
fn sort_range(nodes: &mut [NodeId], hash: impl Fn(NodeId) -> u64) {
    let bits = (nodes.len() / PART_LEN).max(1).ilog2();
    let part_of = |v: NodeId| ((hash(v) << RANGE_BITS) >> 32 >> (32 - bits)) as usize;
    let mut ends: Vec<usize> = memory::demand_zeros(1 << bits);
    nodes.iter().for_each(|&v| ends[part_of(v)] += 1);
    let mut start = 0;
    for end in &mut ends {
        (*end, start) = (start, start + *end);
    }
    let mut parts = memory::demand_zeros(nodes.len());
    for &v in &*nodes {
        let next = &mut ends[part_of(v)];
        parts[*next] = v;
        *next += 1;
    }
    nodes.copy_from_slice(&parts);
    let mut first = 0;
    for end in ends {
        nodes[first..end].sort_unstable_by_key(|&v| hash(v));
        first = end;
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

    #[test]
    fn ranges_give_the_order_of_the_hashes() {
        for count in [MIN_LEN - 1, MIN_LEN, 100_003] {
            let nodes: Vec<NodeId> = (0..count as NodeId).map(|v| v * 7 + 3).collect();
            let (mut found, mut expected) = (Vec::new(), nodes.clone());
            Random::new(&nodes, 5).order(2, &mut found);
            let key = keyed::key(&[5, 2, 0x006f_7264_6572]);
            expected.sort_unstable_by_key(|&v| keyed::mix(key ^ u64::from(v)));
            assert!(found == expected, "{count} nodes");
        }
    }

    #[test]
    fn first_nodes_are_those_of_the_whole_order() {
        for nodes in [MIN_LEN - 1, MIN_LEN, 100_003] {
            let train: Vec<NodeId> = (0..nodes as NodeId).map(|v| v * 7 + 3).collect();
            let random = Random::new(&train, 5);
            let (mut whole, mut first) = (Vec::new(), Vec::new());
            random.order(2, &mut whole);
            for count in [0, 1, 2, 1000, nodes / FEW, nodes / FEW + 1, nodes - 1, nodes, nodes + 1] {
                random.first(2, count, &mut first);
                assert!(first == whole[..count.min(nodes)], "{count} of {nodes} nodes");
            }
        }
    }
}
