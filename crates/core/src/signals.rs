//! Signals of the process: the handler of SIGTERM, while a foreign library that replaces it runs,
//! and the action on a closed pipe.
//!
//! METIS takes SIGTERM over for its own errors: its handler jumps back into its call, on whichever
//! thread the signal arrives. A program that stops on SIGTERM must have its own handler back.

#![allow(unsafe_code, reason = "system calls")]

/// Handler of SIGTERM at a moment, to be restored later. Without Unix signals it does nothing.
#[derive(Clone, Copy)]
pub struct SavedHandler {
    #[cfg(unix)]
    action: Option<libc::sigaction>,
}

impl SavedHandler {
    /// Saves the present handler.
    pub fn save() -> Self {
        Self {
            #[cfg(unix)]
            action: present(),
        }
    }

    /// Restores the saved handler if another is installed, and returns true if so.
    #[cfg(unix)]
    pub fn restore(&self) -> bool {
        let (Some(saved), Some(present)) = (&self.action, present()) else { return false };
        // other flags are those of the C library
        let has_info = |action: &libc::sigaction| action.sa_flags & libc::SA_SIGINFO;
        let is_same = saved.sa_sigaction == present.sa_sigaction && has_info(saved) == has_info(&present);
        // SAFETY: the action was installed in this process when it was saved, and handlers are
        // functions of the program, which stay.
        !is_same && unsafe { libc::sigaction(libc::SIGTERM, saved, std::ptr::null_mut()) } == 0
    }

    /// Restores the saved handler: there is none on this system.
    #[cfg(not(unix))]
    pub fn restore(&self) -> bool {
        false
    }
}

/// Present action of SIGTERM.
#[cfg(unix)]
fn present() -> Option<libc::sigaction> {
    let mut action = std::mem::MaybeUninit::uninit();
    // SAFETY: without a new action the call only writes the present one, whose memory is ours.
    let status = unsafe { libc::sigaction(libc::SIGTERM, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: a call that succeeds has filled it in.
    (status == 0).then(|| unsafe { action.assume_init() })
}

/// Lets a closed pipe (`graphmill info DATASET | head`) end the process without a message: restores
/// the default action of SIGPIPE, which Rust's start-up code sets to "ignore", so that printing
/// panics. For programs, before they start threads. Without Unix signals it does nothing.
pub fn end_on_closed_pipe() {
    #[cfg(unix)]
    {
        // SAFETY: SIG_DFL installs no handler.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_handler_is_restored_once() {
        let saved = SavedHandler::save();
        assert!(!saved.restore());
        // SAFETY: SIG_IGN installs no handler.
        unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
        assert!(saved.restore() && !saved.restore());
    }
}
