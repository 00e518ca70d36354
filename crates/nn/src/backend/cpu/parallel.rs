//! Division of work into tasks for the current rayon pool, without allocation.
//!
//! Two rules make results equal for any number of threads. If an output row depends on one task
//! only, cuts may be anywhere ([`rows`], [`runs`]). If rows are reduced, they are grouped into
//! chunks by their number alone ([`Chunks`]), and the chunks' results are added in order.

use std::ops::Range;

/// Values per task: enough to hide the cost of moving a task to another thread (about a
/// microsecond).
const GRAIN: usize = 32 * 1024;

/// Outputs that can be split between two rows.
pub(crate) trait Parts: Send + Sized {
    /// Splits into the first `row` rows and the rest.
    fn cut(self, row: usize) -> (Self, Self);
}

/// Rows of `width` values.
pub(crate) struct Rows<'a, T> {
    pub(crate) data: &'a mut [T],
    pub(crate) width: usize,
}

impl<T: Send> Parts for Rows<'_, T> {
    fn cut(self, row: usize) -> (Self, Self) {
        let (a, b) = self.data.split_at_mut(row * self.width);
        (Rows { data: a, width: self.width }, Rows { data: b, width: self.width })
    }
}

/// A run of `width` values per edge of each row; `indptr`, one longer than the number of rows,
/// counts edges.
pub(crate) struct Runs<'a> {
    pub(crate) data: &'a mut [f32],
    pub(crate) indptr: &'a [u32],
    pub(crate) width: usize,
}

impl Parts for Runs<'_> {
    fn cut(self, row: usize) -> (Self, Self) {
        let edges = (self.indptr[row] - self.indptr[0]) as usize;
        let (a, b) = self.data.split_at_mut(edges * self.width);
        let width = self.width;
        (
            Runs { data: a, indptr: &self.indptr[..=row], width },
            Runs { data: b, indptr: &self.indptr[row..], width },
        )
    }
}

impl Parts for () {
    fn cut(self, _: usize) -> (Self, Self) {
        ((), ())
    }
}

impl<A: Parts, B: Parts> Parts for (A, B) {
    fn cut(self, row: usize) -> (Self, Self) {
        let ((a0, a1), (b0, b1)) = (self.0.cut(row), self.1.cut(row));
        ((a0, b0), (a1, b1))
    }
}

impl<A: Parts, B: Parts, C: Parts> Parts for (A, B, C) {
    fn cut(self, row: usize) -> (Self, Self) {
        let ((a0, a1), (b0, b1), (c0, c1)) = (self.0.cut(row), self.1.cut(row), self.2.cut(row));
        ((a0, b0, c0), (a1, b1, c1))
    }
}

/// Work on a piece. A trait object, so that the code of cutting and joining exists once for each
/// type of parts and not once for each operation.
type Body<'a, P> = &'a (dyn Fn(Range<usize>, P) + Sync);

/// Work on a chunk and its share of the results, as [`Body`].
type Reduction<'a, P, T> = &'a (dyn Fn(Range<usize>, P, &mut [T]) + Sync);

/// Calls `f` on disjoint ranges of `0..count` and their `parts`, in parallel; `width` is the work
/// per row, in values.
pub(crate) fn rows<P: Parts>(count: usize, width: usize, parts: P, f: impl Fn(Range<usize>, P) + Sync) {
    if count > 0 {
        halve(0..count, (GRAIN / width.max(1)).max(1), parts, &f);
    }
}

fn halve<P: Parts>(range: Range<usize>, grain: usize, parts: P, f: Body<P>) {
    if range.len() <= grain {
        return f(range, parts);
    }
    let mid = range.len() / 2;
    let (a, b) = parts.cut(mid);
    let mid = range.start + mid;
    rayon::join(|| halve(range.start..mid, grain, a, f), || halve(mid..range.end, grain, b, f));
}

/// [`rows`] for rows of very different numbers of edges: cuts halve the edges. `width` is the work
/// per edge. A single row is never cut.
pub(crate) fn runs<P: Parts>(indptr: &[u32], width: usize, parts: P, f: impl Fn(Range<usize>, P) + Sync) {
    if indptr.len() > 1 {
        halve_edges(0..indptr.len() - 1, indptr, (GRAIN / width.max(1)).max(1), parts, &f);
    }
}

