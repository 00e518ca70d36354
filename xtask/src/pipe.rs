//! Output to a pipe whose reader has ended: `cargo xtask bench list | head`.
//!
//! Crates of the project have `graphmill_core::signals` for it. These commands depend on none of
//! them, so that they compile in seconds.

#![allow(unsafe_code, reason = "system calls")]

/// Lets a closed pipe end the process without a message: restores the default action of SIGPIPE,
/// which Rust's start-up code sets to "ignore", so that printing panics.
pub(crate) fn end_when_closed() {
    #[cfg(unix)]
    {
        // SAFETY: called before any thread exists; SIG_DFL installs no handler.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
}
