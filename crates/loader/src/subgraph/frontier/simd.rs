//! Operations on many numbers at once, for instructions chosen at run time: the sampler's
//! parallelism within a core. The tree of sums counts and adds; the Dashboard fills runs of cells.
//!
//! Cells after a run are free or are written next, so only a run's first line is written in part,
//! and its end needs no care. Up to 32 cells (two lines at most) there is no branch.

#![allow(unsafe_code, reason = "vector instructions")]

use bytemuck::{Pod, Zeroable};

use super::tree::{FAN, PrefixSums, ROUND};

/// Instruction set for which the frontier sampler is compiled. All draw the same subgraphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// One cell at a time: the paper's `p = 1`, for measurements.
    Scalar,
    /// Code that the compiler generates for every machine of the architecture (SSE2 on x86-64).
    Portable,
    /// AVX2 (with BMI and POPCNT): 16 cells per store, 8 sums per addition.
    Avx2,
    /// AVX-512 F, BW, DQ and VL: 32 cells per store, 16 sums per addition.
    Avx512,
}

impl Level {
    /// All levels, the plainest first.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Portable, Self::Avx2, Self::Avx512];

    /// Returns true if this machine has the instructions.
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar | Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("bmi2")
                    && is_x86_feature_detected!("popcnt")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// Best level of this machine.
    pub fn best() -> Self {
        Self::ALL.into_iter().rev().find(|level| level.is_available()).unwrap_or(Self::Portable)
    }
}

/// A cache line of cells.
#[derive(Clone, Copy, Debug, Zeroable, Pod)]
#[repr(C, align(64))]
pub(super) struct Line(pub(super) [u16; LINE]);

/// Number of cells in a [`Line`].
pub(super) const LINE: usize = 32;

/// Maximum number of lines that a fill may write after the one in which its run ends.
pub(super) const SLACK: usize = 2;

/// Operations on many numbers at once.
pub(super) trait Simd {
    /// True if darts and numbers are evaluated one by one as needed.
    const LAZY: bool = false;

    /// Writes `pin` to cells `start..start + len` and possibly to cells after them, but nowhere
    /// else.
    ///
    /// # Panics
    /// There are fewer than [`SLACK`] lines after the run.
    fn fill(lines: &mut [Line], start: usize, len: usize, pin: u16);

    /// Number of children that begin at or before `number`, which is at most 2^31 - 1 as all sums
    /// are. At least 1, because the first child begins at 0.
    fn count(node: &PrefixSums, number: u32) -> usize;

    /// Adds `more`, wrapping, to all sums after `child`.
    fn add_after(node: &mut PrefixSums, child: usize, more: u32);

    /// As [`Simd::add_after`], for a round of children.
    #[inline(always)]
    fn add_round(node: &mut PrefixSums, children: &[usize; ROUND], mores: &[u32; ROUND]) {
        for i in 0..ROUND {
            Self::add_after(node, children[i], mores[i]);
        }
    }
}

/// Implements [`Level::Scalar`].
pub(super) struct Scalar;

impl Simd for Scalar {
    const LAZY: bool = true;

    #[inline(always)]
    fn fill(lines: &mut [Line], start: usize, len: usize, pin: u16) {
        let cells: &mut [u16] = bytemuck::cast_slice_mut(lines);
        for cell in &mut cells[start..start + len] {
            // SAFETY: a valid, aligned reference. Volatile, because the compiler would otherwise
            // merge the stores into wide ones.
            unsafe { std::ptr::write_volatile(cell, pin) };
        }
    }

    #[inline(always)]
    fn count(node: &PrefixSums, number: u32) -> usize {
        node.0.iter().position(|&before| before > number).unwrap_or(FAN)
    }

    #[inline(always)]
    fn add_after(node: &mut PrefixSums, child: usize, more: u32) {
        for before in &mut node.0[child + 1..] {
            // SAFETY: as above.
            unsafe { std::ptr::write_volatile(before, before.wrapping_add(more)) };
        }
    }
}

/// Implements [`Level::Portable`].
pub(super) struct Portable;

impl Simd for Portable {
    #[inline(always)]
    fn fill(lines: &mut [Line], start: usize, len: usize, pin: u16) {
        let cells: &mut [u16] = bytemuck::cast_slice_mut(lines);
        cells[start..start + len].fill(pin);
    }

    #[inline(always)]
    fn count(node: &PrefixSums, number: u32) -> usize {
        node.0.iter().map(|&before| u32::from(before <= number)).sum::<u32>() as usize
    }

    #[inline(always)]
    fn add_after(node: &mut PrefixSums, child: usize, more: u32) {
        for (before, i) in node.0.iter_mut().zip(0u32..) {
            *before = before.wrapping_add(if i > child as u32 { more } else { 0 });
        }
    }
}

