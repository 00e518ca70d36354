//! Prefix sums of the weights of each row for one half life, from which [`super::recency`] draws.
//!
//! # Algorithm
//!
//! An edge weighs `2^(t / h)` at time `t`, for every seed: a later seed scales all weights alike.
//! So the edges that a bound admits are drawn from the prefix sums of their row, whatever the bound
//! is. The bits of a positive number are in its order, and grow by one part of their exponent when
//! the number doubles. They are cut after `32 + r` bits below the exponent: the upper ones are the
//! number of a bucket, of which there are `2^r` from a number to its double, and the 32 lower ones
//! belong to the edge. A table of the first edge of each bucket then finds an edge with one look-up
//! and a comparison of the few edges of its bucket. Weights halve with age, so edges are spread
//! over buckets of logarithms as they are over the time; `r` is chosen so that a row has at most as
//! many buckets as edges.
//!
//! Sums in files are counted by one pass over the rows and written by another.
//!
//! # Source
//!
//! Chen and Asau, *On generating random variates from an empirical distribution*, AIIE Transactions
//! 6(2), 1974 (the guide table), with buckets of logarithms. One structure for all prefixes of a
//! row in the order of the times is that of Huan et al., *TEA: a general-purpose temporal graph
//! random walk engine*, EuroSys 2023, section 3.
//!
//! # Cost
//!
//! O(E) once for a half life.
//!
//! # Memory
//!
//! 8 bytes per node. For rows with at least [`MIN_TABLE`] edges, 4 bytes per edge, 4 for each
//! bucket, and 32 per row: at most 8 bytes
//! per edge and 32 per row. In memory or in files.
//!
//! # Deviations
//!
//! The relative error of a probability is at most `2^-31` times the number of doublings from the
//! first sum of a row to the last. Edges that are older than the last one of their row by about
//! 1900 half lives have no weight here, and are drawn by [`super::recency`] without these tables.

use std::path::Path;

use graphmill_core::{Buffer, FileArray, Result, maps};

use crate::prefetch::prefetch;

/// Least number of edges of a row with a table.
const MIN_TABLE: usize = 16;
/// Rows whose times are read, and numbers that are written, before their pages leave memory.
const RUN: usize = 1 << 16;
/// Number of bits of an `f64` below its exponent.
const MANTISSA: u32 = 52;
/// Number of bits of a sum that belong to its edge.
const LOW: u32 = 32;
/// Exponent of the weight of the last edge of a row: large, so that old edges have weights.
const NEWEST: f64 = 900.0;
/// Bytes of the table of a row beside those of its edges, at most.
const OF_ROW: usize = 32;
/// Number of edges that are compared together; a table has one less number at its end, so that the
/// comparison stays inside it.
pub(super) const COMPARED: usize = 4;

/// Bytes of the tables of rows for one half life, at most.
pub(super) const fn most_bytes(rows: usize, edges: usize) -> usize {
    let with_table = edges / MIN_TABLE;
    let with_table = if rows < with_table { rows } else { with_table };
    let ends = size_of::<u64>().saturating_mul(rows.saturating_add(1));
    let of_edges = (2 * size_of::<u32>()).saturating_mul(edges);
    ends.saturating_add(of_edges).saturating_add(OF_ROW.saturating_mul(with_table))
}

/// Prefix sums of the weights of a row's edges.
#[derive(Clone, Copy, Debug)]
pub(super) struct WeightTable<'a> {
    /// Number of the first bucket.
    base: u32,
    /// Number of ignored bits of a sum.
    shift: u32,
    /// First edge of each bucket, and the number of edges.
    guide: &'a [u32],
    /// Lower bits of the sum up to each edge, with it; then `COMPARED - 1` unused numbers.
    low: &'a [u32],
}

impl<'a> WeightTable<'a> {
    /// Views the table of a row of `edges` edges; `None` if the row has none.
    #[inline]
    pub(super) fn of(table: &'a [u32], edges: usize) -> Option<Self> {
        let [base, shift, rest @ ..] = table else { return None };
        let (guide, low) = rest.split_at(rest.len() - edges - (COMPARED - 1));
        Some(Self { base: *base, shift: *shift, guide, low })
    }

