//! Prefetching of cache lines: random reads then overlap instead of queueing up, which is worth
//! more to a sampler than any choice of hash map.

#![allow(unsafe_code, reason = "vector instructions")]

/// Prefetches the cache line of `slice[index]`. An index out of range does nothing.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if index < slice.len() {
        // SAFETY: the address is inside the slice, and a prefetch has no visible effect.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(slice.as_ptr().add(index).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, index);
}
