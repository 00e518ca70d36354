//! Signals that ask the program to end: Ctrl-C, SIGTERM and SIGHUP. The first lets the command stop
//! in an orderly way, the second ends the process at once.

use std::sync::{
    Arc,
    atomic::{AtomicI32, Ordering::Relaxed},
};

use graphmill_core::progress::{Progress, Unit};

use crate::output;

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

/// Wraps `progress` so that the first Ctrl-C or SIGTERM cancels the work and the second ends the
/// process.
///
/// # Errors
/// Another signal handler is installed.
pub(crate) fn until_signal(progress: Box<dyn Progress>) -> anyhow::Result<Box<dyn Progress>> {
    catch(|| output::note("stopping; repeat to stop at once"))?;
    Ok(Box::new(UntilSignal(progress.into())))
}

/// Progress that a signal cancels.
pub(crate) struct UntilSignal(pub(crate) Arc<dyn Progress>);

impl Progress for UntilSignal {
    fn stage(&self, what: &str, total: Option<u64>, unit: Unit) {
        self.0.stage(what, total, unit);
    }

    fn resume(&self, amount: u64) {
        self.0.resume(amount);
    }

    fn done(&self, amount: u64) {
        self.0.done(amount);
    }

    fn note(&self, message: &str) {
        self.0.note(message);
    }

    fn is_stopped(&self) -> bool {
        is_stopped() || self.0.is_stopped()
    }
}