    /// Sum of the weights of the first `end` edges.
    #[inline]
    pub(super) fn sum(&self, end: u32) -> f64 {
        let Some(place) = end.checked_sub(1) else { return 0.0 };
        // the end of the guide is not read: its cache line is far from those of draws
        let bucket = if end as usize + COMPARED - 1 == self.low.len() {
            self.guide.len() - 2
        } else {
            self.guide.partition_point(|&first| first <= place) - 1
        };
        let upper = u64::from(self.base) + bucket as u64;
        f64::from_bits((upper << LOW | u64::from(self.low[place as usize])) << self.shift)
    }

    /// Number of the bucket of a sum that is at most that of all edges, and its lower bits.
    #[inline(always)]
    pub(super) fn bucket(&self, sum: f64) -> (u32, u32) {
        let key = sum.to_bits() >> self.shift;
        // sums below the first bucket belong to it: it is empty, or there are none
        (((key >> LOW) as u32).saturating_sub(self.base), key as u32)
    }

    /// Edges of a bucket.
    #[inline(always)]
    pub(super) fn edges(&self, bucket: u32) -> [u32; 2] {
        let bucket = bucket as usize;
        [self.guide[bucket], self.guide[bucket + 1]]
    }

    /// Prefetches the edges of a bucket.
    #[inline(always)]
    pub(super) fn prefetch_bucket(&self, bucket: u32) {
        prefetch(self.guide, bucket as usize);
    }

    /// Prefetches the sum of an edge.
    #[inline(always)]
    pub(super) fn prefetch_edge(&self, place: u32) {
        prefetch(self.low, place as usize);
    }

    /// First of these edges of a bucket whose sum is above that with these lower bits; their end if
    /// there is none.
    #[inline(always)]
    pub(super) fn find(&self, [mut place, end]: [u32; 2], low: u32) -> u32 {
        if end - place > 8 * COMPARED as u32 {
            let of_bucket = &self.low[place as usize..end as usize];
            return place + of_bucket.partition_point(|&of_edge| of_edge <= low) as u32;
        }
        loop {
            let (mut count, next) = (0, &self.low[place as usize..place as usize + COMPARED]);
            // without branches, which would be unpredictable
            for (&of_edge, i) in next.iter().zip(place..) {
                count += u32::from(of_edge <= low) & u32::from(i < end);
            }
            place += count;
            if count < COMPARED as u32 {
                return place;
            }
        }
    }
}

/// Tables of the rows of a relation for one half life.
#[derive(Debug)]
pub(super) struct Decay {
    half_life: f64,
    /// End of the table of each row, `N + 1`.
    ends: Buffer<u64>,
    /// The tables, as [`add_table`] writes them.
    tables: Buffer<u32>,
}

impl Decay {
    /// Sums up the weights of the rows of a graph with these times.
    pub(super) fn new(indptr: &[u64], time: &[i64], half_life: f64) -> Self {
        let (mut ends, mut tables) = (Vec::with_capacity(indptr.len()), Vec::new());
        let mut sums = Vec::new();
        ends.push(0);
        for row in indptr.windows(2) {
            let times = &time[row[0] as usize..row[1] as usize];
            if times.len() >= MIN_TABLE {
                add_table(times, half_life, &mut sums, &mut tables);
            }
            ends.push(tables.len() as u64);
        }
        Self { half_life, ends: in_huge_pages(ends), tables: in_huge_pages(tables) }
    }

