//! Parallel distribution of edges to parts by destination.
//!
//! # Algorithm
//!
//! An edge is a key with its destination in the upper and its source in the lower half of 64 bits:
//! keys in ascending order are the rows of a CSC graph. Splitters, the quantiles of a sample,
//! divide the keys into parts of about equal size for any degree distribution; each part is sorted
//! separately afterwards. A thread collects the keys of each part in a buffer of a few cache lines
//! (software write combining) and passes on whole buffers: a lock is taken once for many keys, and
//! parts are written in runs.
//!
//! # Source
//!
//! Wassenberg and Sanders, *Engineering a multi-core radix sort*, Euro-Par 2011.
//!
//! # Cost
//!
//! O(E log parts), parallel.

use rayon::prelude::*;

use super::item::Item;
use crate::{EdgeOptions, NodeId, Result};

/// Keys of a thread's buffer: the buffers of 256 parts stay in its L2 cache.
const BUFFER_LEN: usize = 64;
/// Minimum number of edges per task.
const MIN_TASK_LEN: usize = 1 << 15;

/// Key of an edge.
#[inline(always)]
pub fn key(src: NodeId, dst: NodeId) -> u64 {
    u64::from(dst) << 32 | u64::from(src)
}

/// Sample of the keys at regular intervals, from which splitters are computed.
pub fn sample(src: &[NodeId], dst: &[NodeId], undirected: bool) -> Vec<u64> {
    let step = (src.len() >> 16).max(1);
    let ends = src.iter().zip(dst).step_by(step);
    ends.flat_map(|(&u, &v)| [Some(key(u, v)), undirected.then_some(key(v, u))]).flatten().collect()
}

/// Splitters that divide a sample into about `parts` equal parts. A key that fills a part gets one
/// to itself, so that recursive splitting terminates. Ascending and distinct.
pub fn splitters(mut sample: Vec<u64>, parts: usize) -> Vec<u64> {
    sample.sort_unstable();
    let mut found = Vec::with_capacity(parts);
    for i in 1..parts {
        let Some(&key) = sample.get(i * sample.len() / parts) else { break };
        if found.last().is_some_and(|&last| last >= key) {
            // Repeated key: end its part here.
            if found.last() == Some(&key) && key < u64::MAX {
                found.push(key + 1);
            }
            continue;
        }
        found.push(key);
    }
    found
}

/// Map from a key to its part: the number of splitters that are at most the key.
#[derive(Clone, Debug)]
pub struct Dealer {
    splitters: Vec<u64>,
    /// First possible part for each value of a key's upper bits.
    first: Vec<u16>,
    shift: u32,
}

impl Dealer {
    const BITS: u32 = 14;

    /// Creates the map from ascending splitters, fewer than 2^16.
    pub fn new(splitters: Vec<u64>) -> Self {
        let most = splitters.last().copied().unwrap_or(0);
        let shift = (64 - most.leading_zeros()).saturating_sub(Self::BITS);
        let first = (0..=(most >> shift) + 1)
            .map(|top| splitters.partition_point(|&s| s <= top.checked_shl(shift).unwrap_or(u64::MAX)) as u16)
            .collect();
        Self { splitters, first, shift }
    }

    /// Splitters, ascending.
    pub fn splitters(&self) -> &[u64] {
        &self.splitters
    }

    /// Number of parts: one more than splitters.
    pub fn parts(&self) -> usize {
        self.splitters.len() + 1
    }

    #[inline]
    fn part(&self, key: u64) -> usize {
        let top = ((key >> self.shift) as usize).min(self.first.len() - 1);
        let mut part = usize::from(self.first[top]);
        while self.splitters.get(part).is_some_and(|&s| s <= key) {
            part += 1;
        }
        part
    }

