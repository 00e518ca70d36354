//! The frontier as a tree of running sums, popped several nodes at a time.
//!
//! # Algorithm
//!
//! A tree of fan-out [`FAN`] has the frontier's nodes as its leaves; each child is stored with the
//! sum of the weights of all children before it. A uniform number below the total finds its leaf
//! from the root down: at each level the last child that begins at or before it, which is a count
//! over [`FAN`] sums. A new weight changes the later sums at each level. Both take a few compares
//! and additions of whole vectors for any weights, without clean-ups, fills or unpredictable
//! branches. The tree of a frontier of 1,000 nodes fits into the nearest cache many times over.
//!
//! Single pops would depend on one another, because the leaf of a number depends on all earlier
//! pops. Therefore numbers are looked up in *rounds* of [`ROUND`], all in the tree at the start of
//! the round, and the changes are applied when the round ends. The distribution stays exact,
//! because the position of a leaf's interval on the line of numbers is irrelevant, as long as its
//! length is the leaf's weight. During a round, a leaf with a new weight keeps a part of its
//! interval as long as the smallest weight that it had since; the rest of its weight gets an
//! interval in a reserve beyond the total. Numbers are drawn below the end of the reserve, and one
//! outside all intervals is skipped. The reserve is an eighth of the total, so one number in nine
//! is skipped at most; a round ends early when the reserve is full.
//!
//! # Source
//!
//! An alternative to the Dashboard (`dashboard.rs`) of Zeng et al., JPDC 2021.
//!
//! # Cost
//!
//! Per pop and per change: the logarithm of `m` to the base of the fan-out, times the fan-out over
//! the width of a vector. The Dashboard takes O(1) reads per pop, but stores in proportion to the
//! weight of the node that joins, which is several hundred on power-law graphs.
//!
//! # Memory
//!
//! A little over 12 bytes per node.

use graphmill_core::{Error, Result, memory};

use super::{
    FrontierIndex,
    simd::Simd,
    tree::{FAN, PrefixSums, ROUND},
    words::{WordStream, below},
};

/// Maximum number of levels, for `FAN^4` leaves.
const LEVELS: usize = 4;

/// Maximum sum of weights: signed comparisons must cover it and the reserve of a round.
const MAX_TOTAL: u64 = 1 << 30;

/// Weight of a node of the frontier.
#[derive(Clone, Copy, Debug, Default)]
struct Leaf {
    weight: u32,
    /// Smallest weight since the start of the round: the length of its interval in the tree.
    kept: u32,
}

/// Result of a look-up.
#[derive(Clone, Copy, Debug, Default)]
struct LookUp {
    number: u32,
    leaf: u32,
    /// Offset within the leaf's interval.
    within: u32,
}

/// New weight of a leaf.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    leaf: u32,
    /// Difference of the weights, wrapping.
    more: u32,
    /// End of its interval in the reserve; it begins at the end of the previous one.
    end: u32,
}

/// Tree of running sums.
#[derive(Clone, Debug, Default)]
pub(super) struct SumTree {
    /// Nodes of the tree: the root, then level by level.
    tree: Vec<PrefixSums>,
    /// Position of each level's first node.
    levels: [usize; LEVELS],
    /// Number of levels in use.
    depth: usize,
    leaves: Vec<Leaf>,
    /// Sum of the weights.
    total: u64,
    /// Sum of the weights at the start of the round, as in the tree.
    tree_total: u32,
    found: [LookUp; ROUND],
    /// Index of the first number that is not used yet.
    next: usize,
    /// Changes of this round; 0 beyond `changed`.
    changes: [Change; ROUND],
    changed: usize,
    /// Length of the reserve, and its used part.
    reserve: u32,
    taken: u32,
}

impl SumTree {
    /// Applies the round's changes to the tree and looks up the next numbers.
    #[inline(always)]
    fn begin_round<S: Simd>(&mut self, words: &mut WordStream) {
        let (mut children, mut mores) = ([0; ROUND], [0; ROUND]);
        for i in 0..self.changed {
            let change = self.changes[i];
            let leaf = &mut self.leaves[change.leaf as usize];
            leaf.kept = leaf.weight;
            let mut at = change.leaf as usize;
            for level in (1..self.depth).rev() {
                S::add_after(&mut self.tree[self.levels[level] + at / FAN], at % FAN, change.more);
                at /= FAN;
            }
            (children[i], mores[i]) = (at % FAN, change.more);
        }
        S::add_round(&mut self.tree[0], &children, &mores);
        (self.changes, self.changed) = ([Change::default(); ROUND], 0);

        self.tree_total = self.total as u32;
        (self.reserve, self.taken) = (self.tree_total / 8, 0);
        let bound = u64::from(self.tree_total + self.reserve);
        self.next = 0;
        let words = words.take::<ROUND>();
        for (i, &word) in words.iter().enumerate() {
            self.found[i].number = below(word, bound) as u32;
            if !S::LAZY {
                self.found[i] = self.find::<S>(self.found[i].number);
            }
        }
    }

