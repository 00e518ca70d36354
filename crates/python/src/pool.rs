//! Memory of batches that is used again.
//!
//! A fresh block of some megabytes costs a page fault for every 4 KiB, several times what filling
//! it does. A batch's arrays therefore come from a pool, and go back to it when the last array or
//! tensor that views them is dropped, wherever that happens. In a process that was forked from the
//! pool's they do not: who holds the pool's lock there may not exist.

use std::{
    process,
    sync::{Arc, Mutex, PoisonError},
};

use bytemuck::{Pod, Zeroable};

/// The unit of memory: a cache line, so that every array is aligned for any type.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

const LINE: usize = 64;

/// Hands out memory and takes it back. Clones share it.
#[derive(Clone, Default)]
pub struct Pool(Arc<Free>);

#[derive(Default)]
struct Free {
    blocks: Mutex<Vec<Vec<Line>>>,
    /// Blocks that are kept.
    most: usize,
    /// The process that it was made in.
    process: u32,
}

impl Pool {
    /// One that keeps at most so many blocks that nobody uses.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Free { most, process: process::id(), ..Free::default() }))
    }

    /// Whether it was made by [`Pool::new`] with that number in this process.
    fn is_of(&self, most: usize) -> bool {
        self.0.most == most && self.0.process == process::id()
    }

    /// `bytes` bytes that hold anything: the smallest free block that is large enough and no more
    /// than four times as large, or a new one with an eighth to spare.
    pub fn lend(&self, bytes: usize) -> Lease {
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

/// The pool of the epochs so far: the next one starts with memory that has been touched.
#[derive(Default)]
pub struct Kept(Mutex<Option<Pool>>);

impl Kept {
    /// The pool, or a new one where it keeps another number of blocks, is another process's, or
    /// somebody else is asking.
    pub fn pool(&self, most: usize) -> Pool {
        let Ok(mut kept) = self.0.try_lock() else { return Pool::new(most) };
        match &*kept {
            Some(pool) if pool.is_of(most) => pool.clone(),
            _ => kept.insert(Pool::new(most)).clone(),
        }
    }
}

/// A run of bytes that goes back to its pool when it is dropped.
pub struct Lease {
    block: Vec<Line>,
    bytes: usize,
    home: Pool,
}

impl Lease {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.block)[..self.bytes]
    }

    /// The bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.block)[..self.bytes]
    }

    /// The bytes as values.
    ///
    /// # Panics
    /// The length is no multiple of the value's.
    pub fn of<T: Pod>(&self) -> &[T] {
        bytemuck::cast_slice(self.bytes())
    }

    /// The bytes as values.
    ///
    /// # Panics
    /// The length is no multiple of the value's.
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
        if blocks.len() > self.home.0.most {
            // the one that came back first is the least likely to fit what comes now
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
    fn memory_comes_back_and_is_bounded() {
        let pool = Pool::new(2);
        let first = pool.lend(100_000);
        let at = first.bytes().as_ptr();
        drop(first);
        // a little more still fits, much less does not waste it
        let mut second = pool.lend(105_000);
        assert_eq!(second.bytes().as_ptr(), at);
        assert_eq!((second.of::<u64>().len(), at.align_offset(LINE)), (13_125, 0));
        second.of_mut::<i64>()[0] = -1;
        assert_eq!(second.bytes()[7], 255);
        drop(second);
        assert_ne!(pool.lend(1000).bytes().as_ptr(), at);
        let many: Vec<Lease> = (0..5).map(|_| pool.lend(10)).collect();
        drop(many);
        assert_eq!(pool.0.blocks.lock().unwrap().len(), 2);
        assert!(pool.lend(0).bytes().is_empty());
    }

    #[test]
    fn the_next_epoch_has_the_memory_of_the_last() {
        let kept = Kept::default();
        let lease = kept.pool(3).lend(100_000);
        let at = lease.bytes().as_ptr();
        drop(lease);
        assert_eq!(kept.pool(3).lend(100_000).bytes().as_ptr(), at);
        // of another size: a pool of its own, and the old one is gone
        let other = kept.pool(4);
        assert!(other.0.blocks.lock().unwrap().is_empty());
        assert!(Arc::ptr_eq(&other.0, &kept.pool(4).0));
    }
}
