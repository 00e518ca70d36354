//! Draws from discrete distributions in O(1) by Walker's alias tables.
//!
//! - [`Alias`] is one distribution over many outcomes.
//! - [`RowAlias`] is one distribution per node over its in-neighbours, with rows in parallel. A
//!   [`TableStore`] may keep the tables of the weights that are stored with a graph.
//!
//! # Algorithm
//!
//! A table of `n` outcomes has `n` cells of equal probability; each cell holds a threshold and at
//! most two outcomes. A draw picks a cell, and then the outcome below or above its threshold.
//!
//! # Source
//!
//! Walker, *An efficient method for generating discrete random variables with general
//! distributions*, ACM TOMS 3(3), 1977; built as in Vose, *A linear algorithm for generating random
//! numbers with a given distribution*, IEEE TSE 17(9), 1991.
//!
//! # Cost
//!
//! O(n) to build and O(1) to draw.
//!
//! # Memory
//!
//! 8 bytes per outcome, or per edge.
//!
//! # Deviations
//!
//! Sums are in f64, and a cell's threshold has 32 bits, so each probability is met to within 2^-32
//! / n per cell. The same weights give the same tables for any number of threads.

#![forbid(unsafe_code)]

mod rows;

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;

pub use rows::{Aim, NOTHING, RowAlias, Rows, TableStore};

use crate::{Error, Result, keyed::Stream, memory, search::position};

/// Number of outcomes in a run.
const RUN: usize = 1 << 16;

/// Cell of an alias table: the draw is the cell's own outcome `i` below the threshold and `other`
/// from there on. A cell that always gives `i` has `other == i`, so that the threshold need not
/// express 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Cell {
    /// First value of 32 random bits that draws `other`.
    pub threshold: u32,
    /// Outcome at and above the threshold.
    pub other: u32,
}

/// Distribution over `0..n`, 8 bytes per outcome. The default has no outcomes and must not be drawn
/// from.
///
/// ```
/// use graphmill_core::{alias::Alias, keyed::Stream};
/// let table = Alias::new(&[0.0, 3.0, 1.0]).unwrap();
/// let mut stream = Stream::new(1);
/// assert!((0..100).all(|_| table.draw(&mut stream) > 0));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alias {
    cells: Vec<Cell>,
    /// Distribution over runs of outcomes, if there are several.
    runs: Vec<Cell>,
    /// Number of outcomes in a run.
    run: usize,
}

impl Alias {
    /// Builds the distribution proportional to `weights`, of up to 2^32 - 1 outcomes.
    ///
    /// O(n), parallel: each run of outcomes has its own table, and one more table draws the run.
    /// The length of runs is fixed. The table of runs is small and stays cached, so a draw costs
    /// one read of the large one.
    ///
    /// # Errors
    /// `weights` is empty or too long, a weight is negative or not finite, or all weights are 0.
    pub fn new(weights: &[f64]) -> Result<Self> {
        Self::in_runs(weights, RUN)
    }

    /// Builds one table for any number of outcomes, on one thread.
    ///
    /// Every draw takes 64 random bits, while [`Alias::new`] takes 128 for several runs. Generators
    /// use it because their output must not change between versions.
    ///
    /// # Errors
    /// As for [`Alias::new`].
    pub fn in_one(weights: &[f64]) -> Result<Self> {
        Self::in_runs(weights, weights.len().max(1))
    }

    fn in_runs(weights: &[f64], run: usize) -> Result<Self> {
        if u32::try_from(weights.len()).is_err() {
            return Err(Error::invalid(format!(
                "{} weights: an alias table has at most 2^32 - 1 outcomes",
                weights.len()
            )));
        }
        // the first such weight, for any number of threads
        if let Some(i) = position(weights, |w| !(*w >= 0.0 && w.is_finite())) {
            return Err(Error::invalid(format!(
                "weight {i} is {}: weights are finite and at least 0",
                weights[i]
            )));
        }
        let totals: Vec<f64> = weights.par_chunks(run).map(|weights| weights.iter().sum()).collect();
        let sum: f64 = totals.iter().sum();
        if sum == 0.0 || !sum.is_finite() {
            let what = if sum == 0.0 { "sum to 0: nothing" } else { "sum to infinity: none" };
            return Err(Error::invalid(format!("{} weights {what} could be drawn", weights.len())));
        }
        let mut cells = memory::filled(Cell::default(), weights.len())?;
        cells.par_chunks_mut(run).zip(weights.par_chunks(run)).for_each_init(
            Scratch::default,
            |scratch, (cells, weights)| {
                let place = |i: usize, cell| cells[i] = cell;
                build(weights.len(), |i| weights[i], scratch, place);
            },
        );
        let mut runs = vec![Cell::default(); totals.len()];
        build(totals.len(), |i| totals[i], &mut Scratch::default(), |i, cell| runs[i] = cell);
        Ok(Self { cells, runs, run })
    }

