//! Plan of a request's reads: its rows in file order, with neighbouring rows together.
//!
//! A request's rows are sorted by node id, which is file order: `u64` keys, with the id in the
//! upper half and the number within the request in the lower half. A pass over the keys joins rows
//! into reads. A read grows by the next row if that row's first block is at most `gap` bytes after
//! the last and the read stays within its maximum size. Each block is read once, unless all rows of
//! a maximum read share their blocks with one another. O(R log R) for R rows, O(R) if they are
//! already in order.

use std::ops::Range;

use graphmill_core::{NodeId, memory};
use rayon::prelude::*;

/// Minimum number of keys that are sorted on several threads.
const MIN_PARALLEL_SORT: usize = 1 << 14;

/// Positions of rows in a file, and limits of reads.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// First byte of row 0.
    pub(super) offset: u64,
    /// Size of a row in bytes.
    pub(super) row: u64,
    /// Size in bytes of which offsets and lengths of reads are multiples.
    pub(super) align: u64,
    /// Maximum gap in bytes that is read rather than skipped.
    pub(super) gap: u64,
    /// Maximum size of a read in bytes, at least that of a row with its blocks.
    pub(super) max_len: u64,
}

/// A planned read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PlannedRead {
    /// First byte.
    pub(super) offset: u64,
    /// Length in bytes; the end of the file may come earlier.
    pub(super) len: usize,
    /// Length up to the end of the last row, which must be read.
    pub(super) needed: usize,
    /// Range of its rows in the keys.
    pub(super) keys: Range<usize>,
}

/// Sets `keys` to the rows of a request in file order.
pub(super) fn sort(ids: &[NodeId], keys: &mut Vec<u64>) {
    keys.clear();
    memory::demand_extend(keys, ids.iter().zip(0u64..).map(|(&v, i)| u64::from(v) << 32 | i));
    if keys.is_sorted() {
        return;
    }
    if keys.len() < MIN_PARALLEL_SORT { keys.sort_unstable() } else { keys.par_sort_unstable() }
}

/// Node of a key.
pub(super) fn node(key: u64) -> u64 {
    key >> 32
}

/// Number of a key within the request.
pub(super) fn number(key: u64) -> usize {
    key as u32 as usize
}

impl Layout {
    /// First byte of a key's row.
    pub(super) fn start(&self, key: u64) -> u64 {
        self.offset + node(key) * self.row
    }

    /// Byte range of the blocks of a key's row.
    fn blocks(&self, key: u64) -> Range<u64> {
        let start = self.start(key);
        start / self.align * self.align..(start + self.row).next_multiple_of(self.align)
    }

    /// Plans the read that begins with the row of `keys[from]` and ends before `keys[to]`; `None`
    /// if there are no more keys.
    pub(super) fn next_read(&self, keys: &[u64], from: usize, to: usize) -> Option<PlannedRead> {
        let mut keys_left = keys[from..to].iter().zip(from..);
        let blocks = self.blocks(*keys_left.next()?.0);
        let (begin, mut end, mut last) = (blocks.start, blocks.end, from + 1);
        // last position at which the read can end without a block that the next read needs too
        let mut clean = None;
        for (&key, i) in keys_left {
            let blocks = self.blocks(key);
            if blocks.start > end + self.gap {
                break;
            }
            if blocks.end > begin + self.max_len {
                if blocks.start < end {
                    (end, last) = clean.unwrap_or((end, last));
                }
                break;
            }
            if blocks.start >= end {
                clean = Some((end, i));
            }
            (end, last) = (blocks.end, i + 1);
        }
        let needed = self.start(keys[last - 1]) + self.row - begin;
        // both at most `max_len`
        let (len, needed) = ((end - begin) as usize, needed as usize);
        Some(PlannedRead { offset: begin, len, needed, keys: from..last })
    }

    /// First key of the `part`-th of `parts` parts, which share no blocks.
    pub(super) fn cut(&self, keys: &[u64], part: usize, parts: usize) -> usize {
        let mut at = keys.len() * part / parts;
        while 0 < at && at < keys.len() && self.blocks(keys[at]).start < self.blocks(keys[at - 1]).end {
            at += 1;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(ids: &[u32]) -> Vec<u64> {
        let mut keys = Vec::new();
        sort(ids, &mut keys);
        keys
    }

    fn reads(layout: &Layout, keys: &[u64]) -> Vec<PlannedRead> {
        let mut at = 0;
        std::iter::from_fn(|| {
            let read = layout.next_read(keys, at, keys.len())?;
            at = read.keys.end;
            Some(read)
        })
        .collect()
    }

    #[test]
    fn neighbouring_rows_are_read_together_across_gaps() {
        let layout = Layout { offset: 128, row: 100, align: 512, gap: 512, max_len: 4096 };
        let keys = keys(&[12, 0, 5, 0, 40]);
        assert_eq!(
            keys.iter().map(|&key| (node(key), number(key))).collect::<Vec<_>>(),
            [(0, 1), (0, 3), (5, 2), (12, 0), (40, 4)]
        );
        // rows 0 and 5 end at bytes 228 and 728, row 12 begins at 1328, row 40 at 4128
        assert_eq!(
            reads(&layout, &keys),
            [
                PlannedRead { offset: 0, len: 1536, needed: 1428, keys: 0..4 },
                PlannedRead { offset: 4096, len: 512, needed: 132, keys: 4..5 }
            ]
        );
        assert_eq!(reads(&Layout { gap: 0, ..layout.clone() }, &keys).len(), 2);
        let tight = Layout { align: 1, gap: 0, ..layout };
        assert_eq!(reads(&tight, &keys).iter().map(|p| p.len).collect::<Vec<_>>(), [100; 4]);
    }

    #[test]
    fn no_block_is_read_twice_and_no_read_exceeds_the_maximum() {
        let keys = keys(&(0..5000).collect::<Vec<_>>());
        for (row, offset) in [(400, 128), (512, 64), (12, 100), (1000, 4096)] {
            let layout = Layout { offset, row, align: 512, gap: 0, max_len: 65536 };
            let reads = reads(&layout, &keys);
            assert!(reads.iter().all(|p| p.len <= 65536 && p.offset % 512 == 0 && p.len % 512 == 0));
            // rows of 512 bytes from byte 64 on share a block with the next row
            let twice = if row == 512 { 512 } else { 0 };
            let apart = |w: &[PlannedRead]| w[0].offset + w[0].len as u64 <= w[1].offset + twice;
            assert!(reads.windows(2).all(apart), "rows of {row}");
            assert!(reads.len() as u64 <= 5000 * row / 40_000 + 1, "rows of {row}");
            for parts in [1, 3, 7] {
                let cuts: Vec<usize> = (0..=parts).map(|part| layout.cut(&keys, part, parts)).collect();
                assert!(cuts.is_sorted() && (cuts[0], cuts[parts]) == (0, keys.len()));
            }
        }
    }

    #[test]
    fn parallel_sorts_equal_sequential_ones() {
        let ids: Vec<u32> = (0..40_000u32).map(|i| i.wrapping_mul(2_654_435_761) >> 20).collect();
        let mut expected: Vec<_> = ids.iter().zip(0..).map(|(&v, i)| (u64::from(v), i)).collect();
        expected.sort();
        assert_eq!(keys(&ids).iter().map(|&k| (node(k), number(k))).collect::<Vec<_>>(), expected);
    }
}