fn halve_edges<P: Parts>(range: Range<usize>, indptr: &[u32], grain: usize, parts: P, f: Body<P>) {
    // a row counts as an edge too, because it is written
    let cost = |row: usize| indptr[row] as usize + row;
    let (start, end) = (cost(range.start), cost(range.end));
    if end - start <= grain || range.len() == 1 {
        return f(range, parts);
    }
    let half = start + (end - start) / 2;
    let (mut low, mut high) = (range.start + 1, range.end - 1);
    while low < high {
        let mid = low + (high - low) / 2;
        if cost(mid) < half {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    let (a, b) = parts.cut(low - range.start);
    rayon::join(
        || halve_edges(range.start..low, indptr, grain, a, f),
        || halve_edges(low..range.end, indptr, grain, b, f),
    );
}

/// Division of rows into chunks that depends only on their number.
#[derive(Clone, Copy)]
pub(crate) struct Chunks {
    rows: usize,
    len: usize,
}

impl Chunks {
    /// Up to [`Chunks::MAX`] chunks of at least `min` rows, except the last.
    pub(crate) fn new(rows: usize, min: usize) -> Self {
        Self::of(rows, min.max(rows.div_ceil(Self::MAX)))
    }

    /// Chunks of `len` rows, except the last.
    pub(crate) fn of(rows: usize, len: usize) -> Self {
        Self { rows, len: len.max(1) }
    }

    /// Maximum number of chunks of [`Chunks::new`].
    pub(crate) const MAX: usize = 64;

    /// Number of chunks.
    pub(crate) fn count(self) -> usize {
        self.rows.div_ceil(self.len)
    }

    /// Number of rows in chunk `i`.
    pub(crate) fn len_of(self, i: usize) -> usize {
        self.len.min(self.rows.saturating_sub(i * self.len))
    }

    /// Calls `f` in parallel with each chunk's rows of `parts` and its share of `results`, which
    /// has the same number of values for every chunk.
    pub(crate) fn each<P: Parts, T: Send>(
        self,
        parts: P,
        results: &mut [T],
        f: impl Fn(Range<usize>, P, &mut [T]) + Sync,
    ) {
        let count = self.count();
        if let Some(width) = results.len().checked_div(count) {
            self.halve(0..count, parts, &mut results[..count * width], &f);
        }
    }

    fn halve<P: Parts, T: Send>(self, chunks: Range<usize>, parts: P, results: &mut [T], f: Reduction<P, T>) {
        let first = chunks.start * self.len;
        if chunks.len() == 1 {
            return f(first..(first + self.len).min(self.rows), parts, results);
        }
        let half = chunks.len() / 2;
        let width = results.len() / chunks.len();
        let (a, b) = parts.cut(half * self.len);
        let (left, right) = results.split_at_mut(half * width);
        let mid = chunks.start + half;
        rayon::join(
            || self.halve(chunks.start..mid, a, left, f),
            || self.halve(mid..chunks.end, b, right, f),
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    #[test]
    fn every_row_is_in_exactly_one_task() {
        let mut out = vec![0u32; 3 * 1000];
        rows(1000, 1 << 12, Rows { data: &mut out, width: 3 }, |range, part| {
            assert_eq!(part.data.len(), 3 * range.len());
            assert!((5..=8).contains(&range.len()), "a task has about {GRAIN} values: {range:?}");
            part.data.iter_mut().enumerate().for_each(|(i, x)| *x += (range.start * 3 + i) as u32);
        });
        assert!(out.iter().enumerate().all(|(i, &x)| x == i as u32));
    }

    #[test]
    fn tasks_are_balanced_by_edges_and_never_cut_a_row() {
        // one row has nearly all edges
        let indptr: Vec<u32> = (0..=100).map(|v| if v > 50 { 100_000 + v } else { v }).collect();
        let mut counts = vec![0u8; 100];
        let mut edges = vec![0.0; indptr[100] as usize];
        let parts =
            (Rows { data: &mut counts, width: 1 }, Runs { data: &mut edges, indptr: &indptr, width: 1 });
        runs(&indptr, 1 << 14, parts, |range, (count, edge)| {
            assert_eq!(edge.data.len(), (indptr[range.end] - indptr[range.start]) as usize);
            count.data.iter_mut().for_each(|x| *x += 1);
            edge.data.fill(1.0);
        });
        assert!(counts.iter().all(|&x| x == 1) && edges.iter().all(|&x| x == 1.0));
        // a thousand rows of ten edges, of which 32 make a task
        let indptr: Vec<u32> = (0..=1000).map(|v| 10 * v).collect();
        let tasks = AtomicUsize::new(0);
        let (mut first, mut second, mut third) = (vec![0; 1000], vec![0; 2000], vec![0.0; 10_000]);
        let parts = (
            Rows { data: &mut first, width: 1 },
            Rows { data: &mut second, width: 2 },
            Runs { data: &mut third, indptr: &indptr, width: 1 },
        );
        runs(&indptr, GRAIN / 352, parts, |range, (first, second, third)| {
            assert_eq!([first.data.len(), second.data.len() / 2, third.data.len() / 10], [range.len(); 3]);
            tasks.fetch_add(1, Relaxed);
        });
        assert!((32..=63).contains(&tasks.load(Relaxed)), "{tasks:?} tasks of up to 352 edges and rows");
    }

    #[test]
    fn chunks_cover_the_rows_in_order() {
        for rows in [0, 1, 255, 256, 257, 20_000, 100_001] {
            let chunks = Chunks::new(rows, 256);
            assert!(chunks.count() <= Chunks::MAX);
            let mut results = vec![0; chunks.count() * 2];
            chunks.each((), &mut results, |range, (), out| out.copy_from_slice(&[range.start, range.end]));
            let mut next = 0;
            for (i, pair) in results.chunks(2).enumerate() {
                assert_eq!((pair[0], pair[1] - pair[0]), (next, chunks.len_of(i)));
                next = pair[1];
                assert!(next == rows || chunks.len_of(i) >= 256, "chunk {i} of {rows} rows is short");
            }
            assert_eq!((next, chunks.len_of(chunks.count())), (rows, 0));
        }
    }

    #[test]
    fn chunks_get_their_own_rows_and_results() {
        for (rows, len) in [(1000, 7), (64, 64), (65, 64), (3, 1), (5, 0)] {
            let mut data: Vec<usize> = (0..2 * rows).collect();
            let chunks = Chunks::of(rows, len);
            let mut sums = vec![0; chunks.count()];
            let parts = Rows { data: &mut data, width: 2 };
            chunks.each(parts, &mut sums, |range, part, sum| {
                assert!(part.data.iter().copied().eq(2 * range.start..2 * range.end), "{range:?}");
                sum[0] += range.len();
            });
            assert!(sums.iter().enumerate().all(|(i, &sum)| sum == chunks.len_of(i)));
            assert_eq!(sums.iter().sum::<usize>(), rows);
        }
    }
}