    /// Number of outcomes `n`.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Returns true if there are no outcomes.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Draws an outcome, from 64 random bits if there is one run and from 128 otherwise.
    #[inline(always)]
    pub fn draw(&self, stream: &mut Stream) -> u32 {
        if self.runs.len() == 1 {
            return pick(&self.cells, stream.next_u64());
        }
        let first = pick(&self.runs, stream.next_u64()) as usize * self.run;
        let run = &self.cells[first..self.cells.len().min(first + self.run)];
        first as u32 + pick(run, stream.next_u64())
    }
}

/// Outcome of a table for a random word. The upper half of the product of word and length is the
/// cell, and the lower half the position within the cell.
#[inline(always)]
fn pick(cells: &[Cell], word: u64) -> u32 {
    let product = u128::from(word) * cells.len() as u128;
    let own = (product >> 64) as u32;
    let cell = cells[own as usize];
    if ((product as u64) >> 32) < u64::from(cell.threshold) { own } else { cell.other }
}

/// Scratch buffers of [`build`].
#[derive(Debug, Default)]
struct Scratch {
    share: Vec<f64>,
    small: Vec<u32>,
    large: Vec<u32>,
}

/// Passes the cells of the distribution proportional to `weight(0..n)` to `place`. The weights are
/// finite and not negative. Returns false, without a cell, if all of them are 0.
fn build(
    n: usize,
    weight: impl Fn(usize) -> f64,
    scratch: &mut Scratch,
    mut place: impl FnMut(usize, Cell),
) -> bool {
    let Scratch { share, small, large } = scratch;
    let total: f64 = (0..n).map(&weight).sum();
    if total == 0.0 {
        return false;
    }
    share.clear();
    // divide first, so that a weight of little more than 0 keeps a share of such a total
    share.extend((0..n).map(|i| weight(i) / total * n as f64));
    small.clear();
    large.clear();
    for (i, share) in share.iter().enumerate() {
        if *share < 1.0 { small.push(i as u32) } else { large.push(i as u32) }
    }
    while let Some(&giver) = large.last() {
        let Some(taker) = small.pop() else { break };
        let (taker, giver) = (taker as usize, giver as usize);
        place(taker, Cell { threshold: (share[taker] * 4_294_967_296.0) as u32, other: giver as u32 });
        share[giver] -= 1.0 - share[taker];
        if share[giver] < 1.0 {
            large.pop();
            small.push(giver as u32);
        }
    }
    // The rest has share 1 up to rounding, but outcomes of weight 0 must never be drawn.
    large.iter().for_each(|&i| place(i as usize, Cell { threshold: 0, other: i }));
    if small.iter().any(|&i| weight(i as usize) == 0.0) {
        let heaviest = (0..n).max_by(|&a, &b| weight(a).total_cmp(&weight(b))).unwrap_or(0);
        for &i in small.iter() {
            let other = if weight(i as usize) == 0.0 { heaviest as u32 } else { i };
            place(i as usize, Cell { threshold: 0, other });
        }
    } else {
        small.iter().for_each(|&i| place(i as usize, Cell { threshold: 0, other: i }));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that counts are within five standard deviations of `weights`, and 0 for weights of 0.
    pub(super) fn fits(counts: &[u32], weights: &[f64]) {
        let draws = counts.iter().sum::<u32>() as f64;
        let largest = weights.iter().copied().fold(0.0, f64::max);
        let total: f64 = weights.iter().map(|w| w / largest).sum();
        for (i, (&count, weight)) in counts.iter().zip(weights).enumerate() {
            let p = weight / largest / total;
            let sigma = (draws * p * (1.0 - p)).sqrt();
            assert!(
                (f64::from(count) - draws * p).abs() <= 5.0 * sigma + 1e-6,
                "{i}: {count}, {p} of {draws}"
            );
        }
    }

    /// Weights of all magnitudes, some of them 0.
    pub(super) fn weights(n: usize) -> Vec<f64> {
        let mut stream = Stream::new(n as u64);
        (0..n).map(|_| if stream.below(9) == 0 { 0.0 } else { (1.0 - stream.uniform()).powf(-0.7) }).collect()
    }

    /// Reference: one table, built as in a textbook.
    fn simple(weights: &[f64]) -> Vec<Cell> {
        let (total, n) = (weights.iter().sum::<f64>(), weights.len() as f64);
        let mut share: Vec<f64> = weights.iter().map(|w| w / total * n).collect();
        let mut cells: Vec<Cell> =
            (0..weights.len()).map(|i| Cell { threshold: 0, other: i as u32 }).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..share.len()).partition(|&i| share[i] < 1.0);
        while let Some(&giver) = large.last() {
            let Some(taker) = small.pop() else { break };
            cells[taker] = Cell { threshold: (share[taker] * 4_294_967_296.0) as u32, other: giver as u32 };
            share[giver] -= 1.0 - share[taker];
            if share[giver] < 1.0 {
                large.pop();
                small.push(giver);
            }
        }
        let heaviest = (0..weights.len()).max_by(|&a, &b| weights[a].total_cmp(&weights[b]));
        for i in small.into_iter().filter(|&i| weights[i] == 0.0) {
            cells[i].other = heaviest.unwrap() as u32;
        }
        cells
    }

    #[test]
    fn tables_match_the_reference() {
        for n in [1, 2, 7, 1000, RUN, 3 * RUN + 11] {
            let weights = [&[1.0], &weights(n)[1..]].concat();
            assert!(Alias::in_one(&weights).unwrap().cells == simple(&weights), "{n}");
            let runs: Vec<Cell> = weights.chunks(RUN).flat_map(simple).collect();
            assert!(Alias::new(&weights).unwrap().cells == runs, "{n} in runs");
        }
    }

    #[test]
    fn outcomes_are_drawn_by_weight() {
        let many: Vec<f64> =
            (0..3 * RUN + 5).map(|i| if i % 7 == 0 { 0.0 } else { (i / RUN * 10 + i % 3) as f64 }).collect();
        for weights in [
            &[1.0, 0.0, 3.0, 0.5, 0.0, 5.5][..],
            &[7.0],
            &[1.0; 10],
            &[0.0, 1e-9, 0.0],
            &[1e300, 0.0, 3e300],
            &many,
        ] {
            // groups of outcomes, because there are many
            let kind = |i: usize| i / RUN * 21 + i % 21;
            let mut expected = vec![0.0; 100];
            for (i, weight) in weights.iter().enumerate() {
                expected[kind(i)] += weight;
            }
            for table in [Alias::new(weights).unwrap(), Alias::in_one(weights).unwrap()] {
                let mut stream = Stream::new(weights.len() as u64);
                let mut counts = vec![0; 100];
                for _ in 0..200_000 {
                    counts[kind(table.draw(&mut stream) as usize)] += 1;
                }
                fits(&counts, &expected);
            }
        }
    }

    #[test]
    fn tables_do_not_depend_on_the_number_of_threads() {
        let weights = weights(2 * RUN + 100);
        let build = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| Alias::new(&weights).unwrap())
        };
        assert!(build(1) == build(3));
    }

    #[test]
    fn invalid_weights_are_rejected() {
        let bad = |weights: &[f64]| Alias::new(weights).unwrap_err().to_string();
        assert!(bad(&[]).contains("sum to 0") && bad(&[0.0; 3]).contains("sum to 0"));
        assert!(bad(&[1.0, -0.5]).contains("weight 1 is -0.5"));
        assert!(
            bad(&[f64::NAN]).contains("NaN") && bad(&[1.0, 2.0, f64::INFINITY]).contains("weight 2 is inf")
        );
        assert!(bad(&[f64::MAX; 2]).contains("infinity"));
        assert!(Alias::in_one(&[]).is_err() && Alias::default().is_empty());
    }
}
