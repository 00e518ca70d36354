//! Draws by recency among the admitted edges of a row.
//!
//! # Algorithm
//!
//! Edges are taken one after the other in proportion to the weights `w`, without replacement. In a
//! long row they are drawn with replacement, and repeats are ignored, which is the same.
//!
//! A row is cut into segments, from its first edge on: the edges of a segment span less than a half
//! life. An edge of a segment weighs at most as much as the segment's last edge, and more than half
//! as much. The number of edges times this bound is the bound of a segment, and the bounds of all
//! earlier segments are summed up once. A draw finds its segment, from the last admitted edge back,
//! takes an edge of the segment uniformly, and accepts it with the quotient of its weight and the
//! bound: three of four on average, if the times of a segment are spread evenly. For half of the
//! edges, the random number is below one half, and their times are not read.
//!
//! If few edges have most of the weight, repeats are too many; the rest of the draws is then made
//! as in a short row, among the edges that are left. There every edge has the key `ln w + G` with a
//! Gumbel number `G`, and the `k` largest are taken. Logarithms do not underflow, however old an
//! edge is. The scan runs from the last edge back and stops when no `G` can lift an edge into the
//! `k` largest.
//!
//! # Source
//!
//! Efraimidis and Spirakis, *Weighted random sampling with a reservoir*, IPL 97(5), 2006; Kool, van
//! Hoof and Welling, *Stochastic beams and where to find them*, ICML 2019, section 2.2
//! (Gumbel-top-k).
//!
//! # Cost
//!
//! O(E) once for a half life. O(k log C) expected for a row of `C` segments, or in a short row
//! O(log k) for each edge of the last `38 / ln 2` half lives and of the `k` largest.
//!
//! # Memory
//!
//! That of the segments ([`super::decay`]).

use std::{cmp::Reverse, collections::BinaryHeap};

use graphmill_core::keyed::Stream;
use rustc_hash::FxHashSet;

use super::{
    decay::{MAX_RECENT, Segment, age},
    draw::Marks,
};
use crate::prefetch::prefetch;

/// Number of edges for each draw up to which every edge gets a key.
const KEYED_FOR_EACH: usize = 3;
/// Least part of the weights of all earlier edges that the edges of a window have, if they are
/// drawn by segments: below, the difference of two sums is too inexact.
const MIN_WINDOW: f64 = 1e-6;
/// Number of places that are drawn before any is accepted.
const MAX_CANDIDATES: usize = 32;
/// Number of weights that are computed together.
const LANES: usize = 8;
/// Coefficients of the exponential series, the last first.
const COEFFICIENTS: [f64; 13] = {
    let mut all = [1.0; 13];
    let mut n = 1;
    while n < 13 {
        all[12 - n] = all[13 - n] / n as f64;
        n += 1;
    }
    all
};
/// Bound of a Gumbel number: `-ln(-ln u)` for the largest `u` of [`gumbel`], `1 - 2^-54`.
const MAX_GUMBEL: f64 = 37.5;

/// Times of a row with its segments.
#[derive(Clone, Copy)]
pub(super) struct Aged<'a> {
    pub(super) half_life: f64,
    pub(super) times: &'a [i64],
    /// Empty if the row is short.
    pub(super) segments: &'a [Segment],
}

/// Places of a row that are drawn with replacement and not accepted yet. The draws of several rows
/// are made before any is accepted, so that the reads of their times overlap.
pub(super) struct Candidates {
    stream: Stream,
    len: usize,
    place: [u32; MAX_CANDIDATES],
    /// Uniform number that decides whether the place is accepted.
    uniform: [f64; MAX_CANDIDATES],
    /// Time of the last edge of the place's segment.
    newest: [i64; MAX_CANDIDATES],
}

impl Candidates {
    /// Creates a list for any row.
    pub(super) fn new() -> Self {
        Self {
            stream: Stream::new(0),
            len: 0,
            place: [0; MAX_CANDIDATES],
            uniform: [0.0; MAX_CANDIDATES],
            newest: [0; MAX_CANDIDATES],
        }
    }

