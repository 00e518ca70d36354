//! Slice that several threads write to.

#![allow(unsafe_code, reason = "disjoint parallel writes")]

use std::sync::atomic::AtomicU32;

/// Views words as atomics. Relaxed loads and stores of them are plain moves; the join at the end of
/// the parallel loop that uses them orders them.
pub fn atomics(words: &mut [u32]) -> &[AtomicU32] {
    let (start, len) = (words.as_mut_ptr().cast::<AtomicU32>(), words.len());
    // SAFETY: `AtomicU32` has the size, alignment and values of `u32` (as documented; no target
    // with 32-bit atomics aligns them differently from `u32`), and the exclusive borrow, preserved
    // by the returned lifetime, excludes any access other than through these atomics.
    unsafe { std::slice::from_raw_parts(start, len) }
}
