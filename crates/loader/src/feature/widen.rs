//! Conversion of 16-bit and of sparse rows to dense rows of `f32`.

#![allow(unsafe_code, reason = "vector instructions")]

use graphmill_core::View;
use half::{f16, slice::HalfFloatSliceExt};

use super::OutputRows;

/// Copies sparse rows, in order, to their places in `out`, with their zeros.
pub fn widen_sparse(rows: View, places: OutputRows, out: &mut [f32]) {
    let dim = rows.num_cols();
    for i in 0..rows.num_rows() {
        let to = match places {
            OutputRows::InOrder => i,
            OutputRows::At(at) => at[i] as usize,
        };
        let out = &mut out[to * dim..(to + 1) * dim];
        out.fill(0.0);
        let Some((columns, values)) = rows.sparse_row(i) else { continue };
        columns.iter().zip(values).for_each(|(&j, &x)| out[j as usize] = x);
    }
}

/// Converts `from` to `to`, of the same length. Exact; a signalling NaN becomes a quiet one.
///
/// The loop over a row is inside the function that is compiled for the conversion instruction:
/// [`HalfFloatSliceExt`] calls such a function for every eight values, which slows a gather of f16
/// rows by a tenth or more.
pub(super) fn widen_f16(from: &[f16], to: &mut [f32]) {
    assert_eq!(from.len(), to.len());
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("f16c") && std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the processor has both features, as just checked.
        return unsafe { widen_f16c(from, to) };
    }
    from.convert_to_f32_slice(to);
}

/// As [`widen_f16`], eight values per instruction.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx,f16c")]
fn widen_f16c(from: &[f16], to: &mut [f32]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm256_cvtph_ps, _mm256_storeu_ps};
    let (from, from_rest) = from.as_chunks::<8>();
    let (to, to_rest) = to.as_chunks_mut::<8>();
    for (from, to) in from.iter().zip(to) {
        // SAFETY: `from` has the 16 bytes that are read and `to` the 32 that are written, at any
        // alignment.
        unsafe {
            let half = _mm_loadu_si128(from.as_ptr().cast::<__m128i>());
            _mm256_storeu_ps(to.as_mut_ptr(), _mm256_cvtph_ps(half));
        }
    }
    if !from_rest.is_empty() {
        let mut padded = [f16::ZERO; 8];
        padded[..from_rest.len()].copy_from_slice(from_rest);
        let mut wide = [0.0; 8];
        // SAFETY: as above.
        unsafe {
            let half = _mm_loadu_si128(padded.as_ptr().cast::<__m128i>());
            _mm256_storeu_ps(wide.as_mut_ptr(), _mm256_cvtph_ps(half));
        }
        to_rest.copy_from_slice(&wide[..from_rest.len()]);
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::{Matrix, SparseRows};

    use super::*;

    #[test]
    fn sparse_rows_are_widened_to_their_places() {
        let table = SparseRows::from_dense(2, &[0.0, 5.0, 7.0, 0.0]).unwrap();
        let table = Matrix::sparse_table(table);
        let mut out = vec![9.0; 6];
        widen_sparse(table.view(), OutputRows::At(&[0, 2]), &mut out);
        assert_eq!(out, [0.0, 5.0, 9.0, 9.0, 7.0, 0.0]);
        widen_sparse(table.view(), OutputRows::InOrder, &mut out[..4]);
        assert_eq!(out[..4], [0.0, 5.0, 7.0, 0.0]);
    }

    #[test]
    fn all_f16_values_convert_exactly_at_all_lengths() {
        let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        for len in (0..33).chain([all.len()]) {
            for start in [0, 1, 1020, all.len() - len] {
                let from = &all[start.min(all.len() - len)..][..len];
                let mut to = vec![-1.0; len];
                widen_f16(from, &mut to);
                for (&x, &y) in from.iter().zip(&to) {
                    assert!(x.to_f32() == y || x.is_nan() && y.is_nan(), "{x} became {y}");
                }
            }
        }
    }
}
