//! Which of a row's neighbours are in a set of nodes.

use crate::NodeId;

/// Places that [`keep`] may write behind those that it keeps.
pub(super) const SLACK: usize = 16;

/// Writes the offsets of the neighbours whose bit is set in `inside`, ascending, to the front of `kept`, and says how many. `kept` has [`SLACK`]
/// places more than the row, and is written beyond what is kept. O(row).
#[inline(always)]
pub(super) fn keep(inside: &[u64], row: &[NodeId], kept: &mut [u32]) -> usize {
    #[cfg(target_arch = "x86_64")]
    if row.len() >= SHORT && is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has the instructions.
        return unsafe { wide(inside, row, kept) };
    }
    plain(inside, row, kept)
}

/// Rows of fewer neighbours are looked at one by one.
#[cfg(target_arch = "x86_64")]
const SHORT: usize = 8;

/// Whether a neighbour is inside is a coin toss to a branch: write every one, and keep those that are.
#[inline(always)]
fn plain(inside: &[u64], row: &[NodeId], kept: &mut [u32]) -> usize {
    let mut n = 0;
    for (offset, &u) in (0..).zip(row) {
        kept[n] = offset;
        n += (inside[u as usize / 64] >> (u % 64) & 1) as usize;
    }
    n
}

/// Sixteen at a time.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn wide(inside: &[u64], row: &[NodeId], kept: &mut [u32]) -> usize {
    use std::arch::x86_64::{
        _mm512_add_epi32, _mm512_and_si512, _mm512_mask_cmplt_epu32_mask, _mm512_mask_i32gather_epi32,
        _mm512_mask_test_epi32_mask, _mm512_maskz_compress_epi32, _mm512_maskz_loadu_epi32,
        _mm512_set1_epi32, _mm512_setr_epi32, _mm512_setzero_si512, _mm512_sllv_epi32, _mm512_srli_epi32,
        _mm512_storeu_epi32,
    };
    assert!(kept.len() >= row.len() + SLACK, "no room for what is kept");
    // an index of words of 32 bits must do as a signed one
    let words = _mm512_set1_epi32(i32::try_from(2 * inside.len()).unwrap_or(i32::MAX));
    let (one, low) = (_mm512_set1_epi32(1), _mm512_set1_epi32(31));
    let mut offsets = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let mut n = 0;
    for (i, run) in row.chunks(16).enumerate() {
        let there = u16::MAX >> (16 - run.len());
        // SAFETY: the lanes that are there are those of the run.
        let nodes = unsafe { _mm512_maskz_loadu_epi32(there, row.as_ptr().add(16 * i).cast()) };
        let word = _mm512_srli_epi32::<5>(nodes);
        let known = _mm512_mask_cmplt_epu32_mask(there, word, words);
        // SAFETY: the lanes that are known are words of `inside`; the order of a word's halves is that of its bits.
        let bits = unsafe {
            _mm512_mask_i32gather_epi32::<4>(_mm512_setzero_si512(), known, word, inside.as_ptr().cast())
        };
        let bit = _mm512_sllv_epi32(one, _mm512_and_si512(nodes, low));
        let found = _mm512_mask_test_epi32_mask(known, bits, bit);
        // SAFETY: at most 16 i are kept so far, and there are 16 places behind as many as the row has.
        unsafe {
            _mm512_storeu_epi32(kept.as_mut_ptr().add(n).cast(), _mm512_maskz_compress_epi32(found, offsets))
        };
        n += found.count_ones() as usize;
        offsets = _mm512_add_epi32(offsets, _mm512_set1_epi32(16));
    }
    n
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_kept_is_inside(
            row in prop::collection::vec(0u32..500, 0..120),
            inside in prop::collection::btree_set(0u32..500, 0..400),
        ) {
            let mut bits = vec![0u64; 8];
            inside.iter().for_each(|&v| bits[v as usize / 64] |= 1 << (v % 64));
            let expected: Vec<u32> = (0..).zip(&row).filter(|(_, u)| inside.contains(u)).map(|(i, _)| i).collect();
            type Keep = fn(&[u64], &[NodeId], &mut [u32]) -> usize;
            let mut ways: Vec<Keep> = vec![plain, |inside, row, kept| keep(inside, row, kept)];
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx512f") {
                // SAFETY: the processor has the instructions.
                ways.push(|inside, row, kept| unsafe { wide(inside, row, kept) });
            }
            for way in ways {
                let mut kept = vec![9; row.len() + SLACK];
                let n = way(&bits, &row, &mut kept);
                prop_assert_eq!(&kept[..n], &expected[..]);
            }
        }
    }
}
