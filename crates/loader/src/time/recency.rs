//! Draws by recency among the admitted edges of a row.
//!
//! # Algorithm
//!
//! Edges are taken one after the other in proportion to the weights `w`, without replacement. In a
//! long row they are drawn with replacement, and repeats are ignored, which is the same.
//!
//! A draw from a long row takes a uniform number up to the sum of the weights of the admitted
//! edges, and finds the first edge up to which the sum is above it: a look-up in the table of the
//! row ([`super::decay`]), and a comparison with the few edges that are listed there. The draws of
//! several rows go through these steps together, so that their reads overlap.
//!
//! Every edge of a short row has a clock ([`super::clocks`]). If few edges of a long row have most
//! of the weight, repeats are too many; the rest of the draws is then made among the edges that are
//! left. There every edge has the key `ln w + G` with a Gumbel number `G`, and the `k` largest are
//! taken. Logarithms do not underflow, however old an edge is. The scan runs from the last edge
//! back and stops when no `G` can lift an edge into the `k` largest.
//!
//! # Source
//!
//! Efraimidis and Spirakis, *Weighted random sampling with a reservoir*, IPL 97(5), 2006; Kool, van
//! Hoof and Welling, *Stochastic beams and where to find them*, ICML 2019, section 2.2
//! (Gumbel-top-k). That of the tables is in [`super::decay`].
//!
//! # Cost
//!
//! O(E) once for a half life. O(k) expected for all edges of a long row, and O(k + log d) for the
//! first ones; O(d) for a short row. O(log k) for each edge of the last `38 / ln 2` half lives, and
//! of the `k` largest, if there are too many repeats.
//!
//! # Memory
//!
//! That of the tables.

use std::{cmp::Reverse, collections::BinaryHeap};

use graphmill_core::keyed::Stream;
use rustc_hash::FxHashSet;

use super::{
    clocks,
    decay::{WeightTable, age},
    draw::{MARKED, Marks},
};

/// Number of edges for each draw up to which a row is short.
const SHORT: usize = 3;
/// Maximum number of places that are drawn together.
const MAX_CANDIDATES: usize = 32;
/// Bound of a Gumbel number: `-ln(-ln u)` for the largest `u` of [`gumbel`], `1 - 2^-54`.
const MAX_GUMBEL: f64 = 37.5;

/// Times of a row with their weights.
#[derive(Clone, Copy)]
pub(super) struct Aged<'a> {
    half_life: f64,
    times: &'a [i64],
    /// `None` if the row is short.
    table: Option<WeightTable<'a>>,
}

impl<'a> Aged<'a> {
    /// Views a row of these times and its table in [`super::decay::Decay`], which may be empty.
    #[inline]
    pub(super) fn new(half_life: f64, times: &'a [i64], table: &'a [u32]) -> Self {
        Self { half_life, times, table: WeightTable::of(table, times.len()) }
    }

    /// Returns true if all edges of the row always existed.
    pub(super) fn has_no_times(&self) -> bool {
        self.times.is_empty()
    }
}

/// Returns true if `count` draws from so many edges read all their times.
#[inline]
pub(super) fn is_short(edges: usize, count: usize) -> bool {
    edges <= SHORT.saturating_mul(count)
}

/// Number of places to draw at first, of which `count` should differ.
#[inline]
fn candidates(edges: usize, count: usize) -> usize {
    let more = match edges / count {
        0..6 => count,
        6..32 => count / 2,
        _ => count / 8 + 1,
    };
    (count + more).min(MAX_CANDIDATES)
}

/// Places of a row that are drawn with replacement. The steps of several rows alternate, so that
/// their reads overlap: [`Candidates::start`], [`Candidates::look_up`], [`Candidates::finish`].
pub(super) struct Candidates {
    stream: Stream,
    len: usize,
    /// Bucket of each candidate, and then the edges among which its place is.
    edges: [[u32; 2]; MAX_CANDIDATES],
    /// Lower bits of the sum that each candidate has drawn.
    low: [u32; MAX_CANDIDATES],
}

impl Candidates {
    /// Creates a list for any row.
    pub(super) fn new() -> Self {
        let edges = [[0; 2]; MAX_CANDIDATES];
        Self { stream: Stream::new(0), len: 0, edges, low: [0; MAX_CANDIDATES] }
    }

    /// Begins `count` draws from the admitted places of a row, and prefetches their buckets.
    pub(super) fn start(&mut self, row: &Aged, admitted: [u32; 2], stream: Stream, count: usize) {
        (self.stream, self.len) = (stream, 0);
        let edges = (admitted[1] - admitted[0]) as usize;
        if count > 0 && !is_short(edges, count) {
            self.fill(row, admitted, candidates(edges, count));
        }
    }

