//! SIGBUS of a mapped file that shrank or cannot be read: one line names the file and the byte, and
//! the handler that was installed before takes the signal. Without one it ends the interpreter, as
//! it would without this module: the read that failed has no value to go on with.
//!
//! The handler stays for the life of the process, because NumPy reads the maps, too. Signals of
//! other addresses go to the earlier handler without a line, so Python's `faulthandler` and other
//! libraries see what they saw before.

#![allow(unsafe_code, reason = "system calls")]

use std::{
    mem, ptr,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use graphmill_core::maps;

/// Action that was installed before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Handler that receives the signal, its origin and the registers.
type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// Handler that receives the signal alone.
type OldHandler = extern "C" fn(libc::c_int);

/// Installs the handler, once in a process.
pub(super) fn install() {
    // SAFETY: all-zero actions are valid and are filled before use. The handler reads atomics and
    // calls only functions that are safe in one: write, signal, raise and the earlier handler.
    unsafe {
        let mut before: libc::sigaction = mem::zeroed();
        if libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before) != 0 || BEFORE.set(before).is_err() {
            return;
        }
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = on_bad_page as *const () as usize;
        // as the earlier handler expects, which is called by this one
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | (before.sa_flags & libc::SA_NODEFER);
        action.sa_mask = before.sa_mask;
        libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut());
    }
}

extern "C" fn on_bad_page(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    static IS_NAMED: AtomicBool = AtomicBool::new(false);
    // SAFETY: the system passes a valid record; if it is the sender, the record holds the address.
    let (is_of_system, address) = unsafe { ((*info).si_code > 0, (*info).si_addr() as usize) };
    if is_of_system
        && let Some((path, byte)) = maps::find(address)
        && !IS_NAMED.swap(true, SeqCst)
    {
        let why = b": the mapped file became shorter or its disk cannot be read; restore the file and run \
                    the command again\n";
        let mut digits = [0; 20];
        let parts: [&[u8]; 5] = [b"graphmill: ", path, b": byte ", decimal(byte, &mut digits), why];
        parts.iter().for_each(|part| write(part));
    }
    let action = BEFORE.get().map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    // SAFETY: an earlier action is the default, to ignore the signal, or a handler of the form that
    // its flags name. With the default action the failed read, which is repeated on return, or the
    // raised signal ends the process.
    unsafe {
        match action {
            libc::SIG_IGN if !is_of_system => {}
            libc::SIG_DFL | libc::SIG_IGN => {
                libc::signal(signal, libc::SIG_DFL);
                if !is_of_system {
                    libc::raise(signal);
                }
            }
            handler if BEFORE.get().is_some_and(|before| before.sa_flags & libc::SA_SIGINFO != 0) => {
                mem::transmute::<*const (), Handler>(handler as *const ())(signal, info, context);
            }
            handler => mem::transmute::<*const (), OldHandler>(handler as *const ())(signal),
        }
    }
}

/// Digits of a number, without allocations.
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