    /// Begins `count` draws from the admitted places of a row, and prefetches their times.
    pub(super) fn start(&mut self, row: &Aged, admitted: [u32; 2], stream: Stream, count: usize) {
        (self.stream, self.len) = (stream, 0);
        let is_long = (admitted[1] - admitted[0]) as usize > KEYED_FOR_EACH * count;
        if is_long && !row.segments.is_empty() && count > 0 {
            self.fill(row, admitted, (count + count / 2 + 1).next_multiple_of(LANES));
        }
    }

    /// Replaces the candidates by up to `count` others.
    fn fill(&mut self, row: &Aged, admitted: [u32; 2], count: usize) {
        self.len = 0;
        let Some(recent) = Recent::new(row.segments, admitted) else { return };
        self.len = count.min(MAX_CANDIDATES);
        for i in 0..self.len {
            let (first, count, newest) = recent.segment(row.segments, self.stream.uniform());
            // the halves of the product are the place and a uniform number
            let product = u128::from(self.stream.next_u64()) * u128::from(count);
            self.place[i] = first + (product >> 64) as u32;
            self.uniform[i] = (product as u64 >> 11) as f64 * (1.0 / (1u64 << 53) as f64);
            self.newest[i] = newest;
            prefetch(row.times, self.read(i, admitted));
        }
    }

    /// All bits if candidate `i` is accepted at any age of its segment. Branches on it would be
    /// unpredictable.
    #[inline(always)]
    fn is_certain(&self, i: usize) -> u64 {
        u64::from(self.uniform[i] < 0.5).wrapping_neg()
    }

    /// Place whose time is read to accept candidate `i`: the last one, which is cached, if the
    /// candidate is certain.
    #[inline(always)]
    fn read(&self, i: usize, admitted: [u32; 2]) -> usize {
        let place = self.place[i];
        (place ^ ((admitted[1] - 1) ^ place) & self.is_certain(i) as u32) as usize
    }

    /// Ends the draws from the admitted places of a row: fills `out`.
    pub(super) fn finish(&mut self, row: &Aged, admitted: [u32; 2], marks: &mut Marks, out: &mut [u32]) {
        if out.is_empty() {
            return;
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
        }
        if drawn < out.len() {
            let (taken, out) = out.split_at_mut(drawn);
            by_keys(row, admitted, taken, &mut self.stream, out);
        }
    }

    /// Accepts candidates as places of `out`, of which `drawn` are filled; returns their number.
    fn accept(
        &self,
        row: &Aged,
        admitted: [u32; 2],
        marks: &mut Marks,
        out: &mut [u32],
        mut drawn: usize,
    ) -> usize {
        let mut weight = [0.0; MAX_CANDIDATES];
        for (i, to) in weight[..self.len].iter_mut().enumerate() {
            let age = self.newest[i].wrapping_sub(row.times[self.read(i, admitted)]) as u64;
            *to = (age & !self.is_certain(i)) as f64 / row.half_life;
        }
        weight[..self.len.next_multiple_of(LANES)].as_chunks_mut().0.iter_mut().for_each(powers);
        for ((&place, &uniform), &weight) in self.place.iter().zip(&self.uniform).zip(&weight).take(self.len)
        {
            let Some(to) = out.get_mut(drawn) else { break };
            // no branch tests for acceptance, which is unpredictable
            *to = place;
            let is_accepted = uniform < weight;
            if is_accepted & marks.is_set(place) && out[..drawn].contains(&place) {
                continue;
            }
            marks.set_if(place, is_accepted);
            drawn += usize::from(is_accepted);
        }
        drawn
    }
}

/// Replaces ages from 0 to 1 by `2^-age`, by the series around a half: its first missing term is
/// below `2^-52`.
#[inline(always)]
fn powers(ages: &mut [f64; LANES]) {
    let x = ages.map(|age| (0.5 - age) * std::f64::consts::LN_2);
    let mut sums = [0.0; LANES];
    for coefficient in COEFFICIENTS {
        sums.iter_mut().zip(&x).for_each(|(sum, x)| *sum = *sum * x + coefficient);
    }
    *ages = sums.map(|sum| sum * std::f64::consts::FRAC_1_SQRT_2);
}

