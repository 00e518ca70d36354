//! Cost model of aggregation by slices of columns ([`super::slices`]): chooses between whole rows
//! and slices, and the width of the slices.
//!
//! Costs are clock cycles. A row is `F / 16` cache lines (f32), a slice's row `w / 16`; `S` rows
//! are read and `D` written, over `E` edges. The cost of a line depends on the cache that it comes
//! from: of `b` bytes read at random, a cache of `C` bytes holds the share `min(1, C / b)`.
//!
//! ```text
//! rows      E F/16 read(S F) + D F/16 write
//! slices    E F/16 (sum(S w) + EDGE / (w/16)) + (S + D)/2 F/16 (copy + ROW / (w/16))
//! ```
//!
//! The constants were measured on one core of an AMD EPYC 9005 (Zen 5: 1 MiB of second-level cache,
//! 32 MiB of third), in cycles of that core, over subgraphs of 2,000 to 32,000 nodes with degrees
//! around 15 and 50 and 128 to 1024 columns (`cargo bench -p graphmill-nn --bench propagation`).
//! For features far larger than the last level, the model gives the paper's
//! `Q_f = max(threads, bytes / cache)`. If the last level holds the features, slices somewhat wider
//! than the second level are faster, and below some ten megabytes slices never pay, because the
//! last level feeds the plain loop nearly as fast.
//! as fast.

use std::cell::Cell;

use super::{caches::Caches, slices::LINE};

/// Cost of a line read by the loop over whole rows, which prefetches rows: from the second level,
/// the last level and memory.
const READ: [f64; 3] = [2.3, 3.2, 7.6];
/// Cost of a line read from a slice, whose rows are adjacent, from the same places.
const SUM: [f64; 3] = [1.5, 2.8, 7.6];
/// Cost of an edge per additional slice.
const EDGE: f64 = 2.5;
/// Cost of a line of sums written as whole rows: to a cache, and to memory.
const WRITE: [f64; 2] = [6.0, 20.0];
/// Cost of a line of a row copied and one of sums written, by slices: in a cache, and in memory.
const COPY: [f64; 2] = [10.3, 35.0];
/// Cost of a row per additional slice: its loop over the edges ends unpredictably.
const ROW: f64 = 30.0;
/// Share of the last level available to rows and sums together, and to slices, whose sums bypass
/// it.
const SHARE: f64 = 0.9;
const SLICE_SHARE: f64 = 0.4;
/// Candidate widths in cache lines. Wider slices move more bytes and were never faster.
const WIDTHS: [usize; 4] = [2, 4, 6, 8];

/// Division of the columns in aggregation over a local block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slicing {
    /// Choice of the cost model.
    #[default]
    Auto,
    /// All columns of a row at once, with rows in parallel.
    Rows,
    /// This number of columns at a time, rounded up to whole cache lines.
    Columns(usize),
}

thread_local! {
    static FORCED: Cell<Slicing> = const { Cell::new(Slicing::Auto) };
}

/// Runs `f` with the aggregations that it calls on this thread forced to `slicing`, for tests and
/// measurements. The results are bit-identical.
pub fn with_slicing<T>(slicing: Slicing, f: impl FnOnce() -> T) -> T {
    /// Restores the previous value, even if `f` panics.
    struct Restore(Slicing);
    impl Drop for Restore {
        fn drop(&mut self) {
            FORCED.set(self.0);
        }
    }
    let _restore = Restore(FORCED.replace(slicing));
    f()
}

/// Sizes of an aggregation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// Rows read, `S`, each once per edge.
    pub(super) rows: usize,
    /// Rows written, `D`.
    pub(super) sums: usize,
    /// Edges, `E`.
    pub(super) edges: usize,
    /// Columns, `F`.
    pub(super) cols: usize,
}

/// Width of the slices, a multiple of [`LINE`], or `None` for all columns at once.
pub(super) fn width(work: Work) -> Option<usize> {
    match FORCED.get() {
        Slicing::Rows => None,
        Slicing::Columns(width) => Some(width.clamp(1, work.cols.max(1)).next_multiple_of(LINE)),
        // too small for the model to pay
        Slicing::Auto if work.edges * work.cols < 1 << 20 => None,
        Slicing::Auto => work.best(Caches::get(), rayon::current_num_threads()),
    }
}

impl Work {
    /// Fastest width for this number of threads, each of which processes at least one slice.
    fn best(&self, caches: Caches, threads: usize) -> Option<usize> {
        let widths = WIDTHS.into_iter().filter(|&lines| lines * LINE * threads.max(2) <= self.cols);
        let costs = widths.map(|lines| (self.sliced(caches, threads, lines), lines));
        let (cost, lines) = costs.min_by(|a, b| a.0.total_cmp(&b.0))?;
        (cost < self.whole(caches)).then_some(lines * LINE)
    }

    /// Shares of `bytes` that come from the second level, from the last level (of which `last`
    /// bytes are available) and from memory.
    fn shares(caches: Caches, bytes: f64, last: f64) -> [f64; 3] {
        let second = (caches.l2 as f64 / bytes).min(1.0);
        let last = (last / bytes).min(1.0).max(second);
        [second, last - second, 1.0 - last]
    }

    /// Share of rows and sums together that no cache holds.
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

    /// Cycles with this number of lines of columns at a time.
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
    fn measured_winners_are_chosen() {
        for threads in [1, 2] {
            // nodes, degree, columns; true if slices were faster
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
    fn sampled_trees_with_few_edges_are_not_sliced() {
        let tree = Work { rows: 180_000, sums: 20_000, edges: 200_000, cols: 512 };
        assert_eq!(tree.best(MACHINE, 1), None);
    }

    #[test]
    fn every_thread_gets_a_slice() {
        assert_eq!(best(8_000, 50, 512, 64), None);
        for threads in 1..=16 {
            if let Some(width) = best(32_000, 50, 512, threads) {
                assert!(width * threads <= 512 && width % LINE == 0, "{width} for {threads}");
            }
        }
    }

    #[test]
    fn narrow_or_empty_aggregations_are_not_sliced() {
        assert_eq!(best(100_000, 50, 31, 1), None);
        assert_eq!(best(0, 0, 512, 1), None);
        assert_eq!(width(Work { rows: 0, sums: 0, edges: 0, cols: 0 }), None);
    }
}
