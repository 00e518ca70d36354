//! Products with a long inner dimension, split into parts: each part writes a separate result, and
//! the results are added in order. Shared by the products in f32 and in bf16.

use std::ops::Range;

use super::{
    level::{Isa, kernel},
    parallel::{self, Chunks, Rows},
    scratch,
};

/// Maximum number of values in the results of all parts together.
pub(super) const MAX_PARTIALS: usize = 4 << 20;

/// Number of parts into which a sum of `k` terms is split, each of about `len` terms: a multiple of
/// four, which divides evenly among two and four threads.
pub(super) fn parts(k: usize, len: usize) -> usize {
    k.div_ceil(len).next_multiple_of(4).min(32)
}

/// Computes `c[i] = beta c[i] +` the sum of the results of `part` for the chunks, in their order.
/// `part` writes those of its chunk for all `c`, one after the other.
pub(super) fn sum_chunks<const N: usize>(
    chunks: Chunks,
    beta: f32,
    c: [&mut [f32]; N],
    part: impl Fn(Range<usize>, &mut [f32]) + Sync,
) {
    let size: usize = c.iter().map(|c| c.len()).sum();
    let len = chunks.count() * size;
    let mut memory = scratch::take(len.div_ceil(2));
    let partials = &mut bytemuck::cast_slice_mut::<f64, f32>(&mut memory)[..len];
    chunks.each((), partials, |range, (), partial| part(range, partial));
    let mut first = 0;
    for c in c {
        add_parts(partials, size, first, beta, c);
        first += c.len();
    }
}

/// Computes `c = beta c +` the sum of `partials`, `size` values each, in their order, for the
/// values from `first` on.
fn add_parts(partials: &[f32], size: usize, first: usize, beta: f32, c: &mut [f32]) {
    let isa = Isa::current();
    parallel::rows(c.len(), partials.len() / size, Rows { data: c, width: 1 }, |range, c| {
        add_partials(isa, partials, size, first + range.start, beta, c.data);
    });
}

kernel! {
    /// Computes `c = beta c +` the sum of `partials[i * size + first..]`, in the order of `i`.
    fn add_partials[](s: S, partials: &[f32], size: usize, first: usize, beta: f32, c: &mut [f32]) {
        let mut at = 0;
        while at < c.len() {
            let mut sum = s.splat(0.0);
            for partial in partials.chunks_exact(size) {
                sum = s.add(sum, s.load(&partial[first..first + c.len()], at));
            }
            if beta != 0.0 {
                sum = s.mul_add(s.splat(beta), s.load(c, at), sum);
            }
            s.store(c, at, sum);
            at += S::LANES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_split_into_multiples_of_four_parts() {
        assert_eq!([1, 100, 401, 10_000].map(|k| parts(k, 100)), [4, 4, 8, 32]);
    }

    #[test]
    fn partial_sums_are_added_in_the_order_of_their_chunks() {
        // values of all magnitudes, so that another order gives other bits; more than a task's
        let sizes = [70_001, 37];
        let value = |chunk: usize, i: usize| {
            let word = graphmill_core::keyed::key(&[chunk as u64, i as u64]);
            f32::from_bits((word as u32 & 0x8fff_ffff) | 0x3000_0000)
        };
        let chunks = Chunks::of(23, 5);
        for beta in [0.0, 0.5] {
            let before = |i: usize| value(99, i);
            let mut all = sizes.map(|size| (0..size).map(before).collect::<Vec<f32>>());
            let [first, second] = &mut all;
            sum_chunks(chunks, beta, [first, second], |range, partial| {
                assert_eq!(partial.len(), sizes[0] + sizes[1]);
                partial.iter_mut().enumerate().for_each(|(i, to)| *to = value(range.start / 5, i));
            });
            let mut place = 0;
            for found in &all {
                for (i, found) in found.iter().enumerate() {
                    let sum = (0..chunks.count()).fold(0.0, |sum, chunk| sum + value(chunk, place + i));
                    // half of a number is exact
                    let expected = if beta == 0.0 { sum } else { sum + beta * before(i) };
                    assert_eq!(found.to_bits(), expected.to_bits(), "value {i} with beta {beta}");
                }
                place += found.len();
            }
        }
    }
}
