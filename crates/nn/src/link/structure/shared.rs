//! Nodes that two ascending rows of neighbours share.
//!
//! # Algorithm
//!
//! [`shared`] searches for the entries of one row in the rest of the other, and counts them. If one
//! row is compared with many, [`filtered`] sets a bit for each of its nodes, and the others are
//! read whole: the bits reject most entries, and the rest are looked for in the row. Both give the
//! same nodes in the same order.
//!
//! # Source
//!
//! Bloom, *Space/time trade-offs in hash coding with allowable errors*, CACM 13, 1970, with one
//! function.
//!
//! # Cost
//!
//! O(n log m) for `n` entries that are searched for in `m`; O(n) for `n` that are read, after O(m)
//! for the bits.
//!
//! # Memory
//!
//! 4 KiB for each thread.

#![forbid(unsafe_code)]

use std::cell::RefCell;

use graphmill_core::NodeId;

/// Bits of the filter of a row: 4 KiB.
const FILTER: usize = 1 << 15;

/// Row of neighbours, with bits that most other nodes lack.
pub(super) struct Filtered<'r> {
    pub(super) row: &'r [NodeId],
    bits: &'r Bits,
}

/// A bit for the last digits of each node of a row.
type Bits = [u64; FILTER / 64];

impl Filtered<'_> {
    /// Calls `see` with the nodes of the row that the ascending row `read` holds too, but for
    /// `skipped`, in their order. Reads all entries.
    pub(super) fn shared(&self, read: &[NodeId], skipped: NodeId, mut see: impl FnMut(NodeId)) {
        let mut left = self.row;
        for &x in read {
            let (word, bit) = place(x);
            if self.bits[word] & bit == 0 || x == skipped {
                continue;
            }
            // the next entries are more likely than the last
            let mut ahead = 1;
            while left.get(ahead).is_some_and(|&y| y <= x) {
                ahead *= 2;
            }
            let near = &left[..left.len().min(ahead)];
            left = &left[near.partition_point(|&y| y < x)..];
            if left.first() == Some(&x) {
                see(x);
            }
        }
    }
}

/// Word and bit of a node.
fn place(node: NodeId) -> (usize, u64) {
    (node as usize % FILTER / 64, 1 << (node % 64))
}

thread_local! {
    static BITS: RefCell<Bits> = const { RefCell::new([0; FILTER / 64]) };
}

/// Runs `work` with a row and its bits.
pub(super) fn filtered<R>(row: &[NodeId], work: impl FnOnce(&Filtered) -> R) -> R {
    BITS.with_borrow_mut(|bits| {
        row.iter().map(|&x| place(x)).for_each(|(word, bit)| bits[word] |= bit);
        let done = work(&Filtered { row, bits });
        row.iter().for_each(|&x| bits[place(x).0] = 0);
        done
    })
}

/// Calls `see` with the nodes of the ascending row `read` that the ascending row `other` holds, but
/// for `skipped`, which is not counted either. Reads at most `left` entries, and subtracts them.
pub(super) fn shared(
    read: &[NodeId],
    mut other: &[NodeId],
    skipped: NodeId,
    left: &mut usize,
    mut see: impl FnMut(NodeId),
) {
    for &x in read.iter().filter(|&&x| x != skipped) {
        if *left == 0 || other.is_empty() {
            return;
        }
        *left -= 1;
        other = &other[other.partition_point(|&y| y < x)..];
        if other.first() == Some(&x) {
            see(x);
        }
    }
}

/// Number of entries that [`shared`] reads without a limit: those up to the first beyond `other`.
pub(super) fn entries(read: &[NodeId], other: &[NodeId], skipped: NodeId) -> usize {
    let Some(last) = other.last() else { return 0 };
    let (within, beyond) = read.split_at(read.partition_point(|x| x <= last));
    let count = |part: &[NodeId]| part.len() - usize::from(part.binary_search(&skipped).is_ok());
    count(within) + count(beyond).min(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use graphmill_core::keyed::{Stream, key};

    use super::*;

    #[test]
    fn entries_are_those_that_a_search_reads() {
        const LIMIT: usize = 1000;
        let mut stream = Stream::new(key(&[9]));
        for below in [4, 30, 500] {
            for _ in 0..400 {
                let mut row = || {
                    let count = stream.below(40);
                    (0..count).map(|_| stream.below(below) as NodeId).collect::<BTreeSet<_>>()
                };
                let [read, other] = [row(), row()].map(|row| row.into_iter().collect::<Vec<_>>());
                let skipped = stream.below(below) as NodeId;
                let (mut left, mut all, mut of_filter) = (LIMIT, Vec::new(), Vec::new());
                shared(&read, &other, skipped, &mut left, |x| all.push(x));
                filtered(&other, |other| other.shared(&read, skipped, |x| of_filter.push(x)));
                assert_eq!(of_filter, all);
                assert_eq!(entries(&read, &other, skipped), LIMIT - left, "{read:?} {other:?} {skipped}");
            }
        }
        assert!(BITS.with_borrow(|bits| bits.iter().all(|&word| word == 0)), "bits stay set");
    }
}
