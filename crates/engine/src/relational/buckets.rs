//! Buckets of rows, and an order of edges in which few of them are used at a time.
//!
//! # Algorithm
//!
//! The rows of a table are divided into `P` buckets of consecutive rows. An edge belongs to the
//! pair of the buckets of its ends, or to the first pair with its only bucket. An epoch visits the
//! pairs row by row of their triangle, every second row backwards, so that each pair shares a
//! bucket with the one before:
//!
//! ```text
//! (0,1) (0,2) (0,3)
//!       (1,3) (1,2)
//!             (2,3)
//! ```
//!
//! The buckets have other numbers in each epoch, and the edges of a pair are shuffled. Negatives of
//! an end are drawn from its bucket, so a batch reads the rows of two buckets, or of three where it
//! begins with one pair and ends with the next.
//!
//! # Source
//!
//! Lerer et al., *PyTorch-BigGraph: a large-scale graph embedding system*, MLSys 2019, sections 4.1
//! (buckets) and 3.1 (negatives).
//!
//! # Cost
//!
//! O(E) for the order of an epoch, which loads `P (P - 1) / 2 + 1` buckets.
//!
//! # Deviations
//!
//! The paper visits the pairs of sources and destinations apart, and those of one bucket by
//! themselves. Here both directions of a pair are visited together, because nodes of all types are
//! rows of one table.

use std::{collections::BTreeSet, ops::Range};

use graphmill_core::{NodeId, keyed};

use super::edges::Triple;

/// Part of the key of an epoch's numbers of buckets.
const NUMBERS: u64 = 0x0062_7563_6b65_7473;

/// Division of rows into buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buckets {
    rows: usize,
    /// Rows of each bucket but the last.
    size: usize,
}

impl Buckets {
    /// Divides `rows` rows into at most `count` buckets.
    pub(crate) fn new(rows: usize, count: usize) -> Self {
        Self { rows, size: rows.div_ceil(count.max(1)).max(1) }
    }

    /// Number of buckets.
    pub(crate) fn len(&self) -> usize {
        self.rows.div_ceil(self.size).max(1)
    }

    /// Bucket of a row.
    pub(crate) fn of(&self, row: NodeId) -> usize {
        row as usize / self.size
    }

    /// Rows of a bucket.
    pub(crate) fn rows(&self, bucket: usize) -> Range<usize> {
        let start = (bucket * self.size).min(self.rows);
        start..(start + self.size).min(self.rows)
    }

    /// The part of `candidates` in the bucket of `row`.
    pub(crate) fn part(&self, candidates: &Range<NodeId>, row: NodeId) -> Range<NodeId> {
        let bucket = self.rows(self.of(row));
        candidates.start.max(bucket.start as NodeId)..candidates.end.min(bucket.end as NodeId)
    }

    /// The visits of an epoch.
    pub(crate) fn visits(&self, seed: u64, epoch: u64) -> Visits {
        let (pairs, count) = (self.pairs(seed, epoch), self.len());
        let mut numbers = vec![0; count * count];
        // from the last, so that a bucket by itself has its first visit
        for (i, &[a, b]) in pairs.iter().enumerate().rev() {
            for [a, b] in [[a, b], [b, a], [a, a], [b, b]] {
                numbers[a * count + b] = i;
            }
        }
        Visits { buckets: *self, pairs, numbers }
    }

    /// Pairs of buckets of an epoch in the order of their visits; one bucket twice if there is no
    /// other.
    fn pairs(&self, seed: u64, epoch: u64) -> Vec<[usize; 2]> {
        let count = self.len();
        let mut numbers: Vec<usize> = (0..count).collect();
        numbers.sort_unstable_by_key(|&b| keyed::key(&[seed, epoch, NUMBERS, b as u64]));
        let pair = |i: usize, j: usize| [numbers[i], numbers[j]];
        if count == 1 {
            return vec![[0, 0]];
        }
        let row = |i: usize| {
            let is_backwards = i % 2 == 1;
            (i + 1..count).map(move |j| pair(i, if is_backwards { count + i - j } else { j }))
        };
        (0..count).flat_map(row).collect()
    }
}

/// Visits of the pairs of buckets in an epoch.
pub(crate) struct Visits {
    buckets: Buckets,
    /// Pairs in the order of their visits.
    pairs: Vec<[usize; 2]>,
    /// Number of the visit of each pair of buckets.
    numbers: Vec<usize>,
}

