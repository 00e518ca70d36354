//! Pool of memory for the arrays of batches.
//!
//! A fresh block of some megabytes costs a page fault for every 4 KiB, which takes several times as
//! long as filling it. The arrays of a batch therefore come from a pool, and return to it when the
//! last array or tensor that views them is dropped, on any thread. In a process forked from the
//! pool's they do not return: the thread that holds the pool's lock may not exist there.

#![forbid(unsafe_code)]

use std::{
    process,
    sync::{Arc, Mutex, PoisonError},
};

use bytemuck::{Pod, Zeroable};

/// Unit of memory: a cache line, so that every array is aligned for any type.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

const LINE: usize = 64;

/// Pool of memory blocks. Clones share the blocks.
#[derive(Clone, Default)]
pub struct Pool(Arc<Free>);

#[derive(Default)]
struct Free {
    blocks: Mutex<Vec<Vec<Line>>>,
    /// Maximum number of free blocks.
    max_free: usize,
    /// Process that created the pool.
    process: u32,
}

impl Pool {
    /// Creates a pool that keeps at most `max_free` free blocks.
    pub fn new(max_free: usize) -> Self {
        Self(Arc::new(Free { max_free, process: process::id(), ..Free::default() }))
    }

    /// Returns true if this process created the pool, with `max_free`.
    fn matches(&self, max_free: usize) -> bool {
        self.0.max_free == max_free && self.0.process == process::id()
    }

    /// Takes `bytes` bytes of unspecified contents: the smallest free block that is large enough
    /// and at most four times as large, or a new one with an eighth to spare.
    pub fn take(&self, bytes: usize) -> Lease {
        let lines = bytes.div_ceil(LINE);
        let mut blocks = self.0.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |block: &Vec<Line>| block.len() >= lines && block.len() / 4 <= lines.max(64);
        let best =
            blocks.iter().enumerate().filter(|(_, b)| fits(b)).min_by_key(|(_, b)| b.len()).map(|(i, _)| i);
        let block = best.map(|i| blocks.swap_remove(i));
        drop(blocks);
        let block = block.unwrap_or_else(|| bytemuck::allocation::zeroed_vec(lines + lines / 8));
        Lease { block, bytes, home: self.clone() }
    }
}

/// Pool of the last epoch, from which the next one takes memory that has been touched.
#[derive(Default)]
pub struct LastPool(Mutex<Option<Pool>>);

impl LastPool {
    /// The pool; or a new one if the pool keeps another number of blocks, was created by another
    /// process, or is locked by another thread.
    pub fn pool(&self, max_free: usize) -> Pool {
        let Ok(mut last) = self.0.try_lock() else { return Pool::new(max_free) };
        match &*last {
            Some(pool) if pool.matches(max_free) => pool.clone(),
            _ => last.insert(Pool::new(max_free)).clone(),
        }
    }
}

/// Bytes that return to their pool when dropped.
pub struct Lease {
    block: Vec<Line>,
    bytes: usize,
    home: Pool,
}

impl Lease {
    /// The bytes, shared.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.block)[..self.bytes]
    }

    /// The bytes, exclusive.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.block)[..self.bytes]
    }

    /// The bytes as values.
    ///
    /// # Panics
    /// The length is not a multiple of the value's size.
    pub fn of<T: Pod>(&self) -> &[T] {
        bytemuck::cast_slice(self.bytes())
    }

    /// The bytes as exclusive values.
    ///
    /// # Panics
    /// The length is not a multiple of the value's size.
    pub fn of_mut<T: Pod>(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.bytes_mut())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.home.0.process != process::id() {
            return;
        }
        let mut blocks = self.home.0.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.push(std::mem::take(&mut self.block));
        if blocks.len() > self.home.0.max_free {
            // the block that returned first is the least likely to fit the next arrays
            let old = blocks.remove(0);
            drop(blocks);
            drop(old);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_returns_to_the_pool_and_is_bounded() {
        let pool = Pool::new(2);
        let first = pool.take(100_000);
        let at = first.bytes().as_ptr();
        drop(first);
        // a slightly larger array fits the block; a much smaller one does not waste it
        let mut second = pool.take(105_000);
        assert_eq!(second.bytes().as_ptr(), at);
        assert_eq!((second.of::<u64>().len(), at.align_offset(LINE)), (13_125, 0));
        second.of_mut::<i64>()[0] = -1;
        assert_eq!(second.bytes()[7], 255);
        drop(second);
        assert_ne!(pool.take(1000).bytes().as_ptr(), at);
        let many: Vec<Lease> = (0..5).map(|_| pool.take(10)).collect();
        drop(many);
        assert_eq!(pool.0.blocks.lock().unwrap().len(), 2);
        assert!(pool.take(0).bytes().is_empty());
    }

    #[test]
    fn the_next_epoch_reuses_memory_of_the_last() {
        let last = LastPool::default();
        let lease = last.pool(3).take(100_000);
        let at = lease.bytes().as_ptr();
        drop(lease);
        assert_eq!(last.pool(3).take(100_000).bytes().as_ptr(), at);
        // another number of blocks replaces the pool
        let other = last.pool(4);
        assert!(other.0.blocks.lock().unwrap().is_empty());
        assert!(Arc::ptr_eq(&other.0, &last.pool(4).0));
    }
}
