//! Which reads a request takes: its rows in the order of the file, neighbours together.
//!
//! A request's rows are sorted by node id, which is the order of the file: `u64` keys, the id above
//! and the number within the request below. A pass over the keys then joins rows into reads. A read
//! grows by the next row while that row's first block is at most `gap` bytes behind the last and
//! the read stays within its largest size; so each block is read once, unless rows that fill a
//! largest read share all their blocks with each other. O(R log R) for R rows, O(R) where they are
//! in order already.

use std::ops::Range;

use graphmill_core::NodeId;
use rayon::prelude::*;

/// Keys from which on sorting is spread over threads.
const MANY: usize = 1 << 14;

/// Where rows are in a file, and how reads are made of them.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// First byte of row 0.
    pub(super) offset: u64,
    /// Bytes of a row.
    pub(super) row: u64,
    /// What offsets and lengths of reads are multiples of.
    pub(super) align: u64,
    /// Bytes that are rather read than left out.
    pub(super) gap: u64,
    /// Bytes of the largest read, which any row fits.
    pub(super) most: u64,
}

/// One read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Piece {
    /// First byte.
    pub(super) offset: u64,
    /// Bytes asked for: the end of the file may come sooner.
    pub(super) len: usize,
    /// Bytes up to the end of the last row: these must come.
    pub(super) needed: usize,
    /// Its rows, among the keys.
    pub(super) keys: Range<usize>,
}

/// Makes `keys` the rows of a request in the order of the file.
pub(super) fn sort(ids: &[NodeId], keys: &mut Vec<u64>) {
    keys.clear();
    keys.extend(ids.iter().zip(0u64..).map(|(&v, i)| u64::from(v) << 32 | i));
    if keys.is_sorted() {
        return;
    }
    if keys.len() < MANY { keys.sort_unstable() } else { keys.par_sort_unstable() }
}

/// The node of a key.
pub(super) fn node(key: u64) -> u64 {
    key >> 32
}

/// The number within the request of a key.
pub(super) fn number(key: u64) -> usize {
    key as u32 as usize
}

impl Layout {
    /// First byte of a key's row.
    pub(super) fn start(&self, key: u64) -> u64 {
        self.offset + node(key) * self.row
    }

    /// The blocks of a key's row, in bytes.
    fn blocks(&self, key: u64) -> Range<u64> {
        let start = self.start(key);
        start / self.align * self.align..(start + self.row).next_multiple_of(self.align)
    }

    /// The read that begins with the row of `keys[from]` and ends before `keys[to]`; none where
    /// there are no more.
    pub(super) fn piece(&self, keys: &[u64], from: usize, to: usize) -> Option<Piece> {
        let mut keys_left = keys[from..to].iter().zip(from..);
        let blocks = self.blocks(*keys_left.next()?.0);
        let (begin, mut end, mut last) = (blocks.start, blocks.end, from + 1);
        // where the read could end without a block that the next one reads too
        let mut clean = None;
        for (&key, i) in keys_left {
            let blocks = self.blocks(key);
            if blocks.start > end + self.gap {
                break;
            }
            if blocks.end > begin + self.most {
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
        // both at most `most`
        let (len, needed) = ((end - begin) as usize, needed as usize);
        Some(Piece { offset: begin, len, needed, keys: from..last })
    }

    /// Where the `part`-th of `parts` begins: parts share no blocks.
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

    fn pieces(layout: &Layout, keys: &[u64]) -> Vec<Piece> {
        let mut at = 0;
        std::iter::from_fn(|| {
            let piece = layout.piece(keys, at, keys.len())?;
            at = piece.keys.end;
            Some(piece)
        })
        .collect()
    }

    #[test]
    fn neighbours_are_read_together_and_the_gap_bridged() {
        let layout = Layout { offset: 128, row: 100, align: 512, gap: 512, most: 4096 };
        let keys = keys(&[12, 0, 5, 0, 40]);
        assert_eq!(
            keys.iter().map(|&key| (node(key), number(key))).collect::<Vec<_>>(),
            [(0, 1), (0, 3), (5, 2), (12, 0), (40, 4)]
        );
        // rows 0 and 5 end at bytes 228 and 728, row 12 begins at 1328, row 40 at 4128
        assert_eq!(
            pieces(&layout, &keys),
            [
                Piece { offset: 0, len: 1536, needed: 1428, keys: 0..4 },
                Piece { offset: 4096, len: 512, needed: 132, keys: 4..5 }
            ]
        );
        assert_eq!(pieces(&Layout { gap: 0, ..layout.clone() }, &keys).len(), 2);
        let tight = Layout { align: 1, gap: 0, ..layout };
        assert_eq!(pieces(&tight, &keys).iter().map(|p| p.len).collect::<Vec<_>>(), [100; 4]);
    }

    #[test]
    fn no_block_is_read_twice_and_no_read_is_too_large() {
        let keys = keys(&(0..5000).collect::<Vec<_>>());
        for (row, offset) in [(400, 128), (512, 64), (12, 100), (1000, 4096)] {
            let layout = Layout { offset, row, align: 512, gap: 0, most: 65536 };
            let pieces = pieces(&layout, &keys);
            assert!(pieces.iter().all(|p| p.len <= 65536 && p.offset % 512 == 0 && p.len % 512 == 0));
            // rows of 512 bytes at 64 each share a block with the next
            let twice = if row == 512 { 512 } else { 0 };
            let apart = |w: &[Piece]| w[0].offset + w[0].len as u64 <= w[1].offset + twice;
            assert!(pieces.windows(2).all(apart), "rows of {row}");
            assert!(pieces.len() as u64 <= 5000 * row / 40_000 + 1, "rows of {row}");
            for parts in [1, 3, 7] {
                let cuts: Vec<usize> = (0..=parts).map(|part| layout.cut(&keys, part, parts)).collect();
                assert!(cuts.is_sorted() && (cuts[0], cuts[parts]) == (0, keys.len()));
            }
        }
    }

    #[test]
    fn many_rows_are_sorted_as_few() {
        let ids: Vec<u32> = (0..40_000u32).map(|i| i.wrapping_mul(2_654_435_761) >> 20).collect();
        let mut expected: Vec<_> = ids.iter().zip(0..).map(|(&v, i)| (u64::from(v), i)).collect();
        expected.sort();
        assert_eq!(keys(&ids).iter().map(|&k| (node(k), number(k))).collect::<Vec<_>>(), expected);
    }
}
