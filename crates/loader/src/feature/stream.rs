//! Stores that bypass the caches. A result larger than the caches is not read again before it has
//! left them, and a store that bypasses them does not first read the line that it overwrites, which
//! saves a third of a copy's memory traffic.

#![allow(unsafe_code, reason = "vector instructions")]

/// Copies `from` to `to`, of the same length, with stores that bypass the caches if the
/// architecture has them.
pub(super) fn stream(from: &[f32], to: &mut [f32]) {
    assert_eq!(from.len(), to.len());
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_mm_loadu_ps, _mm_sfence, _mm_stream_ps};
        let head = to.as_ptr().align_offset(16).min(to.len());
        let (first, rest) = to.split_at_mut(head);
        first.copy_from_slice(&from[..head]);
        let (quads, last) = rest.as_chunks_mut::<4>();
        let (from_quads, from_last) = from[head..].as_chunks::<4>();
        for (to, from) in quads.iter_mut().zip(from_quads) {
            // SAFETY: both are 16 bytes, `to` is aligned to 16 because `head` values were left out,
            // and only this function accesses it until the fence below has made the store visible.
            unsafe { _mm_stream_ps(to.as_mut_ptr(), _mm_loadu_ps(from.as_ptr())) };
        }
        last.copy_from_slice(from_last);
        // SAFETY: every x86-64 has the instruction.
        unsafe { _mm_sfence() };
    }
    // Miri does not interpret the stores, which are assembly in the standard library
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    to.copy_from_slice(from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_copied_at_every_alignment() {
        let from: Vec<f32> = (0..70).map(|i| i as f32).collect();
        for start in 0..5 {
            for len in [0, 1, 2, 3, 4, 5, 17, 64] {
                let mut to = vec![-1.0; 70];
                stream(&from[1..1 + len], &mut to[start..start + len]);
                assert_eq!(to[start..start + len], from[1..1 + len]);
                assert!(to[..start].iter().chain(&to[start + len..]).all(|&x| x == -1.0));
            }
        }
    }
}