/// Returns true if `len` cells from `start` on, and [`SLACK`] lines after them, lie in `lines`;
/// without a sum, which could wrap.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn holds(lines: &[Line], start: usize, len: usize) -> bool {
    let cells = lines.len().checked_sub(SLACK).map(|lines| lines * LINE);
    cells.and_then(|cells| cells.checked_sub(start)).is_some_and(|rest| len <= rest)
}

/// Implements [`Level::Avx2`], only within functions that have the feature.
#[cfg(target_arch = "x86_64")]
pub(super) struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Simd for Avx2 {
    #[inline(always)]
    fn fill(lines: &mut [Line], start: usize, len: usize, pin: u16) {
        use std::arch::x86_64::{
            __m256i, _mm256_blendv_epi8, _mm256_cmpgt_epi16, _mm256_load_si256, _mm256_set1_epi16,
            _mm256_setr_epi16, _mm256_store_si256,
        };
        const WIDE: usize = 16;
        assert!(holds(lines, start, len));
        // SAFETY: the type is used only within functions that have AVX2. Pointers are aligned to 32
        // bytes, because lines are aligned to 64. The last vector written is that of cell `start +
        // len
        // - 1`, or the one after that of `start`: the assertion ensures that both exist.
        unsafe {
            let pins = _mm256_set1_epi16(pin.cast_signed());
            let at = lines.as_mut_ptr().cast::<__m256i>().add(start / WIDE);
            let number = _mm256_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            let before = _mm256_cmpgt_epi16(_mm256_set1_epi16((start % WIDE) as i16), number);
            _mm256_store_si256(at, _mm256_blendv_epi8(pins, _mm256_load_si256(at), before));
            _mm256_store_si256(at.add(1), pins);
            for i in 2..(start % WIDE + len).div_ceil(WIDE) {
                _mm256_store_si256(at.add(i), pins);
            }
        }
    }

    #[inline(always)]
    fn count(node: &PrefixSums, number: u32) -> usize {
        use std::arch::x86_64::{
            __m256i, _mm256_cmpgt_epi32, _mm256_load_si256, _mm256_movemask_epi8, _mm256_packs_epi16,
            _mm256_packs_epi32, _mm256_set1_epi32, _mm256_setzero_si256,
        };
        // SAFETY: as above; a node is four vectors, aligned to 64 bytes.
        unsafe {
            let number = _mm256_set1_epi32(number.cast_signed());
            let at = std::ptr::from_ref(node).cast::<__m256i>();
            let mut greater = [_mm256_setzero_si256(); 4];
            for (i, greater) in greater.iter_mut().enumerate() {
                *greater = _mm256_cmpgt_epi32(_mm256_load_si256(at.add(i)), number);
            }
            // a byte per child; the count does not depend on their order
            let [a, b, c, d] = greater;
            let (low, high) = (_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
            let greater = _mm256_movemask_epi8(_mm256_packs_epi16(low, high));
            greater.count_zeros() as usize
        }
    }

    #[inline(always)]
    fn add_after(node: &mut PrefixSums, child: usize, more: u32) {
        Portable::add_after(node, child, more);
    }
}

/// Implements [`Level::Avx512`], only within functions that have the features.
#[cfg(target_arch = "x86_64")]
pub(super) struct Avx512;

#[cfg(target_arch = "x86_64")]
impl Simd for Avx512 {
    #[inline(always)]
    fn fill(lines: &mut [Line], start: usize, len: usize, pin: u16) {
        use std::arch::x86_64::{__m512i, _mm512_mask_storeu_epi16, _mm512_set1_epi16, _mm512_store_si512};
        assert!(holds(lines, start, len));
        // SAFETY: the type is used only within functions that have AVX-512 BW. Pointers are aligned
        // as lines are. The last line written is that of cell `start + len - 1`, or the one after
        // that of `start`: the assertion ensures that both exist.
        unsafe {
            let pins = _mm512_set1_epi16(pin.cast_signed());
            let at = lines.as_mut_ptr().add(start / LINE).cast::<__m512i>();
            _mm512_mask_storeu_epi16(at.cast(), u32::MAX << (start % LINE), pins);
            _mm512_store_si512(at.add(1), pins);
            for i in 2..(start % LINE + len).div_ceil(LINE) {
                _mm512_store_si512(at.add(i), pins);
            }
        }
    }

    #[inline(always)]
    fn count(node: &PrefixSums, number: u32) -> usize {
        use std::arch::x86_64::{__m512i, _mm512_cmple_epu32_mask, _mm512_load_si512, _mm512_set1_epi32};
        // SAFETY: as above; a node is two vectors, aligned to 64 bytes.
        unsafe {
            let number = _mm512_set1_epi32(number.cast_signed());
            let at = std::ptr::from_ref(node).cast::<__m512i>();
            // (not in a closure, which would be a function without the instructions)
            let low = _mm512_cmple_epu32_mask(_mm512_load_si512(at), number);
            let high = _mm512_cmple_epu32_mask(_mm512_load_si512(at.add(1)), number);
            (u32::from(high) << 16 | u32::from(low)).count_ones() as usize
        }
    }

    #[inline(always)]
    fn add_after(node: &mut PrefixSums, child: usize, more: u32) {
        use std::arch::x86_64::{
            __m512i, _mm512_load_si512, _mm512_mask_add_epi32, _mm512_set1_epi32, _mm512_store_si512,
        };
        // SAFETY: as above.
        unsafe {
            let more = _mm512_set1_epi32(more.cast_signed());
            let at = std::ptr::from_mut(node).cast::<__m512i>();
            let mask = u32::MAX << 1 << child;
            let (low, high) = (_mm512_load_si512(at), _mm512_load_si512(at.add(1)));
            _mm512_store_si512(at, _mm512_mask_add_epi32(low, mask as u16, low, more));
            _mm512_store_si512(at.add(1), _mm512_mask_add_epi32(high, (mask >> 16) as u16, high, more));
        }
    }

    #[inline(always)]
    fn add_round(node: &mut PrefixSums, children: &[usize; ROUND], mores: &[u32; ROUND]) {
        use std::arch::x86_64::{
            __m512i, _mm512_load_si512, _mm512_mask_add_epi32, _mm512_set1_epi32, _mm512_store_si512,
        };
        // SAFETY: as above.
        unsafe {
            let at = std::ptr::from_mut(node).cast::<__m512i>();
            let (mut low, mut high) = (_mm512_load_si512(at), _mm512_load_si512(at.add(1)));
            for i in 0..ROUND {
                let (mask, more) = (u32::MAX << 1 << children[i], _mm512_set1_epi32(mores[i].cast_signed()));
                low = _mm512_mask_add_epi32(low, mask as u16, low, more);
                high = _mm512_mask_add_epi32(high, (mask >> 16) as u16, high, more);
            }
            _mm512_store_si512(at, low);
            _mm512_store_si512(at.add(1), high);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<S: Simd>() {
        // Miri, which interprets the tests, takes every seventh
        for start in (0..70usize).step_by(if cfg!(miri) { 7 } else { 1 }) {
            for len in [0, 1, 5, 16, 31, 32, 33, 64, 100] {
                let mut lines = vec![Line([7; LINE]); (start + len).div_ceil(LINE) + SLACK];
                S::fill(&mut lines, start, len, 9);
                let cells: &[u16] = bytemuck::cast_slice(&lines);
                assert!(cells[..start].iter().all(|&c| c == 7), "start {start}, len {len}: before the run");
                assert!(cells[start..start + len].iter().all(|&c| c == 9), "start {start}, len {len}");
                assert!(cells.iter().all(|&c| c == 7 || c == 9));
            }
        }
        let node = PrefixSums(std::array::from_fn(|i| 3 * (i as u32 / 2)));
        for number in (0..60).chain([(1 << 31) - 1]) {
            assert_eq!(S::count(&node, number), node.0.iter().filter(|&&before| before <= number).count());
        }
        let added = |children: &[usize], more: u32| {
            let smaller = |i| children.iter().filter(|&&child| i > child).count() as u32;
            PrefixSums(std::array::from_fn(|i| node.0[i].wrapping_add(more.wrapping_mul(smaller(i)))))
        };
        for child in 0..FAN {
            for more in [5, 3u32.wrapping_neg()] {
                let (mut one, mut all) = (node, node);
                S::add_after(&mut one, child, more);
                assert_eq!(one, added(&[child], more));
                let children = std::array::from_fn(|i| (i * child) % FAN);
                S::add_round(&mut all, &children, &[more; ROUND]);
                assert_eq!(all, added(&children, more));
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn cells_whose_sums_would_wrap_are_outside() {
        let lines = vec![Line([0; LINE]); 1 + SLACK];
        assert!(holds(&lines, 0, LINE) && holds(&lines, LINE, 0) && !holds(&lines, 1, LINE));
        assert!(!holds(&lines, usize::MAX, 1) && !holds(&lines, 1, usize::MAX));
        assert!(!holds(&lines[1..], 1, 0));
    }

    #[test]
    fn all_levels_compute_the_same() {
        check::<Scalar>();
        check::<Portable>();
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx2,popcnt")]
            fn avx2() {
                check::<Avx2>();
            }
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
            fn avx512() {
                check::<Avx512>();
            }
            if Level::Avx2.is_available() {
                // SAFETY: the machine has the features.
                unsafe { avx2() }
            }
            if Level::Avx512.is_available() {
                // SAFETY: the machine has the features.
                unsafe { avx512() }
            }
        }
    }
}