    /// Replaces the candidates by `count` others; by none if the row has no table, or none for the
    /// admitted edges.
    fn fill(&mut self, row: &Aged, admitted: [u32; 2], count: usize) {
        self.len = 0;
        let Some(table) = &row.table else { return };
        let [below, all] = admitted.map(|end| table.sum(end));
        if below >= all {
            return;
        }
        self.len = count;
        for (edges, low) in self.edges.iter_mut().zip(&mut self.low).take(count) {
            let bucket;
            (bucket, *low) = table.bucket(below + (all - below) * self.stream.uniform());
            edges[0] = bucket;
            table.prefetch_bucket(bucket);
        }
    }

    /// Looks up the buckets of the candidates, and prefetches their sums.
    pub(super) fn look_up(&mut self, row: &Aged) {
        let Some(table) = &row.table else { return };
        for edges in &mut self.edges[..self.len] {
            *edges = table.edges(edges[0]);
            table.prefetch_edge(edges[0]);
        }
    }

    /// Ends the draws from the admitted places of a row: fills `out`.
    pub(super) fn finish(&mut self, row: &Aged, admitted: [u32; 2], marks: &mut Marks, out: &mut [u32]) {
        let [start, end] = admitted.map(|end| end as usize);
        if end - start <= clocks::MAX_CLOCKS && is_short(end - start, out.len()) {
            let times = &row.times[start..end];
            if clocks::draw(row.half_life, times, &mut self.stream, out) {
                return out.iter_mut().for_each(|place| *place += admitted[0]);
            }
        }
        let (mut drawn, mut tries) = (0, 0);
        marks.clear();
        while self.len > 0 {
            drawn = self.accept(row, admitted, marks, out, drawn);
            tries += self.len;
            if drawn == out.len() || tries > 4 * out.len() + MAX_CANDIDATES {
                break;
            }
            self.fill(row, admitted, MAX_CANDIDATES);
            self.look_up(row);
        }
        if drawn < out.len() {
            let (taken, out) = out.split_at_mut(drawn);
            by_keys(row, admitted, taken, &mut self.stream, out);
        }
    }

    /// Takes the places of candidates into `out`, of which `drawn` are filled; returns their
    /// number.
    #[inline]
    fn accept(
        &self,
        row: &Aged,
        [start, end]: [u32; 2],
        marks: &mut Marks,
        out: &mut [u32],
        drawn: usize,
    ) -> usize {
        let Some(table) = &row.table else { return drawn };
        let (mut fresh, mut count) = ([0; MAX_CANDIDATES], 0);
        // sums are rounded, so a candidate may be beyond an end
        let place = |(edges, low): (&[u32; 2], &u32)| table.find(*edges, *low).clamp(start, end - 1);
        let places = self.edges.iter().zip(&self.low).take(self.len).map(place);
        if row.times.len() <= MARKED {
            // no branch tests for repeats, which are unpredictable
            for place in places {
                fresh[count] = place;
                count += usize::from(!marks.is_set(place));
                marks.set_if(place, true);
            }
        } else {
            for place in places {
                let is_marked = marks.is_set(place);
                if is_marked && (out[..drawn].contains(&place) || fresh[..count].contains(&place)) {
                    continue;
                }
                fresh[count] = place;
                count += 1;
                marks.set_if(place, true);
            }
        }
        let count = count.min(out.len() - drawn);
        out[drawn..drawn + count].copy_from_slice(&fresh[..count]);
        drawn + count
    }
}

/// Draws from the standard Gumbel distribution; at most [`MAX_GUMBEL`].
fn gumbel(stream: &mut Stream) -> f64 {
    let u = stream.uniform() + 0.5 / (1u64 << 53) as f64;
    -(-u.ln()).ln()
}

/// A key, exactly the sum of two numbers, and its place; ordered by key.
#[derive(Clone, Copy, PartialEq)]
struct Keyed {
    key: f64,
    rest: f64,
    place: u32,
}

impl Keyed {
    /// Creates the key `weight + gumbel` without rounding (Knuth's two-sum): Gumbel numbers decide
    /// between equal weights of any size.
    fn new(weight: f64, gumbel: f64, place: u32) -> Self {
        let key = weight + gumbel;
        let second = key - weight;
        Self { key, rest: (weight - (key - second)) + (gumbel - second), place }
    }
}

impl Eq for Keyed {}

impl PartialOrd for Keyed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Keyed {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let by_key = self.key.total_cmp(&other.key).then(self.rest.total_cmp(&other.rest));
        by_key.then(self.place.cmp(&other.place))
    }
}

