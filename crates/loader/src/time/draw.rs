//! Draws among the admitted edges of a row.
//!
//! # Algorithm
//!
//! Uniform draws are Floyd's: for `j` from `d - k` to `d - 1`, draw `t` of `0..=j` and take `t`, or
//! `j` if `t` is taken already.
//!
//! Draws by recency take one edge after the other in proportion to the weights `w`, without
//! replacement. For a long row, edges are drawn with replacement and repeats are ignored, which is
//! the same: class `c` has the edges whose age is `c` to `c + 1` half lives, a class is drawn in
//! proportion to its number of edges times `2^-c`, and one of its edges is accepted with
//! probability `w 2^c`, at least a half. If few edges have most of the weight, repeats are too
//! many; the rest of the draws is then made as in a short row, among the edges that are left. There
//! every edge has the key `ln w + G` with a Gumbel number `G`, and the `k` largest are taken.
//! Logarithms do not underflow, however old an edge is. The scan runs from the last edge back and
//! stops when no `G` can lift an edge into the `k` largest.
//!
//! The drawn places ascend, so the edges of a node stay in the order of their times.
//!
//! # Source
//!
//! Bentley and Floyd, *Programming pearls: a sample of brilliance*, CACM 30(9), 1987; Efraimidis
//! and Spirakis, *Weighted random sampling with a reservoir*, IPL 97(5), 2006; Kool, van Hoof and
//! Welling, *Stochastic beams and where to find them*, ICML 2019, section 2.2 (Gumbel-top-k).
//!
//! # Cost
//!
//! O(k) draws of up to 1024 edges, O(k log k) of more. For recency O(k + C log d) expected for a
//! row of `d` edges in `C` classes, or in a short row O(log k) for each edge of the last `38 / ln
//! 2` half lives and of the `k` largest.

use std::{cmp::Reverse, collections::BinaryHeap, ops::Range};

use graphmill_core::keyed::Stream;
use rustc_hash::FxHashSet;

use super::{TimeDraw, TimeOptions};

/// Maximum fanout at which repeated draws are found by a scan.
const MAX_SCAN: usize = 64;
/// Maximum number of edges of which each has a mark.
const MAX_MARKED: usize = 1024;
/// Number of edges up to which every edge of a row gets a key for draws by recency.
const MAX_KEYED: usize = 256;
/// Number of classes of ages. The last one has all older edges.
const MAX_CLASSES: usize = 32;
/// Bound of a Gumbel number: `-ln(-ln u)` for the largest `u` of [`gumbel`], `1 - 2^-54`.
const MAX_GUMBEL: f64 = 37.5;

/// Draws `out.len()` of the places `admitted` of a row with these times, ascending. The row's
/// times may be empty if all edges always existed.
pub(super) fn draw(
    options: &TimeOptions,
    times: &[i64],
    admitted: Range<u32>,
    stream: &mut Stream,
    out: &mut [u32],
) {
    let (count, degree) = (out.len(), admitted.len());
    debug_assert!(count <= degree, "{count} draws of {degree} edges");
    if count == degree || options.time_draw == TimeDraw::Last {
        let first = admitted.end - count as u32;
        return out.iter_mut().zip(first..).for_each(|(to, place)| *to = place);
    }
    match options.time_draw {
        TimeDraw::Recency if !times.is_empty() => {
            by_recency(options.time_half_life, times, admitted, stream, out);
        }
        _ if degree <= MAX_MARKED => return marked(degree as u32, admitted.start, stream, out),
        _ => {
            floyd(degree as u32, stream, out);
            out.iter_mut().for_each(|place| *place += admitted.start);
        }
    }
    out.sort_unstable();
}

/// Draws as [`floyd`] for at most [`MAX_MARKED`] edges, from `start` on and ascending. One bit for
/// each edge replaces the scans for repeated draws, and the sort: their branches are unpredictable.
fn marked(degree: u32, start: u32, stream: &mut Stream, out: &mut [u32]) {
    let mut marks = [0u64; MAX_MARKED / 64];
    for j in degree - out.len() as u32..degree {
        let t = stream.below(u64::from(j) + 1) as u32;
        let is_taken = marks[t as usize / 64] >> (t % 64) & 1 == 1;
        let place = if is_taken { j } else { t };
        marks[place as usize / 64] |= 1 << (place % 64);
    }
    let mut to = out.iter_mut();
    for (word, first) in marks.iter().zip((start..).step_by(64)) {
        let mut left = *word;
        while left != 0 {
            if let Some(to) = to.next() {
                *to = first + left.trailing_zeros();
            }
            left &= left - 1;
        }
        if to.len() == 0 {
            break;
        }
    }
}

