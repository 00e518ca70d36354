//! Objects that are used for a while and recycled: in the steady state nothing is allocated.

use std::sync::{Mutex, PoisonError};

/// Objects that nobody uses at the moment. As many are made as are used at once.
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
    /// Takes an object out, if any is unused. It is as its last user left it.
    pub fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Puts an object in, for another user.
    pub fn put(&self, object: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(object);
    }
}

impl<T: Default> ObjectPool<T> {
    /// Takes an object out, or makes one.
    pub fn take_or_default(&self) -> T {
        self.take().unwrap_or_default()
    }

    /// Works with an object that nobody else uses meanwhile.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let mut object = self.take_or_default();
        let result = work(&mut object);
        self.put(object);
        result
    }
}