/// Draws by Gumbel keys, of the places that are not `taken`.
fn by_keys(
    &Aged { half_life, times, .. }: &Aged,
    [start, end]: [u32; 2],
    taken: &[u32],
    stream: &mut Stream,
    out: &mut [u32],
) {
    let last = times[end as usize - 1];
    let taken: FxHashSet<u32> = taken.iter().copied().collect();
    let mut largest: BinaryHeap<Reverse<Keyed>> = BinaryHeap::with_capacity(out.len() + 1);
    for place in (start..end).rev() {
        let weight = -age(half_life, last, times[place as usize]) * std::f64::consts::LN_2;
        if largest.len() == out.len() {
            match largest.peek() {
                Some(Reverse(least)) if weight + MAX_GUMBEL < least.key => break,
                None => break,
                _ => {}
            }
        }
        if taken.contains(&place) {
            continue;
        }
        let keyed = Keyed::new(weight, gumbel(stream), place);
        if largest.len() < out.len() {
            largest.push(Reverse(keyed));
        } else if let Some(mut least) = largest.peek_mut()
            && keyed > least.0
        {
            *least = Reverse(keyed);
        }
    }
    out.iter_mut().zip(largest).for_each(|(to, Reverse(drawn))| *to = drawn.place);
}

#[cfg(test)]
mod tests {
    use graphmill_core::keyed::key;

    use super::{super::decay::Decay, *};
    use crate::subgraph::testing::fits;

    /// Draws by recency from a row that is cut for this draw.
    fn drawn(half_life: f64, times: &[i64], admitted: [u32; 2], seed: u64, out: &mut [u32]) {
        let decay = Decay::new(&[0, times.len() as u64], times, half_life);
        let row = Aged::new(half_life, times, decay.row(0));
        let mut candidates = Candidates::new();
        candidates.start(&row, admitted, Stream::new(key(&[seed, 3])), out.len());
        candidates.look_up(&row);
        candidates.finish(&row, admitted, &mut Marks::new(), out);
        out.sort_unstable();
    }

    #[test]
    fn draws_from_a_window_and_from_first_edges_have_their_probabilities() {
        // 60 edges; the row is long for one draw
        let times: Vec<i64> = (0..60).map(|i| i * 7 / 10).collect();
        for (admitted, half_life) in [([0, 60], 2.0), ([37, 55], 4.0), ([20, 60], 1.0), ([0, 50], 30.0)] {
            let mut counts = vec![0; 60];
            for seed in 0..60_000 {
                let mut out = [0];
                drawn(half_life, &times, admitted, seed, &mut out);
                counts[out[0] as usize] += 1;
            }
            let range = admitted[0] as usize..admitted[1] as usize;
            let weights: Vec<f64> =
                times[range.clone()].iter().map(|&time| (time as f64 / half_life).exp2()).collect();
            fits(&counts[range.clone()], &weights);
            assert_eq!(counts[range].iter().sum::<u64>(), 60_000);
        }
    }

    #[test]
    fn long_rows_are_drawn_with_the_probabilities_of_short_ones() {
        // 400 edges in four groups by age; the draws of a group share its probability
        for ages in [[0, 1, 2, 5], [0, 0, 7, 40], [0, 3, 300, 301]] {
            let mut times: Vec<i64> = ages.iter().flat_map(|age| [1_000 - age; 100]).collect();
            times.sort_unstable();
            for k in [1, 3] {
                let mut counts = [[0usize; 4]; 2];
                for (keyed, counts) in counts.iter_mut().enumerate() {
                    for seed in 0..20_000 {
                        let mut out = vec![0; k];
                        if keyed == 1 {
                            let stream = &mut Stream::new(key(&[seed, 3]));
                            let row = Aged::new(1.5, &times, &[]);
                            by_keys(&row, [0, 400], &[], stream, &mut out);
                        } else {
                            drawn(1.5, &times, [0, 400], seed, &mut out);
                        }
                        out.sort_unstable();
                        assert!(out.windows(2).all(|pair| pair[0] < pair[1]) && out[k - 1] < 400);
                        out.iter().for_each(|place| counts[*place as usize / 100] += 1);
                    }
                }
                for (a, b) in counts[0].iter().zip(counts[1]) {
                    let deviation = ((a + b) as f64).sqrt().max(1.0);
                    assert!((*a as f64 - b as f64).abs() < 4.5 * deviation, "{ages:?}, {k}: {counts:?}");
                }
            }
        }
    }

    #[test]
    fn edges_too_old_for_the_table_are_drawn_without_it() {
        // the last edge is later than the others by more half lives than a sum can hold
        let mut times: Vec<i64> = (0..200).collect();
        times.push(1_000_000);
        let mut counts = vec![0; 4];
        for seed in 0..20_000 {
            let mut out = [0];
            drawn(50.0, &times, [0, 200], seed, &mut out);
            counts[out[0] as usize / 50] += 1;
        }
        fits(&counts, &[0.125, 0.25, 0.5, 1.0]);
    }

    #[test]
    fn few_heavy_edges_of_a_long_row_are_all_drawn() {
        // three recent edges, and the others so old that only they are left
        let mut times = vec![-1_000_000; 500];
        times.extend([0, 0, 1]);
        for seed in 0..50 {
            let mut out = [0; 5];
            drawn(1.0, &times, [0, 503], seed, &mut out);
            out.sort_unstable();
            assert!(out[2..] == [500, 501, 502] && out[0] < out[1] && out[1] < 500, "{out:?}");
        }
    }
}
