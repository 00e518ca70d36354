//! Benchmark of an NVIDIA device: copies within its memory and over its link, and dense products.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::{sync::Arc, time::Instant};

use graphmill_cuda::{
    Buffer, Queue,
    driver::{Arithmetic, HostMemory, Product},
};

use super::Gpu;
use crate::Result;

/// Largest number of bytes to copy; less on a device with a small budget, of which copies use 1/16.
const MAX_BYTES: usize = 1 << 30;
/// Largest number of rows and columns of the multiplied matrices.
const MAX_SIDE: usize = 8192;
/// Least seconds of a run.
const MIN_SECONDS: f64 = 0.02;

/// Benchmark of a device.
pub(crate) struct Meter {
    queue: Arc<Queue>,
    bytes: usize,
}

impl Meter {
    pub(crate) fn new(gpu: &Gpu) -> Self {
        let queue = gpu.backend.queue();
        let bytes = (queue.device().budget() / 16).min(MAX_BYTES as u64) as usize;
        Self { queue: queue.clone(), bytes: bytes / 4096 * 4096 }
    }

    /// Mean seconds of a call in each of `repeat` runs, after a warm-up run.
    fn seconds(&self, repeat: usize, mut work: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
        let mut run = |calls: usize| -> Result<f64> {
            self.queue.synchronize()?;
            let clock = Instant::now();
            (0..calls).try_for_each(|_| work())?;
            self.queue.synchronize()?;
            Ok(clock.elapsed().as_secs_f64() / calls as f64)
        };
        run(1)?;
        let calls = (MIN_SECONDS / run(1)?.max(1e-9)).ceil().max(1.0) as usize;
        (0..repeat).map(|_| run(calls)).collect()
    }

    /// Bytes read and written by a copy within the device's memory, and the seconds of each run.
    pub(crate) fn copy(&self, repeat: usize) -> Result<(f64, Vec<f64>)> {
        let (from, to) = (self.queue.take::<u8>(self.bytes)?, self.queue.take::<u8>(self.bytes)?);
        let driver = self.queue.device().driver();
        let copy = || {
            // SAFETY: both have `self.bytes` bytes, and live until the work is done
            Ok(unsafe { driver.copy(from.address(), to.address(), self.bytes, self.queue.stream()) }?)
        };
        Ok((2.0 * self.bytes as f64, self.seconds(repeat, copy)?))
    }

    /// Bytes of a copy from page-locked host memory, and the seconds of each run.
    pub(crate) fn link(&self, repeat: usize) -> Result<(f64, Vec<f64>)> {
        let to = self.queue.take::<u8>(self.bytes)?;
        let from = Locked::new(&self.queue, self.bytes)?;
        let driver = self.queue.device().driver();
        let upload = || {
            // SAFETY: both have `self.bytes` bytes, and live until the work is done
            Ok(unsafe { driver.upload(from.memory.pointer, to.address(), self.bytes, self.queue.stream()) }?)
        };
        Ok((self.bytes as f64, self.seconds(repeat, upload)?))
    }

    /// Operations of a square product by the vendor's library, and the seconds of each run; `None`
    /// if the library is not installed.
    pub(crate) fn product(&self, arithmetic: Arithmetic, repeat: usize) -> Result<Option<(f64, Vec<f64>)>> {
        let n = ((self.bytes / 4) as f64).sqrt().min(MAX_SIDE as f64) as usize / 64 * 64;
        if n == 0 {
            return Ok(None);
        }
        let side: Vec<f32> = (0..n * n).map(|i| (i % 257) as f32 / 257.0 - 0.5).collect();
        let (a, b, c) = (self.queue.upload(&side)?, self.queue.upload(&side)?, self.queue.take(n * n)?);
        let at = Buffer::address;
        let product = Product {
            m: n,
            n,
            k: n,
            a: at(&a),
            lda: n,
            transpose_a: false,
            b: at(&b),
            ldb: n,
            transpose_b: false,
            beta: 0.0,
            c: at(&c),
            ldc: n,
            batch: 1,
            strides: [0; 3],
            arithmetic,
        };
        let mut is_there = true;
        let times = self.seconds(repeat, || {
            // SAFETY: the three are n x n, and live until the work is done
            is_there &= unsafe { self.queue.device().driver().product(&product, self.queue.stream()) }?;
            Ok(())
        })?;
        Ok(is_there.then_some((2.0 * (n as f64).powi(3), times)))
    }
}

/// Page-locked memory that is freed when dropped.
struct Locked<'q> {
    queue: &'q Queue,
    memory: HostMemory,
}

impl<'q> Locked<'q> {
    fn new(queue: &'q Queue, bytes: usize) -> Result<Self> {
        Ok(Self { queue, memory: queue.device().driver().allocate_host(bytes)? })
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // if the device failed, it may still read the memory, which is then not freed
        if self.queue.synchronize().is_ok() {
            // SAFETY: the queue's work is done, and only this value holds the memory
            unsafe { self.queue.device().driver().free_host(self.memory) };
        }
    }
}