/// Last segments of the admitted edges of a row.
struct Recent {
    /// Sum of the bounds of the later segments, in the weight of the last one's `newest`; infinite
    /// beyond the first segment.
    later: [f64; MAX_RECENT],
    first: [u32; MAX_RECENT],
    count: [u32; MAX_RECENT],
    newest: [i64; MAX_RECENT],
    /// Sum of all bounds.
    total: f64,
    /// Sum of the bounds here, and the weight of the `newest` of the segment before.
    known: f64,
    scale: f64,
    /// Number of the segment before.
    before: usize,
    /// Number of the oldest segment, and its first admitted place.
    oldest: usize,
    start: u32,
}

impl Recent {
    /// Sums up the bounds of the segments. `None` if a window has too small a part of the weights.
    fn new(segments: &[Segment], [start, end]: [u32; 2]) -> Option<Self> {
        let holds = |place: u32| segments.partition_point(|segment| segment.first <= place) - 1;
        let last = match segments.last() {
            Some(segment) if segment.first < end => segments.len() - 1,
            _ => holds(end - 1),
        };
        let all = f64::from(end - segments[last].first) + segments[last].before;
        let (mut oldest, mut total) = (0, all);
        if start > 0 {
            oldest = holds(start);
            let at = &segments[oldest];
            let older = f64::from(start - at.first) + at.before;
            total -= segments[oldest + 1..=last].iter().fold(older, |older, segment| older * segment.decay);
            if total < MIN_WINDOW * all {
                return None;
            }
        }
        let mut recent = Self {
            later: [f64::INFINITY; MAX_RECENT],
            first: [0; MAX_RECENT],
            count: [0; MAX_RECENT],
            newest: [0; MAX_RECENT],
            total,
            known: 0.0,
            scale: 1.0,
            before: last + 1,
            oldest,
            start,
        };
        let mut end = end;
        for (i, segment) in segments[oldest..=last].iter().rev().take(MAX_RECENT).enumerate() {
            let first = segment.first.max(start);
            recent.later[i] = recent.known;
            (recent.first[i], recent.count[i], recent.newest[i]) = (first, end - first, segment.newest);
            recent.known += f64::from(end - first) * recent.scale;
            recent.scale *= segment.decay;
            recent.before -= 1;
            end = first;
        }
        Some(recent)
    }

    /// Segment at a part of the total: its first admitted place, number of them, and newest time.
    #[inline(always)]
    fn segment(&self, segments: &[Segment], part: f64) -> (u32, u32, i64) {
        let at = part * self.total;
        if at >= self.known && self.before > self.oldest {
            return self.older(segments, (at - self.known) / self.scale);
        }
        let later: usize = self.later[1..].iter().map(|&later| usize::from(at >= later)).sum();
        (self.first[later], self.count[later], self.newest[later])
    }

    /// As [`Recent::segment`], among the segments before, by a walk.
    #[cold]
    fn older(&self, segments: &[Segment], mut left: f64) -> (u32, u32, i64) {
        let mut s = self.before;
        loop {
            s -= 1;
            let segment = &segments[s];
            let first = segment.first.max(self.start);
            let count = segments[s + 1].first - first;
            if left < f64::from(count) || s == self.oldest {
                return (first, count, segment.newest);
            }
            left = (left - f64::from(count)) / segment.decay;
        }
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
        let row = Aged { half_life, times, segments: decay.row(0) };
        let mut candidates = Candidates::new();
        candidates.start(&row, admitted, Stream::new(key(&[seed, 3])), out.len());
        candidates.finish(&row, admitted, &mut Marks::new(), out);
        out.sort_unstable();
    }

    #[test]
    fn powers_are_those_of_the_library() {
        for i in 0..=1000 {
            let age = f64::from(i) / 1000.0;
            let mut ages = [age; LANES];
            powers(&mut ages);
            let difference = (ages[3] / (-age).exp2() - 1.0).abs();
            assert!(difference < 2e-15, "{age}: {difference}");
        }
    }

    #[test]
    fn draws_from_a_window_and_from_many_segments_have_their_probabilities() {
        // 60 edges, a new segment at most every second edge
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
                            let row = Aged { half_life: 1.5, times: &times, segments: &[] };
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
