//! A value that threads change in turn and wait on: the only way in which workers communicate.

use std::sync::{Condvar, Mutex, PoisonError};

/// A value behind a lock, with threads that wait for it to change. All rules about the value are
/// plain functions of it, so a model checker can supply its own monitor.
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
    /// Tries `step` whenever the value may have changed, until it returns something. A step that
    /// returns nothing must not change what other threads wait for.
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
