//! Filling runs of cells with wide stores, chosen at run time: the sampler's parallelism within a core (section 4.3).
//!
//! What follows a run is free, or is written next: so only a run's first line is written in part, and its end needs no care. Up to
//! 32 cells (two lines at most) there is no branch.

use bytemuck::{Pod, Zeroable};

/// A set of instructions that the dashboard is compiled for. All give the same subgraphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// One cell after the other: the paper's `p = 1`, for measurement.
    Scalar,
    /// What the compiler makes of it for every machine of the architecture (SSE2 on x86-64).
    Portable,
    /// AVX2 (and BMI): 16 cells a store.
    Avx2,
    /// AVX-512 F, BW, DQ and VL: 32 cells a store.
    Avx512,
}

impl Level {
    /// All, the plainest first.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Portable, Self::Avx2, Self::Avx512];

    /// Whether this machine has the instructions.
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar | Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("bmi2")
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

    /// The best this machine has.
    pub fn best() -> Self {
        Self::ALL.into_iter().rev().find(|level| level.is_available()).unwrap_or(Self::Portable)
    }
}

/// A cache line of cells.
#[derive(Clone, Copy, Debug, Zeroable, Pod)]
#[repr(C, align(64))]
pub(super) struct Line(pub(super) [u16; LINE]);

/// Cells in a [`Line`].
pub(super) const LINE: usize = 32;

/// Lines that a fill may write behind the one in which its run ends.
pub(super) const SLACK: usize = 2;

/// How darts are looked at, and how cells are filled.
pub(super) trait Fill {
    /// Whether darts are looked at one after the other.
    const LAZY: bool = false;

    /// Writes `pin` to cells `start..start + len` and, perhaps, behind them; and nothing else anywhere.
    ///
    /// # Panics
    /// There are not [`SLACK`] lines behind the run.
    fn fill(lines: &mut [Line], start: usize, len: usize, pin: u16);
}

/// [`Level::Scalar`].
pub(super) struct Scalar;

impl Fill for Scalar {
    const LAZY: bool = true;

    #[inline(always)]
    fn fill(lines: &mut [Line], start: usize, len: usize, pin: u16) {
        let cells: &mut [u16] = bytemuck::cast_slice_mut(lines);
        for cell in &mut cells[start..start + len] {
            // SAFETY: a valid, aligned reference. Volatile, for the compiler would make wide stores of it.
            unsafe { std::ptr::write_volatile(cell, pin) };
        }
    }
}

/// [`Level::Portable`].
pub(super) struct Portable;

impl Fill for Portable {
    #[inline(always)]
    fn fill(lines: &mut [Line], start: usize, len: usize, pin: u16) {
        let cells: &mut [u16] = bytemuck::cast_slice_mut(lines);
        cells[start..start + len].fill(pin);
    }
}

/// [`Level::Avx2`]: only within functions that have it.
#[cfg(target_arch = "x86_64")]
pub(super) struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Fill for Avx2 {
    #[inline(always)]
    fn fill(lines: &mut [Line], start: usize, len: usize, pin: u16) {
        use std::arch::x86_64::{
            __m256i, _mm256_blendv_epi8, _mm256_cmpgt_epi16, _mm256_load_si256, _mm256_set1_epi16,
            _mm256_setr_epi16, _mm256_store_si256,
        };
        const WIDE: usize = 16;
        assert!(start + len + SLACK * LINE <= lines.len() * LINE);
        // SAFETY: the type is used within functions that have AVX2 only. Pointers are aligned to 32 bytes, as lines are to 64. The last
        // one written is that of cell `start + len - 1`, or the one behind that of `start`: both are there by the assertion.
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
}

/// [`Level::Avx512`]: only within functions that have it.
#[cfg(target_arch = "x86_64")]
pub(super) struct Avx512;

#[cfg(target_arch = "x86_64")]
impl Fill for Avx512 {
    #[inline(always)]
    fn fill(lines: &mut [Line], start: usize, len: usize, pin: u16) {
        use std::arch::x86_64::{__m512i, _mm512_mask_storeu_epi16, _mm512_set1_epi16, _mm512_store_si512};
        assert!(start + len + SLACK * LINE <= lines.len() * LINE);
        // SAFETY: the type is used within functions that have AVX-512 BW only. Pointers are aligned as lines are. The last line written
        // is that of cell `start + len - 1`, or the one behind that of `start`: both are there by the assertion.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<F: Fill>() {
        for start in 0..70usize {
            for len in [0, 1, 5, 16, 31, 32, 33, 64, 100] {
                let mut lines = vec![Line([7; LINE]); (start + len).div_ceil(LINE) + SLACK];
                F::fill(&mut lines, start, len, 9);
                let cells: &[u16] = bytemuck::cast_slice(&lines);
                assert!(cells[..start].iter().all(|&c| c == 7), "start {start}, len {len}: before the run");
                assert!(cells[start..start + len].iter().all(|&c| c == 9), "start {start}, len {len}");
                assert!(cells.iter().all(|&c| c == 7 || c == 9));
            }
        }
    }

    #[test]
    fn a_run_is_filled_and_nothing_before_it() {
        check::<Scalar>();
        check::<Portable>();
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx2")]
            fn avx2() {
                check::<Avx2>();
            }
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
            fn avx512() {
                check::<Avx512>();
            }
            if Level::Avx2.is_available() {
                // SAFETY: the machine has it.
                unsafe { avx2() }
            }
            if Level::Avx512.is_available() {
                // SAFETY: the machine has it.
                unsafe { avx512() }
            }
        }
    }
}
