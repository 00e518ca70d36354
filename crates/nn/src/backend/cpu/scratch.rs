//! Memory for intermediate results of one operation, reused by the next.

use std::{
    ops::{Deref, DerefMut},
    sync::Mutex,
};

use graphmill_core::{huge_pages, matrix::count_scratch};

/// Returned memory. Each operation that reduces over rows locks it once, which is negligible beside
/// its runtime of microseconds or more.
static POOL: Mutex<Vec<Vec<f64>>> = Mutex::new(Vec::new());

/// Borrowed memory, returned when dropped.
pub(crate) struct Scratch {
    data: Vec<f64>,
    len: usize,
}

/// Borrows `len` values of unspecified content.
pub(crate) fn take(len: usize) -> Scratch {
    count_scratch(size_of::<f64>() as u64 * len as u64);
    take_uncounted(len)
}

/// [`take`] without a report to a tally of memory: for memory that an operation takes for some
/// numbers of threads, or more or less by that number. Counts decide which rows a run reuses, and
/// so its results.
pub(crate) fn take_uncounted(len: usize) -> Scratch {
    let mut data = POOL.lock().unwrap_or_else(|e| e.into_inner()).pop().unwrap_or_default();
    huge_pages::lengthen(&mut data, len, 0.0);
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