    /// [`Decay::new`] in files without names in the directory `dir`.
    ///
    /// # Errors
    /// The directory cannot be written, or the disk has too little space.
    pub(super) fn in_files(indptr: &[u64], time: &[i64], half_life: f64, dir: &Path) -> Result<Self> {
        let mut ends = FileArray::<u64>::zeros(indptr.len(), dir)?;
        let (mut count, mut of_row, mut sums) = (0, Vec::new(), Vec::new());
        let mut each = |see: &mut dyn FnMut(usize, &[u32])| {
            for (first, rows) in indptr.chunks(RUN).enumerate() {
                let after = indptr.get((first + 1) * RUN);
                let ends = rows[1..].iter().chain(after);
                for (v, (&start, &end)) in (first * RUN..).zip(rows.iter().zip(ends)) {
                    let times = &time[start as usize..end as usize];
                    of_row.clear();
                    if times.len() >= MIN_TABLE {
                        add_table(times, half_life, &mut sums, &mut of_row);
                    }
                    see(v, &of_row);
                }
                maps::release(rows);
                maps::release(time);
            }
        };
        each(&mut |v, tables| {
            count += tables.len();
            ends[v + 1] = count as u64;
            if v % RUN == RUN - 1 {
                ends.release();
            }
        });
        let (mut all, mut next) = (FileArray::<u32>::zeros(count, dir)?, 0);
        each(&mut |_, tables| {
            let end = next + tables.len();
            all[next..end].copy_from_slice(tables);
            if next / RUN < end / RUN {
                all.release();
            }
            next = end;
        });
        Ok(Self { half_life, ends: ends.freeze()?, tables: all.freeze()? })
    }

    /// Takes tables in files out of the memory of the process, until they are used again.
    pub(super) fn release(&self) {
        maps::release(&self.ends);
        maps::release(&self.tables);
    }

    /// Bytes of the tables, in memory or in files.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.ends[..]) + size_of_val(&self.tables[..])
    }

    /// Returns true if the tables are those of this half life.
    pub(super) fn is_of(&self, half_life: f64) -> bool {
        self.half_life.to_bits() == half_life.to_bits()
    }

    /// Table of row `v`; empty if the row is short.
    pub(super) fn row(&self, v: usize) -> &[u32] {
        &self.tables[self.ends[v] as usize..self.ends[v + 1] as usize]
    }

    /// Prefetches the bounds of the table of row `v`.
    pub(super) fn prefetch_ends(&self, v: usize) {
        prefetch(&self.ends, v);
    }

    /// Prefetches what draws from all edges of row `v` read first.
    pub(super) fn prefetch_row(&self, v: usize) {
        let [start, end] = [self.ends[v] as usize, self.ends[v + 1] as usize];
        prefetch(&self.tables, start);
        prefetch(&self.tables, end.saturating_sub(COMPARED));
    }
}

/// Moves a list that is read at random to huge pages, if there is memory for them.
fn in_huge_pages<T: bytemuck::Pod>(list: Vec<T>) -> Buffer<T> {
    let copied = Buffer::filled_huge_pages(list.len(), |to| {
        to.copy_from_slice(&list);
        Ok(())
    });
    copied.unwrap_or_else(|_| list.into())
}

/// Age of an edge of time `time`, in half lives, when one of time `newest` is added.
#[inline]
pub(super) fn age(half_life: f64, newest: i64, time: i64) -> f64 {
    // the difference of ordered numbers of 64 bits fits into as many without a sign
    newest.wrapping_sub(time) as u64 as f64 / half_life
}

/// Appends the table of a row: its head, the first edge of each bucket and the number of edges, and
/// the lower bits of the sum of each edge. `sums` is scratch.
fn add_table(times: &[i64], half_life: f64, sums: &mut Vec<u64>, tables: &mut Vec<u32>) {
    let (newest, mut sum) = (times[times.len() - 1], 0.0);
    sums.clear();
    sums.extend(times.iter().map(|&time| {
        sum += (NEWEST - age(half_life, newest, time)).exp2();
        f64::to_bits(sum)
    }));
    let (first, last) = (sums[0], sum.to_bits());
    let shift = shift(times.len() as u64, ((last - first) >> MANTISSA) + 1);
    // an empty bucket for sums below the first one
    let base = ((first >> shift >> LOW) as u32).saturating_sub(1);
    tables.extend([base, shift]);
    let mut next = 0;
    for (place, sum) in (0..).zip(&*sums) {
        let bucket = (sum >> shift >> LOW) as u32 - base;
        tables.extend((next..=bucket).map(|_| place));
        next = bucket + 1;
    }
    tables.push(times.len() as u32);
    tables.extend(sums.iter().map(|sum| (sum >> shift) as u32));
    tables.extend([u32::MAX; COMPARED - 1]);
}

