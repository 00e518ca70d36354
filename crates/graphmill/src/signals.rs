//! Signals that ask the program to end: Ctrl-C, SIGTERM and SIGHUP. The first lets the command stop
//! in an orderly way, the second ends the process at once.

use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// Number of the last signal; 0 before the first.
static RECEIVED: AtomicI32 = AtomicI32::new(0);

/// Begins to catch the signals. The first makes [`is_stopped`] true and calls `on_first`.
///
/// # Errors
/// The system refuses the handler or its thread.
pub(crate) fn catch(on_first: impl Fn() + Send + 'static) -> anyhow::Result<()> {
    let on_signal = move |signal: i32| {
        if RECEIVED.swap(signal, Relaxed) != 0 {
            std::process::exit(128 + signal);
        }
        on_first();
    };
    #[cfg(unix)]
    {
        use signal_hook::{consts, iterator::Signals};
        let mut signals = Signals::new([consts::SIGINT, consts::SIGTERM, consts::SIGHUP])?;
        let thread = std::thread::Builder::new().name("signals".into());
        thread.spawn(move || signals.forever().for_each(on_signal))?;
    }
    #[cfg(not(unix))]
    ctrlc::set_handler(move || on_signal(2))?;
    Ok(())
}

/// Returns true after the first signal.
pub(crate) fn is_stopped() -> bool {
    RECEIVED.load(Relaxed) != 0
}

/// Exit status of a command that a signal has ended, as shells give it: 130 after Ctrl-C, 143 after
/// SIGTERM.
pub(crate) fn exit_status() -> Option<u8> {
    u8::try_from(128 + RECEIVED.load(Relaxed)).ok().filter(|_| is_stopped())
}
