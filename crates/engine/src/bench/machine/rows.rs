//! Reading rows at random places: one value of every cache line is used, so that memory alone
//! counts.

use std::hint::black_box;

use graphmill_core::{
    Buffer,
    keyed::{Stream, key},
};
use graphmill_loader::prefetch::prefetch;
use rayon::prelude::*;

/// Rows one task reads.
const TASK: usize = 4096;
/// Bytes in cache lines to read in a call: more than caches hold.
const BYTES: usize = 2 * super::copy::VALUES;
/// Bytes in cache lines to have on their way at once, a core: the best depends on the machine and
/// the width.
pub(super) const IN_FLIGHT: &[usize] = &[2 << 10, 4 << 10, 8 << 10, 16 << 10];

/// A table in huge pages and the rows to read of it.
pub(super) struct Reads {
    table: Buffer<f32>,
    width: usize,
    ids: Vec<u32>,
}

impl Reads {
    /// Of `rows` rows, at least 1, of `width` values.
    pub(super) fn new(rows: usize, width: usize) -> Self {
        let zeros = Buffer::from(vec![0.0; rows * width]);
        let line = 64 * (width / 16 + 1);
        let mut stream = Stream::new(key(&[rows as u64, width as u64]));
        Self {
            table: zeros.to_huge_pages().unwrap_or(zeros),
            width,
            ids: (0..BYTES / line).map(|_| stream.below(rows as u64) as u32).collect(),
        }
    }

    /// How many rows a call reads.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Reads them, on all threads, with so many bytes on their way.
    pub(super) fn run(&self, in_flight: usize) {
        let bits: u32 =
            self.ids.par_chunks(TASK).map(|ids| self.read(ids, in_flight)).reduce(|| 0, |a, b| a ^ b);
        black_box(bits);
    }

    fn read(&self, ids: &[u32], in_flight: usize) -> u32 {
        let (table, width) = (&self.table[..], self.width);
        let ahead = (in_flight / (4 * width).max(64)).max(2);
        let mut bits = 0;
        for (i, &v) in ids.iter().enumerate() {
            if let Some(&next) = ids.get(i + ahead) {
                let start = next as usize * width;
                (start..start + width).step_by(16).for_each(|at| prefetch(table, at));
                prefetch(table, start + width - 1);
            }
            let row = &table[v as usize * width..(v as usize + 1) * width];
            // an exclusive or takes one cycle, so that a chain of them does not count
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
