//! Segments of the rows of a relation for one half life, from which [`super::recency`] draws.
//!
//! # Algorithm
//!
//! That of [`super::recency`]: a row is cut, from its first edge on, into segments whose edges span
//! less than a half life. Segments in files are counted by one pass over the rows and written by
//! another.
//!
//! # Source
//!
//! That of [`super::recency`].
//!
//! # Cost
//!
//! O(E) once for a half life.
//!
//! # Memory
//!
//! 8 bytes per node, and 32 for each segment of the rows with at least [`MIN_SEGMENTED`] edges, in
//! memory or in files.

use std::path::Path;

use graphmill_core::{Buffer, FileArray, Result, maps};

use crate::prefetch::prefetch;

/// Least number of edges of a row with segments.
const MIN_SEGMENTED: usize = 16;
/// Number of segments that are tested without a walk.
pub(super) const MAX_RECENT: usize = 8;
/// Rows whose times are read, and segments that are written, before their pages leave memory.
const RUN: usize = 1 << 16;

/// Edges of a row whose times span less than a half life. Two lie in a cache line.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(32))]
pub(super) struct Segment {
    /// Place of the first edge.
    pub(super) first: u32,
    unused: u32,
    /// Time of the last edge.
    pub(super) newest: i64,
    /// Bound of the weights of all edges before the segment, if an edge of time `newest` weighs 1.
    pub(super) before: f64,
    /// Weight of the previous segment's `newest` over that of this one.
    pub(super) decay: f64,
}

/// Segments of the rows of a relation for one half life.
#[derive(Debug)]
pub(super) struct Decay {
    half_life: f64,
    /// End of the segments of each row, `N + 1`.
    ends: Buffer<u64>,
    segments: Buffer<Segment>,
}

impl Decay {
    /// Cuts the rows of a graph with these times into segments.
    pub(super) fn new(indptr: &[u64], time: &[i64], half_life: f64) -> Self {
        let (mut ends, mut segments) = (Vec::with_capacity(indptr.len()), Vec::new());
        ends.push(0);
        for row in indptr.windows(2) {
            let times = &time[row[0] as usize..row[1] as usize];
            if times.len() >= MIN_SEGMENTED {
                cut(times, half_life, &mut segments);
            }
            ends.push(segments.len() as u64);
        }
        Self { half_life, ends: in_huge_pages(ends), segments: in_huge_pages(segments) }
    }

    /// [`Decay::new`] in files without names in the directory `dir`.
    ///
    /// # Errors
    /// The directory cannot be written, or the disk has too little space.
    pub(super) fn in_files(indptr: &[u64], time: &[i64], half_life: f64, dir: &Path) -> Result<Self> {
        let mut ends = FileArray::<u64>::zeros(indptr.len(), dir)?;
        let (mut count, mut of_row) = (0, Vec::new());
        let mut each = |see: &mut dyn FnMut(usize, &[Segment])| {
            for (first, rows) in indptr.chunks(RUN).enumerate() {
                let after = indptr.get((first + 1) * RUN);
                let ends = rows[1..].iter().chain(after);
                for (v, (&start, &end)) in (first * RUN..).zip(rows.iter().zip(ends)) {
                    let times = &time[start as usize..end as usize];
                    of_row.clear();
                    if times.len() >= MIN_SEGMENTED {
                        cut(times, half_life, &mut of_row);
                    }
                    see(v, &of_row);
                }
                maps::release(rows);
                maps::release(time);
            }
        };
        each(&mut |v, segments| {
            count += segments.len();
            ends[v + 1] = count as u64;
            if v % RUN == RUN - 1 {
                ends.release();
            }
        });
        let (mut all, mut next) = (FileArray::<Segment>::zeros(count, dir)?, 0);
        each(&mut |_, segments| {
            let end = next + segments.len();
            all[next..end].copy_from_slice(segments);
            if next / RUN < end / RUN {
                all.release();
            }
            next = end;
        });
        Ok(Self { half_life, ends: ends.freeze()?, segments: all.freeze()? })
    }

    /// Takes segments in files out of the memory of the process, until they are used again.
    pub(super) fn release(&self) {
        maps::release(&self.ends);
        maps::release(&self.segments);
    }

    /// Returns true if the segments are those of this half life.
    pub(super) fn is_of(&self, half_life: f64) -> bool {
        self.half_life.to_bits() == half_life.to_bits()
    }

    /// Segments of row `v`; empty if the row is short.
    pub(super) fn row(&self, v: usize) -> &[Segment] {
        &self.segments[self.ends[v] as usize..self.ends[v + 1] as usize]
    }

    /// Prefetches the number of segments of row `v`.
    pub(super) fn prefetch_ends(&self, v: usize) {
        prefetch(&self.ends, v);
    }

    /// Prefetches the last segments of row `v`.
    pub(super) fn prefetch_row(&self, v: usize) {
        let end = self.ends[v + 1] as usize;
        (1..=MAX_RECENT).step_by(2).for_each(|back| prefetch(&self.segments, end.saturating_sub(back)));
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

/// Appends the segments of a row.
fn cut(times: &[i64], half_life: f64, segments: &mut Vec<Segment>) {
    let mut previous: Option<(Segment, f64)> = None;
    let mut first = 0;
    while first < times.len() {
        let span = |time: &i64| age(half_life, *time, times[first]);
        let end = first + 1 + times[first + 1..].iter().take_while(|&time| span(time) < 1.0).count();
        let newest = times[end - 1];
        let (decay, before) = match previous {
            Some((segment, count)) => {
                let decay = (-age(half_life, newest, segment.newest)).exp2();
                (decay, (count + segment.before) * decay)
            }
            None => (1.0, 0.0),
        };
        let segment = Segment { first: first as u32, unused: 0, newest, before, decay };
        segments.push(segment);
        previous = Some((segment, (end - first) as f64));
        first = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_in_files_are_those_in_memory() {
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
            let bits = |decay: &Decay| bytemuck::cast_slice::<Segment, u64>(&decay.segments).to_vec();
            assert_eq!(plain.ends[..], found.ends[..], "{empty}");
            assert!(!plain.segments.is_empty() && bits(&plain) == bits(&found), "{empty}");
        }
    }
}
