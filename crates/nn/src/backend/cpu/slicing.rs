//! Whether aggregation goes a slice of columns at a time ([`super::slices`]), and how wide slices
//! are: whatever the cost model below says is faster.
//!
//! Costs are clock cycles. A row is `F / 16` cache lines (f32), a slice's row `w / 16`; `S` rows
//! are read, `D` written, over `E` edges. What a line costs depends on the cache it comes from: of
//! `b` bytes read at random, a cache of `C` bytes holds the share `min(1, C / b)`.
//!
//! ```text
//! rows      E F/16 read(S F) + D F/16 write
//! slices    E F/16 (sum(S w) + EDGE / (w/16)) + (S + D)/2 F/16 (copy + ROW / (w/16))
//! ```
//!
//! The constants were measured on one core of an AMD EPYC 9005 (Zen 5: 1 MiB of second-level cache,
//! 32 MiB of third), in cycles of that core, over subgraphs of 2,000 to 32,000 nodes of degrees
//! around 15 and 50 and 128 to 1024 columns (`cargo bench -p graphmill-nn --bench propagation`).
//! `Q_f = max(threads, bytes / cache)` of the paper is what comes out for features far beyond the
//! last level; where that holds them, somewhat wider slices are faster than those that fit the
//! second level, and below some ten megabytes none are: the last level feeds the plain loop nearly
//! as fast.

use std::cell::Cell;

use super::{caches::Caches, slices::LINE};

/// A line read from the second level, from the last, from memory: by the loop over whole rows,
/// which asks for rows ahead.
const READ: [f64; 3] = [2.3, 3.2, 7.6];
/// The same from a slice, which lies close.
const SUM: [f64; 3] = [1.5, 2.8, 7.6];
/// An edge once more for each slice.
const EDGE: f64 = 2.5;
/// A line of sums written, as whole rows: to the second level or the last, and to memory.
const WRITE: [f64; 2] = [6.0, 20.0];
/// A line of a row copied and one of sums written, slice by slice: likewise.
const COPY: [f64; 2] = [10.3, 35.0];
/// A row once more for each slice: its loop over the edges ends at a place hard to predict.
const ROW: f64 = 30.0;
/// The share of the last level that is there for rows and sums together; for slices, which sums go
/// past.
const SHARE: f64 = 0.9;
const SLICE_SHARE: f64 = 0.4;
/// In cache lines. Wider slices move more bytes and were never faster.
const WIDTHS: [usize; 4] = [2, 4, 6, 8];

/// How aggregation over a local block goes through the columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slicing {
    /// As the cost model says.
    #[default]
    Auto,
    /// All columns of a row at once, rows in parallel.
    Rows,
    /// So many columns at a time, rounded up to whole cache lines.
    Columns(usize),
}

thread_local! {
    static FORCED: Cell<Slicing> = const { Cell::new(Slicing::Auto) };
}

/// Runs `f` with the aggregations that it calls on this thread held to `slicing`: for tests and
/// measurements. The numbers are the same, to the bit.
pub fn with_slicing<T>(slicing: Slicing, f: impl FnOnce() -> T) -> T {
    /// Undoes it, also where `f` panics.
    struct Restore(Slicing);
    impl Drop for Restore {
        fn drop(&mut self) {
            FORCED.set(self.0);
        }
    }
    let _restore = Restore(FORCED.replace(slicing));
    f()
}

/// The sizes of an aggregation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// `S`, rows read, each as often as it has edges.
    pub(super) rows: usize,
    /// `D`, rows written.
    pub(super) sums: usize,
    /// `E`.
    pub(super) edges: usize,
    /// `F`.
    pub(super) cols: usize,
}

/// The width of the slices, a multiple of [`LINE`]; none: all columns at once.
pub(super) fn width(work: Work) -> Option<usize> {
    match FORCED.get() {
        Slicing::Rows => None,
        Slicing::Columns(width) => Some(width.clamp(1, work.cols.max(1)).next_multiple_of(LINE)),
        // too little to think about
        Slicing::Auto if work.edges * work.cols < 1 << 20 => None,
        Slicing::Auto => work.best(Caches::get(), rayon::current_num_threads()),
    }
}

