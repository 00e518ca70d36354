//! Ends of the process that Rust would leave without a message: a mapped file that shrinks or
//! cannot be read (SIGBUS), an allocation that the system refuses (abort), a file beyond the size
//! limit of the process (SIGXFSZ). Each becomes one error line and exit status 1. What a run has
//! saved stays: `train --resume` continues from its last checkpoint.

#![allow(unsafe_code, reason = "system calls")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ptr,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};

use graphmill_core::maps;

/// Allocator of the system that remembers the size of the last request that it refused. With debug
/// assertions it also refuses one request that the environment chooses ([`refusal`]).
pub(crate) struct Allocator;

thread_local! {
    /// Bytes of the last request of this thread that was refused; 0 if none was.
    static REFUSED: Cell<usize> = const { Cell::new(0) };
}

/// Refusal of the N-th request of [`LEAST`](refusal::LEAST) bytes or more, counted from the start
/// of `main`, if `GRAPHMILL_REFUSE_ALLOCATION` is N. `cargo xtask faults` sets it.
#[cfg(debug_assertions)]
mod refusal {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// Smallest request that counts: to report an error takes a little memory.
    pub(super) const LEAST: usize = 4096;

    /// Number of requests up to the refused one; 0 if none is refused any more.
    static LEFT: AtomicUsize = AtomicUsize::new(0);

    /// Reads the variable.
    pub(super) fn prepare() {
        let number = std::env::var("GRAPHMILL_REFUSE_ALLOCATION").ok().and_then(|text| text.parse().ok());
        LEFT.store(number.unwrap_or(0), Relaxed);
    }

    /// Returns true if a request of this size is the chosen one, and says so.
    #[inline]
    pub(super) fn is_due(bytes: usize) -> bool {
        if bytes < LEAST || LEFT.load(Relaxed) == 0 {
            return false;
        }
        let is_due = LEFT.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)) == Ok(1);
        if is_due {
            super::write(b"an allocation is refused by GRAPHMILL_REFUSE_ALLOCATION\n");
        }
        is_due
    }
}

/// Without debug assertions no request is refused on purpose.
#[cfg(not(debug_assertions))]
mod refusal {
    pub(super) fn prepare() {}

    #[inline(always)]
    pub(super) fn is_due(_bytes: usize) -> bool {
        false
    }
}

/// Notes a refused request.
#[inline]
fn note(pointer: *mut u8, bytes: usize) -> *mut u8 {
    if pointer.is_null() {
        REFUSED.set(bytes);
    }
    pointer
}

// SAFETY: every call is passed on to `System`, which keeps the contract, or refused by null.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if refusal::is_due(layout.size()) {
            return note(ptr::null_mut(), layout.size());
        }
        // SAFETY: the caller's contract is that of `System`.
        note(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if refusal::is_due(layout.size()) {
            return note(ptr::null_mut(), layout.size());
        }
        // SAFETY: the caller's contract is that of `System`.
        note(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is that of `System`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if refusal::is_due(size) {
            return note(ptr::null_mut(), size);
        }
        // SAFETY: the caller's contract is that of `System`.
        note(unsafe { System.realloc(pointer, layout, size) }, size)
    }
}

/// Installs the handlers.
pub(crate) fn install() {
    refusal::prepare();
    // SAFETY: the handlers call only functions that are safe in a signal handler (write, pause,
    // _exit, sigaction) and read atomics and a thread-local without a destructor; SIG_IGN installs
    // no handler. Called once, before any other thread exists.
    unsafe {
        // writes beyond the limit then fail with an error of their own
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        handle(libc::SIGBUS, on_bad_page);
        handle(libc::SIGABRT, on_abort);
    }
}

/// Handler that receives the signal and its origin.
type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// Installs `handler` for `signal`, on the alternative stack of a thread that has one.
///
/// # Safety
/// `handler` calls only functions that are safe in a signal handler.
unsafe fn handle(signal: libc::c_int, handler: Handler) {
    // SAFETY: an all-zero sigaction is valid, and its fields are set before use.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(signal, &raw const action, ptr::null_mut());
    }
}

/// Returns to the default action: the signal, which is raised again on return, ends the process.
///
/// # Safety
/// Called by a signal handler.
unsafe fn give_up(signal: libc::c_int) {
    // SAFETY: SIG_DFL installs no handler.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
    }
}

extern "C" fn on_bad_page(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the system passes a valid record; for SIGBUS it holds the address.
    let address = unsafe { (*info).si_addr() } as usize;
    match maps::find(address) {
        Some((path, byte)) => end(&[
            path,
            b": byte ",
            decimal(byte, &mut [0; 20]),
            b": the mapped file became shorter or its disk cannot be read; restore the file and run the \
              command again",
        ]),
        // SAFETY: this is a handler of that signal.
        None => unsafe { give_up(signal) },
    }
}

extern "C" fn on_abort(signal: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    match REFUSED.get() {
        // SAFETY: this is a handler of that signal.
        0 => unsafe { give_up(signal) },
        bytes => end(&[
            b"memory: ",
            decimal(bytes, &mut [0; 20]),
            b" more bytes were refused: the memory, or the limit of this process, is exhausted; raise the \
              limit, lower --batch-size, --hidden or --memory, or give train a --host-budget",
        ]),
    }
}

/// Digits of a number.
fn decimal(mut number: usize, digits: &mut [u8; 20]) -> &[u8] {
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[first..];
        }
    }
}

/// Writes to standard error, without allocations and locks.
fn write(bytes: &[u8]) {
    // SAFETY: the buffer is valid for its length. A failure leaves nothing else to be done.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
}

/// Writes an error line of these parts and ends the process with status 1. Of several threads that
/// fail together only the first writes.
fn end(parts: &[&[u8]]) {
    static ENDING: AtomicBool = AtomicBool::new(false);
    if ENDING.swap(true, SeqCst) {
        loop {
            // SAFETY: waits for the thread that ends the process.
            let _ = unsafe { libc::pause() };
        }
    }
    write(b"error: ");
    parts.iter().for_each(|part| write(part));
    write(b"\n");
    // SAFETY: ends the process without running destructors, which a signal handler must not run.
    unsafe { libc::_exit(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_decimal() {
        for number in [0, 7, 10, 12_345, usize::MAX] {
            assert_eq!(decimal(number, &mut [0; 20]), number.to_string().as_bytes());
        }
    }
}
