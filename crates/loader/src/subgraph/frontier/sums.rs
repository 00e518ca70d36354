//! The frontier as a tree of running sums, popped several at a time.
//!
//! A tree of fan-out [`FAN`] has the frontier's nodes as its leaves; beside each child stands the
//! sum of the weights of all children before it. A uniform number below the sum of all finds its
//! leaf from the root down: at each level the last child that begins at or before it, which is a
//! count over [`FAN`] sums. A new weight changes the sums behind it at each level. Both are a few
//! compares and additions of whole vectors, the same for any weights: no clean-ups, nothing to
//! fill, hardly a branch to guess; and the tree of a frontier of 1,000 fits the nearest cache many
//! times over.
//!
//! One pop would wait for the other, though, for where a number leads hangs on all that was popped
//! before. So numbers are looked up in *rounds* of [`ROUND`], all in the tree as it stands, and
//! what they pop is put into the tree when the round is over. The distribution stays exact, since
//! where on the line of numbers a leaf's weight lies does not matter, as long as it is as much as
//! its weight. During a round a leaf that was given a new weight keeps of its own stretch as much
//! as the least weight it had meanwhile; what it weighs beyond has a stretch in a reserve behind
//! the sum of all. Numbers are drawn below the end of the reserve, and one that is on no leaf's
//! stretch is passed over. The reserve is an eighth of the sum, so that is one in nine; and a round
//! ends when the reserve is full, whatever numbers are left.
//!
//! This is where we deviate from paper 003, whose Dashboard (`dashboard.rs`) takes O(1) reads a
//! pop, and stores in proportion to the weight of the node that joins: on power laws that is
//! several hundred. Here both are the logarithm of `m` to the base of the fan-out, times the
//! fan-out over the width of a vector.
//!
//! Memory: 12 bytes a node, and a bit.

use graphmill_core::{Error, Result};

use super::{
    Popping,
    simd::Simd,
    tree::{Before, FAN, ROUND},
    words::{Words, below},
};

/// The most levels: `FAN^4` leaves.
const LEVELS: usize = 4;

/// The largest sum of weights: with a round's stretches behind it, signed comparisons must do.
const MOST: u64 = 1 << 30;

/// What a node of the frontier weighs.
#[derive(Clone, Copy, Debug, Default)]
struct Leaf {
    weight: u32,
    /// The least it weighed since the round began: so much of its stretch is its.
    kept: u32,
}

/// A number looked up.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    number: u32,
    leaf: u32,
    /// How far into the leaf's stretch.
    within: u32,
}

/// A leaf's new weight.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    leaf: u32,
    /// By how much, wrapping.
    more: u32,
    /// Where its stretch of the reserve ends; it begins where the last one's ends.
    end: u32,
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    /// The root, then level by level.
    tree: Vec<Before>,
    /// Where each level begins.
    levels: [usize; LEVELS],
    /// Levels in use.
    depth: usize,
    leaves: Vec<Leaf>,
    /// The sum of the weights.
    total: u64,
    /// The same when the round began, as the tree has it.
    laid: u32,
    found: [Found; ROUND],
    /// The numbers not yet looked at are `found[next..]`.
    next: usize,
    /// Of this round; 0 beyond `changed`.
    changes: [Change; ROUND],
    changed: usize,
    /// Length of the reserve, and how much of it is taken.
    reserve: u32,
    taken: u32,
}

impl Sums {
    /// Puts the round's changes into the tree and looks up the next numbers.
    #[inline(always)]
    fn begin_round<S: Simd>(&mut self, words: &mut Words) {
        let (mut children, mut mores) = ([0; ROUND], [0; ROUND]);
        for i in 0..self.changed {
            let change = self.changes[i];
            let leaf = &mut self.leaves[change.leaf as usize];
            leaf.kept = leaf.weight;
            let mut at = change.leaf as usize;
            for level in (1..self.depth).rev() {
                S::add_behind(&mut self.tree[self.levels[level] + at / FAN], at % FAN, change.more);
                at /= FAN;
            }
            (children[i], mores[i]) = (at % FAN, change.more);
        }
        S::add_all_behind(&mut self.tree[0], &children, &mores);
        (self.changes, self.changed) = ([Change::default(); ROUND], 0);

        self.laid = self.total as u32;
        (self.reserve, self.taken) = (self.laid / 8, 0);
        let bound = u64::from(self.laid + self.reserve);
        self.next = 0;
        let words = words.take::<ROUND>();
        for (i, &word) in words.iter().enumerate() {
            self.found[i].number = below(word, bound) as u32;
            if !S::LAZY {
                self.found[i] = self.find::<S>(self.found[i].number);
            }
        }
    }

    /// The leaf whose stretch a number is on, in the tree as it stands; anything where the number
    /// is in the reserve.
    #[inline(always)]
    fn find<S: Simd>(&self, number: u32) -> Found {
        let mut within = number.min(self.laid - 1);
        let mut at = 0;
        for &level in &self.levels[..self.depth] {
            let node = &self.tree[level + at];
            // the first child begins at 0, so there is one
            let child = (S::count(node, within) - 1) % FAN;
            within -= node.0[child];
            at = at * FAN + child;
        }
        Found { number, leaf: at as u32, within }
    }