impl Work {
    /// The fastest width for so many threads, each of which gets a slice at least.
    fn best(&self, caches: Caches, threads: usize) -> Option<usize> {
        let widths = WIDTHS.into_iter().filter(|&lines| lines * LINE * threads.max(2) <= self.cols);
        let costs = widths.map(|lines| (self.sliced(caches, threads, lines), lines));
        let (cost, lines) = costs.min_by(|a, b| a.0.total_cmp(&b.0))?;
        (cost < self.whole(caches)).then_some(lines * LINE)
    }

    /// The shares of `bytes` that come from the second level, the last (of which `last` bytes are
    /// there for them), and memory.
    fn shares(caches: Caches, bytes: f64, last: f64) -> [f64; 3] {
        let second = (caches.l2 as f64 / bytes).min(1.0);
        let last = (last / bytes).min(1.0).max(second);
        [second, last - second, 1.0 - last]
    }

    /// The share of rows and sums together that is not in any cache.
    fn beyond(&self, caches: Caches) -> f64 {
        self.of_all(caches)[2]
    }

    /// [`Work::shares`] of rows and sums together.
    fn of_all(&self, caches: Caches) -> [f64; 3] {
        let bytes = 4.0 * (self.rows + self.sums) as f64 * self.cols as f64;
        Self::shares(caches, bytes, SHARE * caches.l3 as f64)
    }

    fn lines(&self) -> f64 {
        self.cols.div_ceil(LINE) as f64
    }

    /// Cycles with all columns at once.
    fn whole(&self, caches: Caches) -> f64 {
        let read = dot(self.of_all(caches), READ);
        let write = WRITE[0] + self.beyond(caches) * (WRITE[1] - WRITE[0]);
        self.lines() * (self.edges as f64 * read + self.sums as f64 * write)
    }

    /// Cycles with so many lines of columns at a time.
    fn sliced(&self, caches: Caches, threads: usize, lines: usize) -> f64 {
        let bytes = (4 * self.rows * lines * LINE) as f64;
        let last = SLICE_SHARE * caches.l3 as f64 / threads as f64;
        let sum = dot(Self::shares(caches, bytes, last), SUM) + EDGE / lines as f64;
        let copy = COPY[0] + self.beyond(caches) * (COPY[1] - COPY[0]) + ROW / lines as f64;
        self.lines() * (self.edges as f64 * sum + (self.rows + self.sums) as f64 / 2.0 * copy)
    }
}

fn dot(shares: [f64; 3], costs: [f64; 3]) -> f64 {
    shares.iter().zip(costs).map(|(share, cost)| share * cost).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Caches = Caches { l2: 1 << 20, l3: 32 << 20 };

    fn best(nodes: usize, degree: usize, cols: usize, threads: usize) -> Option<usize> {
        Work { rows: nodes, sums: nodes, edges: nodes * degree, cols }.best(MACHINE, threads)
    }

    #[test]
    fn what_was_measured_faster_is_chosen() {
        for threads in [1, 2] {
            // nodes, degree, columns; whether slices were faster
            for (nodes, degree, cols, faster) in [
                (8_000, 15, 512, true),
                (8_000, 50, 512, true),
                (8_000, 15, 1024, true),
                (2_000, 15, 512, true),
                (2_000, 50, 512, true),
                (8_000, 50, 256, true),
                (32_000, 15, 512, true),
                (32_000, 50, 512, true),
                (8_000, 15, 128, false),
                (8_000, 15, 256, false),
                (2_000, 15, 128, false),
                (32_000, 15, 128, false),
            ] {
                assert_eq!(best(nodes, degree, cols, threads).is_some(), faster, "{nodes} {degree} {cols}");
            }
        }
    }

    #[test]
    fn a_sampled_tree_is_not_copied_for_its_few_edges() {
        let tree = Work { rows: 180_000, sums: 20_000, edges: 200_000, cols: 512 };
        assert_eq!(tree.best(MACHINE, 1), None);
    }

    #[test]
    fn every_thread_has_a_slice() {
        assert_eq!(best(8_000, 50, 512, 64), None);
        for threads in 1..=16 {
            if let Some(width) = best(32_000, 50, 512, threads) {
                assert!(width * threads <= 512 && width % LINE == 0, "{width} for {threads}");
            }
        }
    }

    #[test]
    fn narrow_or_empty_work_has_no_slices() {
        assert_eq!(best(100_000, 50, 31, 1), None);
        assert_eq!(best(0, 0, 512, 1), None);
        assert_eq!(width(Work { rows: 0, sums: 0, edges: 0, cols: 0 }), None);
    }
}
