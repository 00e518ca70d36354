//! Waiting without keeping the interpreter from anything: its lock is let go, and Ctrl-C is
//! noticed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

use graphmill_core::progress::Progress;
use pyo3::{exceptions::PyRuntimeError, prelude::*};

use crate::prefetch::{Prefetch, Taken};

/// How often signals are looked for.
const PATIENCE: Duration = Duration::from_millis(50);

/// The next value of a prefetcher, or none at its end.
///
/// # Errors
/// A value that could not be made; Ctrl-C.
pub(super) fn next<T: Send + 'static>(py: Python<'_>, values: &Prefetch<T>) -> PyResult<Option<T>> {
    loop {
        match py.detach(|| values.take(PATIENCE)).map_err(super::error::fault)? {
            Taken::Value(value) => return Ok(Some(value)),
            Taken::End => return Ok(None),
            Taken::NotYet => py.check_signals()?,
        }
    }
}

/// Does `work` on a thread of its own, which sends messages and looks at a flag that says whether
/// to stop. This one passes the messages on to `tell` and looks for signals. After an error of
/// either the flag is set, and `work` waited for.
///
/// # Errors
/// What `tell` raised, or Ctrl-C; `work` panicked.
pub(super) fn run<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(Arc<AtomicBool>, Sender<String>) -> T + Send,
    tell: impl Fn(Python<'_>, &str) -> PyResult<()> + Send + Sync,
) -> PyResult<T> {
    let (sender, messages) = channel();
    py.detach(move || {
        let stop = Arc::new(AtomicBool::new(false));
        thread::scope(|scope| {
            let flag = stop.clone();
            let worker = scope.spawn(move || work(flag, sender));
            let error = pass_on(&messages, &stop, &tell);
            let done = worker
                .join()
                .map_err(|_| PyRuntimeError::new_err("a fault in graphmill: see the message above"))?;
            error.map_or(Ok(done), Err)
        })
    })
}

/// [`run`] of work that says nothing and is told by a watcher that it is to stop.
///
/// # Errors
/// Ctrl-C; `work` panicked.
pub(super) fn quietly<T: Send>(py: Python<'_>, work: impl FnOnce(&dyn Progress) -> T + Send) -> PyResult<T> {
    let work = |stop, sender| {
        let done = work(&Stops(stop));
        // its end is what the other thread waits for
        drop(sender);
        done
    };
    run(py, work, |_, _| Ok(()))
}

/// Says nothing, and when to stop.
pub(super) struct Stops(pub(super) Arc<AtomicBool>);

impl Progress for Stops {
    fn is_stopped(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Until the worker has let go of its sender.
fn pass_on(
    messages: &Receiver<String>,
    stop: &AtomicBool,
    tell: &(impl Fn(Python<'_>, &str) -> PyResult<()> + Sync),
) -> Option<PyErr> {
    let mut first = None;
    loop {
        let got = match messages.recv_timeout(PATIENCE) {
            Ok(message) => Python::attach(|py| tell(py, &message).and_then(|()| py.check_signals())),
            Err(RecvTimeoutError::Timeout) => Python::attach(|py| py.check_signals()),
            Err(RecvTimeoutError::Disconnected) => return first,
        };
        if let Err(error) = got {
            stop.store(true, Relaxed);
            first.get_or_insert(error);
        }
    }
}