impl Visits {
    /// Number of the visit of an edge.
    fn of(&self, [source, _, destination]: Triple) -> usize {
        self.numbers[self.buckets.of(source) * self.buckets.len() + self.buckets.of(destination)]
    }

    /// Sorts the numbers of edges by the visits of their pairs. Those of a pair keep their order.
    pub(crate) fn sort(&self, edges: &[Triple], order: &mut Vec<NodeId>) {
        let of = |i: NodeId| self.of(edges[i as usize]);
        let mut ends = vec![0usize; self.pairs.len()];
        order.iter().for_each(|&i| ends[of(i)] += 1);
        let mut start = 0;
        for end in &mut ends {
            (*end, start) = (start, start + *end);
        }
        let mut sorted = vec![0; order.len()];
        for &i in &*order {
            let next = &mut ends[of(i)];
            sorted[*next] = i;
            *next += 1;
        }
        *order = sorted;
    }

    /// Buckets that sorted edges from `first` to `last` use, and those of the next visit, unless
    /// the edges belong to several visits already.
    pub(crate) fn used(&self, first: Triple, last: Triple) -> [BTreeSet<usize>; 2] {
        let (from, to) = (self.of(first), self.of(last));
        let next = self.pairs.get(to + 1).filter(|_| from == to);
        let now = self.pairs[from..=to].iter().flatten();
        [now.copied().collect(), next.into_iter().flatten().copied().collect()]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn buckets_divide_the_rows(rows in 0usize..200, count in 1usize..20) {
            let buckets = Buckets::new(rows, count);
            prop_assert!(buckets.len() <= count);
            let all: Vec<usize> = (0..buckets.len()).flat_map(|b| buckets.rows(b)).collect();
            prop_assert_eq!(&all, &(0..rows).collect::<Vec<_>>());
            for b in 0..buckets.len() {
                prop_assert!(buckets.rows(b).all(|row| buckets.of(row as NodeId) == b));
            }
        }

        #[test]
        fn each_pair_is_visited_once_and_shares_a_bucket_with_the_one_before(
            count in 1usize..9, seed: u64, epoch in 0u64..3,
        ) {
            let buckets = Buckets::new(count * 10, count);
            let visits = buckets.pairs(seed, epoch);
            let distinct: BTreeSet<_> = visits.iter().map(|&[a, b]| [a.min(b), a.max(b)]).collect();
            prop_assert_eq!((visits.len(), distinct.len()), ((count * (count - 1) / 2).max(1), visits.len()));
            for pair in visits.windows(2) {
                prop_assert!(pair[0].iter().any(|bucket| pair[1].contains(bucket)), "{:?}", pair);
            }
        }

        #[test]
        fn sorted_edges_follow_the_visits(
            edges in prop::collection::vec((0u32..50, 0u32..50), 1..100), count in 1usize..6, seed: u64,
        ) {
            let edges: Vec<Triple> = edges.into_iter().map(|(u, v)| [u, 0, v]).collect();
            let buckets = Buckets::new(50, count);
            let visits = buckets.visits(seed, 1);
            let before: Vec<NodeId> = (0..edges.len() as NodeId).rev().collect();
            let mut order = before.clone();
            visits.sort(&edges, &mut order);
            let visit = |i: NodeId| {
                let [u, _, v] = edges[i as usize];
                let (a, b) = (buckets.of(u), buckets.of(v));
                visits.pairs.iter().position(|pair| pair.contains(&a) && pair.contains(&b)).unwrap()
            };
            let mut expected = before;
            expected.sort_by_key(|&i| visit(i));
            prop_assert_eq!(&order, &expected);
            let ends = [order[0], order[order.len() - 1]];
            let [now, next] = visits.used(edges[ends[0] as usize], edges[ends[1] as usize]);
            let ([from, to], pairs) = (ends.map(visit), &visits.pairs);
            let of = |visits: std::ops::Range<usize>| -> BTreeSet<usize> {
                pairs.get(visits).into_iter().flatten().flatten().copied().collect()
            };
            let after = if from == to { to + 1..to + 2 } else { 0..0 };
            prop_assert_eq!((now, next), (of(from..to + 1), of(after)));
        }
    }

    #[test]
    fn a_part_of_candidates_lies_in_the_bucket_of_the_row() {
        let buckets = Buckets::new(10, 2);
        assert_eq!(buckets.part(&(3..8), 4), 3..5);
        assert_eq!(buckets.part(&(3..8), 7), 5..8);
        assert_eq!(Buckets::new(10, 1).part(&(3..8), 7), 3..8);
    }
}