    /// The leaf that a number pops, after what was popped before it in the round.
    #[inline(always)]
    fn owner(&self, found: Found) -> Option<usize> {
        if found.number >= self.laid {
            return self.beyond(found.number);
        }
        (found.within < self.leaves[found.leaf as usize].kept).then_some(found.leaf as usize)
    }

    /// The leaf whose stretch of the reserve a number is on.
    #[cold]
    fn beyond(&self, number: u32) -> Option<usize> {
        let changes = &self.changes[..self.changed];
        let i = changes.iter().position(|change| number - self.laid < change.end)?;
        // a leaf that changed again has its new weight elsewhere
        let leaf = changes[i].leaf;
        changes[i + 1..].iter().all(|later| later.leaf != leaf).then_some(leaf as usize)
    }
}

impl Popping for Sums {
    /// O(m).
    ///
    /// # Errors
    /// The weights add up to more than 2^30.
    fn start<S: Simd>(&mut self, _: f64, weights: impl ExactSizeIterator<Item = u32>) -> Result<()> {
        self.leaves.clear();
        self.leaves.extend(weights.map(|weight| Leaf { weight, kept: weight }));
        self.total = self.leaves.iter().map(|leaf| u64::from(leaf.weight)).sum();
        if self.total > MOST {
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
            // leaves under a child
            let under = FAN.pow((self.depth - 1 - level) as u32);
            for leaves in self.leaves.chunks(under * FAN) {
                let (mut node, mut sum) = (Before([0; FAN]), 0);
                let mut children = leaves.chunks(under);
                for before in &mut node.0 {
                    *before = sum;
                    sum += children.next().map_or(0, |leaves| leaves.iter().map(|leaf| leaf.weight).sum());
                }
                self.tree.push(node);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn pop<S: Simd>(&mut self, words: &mut Words) -> Option<usize> {
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
        debug_assert!(self.changed < ROUND, "a change after a pop");
        let leaf = &mut self.leaves[at];
        let old = std::mem::replace(&mut leaf.weight, weight);
        leaf.kept = leaf.kept.min(weight);
        let beyond = weight - leaf.kept;
        self.total = self.total + u64::from(weight) - u64::from(old);
        if self.total > MOST {
            return Err(too_heavy(self.total));
        }
        // at most 2^31
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
        "a frontier of total degree {total}: at most 2^30; give a smaller degree cap or frontier"
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::simd::Portable, *};
    use crate::subgraph::testing::fits;

    /// What must hold at any time in a round: the frontier is `weights`, and each of its nodes has
    /// as many numbers.
    fn check(sums: &Sums, weights: &[u32]) {
        assert_eq!(sums.total, weights.iter().map(|&w| u64::from(w)).sum::<u64>());
        if sums.next == ROUND {
            return;
        }
        let mut seen = vec![0; weights.len()];
        for number in 0..sums.laid + sums.reserve {
            if let Some(leaf) = sums.owner(sums.find::<Portable>(number)) {
                seen[leaf] += 1;
            }
        }
        assert_eq!(seen, weights);
    }

    fn started(weights: &[u32]) -> Sums {
        let mut sums = Sums::default();
        // left over from a larger frontier
        sums.start::<Portable>(2.0, vec![9; 5000].into_iter()).unwrap();
        sums.start::<Portable>(2.0, weights.iter().copied()).unwrap();
        sums
    }

    proptest! {
        #[test]
        fn every_node_has_as_many_numbers_as_its_weight(
            mut weights in prop::collection::vec(0u32..200, 1..80),
            // half of them small, so that rounds last
            steps in prop::collection::vec((0usize..80, prop_oneof![0u32..20, 0u32..900]), 0..60),
        ) {
            let mut sums = started(&weights);
            let mut words = Words::new(1);
            for (i, weight) in steps {
                let popped = sums.pop::<Portable>(&mut words);
                check(&sums, &weights);
                prop_assert_eq!(popped.is_none(), weights.iter().all(|&w| w == 0));
                prop_assert!(popped.is_none_or(|leaf| weights[leaf] > 0));
                let Some(leaf) = popped else { break };
                // the same few again and again, which change twice in a round
                let leaf = if i % 2 == 0 { leaf } else { i % weights.len().min(3) };
                sums.replace::<Portable>(leaf, weight).unwrap();
                weights[leaf] = weight;
                check(&sums, &weights);
            }
        }
    }

    #[test]
    fn pops_come_as_often_as_the_weights_say() {
        let mut weights = vec![1, 0, 7, 30, 2, 300, 11];
        let mut sums = started(&weights);
        let mut words = Words::new(5);
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
    fn trees_of_every_depth_stay_as_if_made_anew() {
        for (leaves, depth) in [(1, 1), (32, 1), (33, 2), (1024, 2), (1025, 3), (40_000, 4), (65_536, 4)] {
            let mut weights: Vec<u32> = (0..leaves).map(|i| i * 7 % 23).collect();
            weights[0] = 5;
            let mut sums = started(&weights);
            let mut words = Words::new(9);
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
    fn sums_beyond_the_numbers_are_refused() {
        let mut sums = Sums::default();
        let error = sums.start::<Portable>(2.0, vec![1 << 30; 2].into_iter()).unwrap_err().to_string();
        assert!(error.contains("2147483648") && error.contains("degree cap"), "{error}");
        let mut sums = started(&[1, 2]);
        sums.pop::<Portable>(&mut Words::new(1)).unwrap();
        assert!(sums.replace::<Portable>(1, u32::MAX).is_err());
    }
}
