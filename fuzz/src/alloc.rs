//! The declared limit: a global allocator that counts what is held, and ends the process when a run
//! of a target holds more than its input justifies.
//!
//! ```text
//! limit = 128 MiB + 128 x unpacked bytes
//! ```
//!
//! 128 MiB is what the readers may take whatever the input: buffers, a graph of a million nodes
//! whose ids a single edge names, a table of 2^24 entries of a few values (`import/claims.rs`). 128
//! bytes are 16 words: the smallest entry of a file is a byte (an `i1` row start of an `.npy`
//! array, a digit and its comma in text), and while a graph is built from it, ids, cursors, row
//! starts, labels and their 64-bit sources are held at once. What is deflated counts as unpacked:
//! deflate expands at most 1032 times (zlib's technical notes). Parquet's runs of equal values
//! count the same, and no row is believed to pack better (`import/parquet/file.rs`).
//!
//! A request beyond the limit ends the process even if the reader would have returned an error: on
//! a larger machine it would have succeeded. Memory maps of input files are not counted; they hold
//! no more than the files.

#![allow(unsafe_code, reason = "allocators of tests")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Bytes that any input may allocate.
pub const FLOOR: usize = 128 << 20;
/// Bytes that each unpacked byte of the input may allocate.
pub const PER_BYTE: usize = 128;
/// Largest expansion factor of deflate.
pub const DEFLATE: usize = 1032;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Counts `size` more bytes. Relaxed: the count is a sum, and a run's threads are joined within it.
fn take(size: usize) {
    let live = LIVE.fetch_add(size, Relaxed).saturating_add(size);
    let limit = LIMIT.load(Relaxed);
    if live > limit {
        LIMIT.store(usize::MAX, Relaxed); // the message may allocate
        eprintln!(
            "allocation of {size} bytes brings the total to {live}, beyond the declared limit of {limit}"
        );
        std::process::abort(); // unwinding out of an allocator is not allowed
    }
}

// SAFETY: every call is forwarded to the system's allocator with its layout; counting changes
// nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        take(size);
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Runs `work` on an input of `unpacked` bytes under the limit.
pub fn limited<T>(unpacked: usize, work: impl FnOnce() -> T) -> T {
    let allowed = unpacked.saturating_mul(PER_BYTE).saturating_add(FLOOR);
    LIMIT.store(LIVE.load(Relaxed).saturating_add(allowed), Relaxed);
    let _lifted = Lift;
    work()
}

/// Lifts the limit when a run ends, even by a panic.
struct Lift;

impl Drop for Lift {
    fn drop(&mut self) {
        LIMIT.store(usize::MAX, Relaxed);
    }
}