    /// Passes every edge to `take(part, keys)`, and its reverse (of the same weight) if `options`
    /// require it, on all threads; the keys of a part are unordered. Weighted edges have one weight
    /// each.
    ///
    /// # Errors
    /// The error of `take`.
    pub fn deal_edges<I: Item>(
        &self,
        src: &[NodeId],
        dst: &[NodeId],
        weight: &[f32],
        options: EdgeOptions,
        take: &(impl Fn(usize, &[I]) -> Result<()> + Sync),
    ) -> Result<()> {
        let task = src.len().div_ceil(4 * rayon::current_num_threads()).max(MIN_TASK_LEN);
        (0..src.len().div_ceil(task)).into_par_iter().try_for_each(|i| {
            let run = i * task..src.len().min((i + 1) * task);
            let weight = weight.get(run.clone()).unwrap_or_default();
            let mut hand = Hand::new(self, take);
            for (i, (&u, &v)) in src[run.clone()].iter().zip(&dst[run]).enumerate() {
                if u == v && options.drop_self_loops {
                    continue;
                }
                let weight = if I::WEIGHTED { weight[i] } else { 1.0 };
                hand.put(I::new(key(u, v), weight))?;
                if options.undirected && u != v {
                    hand.put(I::new(key(v, u), weight))?;
                }
            }
            hand.finish()
        })
    }

    /// Passes keys to `take(part, keys)`.
    ///
    /// # Errors
    /// The error of `take`.
    pub fn deal<I: Item>(&self, keys: &[I], take: &impl Fn(usize, &[I]) -> Result<()>) -> Result<()> {
        let mut hand = Hand::new(self, take);
        keys.iter().try_for_each(|&key| hand.put(key))?;
        hand.finish()
    }
}

/// Keys buffered by a thread.
struct Hand<'a, F, I> {
    dealer: &'a Dealer,
    take: &'a F,
    /// [`BUFFER_LEN`] entries for each part.
    keys: Vec<I>,
    /// Number of buffered keys of each part.
    held: Vec<usize>,
}

impl<'a, I: Item, F: Fn(usize, &[I]) -> Result<()>> Hand<'a, F, I> {
    fn new(dealer: &'a Dealer, take: &'a F) -> Self {
        let parts = dealer.parts();
        Self { dealer, take, keys: vec![I::zeroed(); parts * BUFFER_LEN], held: vec![0; parts] }
    }

    #[inline(always)]
    fn put(&mut self, key: I) -> Result<()> {
        let part = self.dealer.part(key.key());
        let held = &mut self.held[part];
        self.keys[part * BUFFER_LEN + *held] = key;
        *held += 1;
        if *held == BUFFER_LEN { self.hand_on(part) } else { Ok(()) }
    }

    fn hand_on(&mut self, part: usize) -> Result<()> {
        let held = std::mem::take(&mut self.held[part]);
        (self.take)(part, &self.keys[part * BUFFER_LEN..][..held])
    }

    fn finish(mut self) -> Result<()> {
        (0..self.held.len())
            .try_for_each(|part| if self.held[part] > 0 { self.hand_on(part) } else { Ok(()) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_are_distributed_by_the_splitters(
            sample in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..50, Just(u64::MAX)], 1..300),
            keys in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..60, Just(u64::MAX)], 1..400),
            parts in 1usize..40,
        ) {
            let splitters = splitters(sample, parts);
            prop_assert!(splitters.windows(2).all(|w| w[0] < w[1]));
            let dealer = Dealer::new(splitters.clone());
            let distributed = Mutex::new(Vec::new());
            let take = |part: usize, keys: &[u64]| {
                distributed.lock().unwrap().extend(keys.iter().map(|&key| (part, key)));
                Ok(())
            };
            dealer.deal(&keys, &take).unwrap();
            let mut distributed = distributed.into_inner().unwrap();
            let mut expected: Vec<(usize, u64)> =
                keys.iter().map(|&key| (splitters.partition_point(|&s| s <= key), key)).collect();
            distributed.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(distributed, expected);
        }
    }

    #[test]
    fn dominant_keys_get_a_part_to_themselves() {
        assert_eq!(splitters(vec![7; 100], 4), [7, 8]);
        assert_eq!(splitters(vec![u64::MAX; 100], 4), [u64::MAX]);
        assert_eq!(splitters((0..100).collect(), 4), [25, 50, 75]);
        assert!(splitters(vec![], 4).is_empty());
    }
}
