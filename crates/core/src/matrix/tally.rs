//! Counts of the bytes that matrices hold in host memory.
//!
//! The memory of the process says little about a small amount of work: allocators keep freed
//! blocks, and other work of the process allocates, too. A tally counts instead. It runs the work
//! on a pool of its own, so that no thread of it works for others meanwhile, and every matrix that
//! grows on these threads is charged to it until the matrix is dropped.
//!
//! # Cost
//!
//! A matrix reads a thread's variable when it grows, which it does until the largest batch. A tally
//! starts and ends as many threads as the current pool has.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::{Error, Result};

thread_local! {
    /// Counts to which the matrices that grow on this thread are charged.
    static CURRENT: RefCell<Option<Arc<Counts>>> = const { RefCell::new(None) };
}

/// Bytes of some matrices.
#[derive(Debug, Default)]
struct Counts {
    /// Bytes that they hold.
    now: AtomicU64,
    /// The most that they have held.
    most: AtomicU64,
    /// Bytes of the largest scratch buffer of an operation.
    scratch: AtomicU64,
}

/// Count of the bytes of the matrices that some work creates or grows. Shared tables, values in
/// files, on devices or of sparse rows are not counted.
///
/// ```
/// use graphmill_core::{Matrix, matrix::Tally};
///
/// let most = Tally::count(|tally| {
///     let first = Matrix::zeros(10, 16);
///     drop((first, Matrix::zeros(20, 16)));
///     let _last = Matrix::zeros(20, 16);
///     tally.most()
/// })?;
/// assert_eq!(most, 30 * 64);
/// # Ok::<(), graphmill_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Tally(Arc<Counts>);

impl Tally {
    /// Runs `work` on a pool of as many threads as the current one, and passes it the count of its
    /// matrices.
    ///
    /// # Errors
    /// The system refuses the threads.
    pub fn count<R: Send>(work: impl FnOnce(&Self) -> R + Send) -> Result<R> {
        let tally = Self(Arc::default());
        let (counts, threads) = (tally.0.clone(), rayon::current_num_threads());
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .start_handler(move |_| CURRENT.set(Some(counts.clone())))
            .build()
            .map_err(|e| {
                Error::Memory(format!(
                    "cannot start {threads} threads to count the memory of a step: {e}; use fewer with \
                     --threads"
                ))
            })?;
        Ok(pool.install(|| work(&tally)))
    }

    /// The most bytes that the matrices have held at once, and those of the largest scratch buffer
    /// of an operation.
    pub fn most(&self) -> u64 {
        self.0.most.load(Relaxed) + self.0.scratch.load(Relaxed)
    }
}

/// Reports a scratch buffer of an operation to the tally of this thread, if there is one. Its size
/// must not depend on the number of threads.
pub fn count_scratch(bytes: u64) {
    CURRENT.with_borrow(|current| {
        if let Some(counts) = current {
            counts.scratch.fetch_max(bytes, Relaxed);
        }
    });
}

/// Bytes of a matrix, and the counts that contain them.
#[derive(Default)]
pub(super) struct Charge {
    counts: Option<Arc<Counts>>,
    bytes: u64,
}

impl Charge {
    /// Changes the bytes of the matrix.
    pub(super) fn set(&mut self, bytes: u64) {
        if self.counts.is_none() {
            self.counts = CURRENT.with_borrow(Clone::clone);
            self.bytes = 0;
        }
        if let Some(counts) = &self.counts {
            counts.now.fetch_sub(self.bytes, Relaxed);
            let now = counts.now.fetch_add(bytes, Relaxed) + bytes;
            counts.most.fetch_max(now, Relaxed);
        }
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(counts) = &self.counts {
            counts.now.fetch_sub(self.bytes, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Matrix, matrix::Tally};

    #[test]
    fn matrices_count_until_they_are_dropped() {
        let mut before = Matrix::zeros(3, 16);
        let other = std::thread::spawn(|| (0..100).for_each(|rows| drop(Matrix::zeros(rows, 16))));
        let mosts = Tally::count(|tally| {
            let mut mosts = Vec::new();
            let mut matrix = Matrix::default();
            for rows in [10, 5, 12] {
                matrix.resize(rows, 16);
                matrix.view_mut().host().fill(1.0);
                mosts.push(tally.most());
            }
            let copy = matrix.clone();
            mosts.push(tally.most());
            drop((matrix, copy));
            // a matrix of earlier work counts from its next growth on
            before.resize(4, 16);
            before.view_mut().host().fill(1.0);
            rayon::join(|| drop(Matrix::zeros(18, 16)), || ());
            mosts.push(tally.most());
            drop(Matrix::zeros(30, 16));
            super::count_scratch(64);
            mosts.push(tally.most());
            mosts
        });
        assert_eq!(mosts.unwrap(), [10, 10, 12, 24, 24, 35].map(|rows| 64 * rows));
        other.join().unwrap();
        // outside of a tally nothing is counted
        super::count_scratch(1 << 20);
    }
}
