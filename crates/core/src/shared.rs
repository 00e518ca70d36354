//! One slice that several threads write to.

use std::sync::atomic::AtomicU32;

/// The same words as atomics. Relaxed loads and stores of them are plain moves; what orders them is the join at the
/// end of the parallel loop that uses them.
pub fn atomics(words: &mut [u32]) -> &[AtomicU32] {
    let (start, len) = (words.as_mut_ptr().cast::<AtomicU32>(), words.len());
    // SAFETY: `AtomicU32` has the size, alignment and values of `u32` (its documentation says so; no target with
    // 32-bit atomics aligns them differently from `u32`), and the exclusive borrow, which the returned lifetime
    // keeps, leaves no other access than through these atomics.
    unsafe { std::slice::from_raw_parts(start, len) }
}