    /// Leaf whose interval holds a number, in the present tree; any leaf if the number is in the
    /// reserve.
    #[inline(always)]
    fn find<S: Simd>(&self, number: u32) -> LookUp {
        let mut within = number.min(self.tree_total - 1);
        let mut at = 0;
        for &level in &self.levels[..self.depth] {
            let node = &self.tree[level + at];
            // the first child begins at 0, so there is one
            let child = (S::count(node, within) - 1) % FAN;
            within -= node.0[child];
            at = at * FAN + child;
        }
        LookUp { number, leaf: at as u32, within }
    }

    /// Leaf that a number pops, after the earlier pops of the round.
    #[inline(always)]
    fn owner(&self, found: LookUp) -> Option<usize> {
        if found.number >= self.tree_total {
            return self.reserve_owner(found.number);
        }
        (found.within < self.leaves[found.leaf as usize].kept).then_some(found.leaf as usize)
    }

    /// Leaf whose interval of the reserve holds a number.
    #[cold]
    fn reserve_owner(&self, number: u32) -> Option<usize> {
        let changes = &self.changes[..self.changed];
        let i = changes.iter().position(|change| number - self.tree_total < change.end)?;
        // a leaf that changed again has a later interval
        let leaf = changes[i].leaf;
        changes[i + 1..].iter().all(|later| later.leaf != leaf).then_some(leaf as usize)
    }
}

