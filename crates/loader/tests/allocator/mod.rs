//! Allocator of tests that counts the allocations of all threads, and refuses large ones on
//! request.

#![allow(unsafe_code, reason = "allocators of tests")]
#![allow(dead_code, unreachable_pub, reason = "every test file uses a part")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    ptr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use graphmill_core::{Result, memory};

/// Counts the allocations of all threads.
struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Number of requests of [`LARGE`] bytes or more until all further ones are refused.
static LEFT: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Lock of the tests of a program, which share the counts.
static TURN: Mutex<()> = Mutex::new(());

/// Bytes from which on a request may be refused.
const LARGE: usize = 16 << 10;
/// Alignment of the buffers of the library of products, and of nothing else.
const CACHE_LINE: usize = 64;

/// Waits for the other tests of this program, and keeps them waiting.
pub fn alone() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of allocations so far.
pub fn count() -> usize {
    COUNT.load(Relaxed)
}

/// Grants `allowed` large requests from now on and refuses all later ones; `usize::MAX` grants all.
pub fn refuse_after(allowed: usize) {
    LEFT.store(allowed, Relaxed);
}

/// Runs `work`, of whose large requests `allowed` are granted and all later ones refused.
pub fn refusing<T>(allowed: usize, work: impl FnOnce() -> T) -> Result<T> {
    refuse_after(allowed);
    let done = memory::catch(work);
    refuse_after(usize::MAX);
    done
}

/// Returns true if a request of this size and alignment is refused. Buffers of the library of
/// products are granted: it ends the process without them, and they do not grow with the batch.
fn is_refused(bytes: usize, align: usize) -> bool {
    let next = |left: usize| (left != usize::MAX).then(|| left.saturating_sub(1));
    bytes >= LARGE && align < CACHE_LINE && LEFT.fetch_update(Relaxed, Relaxed, next) == Ok(0)
}

// SAFETY: every call goes to the system's allocator unchanged, or is refused by null; counting
// allocates no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Relaxed);
        if is_refused(layout.size(), layout.align()) {
            return ptr::null_mut();
        }
        // SAFETY: the caller's guarantee holds for the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantee holds for the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.fetch_add(1, Relaxed);
        if is_refused(size, layout.align()) {
            return ptr::null_mut();
        }
        // SAFETY: the caller's guarantee holds for the system's allocator.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Checks that `work` ends with an error of memory if its large requests are refused from any of
/// them on, and that the next call with the same buffers gives the result of a call whose requests
/// are granted. `view` returns what is compared.
///
/// # Panics
/// A call has another result or another error; the message names `what`.
pub fn check<B, I, D, V: PartialEq>(
    what: &str,
    (buffers, input): (impl Fn() -> B, impl Fn() -> I),
    work: impl Fn(&mut B, I) -> Result<D>,
    view: impl Fn(&D) -> V,
) {
    let granted = |buffers: &mut B| work(buffers, input()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let expected = view(&granted(&mut buffers()));
    for allowed in 0.. {
        let (mut buffers, given) = (buffers(), input());
        let done = refusing(allowed, || work(&mut buffers, given)).and_then(|done| done);
        let is_whole = done.is_ok();
        let found = done.unwrap_or_else(|error| {
            let message = error.to_string();
            assert!(message.contains("bytes of memory") && message.contains("; lower"), "{what}: {message}");
            granted(&mut buffers)
        });
        assert!(view(&found) == expected, "{what}: another result after {allowed} requests");
        if is_whole {
            assert!(allowed > 0, "{what}: no large requests");
            return;
        }
    }
}
