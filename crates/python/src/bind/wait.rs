//! Waiting for Rust threads: the interpreter's lock is released, and Ctrl-C is noticed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

use graphmill_core::{memory, progress::Progress};
use pyo3::{exceptions::PyRuntimeError, prelude::*};

use super::error;
use crate::prefetch::{Prefetch, Taken};

/// Time between two checks for signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Takes the next value of a prefetcher; `None` at its end.
///
/// # Errors
/// The value could not be made, or Ctrl-C was pressed.
pub(super) fn next<T: Send + 'static>(py: Python<'_>, values: &Prefetch<T>) -> PyResult<Option<T>> {
    loop {
        match py.detach(|| values.take(SIGNAL_INTERVAL)).map_err(super::error::fault)? {
            Taken::Value(value) => return Ok(Some(value)),
            Taken::End => return Ok(None),
            Taken::NotYet => py.check_signals()?,
        }
    }
}

/// Runs `work` on a new thread, which sends messages and checks a flag that asks it to stop. The
/// calling thread passes the messages to `report` and checks for signals. If either fails, it sets
/// the flag and waits for `work`.
///
/// # Errors
/// `report` raised an exception, Ctrl-C was pressed, or `work` panicked.
pub(super) fn run<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(Arc<AtomicBool>, Sender<String>) -> T + Send,
    report: impl Fn(Python<'_>, &str) -> PyResult<()> + Send + Sync,
) -> PyResult<T> {
    let (done, raised) = run_to_end(py, work, report)?;
    raised.map_or(Ok(done), Err)
}

/// Runs `work` like [`run`], and returns its value also if an exception stopped it.
///
/// # Errors
/// `work` panicked.
pub(super) fn run_to_end<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(Arc<AtomicBool>, Sender<String>) -> T + Send,
    report: impl Fn(Python<'_>, &str) -> PyResult<()> + Send + Sync,
) -> PyResult<(T, Option<PyErr>)> {
    let (sender, messages) = channel();
    py.detach(move || {
        let stop = Arc::new(AtomicBool::new(false));
        thread::scope(|scope| {
            let flag = stop.clone();
            let worker = scope.spawn(move || work(flag, sender));
            let error = forward(&messages, &stop, &report);
            let done = worker.join().map_err(|payload| match memory::refusal(&*payload) {
                Some(refused) => error::graph(refused),
                None => PyRuntimeError::new_err("internal error in graphmill; see the message above"),
            })?;
            Ok((done, error))
        })
    })
}

/// Runs `work` like [`run`], with a progress receiver that only cancels it.
///
/// # Errors
/// Ctrl-C was pressed, or `work` panicked.
pub(super) fn quietly<T: Send>(py: Python<'_>, work: impl FnOnce(&dyn Progress) -> T + Send) -> PyResult<T> {
    quietly_shared(py, |progress| work(&*progress))
}

/// Runs `work` like [`quietly`], with a progress receiver that it can share.
///
/// # Errors
/// As for [`quietly`].
pub(super) fn quietly_shared<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(Arc<dyn Progress>) -> T + Send,
) -> PyResult<T> {
    let work = |stop, sender| {
        let done = work(Arc::new(StopFlag(stop)));
        // the calling thread waits until the sender is dropped
        drop(sender);
        done
    };
    run(py, work, |_, _| Ok(()))
}

/// Progress that reports nothing and cancels the work when the flag is set.
pub(super) struct StopFlag(pub(super) Arc<AtomicBool>);

impl Progress for StopFlag {
    fn is_stopped(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Passes messages to `report` until the worker drops its sender; returns the first error.
fn forward(
    messages: &Receiver<String>,
    stop: &AtomicBool,
    report: &(impl Fn(Python<'_>, &str) -> PyResult<()> + Sync),
) -> Option<PyErr> {
    let mut first = None;
    loop {
        let got = match messages.recv_timeout(SIGNAL_INTERVAL) {
            Ok(message) => Python::attach(|py| report(py, &message).and_then(|()| py.check_signals())),
            Err(RecvTimeoutError::Timeout) => Python::attach(|py| py.check_signals()),
            Err(RecvTimeoutError::Disconnected) => return first,
        };
        if let Err(error) = got {
            stop.store(true, Relaxed);
            first.get_or_insert(error);
        }
    }
}
