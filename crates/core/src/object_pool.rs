//! Pool of reusable objects, which avoids allocation in the steady state.

#![forbid(unsafe_code)]

use std::sync::{Mutex, PoisonError};

/// Unused objects. The pool creates as many as are in use simultaneously.
///
/// ```
/// let pool = graphmill_core::ObjectPool::<Vec<u32>>::default();
/// assert_eq!(pool.with(|list| { list.push(7); list.len() }), 1);
/// // the same list again, with its memory and its elements
/// assert_eq!(pool.with(|list| list.len()), 1);
/// ```
#[derive(Debug)]
pub struct ObjectPool<T>(Mutex<Vec<T>>);

impl<T> Default for ObjectPool<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> ObjectPool<T> {
    /// Takes an unused object, if any, in the state in which its last user returned it.
    pub fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Returns an object to the pool.
    pub fn put(&self, object: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(object);
    }
}

impl<T: Default> ObjectPool<T> {
    /// Takes an unused object, or creates one.
    pub fn take_or_default(&self) -> T {
        self.take().unwrap_or_default()
    }

    /// Runs `work` with an object that is exclusively its own meanwhile.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let mut object = self.take_or_default();
        let result = work(&mut object);
        self.put(object);
        result
    }
}