/// Number of bits of sums that are ignored in a row of `edges` edges whose sums double `doublings`
/// times: about as many buckets as edges, and at most three more.
fn shift(edges: u64, doublings: u64) -> u32 {
    let of_doubling = MANTISSA - LOW;
    if doublings > edges {
        of_doubling + doublings.div_ceil(edges).next_power_of_two().ilog2()
    } else {
        of_doubling.saturating_sub((edges / doublings).ilog2())
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::keyed::{Stream, key};

    use super::*;

    /// Times of rows: even and random ones, a burst, one time, gaps beyond all weights, and ages of
    /// a row that doubles seldom.
    fn rows() -> Vec<Vec<i64>> {
        let stream = &mut Stream::new(key(&[11]));
        let mut random: Vec<i64> = (0..5000).map(|_| stream.below(1000) as i64).collect();
        random.sort_unstable();
        vec![
            (0..16).collect(),
            (0..500).map(|i| i * 2).collect(),
            random,
            (0..700).map(|i| if (100..650).contains(&i) { 300 } else { i }).collect(),
            vec![7; 1000],
            (0..90).map(|i| i * i * i * 40).collect(),
            [vec![i64::MIN; 20], vec![0; 20], vec![i64::MAX; 20]].concat(),
            (0..3000).map(|i| i / 300).collect(),
        ]
    }

    #[test]
    fn tables_find_the_first_edge_with_a_larger_sum() {
        let (half_life, stream) = (100.0, &mut Stream::new(key(&[12])));
        for (r, times) in rows().iter().enumerate() {
            let mut list = Vec::new();
            add_table(times, half_life, &mut Vec::new(), &mut list);
            assert!(list.len() <= 2 * times.len() + 8, "row {r}: {} numbers", list.len());
            let decay = Decay::new(&[0, times.len() as u64], times, half_life);
            let most = most_bytes(1, times.len());
            assert!(decay.bytes() == 16 + 4 * list.len() && decay.bytes() <= most, "row {r}: {most}");
            let table = WeightTable::of(&list, times.len()).unwrap();
            let (mut exact, newest) = (0.0, times[times.len() - 1]);
            let mut sums = vec![0.0];
            for (&time, end) in times.iter().zip(1..) {
                exact += (NEWEST - age(half_life, newest, time)).exp2();
                let sum = table.sum(end);
                assert!(sum <= exact && sum >= exact * (1.0 - 1e-6), "row {r}, {end}: {sum} {exact}");
                sums.push(sum);
            }
            assert!(sums.is_sorted());
            for _ in 0..2000 {
                let end = 1 + stream.below(times.len() as u64) as usize;
                let sum = stream.uniform() * sums[end];
                let (bucket, low) = table.bucket(sum);
                let expected = sums[1..].partition_point(|&of_edge| of_edge <= sum);
                assert_eq!(table.find(table.edges(bucket), low) as usize, expected, "row {r}: {sum}");
            }
        }
    }

    #[test]
    fn tables_in_files_are_those_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let lengths = [0u64, 40, 3, 0, 17, 16, 90, 0];
        // also with more rows than leave memory at once
        for empty in [0, RUN - 3, RUN] {
            let mut indptr = vec![0; empty + 1];
            for length in lengths {
                indptr.push(indptr[indptr.len() - 1] + length);
            }
            let time: Vec<i64> = (0..166).map(|e| e * e / 9).collect();
            let plain = Decay::new(&indptr, &time, 40.0);
            let found = Decay::in_files(&indptr, &time, 40.0, dir.path()).unwrap();
            found.release();
            assert_eq!(plain.ends[..], found.ends[..], "{empty}");
            assert!(!plain.tables.is_empty() && plain.tables[..] == found.tables[..], "{empty}");
        }
    }
}
