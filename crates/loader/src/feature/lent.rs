//! Room that a reader needs, without asking for memory at every read.

use std::sync::{Mutex, PoisonError};

/// Lent to readers and given back: as many are made as there are readers at once.
#[derive(Debug)]
pub(super) struct Lent<T>(Mutex<Vec<T>>);

impl<T: Default> Lent<T> {
    pub(super) fn new() -> Self {
        Self(Mutex::default())
    }

    pub(super) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let mut room = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        let result = work(&mut room);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(room);
        result
    }
}
