//! Memory copies, with ordinary and with streaming stores. Streaming stores do not read the cache
//! lines that they overwrite; which variant is faster depends on the machine.

#![allow(unsafe_code, reason = "vector instructions")]

use rayon::prelude::*;

use crate::{Buffer, Matrix};

/// Number of values of each copied array, and of a table of rows: 256 MiB, which exceeds caches.
pub const VALUES: usize = 64 << 20;

/// Copies a slice to another of the same length.
pub type Copy = fn(&[f32], &mut [f32]);

/// Variants of copying, by name.
pub const KINDS: &[(&str, Copy)] = &[("copy", plain), ("copy, streaming stores", streaming)];

/// Number of values of a chunk that one thread copies: 1 MiB.
const CHUNK_LEN: usize = 256 << 10;

/// Source and destination of a copy.
#[derive(Debug)]
pub struct Arrays {
    from: Buffer<f32>,
    to: Matrix,
}

impl Arrays {
    /// Allocates arrays of `values` values, a multiple of 2^18.
    pub fn new(values: usize) -> Self {
        // huge pages, as for the feature table; copying also backs every page with memory
        let zeros = Buffer::from(vec![0.0; values]);
        Self { from: zeros.to_huge_pages().unwrap_or(zeros), to: Matrix::zeros(values, 1) }
    }

    /// Copies the whole array on all threads.
    pub fn run(&mut self, copy: Copy) {
        let to = self.to.view_mut().host();
        let chunks = to.par_chunks_mut(CHUNK_LEN).zip(self.from.par_chunks(CHUNK_LEN));
        chunks.for_each(|(to, from)| copy(from, to));
    }
}

fn plain(from: &[f32], to: &mut [f32]) {
    to.copy_from_slice(from);
}

/// Copies with streaming stores, which bypass the caches, if the processor has AVX-512.
fn streaming(from: &[f32], to: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has the instructions.
        return unsafe { streaming_avx512(from, to) };
    }
    plain(from, to);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn streaming_avx512(from: &[f32], to: &mut [f32]) {
    use std::arch::x86_64::{_mm_sfence, _mm512_loadu_ps, _mm512_stream_ps};
    assert!(
        to.as_ptr().cast::<u8>().align_offset(64) == 0,
        "matrices are aligned, and chunks are whole cache lines"
    );
    let (lines, rest) = to.as_chunks_mut::<16>();
    let (from_lines, from_rest) = from.as_chunks::<16>();
    for (to, from) in lines.iter_mut().zip(from_lines) {
        // SAFETY: both are 64 bytes, `to` is aligned to 64 by the assertion, and no other thread
        // reads it before the fence.
        unsafe { _mm512_stream_ps(to.as_mut_ptr(), _mm512_loadu_ps(from.as_ptr())) };
    }
    _mm_sfence();
    rest.copy_from_slice(from_rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_copies_every_value() {
        let from: Vec<f32> = (0..100).map(|i| i as f32).collect();
        for (name, copy) in KINDS {
            let mut to = Matrix::zeros(100, 1);
            copy(&from, to.view_mut().host());
            assert_eq!(to.view().host(), from, "{name}");
        }
    }
}
