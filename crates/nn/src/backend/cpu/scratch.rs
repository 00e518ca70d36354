//! Memory for intermediate results of one operation, kept for the next.

use std::{
    ops::{Deref, DerefMut},
    sync::Mutex,
};

/// What was given back. One lock per operation that reduces over rows, which takes microseconds at
/// least.
static POOL: Mutex<Vec<Vec<f64>>> = Mutex::new(Vec::new());

/// Borrowed memory, given back when dropped.
pub(crate) struct Scratch {
    data: Vec<f64>,
    len: usize,
}

/// `len` values of unspecified content.
pub(crate) fn take(len: usize) -> Scratch {
    let mut data = POOL.lock().unwrap_or_else(|e| e.into_inner()).pop().unwrap_or_default();
    if data.len() < len {
        data.resize(len, 0.0);
    }
    Scratch { data, len }
}

impl Deref for Scratch {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        &self.data[..self.len]
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [f64] {
        &mut self.data[..self.len]
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let data = std::mem::take(&mut self.data);
        POOL.lock().unwrap_or_else(|e| e.into_inner()).push(data);
    }
}