impl FrontierIndex for SumTree {
    /// Builds the tree. O(m).
    ///
    /// # Errors
    /// The weights sum to more than 2^30.
    fn start<S: Simd>(&mut self, _: f64, weights: impl ExactSizeIterator<Item = u32>) -> Result<()> {
        self.leaves.clear();
        memory::demand_extend(&mut self.leaves, weights.map(|weight| Leaf { weight, kept: weight }));
        self.total = self.leaves.iter().map(|leaf| u64::from(leaf.weight)).sum();
        if self.total > MAX_TOTAL {
            return Err(too_heavy(self.total));
        }
        self.next = ROUND;
        (self.changes, self.changed) = ([Change::default(); ROUND], 0);
        self.depth = 1;
        while FAN.pow(self.depth as u32) < self.leaves.len() {
            self.depth += 1;
        }
        self.tree.clear();
        for level in 0..self.depth {
            self.levels[level] = self.tree.len();
            // number of leaves below a child
            let under = FAN.pow((self.depth - 1 - level) as u32);
            for leaves in self.leaves.chunks(under * FAN) {
                let (mut node, mut sum) = (PrefixSums([0; FAN]), 0);
                let mut children = leaves.chunks(under);
                for before in &mut node.0 {
                    *before = sum;
                    sum += children.next().map_or(0, |leaves| leaves.iter().map(|leaf| leaf.weight).sum());
                }
                memory::demand_push(&mut self.tree, node);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn pop<S: Simd>(&mut self, words: &mut WordStream) -> Option<usize> {
        if self.total == 0 {
            return None;
        }
        loop {
            if self.next == ROUND {
                self.begin_round::<S>(words);
            }
            let mut found = self.found[self.next % ROUND];
            self.next += 1;
            if S::LAZY {
                found = self.find::<S>(found.number);
            }
            if let Some(leaf) = self.owner(found) {
                return Some(leaf);
            }
        }
    }

    #[inline(always)]
    fn replace<S: Simd>(&mut self, at: usize, weight: u32) -> Result<()> {
        debug_assert!(self.changed < ROUND, "at most one change follows each pop");
        let leaf = &mut self.leaves[at];
        let old = std::mem::replace(&mut leaf.weight, weight);
        leaf.kept = leaf.kept.min(weight);
        let beyond = weight - leaf.kept;
        self.total = self.total + u64::from(weight) - u64::from(old);
        if self.total > MAX_TOTAL {
            return Err(too_heavy(self.total));
        }
        // at most 2^31 in total
        self.taken += beyond;
        let change = Change { leaf: at as u32, more: weight.wrapping_sub(old), end: self.taken };
        self.changes[self.changed % ROUND] = change;
        self.changed += 1;
        if self.taken > self.reserve {
            self.next = ROUND;
        }
        Ok(())
    }
}

#[cold]
fn too_heavy(total: u64) -> Error {
    Error::invalid(format!(
        "the frontier has a total degree of {total}, above 2^30; use a smaller degree cap or frontier"
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::simd::Portable, *};
    use crate::subgraph::testing::fits;

    /// Checks the invariant within a round: the frontier is `weights`, and each node has as many
    /// numbers as its weight.
    fn check(sums: &SumTree, weights: &[u32]) {
        assert_eq!(sums.total, weights.iter().map(|&w| u64::from(w)).sum::<u64>());
        if sums.next == ROUND {
            return;
        }
        let mut seen = vec![0; weights.len()];
        for number in 0..sums.tree_total + sums.reserve {
            if let Some(leaf) = sums.owner(sums.find::<Portable>(number)) {
                seen[leaf] += 1;
            }
        }
        assert_eq!(seen, weights);
    }

    fn started(weights: &[u32]) -> SumTree {
        let mut sums = SumTree::default();
        // remains of a larger frontier
        sums.start::<Portable>(2.0, vec![9; 5000].into_iter()).unwrap();
        sums.start::<Portable>(2.0, weights.iter().copied()).unwrap();
        sums
    }

    proptest! {
        #[test]
        fn nodes_have_as_many_numbers_as_their_weight(
            mut weights in prop::collection::vec(0u32..200, 1..80),
            // half of the weights are small, so that rounds last
            steps in prop::collection::vec(
                (0usize..80, prop_oneof![0u32..20, 0u32..900]),
                0..if cfg!(miri) { 5 } else { 60 },
            ),
        ) {
            let mut sums = started(&weights);
            let mut words = WordStream::new(1);
            for (i, weight) in steps {
                let popped = sums.pop::<Portable>(&mut words);
                check(&sums, &weights);
                prop_assert_eq!(popped.is_none(), weights.iter().all(|&w| w == 0));
                prop_assert!(popped.is_none_or(|leaf| weights[leaf] > 0));
                let Some(leaf) = popped else { break };
                // repeat a few leaves, so that some change twice in a round
                let leaf = if i % 2 == 0 { leaf } else { i % weights.len().min(3) };
                sums.replace::<Portable>(leaf, weight).unwrap();
                weights[leaf] = weight;
                check(&sums, &weights);
            }
        }
    }

    #[test]
    fn pops_are_distributed_by_weight() {
        let mut weights = vec![1, 0, 7, 30, 2, 300, 11];
        let mut sums = started(&weights);
        let mut words = WordStream::new(5);
        for (leaf, weight) in [(5, 60), (3, 0), (1, 19), (0, 13), (2, 8)] {
            sums.replace::<Portable>(leaf, weight).unwrap();
            weights[leaf] = weight;
            let mut counts = vec![0; weights.len()];
            for _ in 0..50_000 {
                counts[sums.pop::<Portable>(&mut words).unwrap()] += 1;
            }
            fits(&counts, &weights.iter().map(|&w| f64::from(w)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn updated_trees_of_every_depth_equal_new_ones() {
        for (leaves, depth) in [(1, 1), (32, 1), (33, 2), (1024, 2), (1025, 3), (40_000, 4), (65_536, 4)] {
            if cfg!(miri) && leaves > 1025 {
                break;
            }
            let mut weights: Vec<u32> = (0..leaves).map(|i| i * 7 % 23).collect();
            weights[0] = 5;
            let mut sums = started(&weights);
            let mut words = WordStream::new(9);
            for step in 0..100 {
                let leaf = sums.pop::<Portable>(&mut words).unwrap();
                weights[leaf] = 1 + step * 13 % 31;
                sums.replace::<Portable>(leaf, weights[leaf]).unwrap();
            }
            sums.begin_round::<Portable>(&mut words);
            assert_eq!((sums.depth, &sums.tree), (depth, &started(&weights).tree));
        }
    }

    #[test]
    fn sums_beyond_the_maximum_are_rejected() {
        let mut sums = SumTree::default();
        let error = sums.start::<Portable>(2.0, vec![1 << 30; 2].into_iter()).unwrap_err().to_string();
        assert!(error.contains("2147483648") && error.contains("degree cap"), "{error}");
        let mut sums = started(&[1, 2]);
        sums.pop::<Portable>(&mut WordStream::new(1)).unwrap();
        assert!(sums.replace::<Portable>(1, u32::MAX).is_err());
    }
}
