//! A value that threads change in turn and wait on: the one way in which workers talk to each other.

use std::sync::{Condvar, Mutex, PoisonError};

/// A value behind a lock, with threads that wait for it to change. All rules about the value are plain functions of it; a
/// model checker brings a monitor of its own.
pub trait Monitor<S>: Sync {
    /// Tries `step` until it returns something, whenever the value may have changed. Where it returns nothing it must change
    /// nothing that others wait for.
    fn until<R>(&self, step: impl FnMut(&mut S) -> Option<R>) -> R;

    /// Looks at the value.
    fn look<R>(&self, look: impl FnOnce(&S) -> R) -> R;

    /// Changes the value.
    fn now<R>(&self, change: impl FnOnce(&mut S) -> R) -> R {
        let mut change = Some(change);
        self.until(|state| change.take().map(|change| change(state)))
    }
}

/// A monitor of the standard library's lock and condition.
#[derive(Debug, Default)]
pub struct Guarded<S> {
    state: Mutex<S>,
    changed: Condvar,
}

impl<S> Guarded<S> {
    /// Around `state`.
    pub fn new(state: S) -> Self {
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The value, when all threads are done with it.
    pub fn into_inner(self) -> S {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Send> Monitor<S> for Guarded<S> {
    fn look<R>(&self, look: impl FnOnce(&S) -> R) -> R {
        look(&self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn until<R>(&self, mut step: impl FnMut(&mut S) -> Option<R>) -> R {
        // steps leave the value whole where they panic: they check before they change
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(result) = step(&mut state) {
                drop(state);
                self.changed.notify_all();
                return result;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
