//! Draws among the admitted edges of a row.
//!
//! # Algorithm
//!
//! Uniform draws are Floyd's: for `j` from `d - k` to `d - 1`, draw `t` of `0..=j` and take `t`, or
//! `j` if `t` is taken already. Draws by recency are in [`super::recency`].
//!
//! The drawn places ascend, so the edges of a node stay in the order of their times. Few places are
//! sorted by their ranks: each is compared with all others, in vectors and without branches, which
//! would be unpredictable.
//!
//! # Source
//!
//! Bentley and Floyd, *Programming pearls: a sample of brilliance*, CACM 30(9), 1987.
//!
//! # Cost
//!
//! O(k) draws, and O(k^2 / vector) to sort up to 32. Of more, O(d / 64) for up to 1024 edges and
//! O(k log k) otherwise.

use std::hint::black_box;

use graphmill_core::keyed::Stream;
use rustc_hash::FxHashSet;

use crate::sampler::neighbor::floyd;
pub(super) use crate::sampler::neighbor::{MARKED, Marks};

/// Maximum fanout at which repeated draws are found by marks of places, and places are sorted by
/// their ranks.
const MAX_RANKED: usize = 32;
/// Maximum fanout at which repeated draws are found by a scan.
const MAX_SCAN: usize = 64;
/// Maximum number of edges of which each has a bit.
const MAX_BITS: usize = 1024;

/// Draws `out.len()` of the admitted places of a row, which are more, from the first to below the
/// second: uniformly, ascending.
pub(super) fn uniform([start, end]: [u32; 2], stream: &mut Stream, marks: &mut Marks, out: &mut [u32]) {
    let (count, degree) = (out.len(), end - start);
    debug_assert!(count < degree as usize, "{count} draws of {degree} edges");
    if count <= MAX_RANKED {
        floyd(stream, degree.into(), out, marks, &[], |offset| start + offset);
    } else if degree as usize <= MAX_BITS {
        return by_bits(degree, start, stream, out);
    } else {
        by_set(degree, stream, out);
        out.iter_mut().for_each(|place| *place += start);
    }
    sort(out);
}

/// Sorts distinct places.
pub(super) fn sort(out: &mut [u32]) {
    match out.len() {
        0 | 1 => {}
        2..=8 => by_rank::<8>(out),
        9..=12 => by_rank::<12>(out),
        13..=16 => by_rank::<16>(out),
        17..=MAX_RANKED => by_rank::<MAX_RANKED>(out),
        _ => out.sort_unstable(),
    }
}

/// Sorts at most `N` distinct places: the rank of a place is the number of smaller ones.
fn by_rank<const N: usize>(out: &mut [u32]) {
    let (mut places, mut ranks) = ([u32::MAX; N], [0u32; N]);
    places[..out.len()].copy_from_slice(out);
    for &other in &*out {
        // one at a time: the ranks then stay in registers
        let other = black_box(other);
        ranks.iter_mut().zip(&places).for_each(|(rank, &place)| *rank += u32::from(other < place));
    }
    for (&place, &rank) in places[..out.len()].iter().zip(&ranks) {
        out[rank as usize] = place;
    }
}

/// Draws as [`by_set`] for at most [`MAX_BITS`] edges, from `start` on and ascending. One bit for
/// each edge replaces the scans for repeated draws, and the sort: their branches are unpredictable.
fn by_bits(degree: u32, start: u32, stream: &mut Stream, out: &mut [u32]) {
    let mut bits = [0u64; MAX_BITS / 64];
    for j in degree - out.len() as u32..degree {
        let t = stream.below(u64::from(j) + 1) as u32;
        let is_taken = bits[t as usize / 64] >> (t % 64) & 1 == 1;
        let place = if is_taken { j } else { t };
        bits[place as usize / 64] |= 1 << (place % 64);
    }
    let mut to = out.iter_mut();
    for (word, first) in bits.iter().zip((start..).step_by(64)) {
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
fn by_set(degree: u32, stream: &mut Stream, out: &mut [u32]) {
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

/// Draws from a row of these times alone, whose weights are summed up for this draw.
#[cfg(test)]
pub(super) fn draw_alone(
    options: &super::TimeOptions,
    times: &[i64],
    admitted: std::ops::Range<u32>,
    stream: &mut Stream,
    out: &mut [u32],
) {
    let (admitted, degree) = ([admitted.start, admitted.end], admitted.len());
    let marks = &mut Marks::new();
    if out.len() == degree || options.time_draw == super::TimeDraw::Last {
        let first = admitted[1] - out.len() as u32;
        out.iter_mut().zip(first..).for_each(|(to, place)| *to = place);
    } else if options.time_draw == super::TimeDraw::Recency && !times.is_empty() {
        use super::{
            decay::Decay,
            recency::{Aged, Candidates},
        };
        let half_life = options.time_half_life;
        let decay = Decay::new(&[0, times.len() as u64], times, half_life);
        let row = Aged::new(half_life, times, decay.row(0));
        let mut candidates = Candidates::new();
        candidates.start(&row, admitted, stream.clone(), out.len());
        candidates.look_up(&row);
        candidates.finish(&row, admitted, marks, out);
        sort(out);
        // the next draw is independent
        *stream = Stream::new(stream.next_u64());
    } else {
        uniform(admitted, stream, marks, out);
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::keyed::key;

    use super::{
        super::{TimeDraw, TimeOptions},
        *,
    };
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
                    draw_alone(&options(draw_by, 3.0), &times, admitted.clone(), &mut stream, &mut out);
                    assert!(out.is_sorted() && out.iter().all(|i| admitted.contains(i)));
                    counts[out.iter().map(|i| 1usize << (i - 1)).sum::<usize>()] += 1;
                }
                fits(&counts, &sets(k, &weight));
            }
        }
    }

    #[test]
    fn uniform_draws_are_those_of_the_plain_loop_in_ascending_order() {
        let mut marks = Marks::new();
        for degree in [2, 9, 33, 63, 64, 65, 300, MAX_BITS as u32, 1025, 4097, 1 << 20, u32::MAX - 7] {
            for count in [1, 2, 8, 10, 17, 32, 33, 40, 300, 1000].into_iter().filter(|&n| n < degree) {
                let seed = u64::from(degree) * u64::from(count);
                let (mut found, mut expected) = (vec![0; count as usize], vec![0; count as usize]);
                let stream = &mut Stream::new(seed);
                uniform([7, degree + 7], stream, &mut marks, &mut found);
                by_set(degree, &mut Stream::new(seed), &mut expected);
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
            draw_alone(&options(TimeDraw::Recency, 1e-3), &times, 0..5, stream, &mut out);
            // the last three are certain
            assert_eq!(out[1..], [2, 3, 4]);
            assert!(out[0] < 2);
        }
    }

    #[test]
    fn the_last_edges_are_a_range_and_large_draws_are_distinct() {
        let mut out = [0; 3];
        draw_alone(&options(TimeDraw::Last, 1.0), &[], 2..9, &mut Stream::new(1), &mut out);
        assert_eq!(out, [6, 7, 8]);
        let mut out = vec![0; 700];
        draw_alone(&options(TimeDraw::Uniform, 1.0), &[], 5..905, &mut Stream::new(1), &mut out);
        assert!(out.windows(2).all(|pair| pair[0] < pair[1]) && out[0] >= 5 && out[699] < 905);
    }
}
