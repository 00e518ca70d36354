//! Selection of a row's neighbours that are in a set of nodes.

#![allow(unsafe_code, reason = "vector instructions")]

use crate::NodeId;

/// Number of entries that [`keep`] may write beyond the selected ones.
pub(super) const SLACK: usize = 16;

/// Writes the offsets of the neighbours whose bit is set in `inside`, ascending, to the front of
/// `kept`, and returns their number. `kept` has [`SLACK`] more entries than the row, and is
/// overwritten beyond the result. O(row).
#[inline(always)]
pub(super) fn keep(inside: &[u64], row: &[NodeId], kept: &mut [u32]) -> usize {
    #[cfg(target_arch = "x86_64")]
    if row.len() >= MIN_WIDE_LEN && is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has the instructions.
        return unsafe { wide(inside, row, kept) };
    }
    plain(inside, row, kept)
}

/// Rows of fewer neighbours are processed one by one.
#[cfg(target_arch = "x86_64")]
const MIN_WIDE_LEN: usize = 8;

/// Branch-free loop, because membership is unpredictable: every offset is written, and the position
/// advances for members.
#[inline(always)]
fn plain(inside: &[u64], row: &[NodeId], kept: &mut [u32]) -> usize {
    let mut n = 0;
    for (offset, &u) in (0..).zip(row) {
        kept[n] = offset;
        n += (inside[u as usize / 64] >> (u % 64) & 1) as usize;
    }
    n
}

/// Processes sixteen neighbours at a time.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn wide(inside: &[u64], row: &[NodeId], kept: &mut [u32]) -> usize {
    use std::arch::x86_64::{
        _mm512_add_epi32, _mm512_and_si512, _mm512_mask_cmplt_epu32_mask, _mm512_mask_i32gather_epi32,
        _mm512_mask_test_epi32_mask, _mm512_maskz_compress_epi32, _mm512_maskz_loadu_epi32,
        _mm512_set1_epi32, _mm512_setr_epi32, _mm512_setzero_si512, _mm512_sllv_epi32, _mm512_srli_epi32,
        _mm512_storeu_epi32,
    };
    assert!(kept.len() >= row.len() + SLACK, "the output is too short");
    // An index of 32-bit words must fit a signed one.
    let words = _mm512_set1_epi32(i32::try_from(2 * inside.len()).unwrap_or(i32::MAX));
    let (one, low) = (_mm512_set1_epi32(1), _mm512_set1_epi32(31));
    let mut offsets = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let mut n = 0;
    for (i, run) in row.chunks(16).enumerate() {
        let there = u16::MAX >> (16 - run.len());
        // SAFETY: the enabled lanes are those of the row.
        let nodes = unsafe { _mm512_maskz_loadu_epi32(there, row.as_ptr().add(16 * i).cast()) };
        let word = _mm512_srli_epi32::<5>(nodes);
        let known = _mm512_mask_cmplt_epu32_mask(there, word, words);
        // SAFETY: the enabled lanes are words of `inside`; the order of a word's halves is that of
        // its bits.
        let bits = unsafe {
            _mm512_mask_i32gather_epi32::<4>(_mm512_setzero_si512(), known, word, inside.as_ptr().cast())
        };
        let bit = _mm512_sllv_epi32(one, _mm512_and_si512(nodes, low));
        let found = _mm512_mask_test_epi32_mask(known, bits, bit);
        // SAFETY: at most 16 i are selected so far, and 16 entries follow as many as the row has.
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
        fn selected_neighbours_are_members(
            row in prop::collection::vec(0u32..500, 0..120),
            inside in prop::collection::btree_set(0u32..500, 0..400),
        ) {
            let mut bits = vec![0u64; 8];
            inside.iter().for_each(|&v| bits[v as usize / 64] |= 1 << (v % 64));
            let members = (0..).zip(&row).filter(|(_, u)| inside.contains(u));
            let expected: Vec<u32> = members.map(|(i, _)| i).collect();
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