/// Draws distinct numbers below `degree`, uniformly.
fn floyd(degree: u32, stream: &mut Stream, out: &mut [u32]) {
    let first = degree - out.len() as u32;
    let mut taken = FxHashSet::default();
    let scans = out.len() <= MAX_SCAN;
    for i in 0..out.len() {
        let j = first + i as u32;
        let t = stream.below(u64::from(j) + 1) as u32;
        let again = if scans { out[..i].contains(&t) } else { taken.contains(&t) };
        out[i] = if again { j } else { t };
        if !scans {
            taken.insert(out[i]);
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

/// Logarithm of the weight of an edge of time `time`, if that of `last` weighs 1.
fn log_weight(half_life: f64, last: i64, time: i64) -> f64 {
    -((i128::from(last) - i128::from(time)) as f64) * std::f64::consts::LN_2 / half_life
}

fn by_recency(half_life: f64, times: &[i64], admitted: Range<u32>, stream: &mut Stream, out: &mut [u32]) {
    let drawn = if admitted.len() > MAX_KEYED {
        with_replacement(half_life, times, &admitted, stream, out)
    } else {
        0
    };
    if drawn < out.len() {
        let (taken, out) = out.split_at_mut(drawn);
        by_keys(half_life, times, admitted, taken, stream, out);
    }
}

/// Edges of a class of ages.
#[derive(Clone, Copy, Default)]
struct AgeClass {
    first: u32,
    count: u32,
    /// Bound of the weights of this class and the later ones, times their numbers of edges.
    total: f64,
}

/// Draws places until `out` is full or repeats are too many; returns the number drawn.
fn with_replacement(
    half_life: f64,
    times: &[i64],
    admitted: &Range<u32>,
    stream: &mut Stream,
    out: &mut [u32],
) -> usize {
    let last = times[admitted.end as usize - 1];
    // age in half lives
    let age = |time: i64| (i128::from(last) - i128::from(time)) as f64 / half_life;
    let mut classes = [AgeClass::default(); MAX_CLASSES];
    let (mut end, mut used, mut total) = (admitted.end, 0, 0.0);
    while end > admitted.start {
        let row = &times[admitted.start as usize..end as usize];
        let is_older = |time: &i64| used + 1 < MAX_CLASSES && age(*time) >= (used + 1) as f64;
        let first = admitted.start + row.partition_point(is_older) as u32;
        total += f64::from(end - first) * (-(used as f64)).exp2();
        classes[used] = AgeClass { first, count: end - first, total };
        (end, used) = (first, used + 1);
    }
    let mut taken = FxHashSet::default();
    let scans = out.len() <= MAX_SCAN;
    let mut drawn = 0;
    for _ in 0..8 * out.len() + 64 {
        let at = stream.uniform() * total;
        let c = classes[..used].partition_point(|class| class.total <= at).min(used - 1);
        let AgeClass { first, count, .. } = classes[c];
        // rounding may lead to a class without edges
        if count == 0 {
            continue;
        }
        let place = first + stream.below(count.into()) as u32;
        if stream.uniform() >= (c as f64 - age(times[place as usize])).exp2() {
            continue;
        }
        let again = if scans { out[..drawn].contains(&place) } else { !taken.insert(place) };
        if !again {
            out[drawn] = place;
            drawn += 1;
            if drawn == out.len() {
                break;
            }
        }
    }
    drawn
}

/// Draws by Gumbel keys, of the places that are not `taken`.
fn by_keys(
    half_life: f64,
    times: &[i64],
    admitted: Range<u32>,
    taken: &[u32],
    stream: &mut Stream,
    out: &mut [u32],
) {
    let last = times[admitted.end as usize - 1];
    let taken: FxHashSet<u32> = taken.iter().copied().collect();
    let mut largest: BinaryHeap<Reverse<Keyed>> = BinaryHeap::with_capacity(out.len() + 1);
    for place in admitted.rev() {
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
    use crate::subgraph::testing::fits;

    fn options(time_draw: TimeDraw, time_half_life: f64) -> TimeOptions {
        TimeOptions { time_draw, time_half_life, ..TimeOptions::default() }
    }

    /// Probability of each set of `k` of `weights` drawn one after the other, by the bits of the
    /// set.
    fn sets(k: usize, weights: &[f64]) -> Vec<f64> {
        let mut of_set = vec![0.0; 1 << weights.len()];
        of_set[0] = 1.0;
        for _ in 0..k {
            let mut next = vec![0.0; of_set.len()];
            for (set, p) in of_set.iter().enumerate().filter(|(_, p)| **p > 0.0) {
                let rest = |i: usize| if set >> i & 1 == 1 { 0.0 } else { weights[i] };
                let all: f64 = (0..weights.len()).map(rest).sum();
                (0..weights.len()).for_each(|i| next[set | 1 << i] += p * rest(i) / all);
            }
            of_set = next;
        }
        of_set
    }

    #[test]
    fn draws_have_their_probabilities() {
        let times = [-50, 3, 4, 4, 6, 9, 100];
        // the last time is not admitted
        let admitted = 1..6u32;
        for (draw_by, weight) in [
            (TimeDraw::Uniform, [1.0; 5]),
            (TimeDraw::Recency, [6.0, 5.0, 5.0, 3.0, 0.0].map(|age: f64| (-age / 3.0).exp2())),
        ] {
            for k in [1, 2, 4] {
                let mut stream = Stream::new(key(&[k as u64, 5]));
                let mut counts = vec![0; 1 << 5];
                let mut out = vec![0; k];
                for _ in 0..60_000 {
                    draw(&options(draw_by, 3.0), &times, admitted.clone(), &mut stream, &mut out);
                    assert!(out.is_sorted() && out.iter().all(|i| admitted.contains(i)));
                    counts[out.iter().map(|i| 1usize << (i - 1)).sum::<usize>()] += 1;
                }
                fits(&counts, &sets(k, &weight));
            }
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
                        let (stream, mut out) = (&mut Stream::new(key(&[seed, 3])), vec![0; k]);
                        if keyed == 1 {
                            by_keys(1.5, &times, 0..400, &[], stream, &mut out);
                        } else {
                            by_recency(1.5, &times, 0..400, stream, &mut out);
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
            by_recency(1.0, &times, 0..503, &mut Stream::new(key(&[seed])), &mut out);
            out.sort_unstable();
            assert!(out[2..] == [500, 501, 502] && out[0] < out[1] && out[1] < 500, "{out:?}");
        }
    }

    #[test]
    fn marks_give_the_draws_of_the_plain_loop() {
        for degree in [2, 63, 64, 65, 300, MAX_MARKED as u32] {
            for count in [1, 2, 10, 40, 300, 1000].into_iter().filter(|&count| count < degree) {
                let (mut found, mut expected) = (vec![0; count as usize], vec![0; count as usize]);
                marked(degree, 7, &mut Stream::new(u64::from(degree * count)), &mut found);
                floyd(degree, &mut Stream::new(u64::from(degree * count)), &mut expected);
                expected.iter_mut().for_each(|place| *place += 7);
                expected.sort_unstable();
                assert_eq!(found, expected, "{count} of {degree}");
            }
        }
    }

    #[test]
    fn all_edges_are_drawn_however_old_they_are() {
        let times = [i64::MIN, i64::MIN, -9, 0, 1_000_000_000];
        let mut out = [0; 4];
        for seed in 0..50 {
            let stream = &mut Stream::new(key(&[seed]));
            draw(&options(TimeDraw::Recency, 1e-3), &times, 0..5, stream, &mut out);
            // the last three are certain
            assert_eq!(out[1..], [2, 3, 4]);
            assert!(out[0] < 2);
        }
    }

    #[test]
    fn the_last_edges_are_a_range_and_large_draws_are_distinct() {
        let mut out = [0; 3];
        draw(&options(TimeDraw::Last, 1.0), &[], 2..9, &mut Stream::new(1), &mut out);
        assert_eq!(out, [6, 7, 8]);
        let mut out = vec![0; 700];
        draw(&options(TimeDraw::Uniform, 1.0), &[], 5..905, &mut Stream::new(1), &mut out);
        assert!(out.windows(2).all(|pair| pair[0] < pair[1]) && out[0] >= 5 && out[699] < 905);
    }
}
