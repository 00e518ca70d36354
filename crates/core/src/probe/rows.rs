//! Reads of random rows. Only one value of every cache line is used, so that the memory is the
//! bottleneck.

use std::hint::black_box;

use rayon::prelude::*;

use crate::{
    Buffer,
    keyed::{Stream, key},
    prefetch::prefetch,
};

/// Number of rows that a task reads.
const TASK_LEN: usize = 4096;
/// Bytes of the cache lines that a core prefetches. The best value depends on the machine and the
/// width.
pub const IN_FLIGHT: &[usize] = &[2 << 10, 4 << 10, 8 << 10, 16 << 10];

/// A table in huge pages, and the rows to read.
#[derive(Debug)]
pub struct Reads {
    table: Buffer<f32>,
    width: usize,
    ids: Vec<u32>,
}

impl Reads {
    /// Allocates a table of `rows` (at least 1) rows of `width` values, and draws rows to read
    /// whose cache lines have `bytes` bytes in all.
    pub fn new(rows: usize, width: usize, bytes: usize) -> Self {
        let zeros = Buffer::from(vec![0.0; rows * width]);
        let line = 64 * (width / 16 + 1);
        let mut stream = Stream::new(key(&[rows as u64, width as u64]));
        Self {
            table: zeros.to_huge_pages().unwrap_or(zeros),
            width,
            ids: (0..bytes / line).map(|_| stream.below(rows as u64) as u32).collect(),
        }
    }

    /// Number of rows that a call reads.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns true if a call reads nothing.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Reads the rows on all threads, prefetching `in_flight` bytes.
    pub fn run(&self, in_flight: usize) {
        let bits: u32 =
            self.ids.par_chunks(TASK_LEN).map(|ids| self.read(ids, in_flight)).reduce(|| 0, |a, b| a ^ b);
        black_box(bits);
    }

    fn read(&self, ids: &[u32], in_flight: usize) -> u32 {
        let (table, width) = (&self.table[..], self.width);
        let distance = (in_flight / (4 * width).max(64)).max(2);
        let mut bits = 0;
        for (i, &v) in ids.iter().enumerate() {
            if let Some(&next) = ids.get(i + distance) {
                let start = next as usize * width;
                (start..start + width).step_by(16).for_each(|at| prefetch(table, at));
                prefetch(table, start + width - 1);
            }
            let row = &table[v as usize * width..(v as usize + 1) * width];
            // an exclusive or takes one cycle, so a chain of them is not the bottleneck
            bits ^= row.iter().step_by(16).fold(row[width - 1].to_bits(), |bits, x| bits ^ x.to_bits());
        }
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_of_every_line_is_read() {
        let table: Vec<f32> = (0..40).map(|i| i as f32).collect();
        let reads = Reads { table: table.into(), width: 20, ids: vec![1, 0] };
        let expected = [20, 36, 39, 0, 16, 19].iter().fold(0, |bits, &i| bits ^ (i as f32).to_bits());
        assert_eq!(reads.read(&reads.ids, 64), expected);
    }
}
