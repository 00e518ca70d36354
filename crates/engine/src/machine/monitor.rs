//! Monitors: shared values behind a lock. Workers communicate only through monitors.

use std::sync::{Condvar, Mutex, PoisonError};

/// A value behind a lock, with threads that wait for it to change. All rules about the value are
/// plain functions of it, so a model checker can substitute its own monitor.
///
/// ```
/// use graphmill_engine::machine::monitor::{Guarded, Monitor};
///
/// let queue = Guarded::new(Vec::new());
/// std::thread::scope(|scope| {
///     scope.spawn(|| queue.now(|queue| queue.push(7)));
///     // waits for the other thread
///     assert_eq!(queue.until(|queue| queue.pop()), 7);
/// });
/// ```
pub trait Monitor<S>: Sync {
    /// Calls `step` whenever the value may have changed, until it returns `Some`. A step that
    /// returns `None` must not change anything that other threads wait for.
    fn until<R>(&self, step: impl FnMut(&mut S) -> Option<R>) -> R;

    /// Reads the value.
    fn look<R>(&self, look: impl FnOnce(&S) -> R) -> R;

    /// Changes the value.
    fn now<R>(&self, change: impl FnOnce(&mut S) -> R) -> R {
        let mut change = Some(change);
        self.until(|state| change.take().map(|change| change(state)))
    }
}

/// A monitor of the standard library's mutex and condition variable.
#[derive(Debug, Default)]
pub struct Guarded<S> {
    state: Mutex<S>,
    changed: Condvar,
}

impl<S> Guarded<S> {
    /// Wraps `state`.
    pub fn new(state: S) -> Self {
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Returns the value, after all threads have finished.
    pub fn into_inner(self) -> S {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Send> Monitor<S> for Guarded<S> {
    fn look<R>(&self, look: impl FnOnce(&S) -> R) -> R {
        look(&self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn until<R>(&self, mut step: impl FnMut(&mut S) -> Option<R>) -> R {
        // a poisoned lock holds a consistent value, because steps check before they change it
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
