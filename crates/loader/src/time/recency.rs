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
//! earlier segments are summed up once. A draw walks back from the last admitted edge to its
//! segment, past two segments on average if all have as many edges, takes an edge of the segment
//! uniformly, and accepts it with the quotient of its weight and the bound.
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
//! 8 bytes per node, and 32 for each segment of the rows with at least [`MIN_SEGMENTED`] edges.

use std::{cmp::Reverse, collections::BinaryHeap};

use graphmill_core::keyed::Stream;
use rustc_hash::FxHashSet;

use super::draw::Marks;
use crate::prefetch::prefetch;

/// Least number of edges of a row with segments.
const MIN_SEGMENTED: usize = 16;
/// Number of edges for each draw up to which every edge gets a key.
const KEYED_FOR_EACH: usize = 3;
/// Least part of the weights of all earlier edges that the edges of a window have, if they are
/// drawn by segments: below, the difference of two sums is too inexact.
const MIN_WINDOW: f64 = 1e-6;
/// Bound of a Gumbel number: `-ln(-ln u)` for the largest `u` of [`gumbel`], `1 - 2^-54`.
const MAX_GUMBEL: f64 = 37.5;

/// Edges of a row whose times span less than a half life.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// Place of the first edge.
    first: u32,
    /// Time of the last edge.
    newest: i64,
    /// Bound of the weights of all edges before the segment, if an edge of time `newest` weighs 1.
    before: f64,
    /// Weight of an edge of time `newest` over that of the previous segment's.
    step: f64,
}

/// Segments of the rows of a relation for one half life.
#[derive(Debug)]
pub(super) struct Decay {
    half_life: f64,
    /// End of the segments of each row, `N + 1`.
    ends: Vec<u64>,
    segments: Vec<Segment>,
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
        segments.shrink_to_fit();
        Self { half_life, ends, segments }
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
        prefetch(&self.segments, (self.ends[v + 1] as usize).saturating_sub(1));
        prefetch(&self.segments, (self.ends[v + 1] as usize).saturating_sub(3));
    }
}

/// Age of an edge of time `time`, in half lives, when one of time `newest` is added.
#[inline]
fn age(half_life: f64, newest: i64, time: i64) -> f64 {
    // the difference of ordered numbers of 64 bits fits into as many without a sign
    newest.wrapping_sub(time) as u64 as f64 / half_life
}

/// Appends the segments of a row.
pub(super) fn cut(times: &[i64], half_life: f64, segments: &mut Vec<Segment>) {
    let mut previous: Option<(Segment, f64)> = None;
    let mut first = 0;
    while first < times.len() {
        let span = |time: &i64| age(half_life, *time, times[first]);
        let end = first + 1 + times[first + 1..].iter().take_while(|&time| span(time) < 1.0).count();
        let newest = times[end - 1];
        let (step, before) = match previous {
            Some((segment, count)) => {
                let step = age(half_life, newest, segment.newest).exp2();
                (step, (count + segment.before) / step)
            }
            None => (1.0, 0.0),
        };
        let segment = Segment { first: first as u32, newest, before, step };
        segments.push(segment);
        previous = Some((segment, (end - first) as f64));
        first = end;
    }
}

/// Times of a row with its segments.
#[derive(Clone, Copy)]
pub(super) struct Aged<'a> {
    pub(super) half_life: f64,
    pub(super) times: &'a [i64],
    /// Empty if the row is short.
    pub(super) segments: &'a [Segment],
}

/// Draws `out.len()` of the places from `start` to `end`.
pub(super) fn by_recency(
    row: &Aged,
    admitted: [u32; 2],
    stream: &mut Stream,
    marks: &mut Marks,
    out: &mut [u32],
) {
    if out.is_empty() {
        return;
    }
    let long = (admitted[1] - admitted[0]) as usize > KEYED_FOR_EACH * out.len();
    let drawn = if long && !row.segments.is_empty() {
        with_replacement(row, admitted, stream, marks, out)
    } else {
        0
    };
    if drawn < out.len() {
        let (taken, out) = out.split_at_mut(drawn);
        by_keys(row.half_life, row.times, admitted, taken, stream, out);
    }
}

/// Draws places until `out` is full or repeats are too many; returns the number drawn.
fn with_replacement(
    &Aged { half_life, times, segments }: &Aged,
    [start, end]: [u32; 2],
    stream: &mut Stream,
    marks: &mut Marks,
    out: &mut [u32],
) -> usize {
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
        total -= segments[oldest + 1..=last].iter().fold(older, |older, segment| older / segment.step);
        if total < MIN_WINDOW * all {
            return 0;
        }
    }
    marks.clear();
    let mut drawn = 0;
    for _ in 0..4 * out.len() + 32 {
        let mut left = stream.uniform() * total;
        let (mut s, mut end) = (last, end);
        let (first, count) = loop {
            let first = segments[s].first.max(start);
            let count = end - first;
            if left < f64::from(count) || s == oldest {
                break (first, count);
            }
            left = (left - f64::from(count)) * segments[s].step;
            end = first;
            s -= 1;
        };
        let place = first + stream.below(count.into()) as u32;
        let accepts = || age(half_life, segments[s].newest, times[place as usize]);
        if !is_below_power(stream.uniform(), accepts) {
            continue;
        }
        if marks.set(place) && out[..drawn].contains(&place) {
            continue;
        }
        out[drawn] = place;
        drawn += 1;
        if drawn == out.len() {
            break;
        }
    }
    drawn
}

/// Returns true if `u < 2^-age`, for an age below 1.
#[inline]
fn is_below_power(u: f64, age: impl Fn() -> f64) -> bool {
    if u < 0.5 {
        return true;
    }
    // the power lies between its tangent at 0 and its chord
    let age = age();
    if u < 1.0 - 0.694 * age {
        return true;
    }
    u < 1.0 - 0.5 * age && u < (-age).exp2()
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

/// Logarithm of the weight of an edge of time `time`, if that of `last` weighs 1.
fn log_weight(half_life: f64, last: i64, time: i64) -> f64 {
    -((i128::from(last) - i128::from(time)) as f64) * std::f64::consts::LN_2 / half_life
}

/// Draws by Gumbel keys, of the places that are not `taken`.
fn by_keys(
    half_life: f64,
    times: &[i64],
    [start, end]: [u32; 2],
    taken: &[u32],
    stream: &mut Stream,
    out: &mut [u32],
) {
    let last = times[end as usize - 1];
    let taken: FxHashSet<u32> = taken.iter().copied().collect();
    let mut largest: BinaryHeap<Reverse<Keyed>> = BinaryHeap::with_capacity(out.len() + 1);
    for place in (start..end).rev() {
        let weight = log_weight(half_life, last, times[place as usize]);
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
        largest.push(Reverse(Keyed::new(weight, gumbel(stream), place)));
        if largest.len() > out.len() {
            largest.pop();
        }
    }
    out.iter_mut().zip(largest).for_each(|(to, Reverse(drawn))| *to = drawn.place);
}

#[cfg(test)]
mod tests {
    use graphmill_core::keyed::key;

    use super::*;

    /// Draws by recency from a row that is cut for this draw.
    fn drawn(half_life: f64, times: &[i64], admitted: [u32; 2], seed: u64, out: &mut [u32]) {
        let decay = Decay::new(&[0, times.len() as u64], times, half_life);
        let row = Aged { half_life, times, segments: decay.row(0) };
        by_recency(&row, admitted, &mut Stream::new(key(&[seed, 3])), &mut Marks::new(), out);
        out.sort_unstable();
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
                            by_keys(1.5, &times, [0, 400], &[], stream, &mut out);
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
