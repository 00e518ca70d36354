//! A stream with its own memory pool. Freed memory is reused in the stream's order, so an
//! allocation never waits for the device.
//!
//! Memory that leaves the queue, such as rows and blocks that the compute stream reads, is reused
//! after the compute stream has finished with it.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::{
    any::Any,
    collections::{BTreeMap, VecDeque},
    marker::PhantomData,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use graphmill_core::accelerator::{Accelerator, DeviceMemory};

use crate::{
    Device, Result,
    device::{MemoryCache, THREADS},
    driver::{Address, Event, Shape, Stream},
    kernels::{Call, In, Kernel, Out},
};

/// Memory is allocated in multiples of this size.
const GRAIN: u64 = 512;
/// Large memory is allocated in multiples of this size, so that a table that fills a device is not
/// rounded beyond it.
const LARGE_GRAIN: u64 = 2 << 20;

/// A stream and its memory. Sizes are rounded up so that at most an eighth is wasted, and freed
/// memory is reused for allocations of its rounded size.
pub struct Queue {
    device: Arc<Device>,
    stream: Stream,
    free_memory: Mutex<FreeMemory>,
}

/// Freed memory of a queue.
#[derive(Default)]
struct FreeMemory {
    /// Reusable memory, by size.
    free: BTreeMap<u64, Vec<Address>>,
    /// Memory that the compute stream may read until the event.
    pending: VecDeque<(Event, u64, Address)>,
    /// Events to record again.
    events: Vec<Event>,
}

impl FreeMemory {
    /// Makes memory reusable that the compute stream has finished with, or all of it if `all`.
    fn reclaim(&mut self, device: &Device, all: bool) -> Result<()> {
        while let Some(&(event, size, at)) = self.pending.front() {
            if !all && !device.driver().is_done(event)? {
                break;
            }
            self.pending.pop_front();
            self.events.push(event);
            self.free.entry(size).or_default().push(at);
        }
        Ok(())
    }
}

impl Queue {
    /// Creates a stream of the device.
    ///
    /// # Errors
    /// The driver fails.
    pub fn new(device: &Arc<Device>) -> Result<Arc<Self>> {
        Self::with_urgency(device, false)
    }

    fn with_urgency(device: &Arc<Device>, urgent: bool) -> Result<Arc<Self>> {
        let stream = device.driver().stream(urgent)?;
        let queue = Arc::new(Self { device: device.clone(), stream, free_memory: Mutex::default() });
        let cache: Weak<Self> = Arc::downgrade(&queue);
        device.add_cache(cache);
        Ok(queue)
    }

    /// Creates the compute stream, which has priority over all others: see [`Device`].
    ///
    /// # Errors
    /// The driver fails.
    pub fn compute(device: &Arc<Device>) -> Result<Arc<Self>> {
        let queue = Self::with_urgency(device, true)?;
        *device.compute.lock().unwrap_or_else(PoisonError::into_inner) = Some(queue.stream);
        Ok(queue)
    }

    /// Device of the queue.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Stream of the queue.
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// Waits until all its work is done.
    ///
    /// # Errors
    /// A kernel or an earlier operation failed.
    pub fn synchronize(&self) -> Result<()> {
        self.device.driver().synchronize(self.stream)?;
        self.device.check()
    }

    /// Shape of `threads` threads, in as many blocks of [`THREADS`] as needed, up to a maximum
    /// (kernels stride).
    pub(crate) fn shape(&self, threads: usize) -> Shape {
        let most = 32 * self.device.properties().multiprocessors as usize;
        let blocks = threads.div_ceil(THREADS as usize).min(most.max(1)) as u32;
        Shape { grid: [blocks, 1, 1], block: [THREADS, 1, 1], shared: 0 }
    }

    /// Launches a kernel over `threads` threads.
    ///
    /// # Errors
    /// See [`Device::launch`].
    ///
    /// # Safety
    /// See [`Device::launch`].
    pub(crate) unsafe fn run(&self, threads: usize, kernel: &impl Kernel) -> Result<()> {
        // SAFETY: by the caller's guarantee
        unsafe { self.launch(self.shape(threads), kernel.call()) }
    }

    /// Launches a kernel.
    ///
    /// # Errors
    /// See [`Device::launch`].
    ///
    /// # Safety
    /// See [`Device::launch`].
    pub(crate) unsafe fn launch(&self, shape: Shape, call: Call) -> Result<()> {
        // SAFETY: by the caller's guarantee
        unsafe { self.device.launch(shape, call, self.stream) }
    }

    /// Allocates memory for values of unspecified content, for this stream and the compute stream.
    /// 0 bytes are not allocated.
    ///
    /// # Errors
    /// Memory is insufficient.
    pub fn take<T>(self: &Arc<Self>, values: usize) -> Result<Buffer<T>> {
        self.buffer(values, false)
    }

    /// Allocates memory for this stream alone.
    ///
    /// # Errors
    /// Memory is insufficient.
    pub fn scratch<T>(self: &Arc<Self>, values: usize) -> Result<Buffer<T>> {
        self.buffer(values, true)
    }

    fn buffer<T>(self: &Arc<Self>, values: usize, is_scratch: bool) -> Result<Buffer<T>> {
        let memory = self.allocate(values * size_of::<T>(), is_scratch)?;
        Ok(Buffer { memory, of: PhantomData })
    }

    fn allocate(self: &Arc<Self>, bytes: usize, is_scratch: bool) -> Result<Allocation> {
        let size = rounded(bytes as u64);
        let reused = {
            let mut memory = self.free_memory();
            memory.reclaim(&self.device, false)?;
            memory.free.get_mut(&size).and_then(Vec::pop)
        };
        let at = match reused {
            Some(at) => at,
            None if size == 0 => Address(0),
            // unused memory of all queues is returned before the device counts as full
            None => self.device.take(size).or_else(|_| {
                self.device.trim()?;
                self.device.take(size)
            })?,
        };
        Ok(Allocation { queue: self.clone(), at, bytes, size, is_scratch })
    }

    /// Copies values from the host.
    ///
    /// # Errors
    /// Memory is insufficient, or the driver fails.
    pub fn upload<T: bytemuck::NoUninit>(self: &Arc<Self>, values: &[T]) -> Result<Buffer<T>> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let buffer = self.take(values.len())?;
        if !bytes.is_empty() {
            // SAFETY: the buffer has this many bytes; the source has been read, or is locked, when
            // this returns
            unsafe {
                self.device.driver().upload(bytes.as_ptr(), buffer.address(), bytes.len(), self.stream)?
            };
        }
        Ok(buffer)
    }

    /// Copies values from the device after all work queued so far, and waits for them.
    ///
    /// # Errors
    /// The driver fails.
    ///
    /// # Safety
    /// This many values are at `from`.
    pub unsafe fn download<T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(
        &self,
        from: Address,
        to: &mut [T],
    ) -> Result<()> {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(to);
        if !bytes.is_empty() {
            // SAFETY: by the caller's guarantee; the target lives until the stream is done
            unsafe { self.device.driver().download(from, bytes.as_mut_ptr(), bytes.len(), self.stream)? };
        }
        self.device.driver().synchronize(self.stream)
    }

    /// Sorts free memory by address, so that the same sequence of allocations gives the same
    /// addresses.
    pub(crate) fn sort_free_memory(&self) {
        self.free_memory().free.values_mut().for_each(|all| all.sort_unstable());
    }

    fn free_memory(&self) -> MutexGuard<'_, FreeMemory> {
        self.free_memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes later work of this stream wait for the work of the compute stream.
    fn wait_for_compute(&self) -> Result<()> {
        let Some(compute) = self.device.compute_stream().filter(|&compute| compute != self.stream) else {
            return Ok(());
        };
        let driver = self.device.driver();
        let event = driver.event(false)?;
        let followed = driver.record(event, compute).and_then(|()| driver.wait(self.stream, event));
        // SAFETY: the driver keeps an event until its waiters are done
        unsafe { driver.destroy_event(event) };
        followed
    }
}

/// Waits for the work of this stream and of the compute stream.
impl MemoryCache for Queue {
    fn trim(&self) -> Result<()> {
        // locked while the streams are waited for, because memory freed meanwhile may still be read
        let mut memory = self.free_memory();
        self.device.driver().synchronize(self.stream)?;
        if let Some(compute) = self.device.compute_stream() {
            self.device.driver().synchronize(compute)?;
        }
        memory.reclaim(&self.device, true)?;
        for (size, all) in std::mem::take(&mut memory.free) {
            for at in all {
                // SAFETY: the memory is not in use, and all work that used it is done
                unsafe { self.device.give(at, size) };
            }
        }
        Ok(())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // memory that cannot be waited for is lost with the device
        if self.trim().is_ok() {
            let driver = self.device.driver();
            let memory = self.free_memory.get_mut().unwrap_or_else(PoisonError::into_inner);
            for event in memory.events.drain(..) {
                // SAFETY: the queue is being dropped, and nothing waits for the event
                unsafe { driver.destroy_event(event) };
            }
            self.device.forget_stream(self.stream);
            // SAFETY: its work is done, and the stream is not used again
            unsafe { driver.destroy_stream(self.stream) };
        }
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queue({}, {:?})", self.device.name(), self.stream)
    }
}

/// Rounds up to the next of eight steps between two powers of two, and to whole grains.
fn rounded(bytes: u64) -> u64 {
    let step = (bytes.next_power_of_two() / 16).clamp(GRAIN, LARGE_GRAIN);
    bytes.div_ceil(step) * step
}

/// Returns true if `len` of `bytes` bytes lie from `at` on; without a sum, which could wrap.
fn holds(bytes: usize, at: usize, len: usize) -> bool {
    bytes.checked_sub(len).is_some_and(|last| at <= last)
}

/// Memory of a queue.
#[derive(Debug)]
struct Allocation {
    queue: Arc<Queue>,
    at: Address,
    bytes: usize,
    size: u64,
    /// True if no other stream reads it.
    is_scratch: bool,
}

/// Memory of a queue for values of a type. After a drop, the queue reuses it behind the work queued
/// so far.
pub struct Buffer<T = u8> {
    memory: Allocation,
    of: PhantomData<fn() -> T>,
}

impl<T> Buffer<T> {
    /// Address of the memory.
    pub fn address(&self) -> Address {
        self.memory.at
    }

    /// The values, for kernels that read them.
    pub(crate) fn read(&self) -> In<T> {
        In::new(self.memory.at, self.len())
    }

    /// The values, for kernels that write them.
    pub(crate) fn write(&mut self) -> Out<T> {
        Out::new(self.memory.at, self.len())
    }

    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        self.memory.bytes / size_of::<T>()
    }

    /// Queue that owns the memory.
    pub fn queue(&self) -> &Arc<Queue> {
        &self.memory.queue
    }
}

impl<T: bytemuck::AnyBitPattern + bytemuck::NoUninit> Buffer<T> {
    /// Copies values to the host after all work of the queue so far, and waits for them.
    ///
    /// # Errors
    /// The driver fails.
    ///
    /// # Panics
    /// The memory has fewer values.
    pub fn download(&self, to: &mut [T]) -> Result<()> {
        let Allocation { queue, at, bytes, .. } = &self.memory;
        assert!(size_of_val(to) <= *bytes, "{} bytes of {bytes}", size_of_val(to));
        // SAFETY: the assertion above ensures this many values
        unsafe { queue.download(*at, to) }
    }
}

impl<T> std::fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.memory.fmt(f)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.size == 0 {
            return;
        }
        let Queue { device, stream: home, .. } = &*self.queue;
        let mut memory = self.queue.free_memory();
        let other = device.compute_stream().filter(|compute| !self.is_scratch && compute != home);
        let Some(compute) = other else {
            return memory.free.entry(self.size).or_default().push(self.at);
        };
        let event = memory.events.pop().map_or_else(|| device.driver().event(false), Ok);
        match event.and_then(|event| device.driver().record(event, compute).map(|()| event)) {
            Ok(event) => memory.pending.push_back((event, self.size, self.at)),
            Err(error) => device.fail(error), // the memory is not reused
        }
    }
}

impl<T: 'static> DeviceMemory for Buffer<T> {
    fn device(&self) -> usize {
        self.memory.queue.device.number()
    }

    fn bytes(&self) -> usize {
        self.memory.bytes
    }

    fn address(&self) -> u64 {
        self.memory.at.0
    }

    fn upload(&self, at: usize, from: &[u8]) {
        let Allocation { queue, at: begin, bytes, .. } = &self.memory;
        assert!(holds(*bytes, at, from.len()), "{} bytes at {at} of {bytes}", from.len());
        if from.is_empty() || queue.device.has_failed() {
            return;
        }
        let (driver, to) = (queue.device.driver(), begin.offset(at));
        // SAFETY: the assertion above ensures that the bytes fit; the source has been read, or is
        // locked, when this returns
        let done = unsafe { driver.upload(from.as_ptr(), to, from.len(), queue.stream) };
        done.unwrap_or_else(|error| queue.device.fail(error));
    }

    fn download(&self, at: usize, to: &mut [u8]) {
        let Allocation { queue, at: begin, bytes, .. } = &self.memory;
        assert!(holds(*bytes, at, to.len()), "{} bytes at {at} of {bytes}", to.len());
        if to.is_empty() || queue.device.has_failed() {
            return;
        }
        // the compute stream may have written it
        let done = queue.wait_for_compute().and_then(|()| {
            // SAFETY: the assertion above ensures this many bytes
            unsafe { queue.download(begin.offset(at), to) }
        });
        done.unwrap_or_else(|error| queue.device.fail(error));
    }

    fn copy_from(&self, other: &dyn DeviceMemory, bytes: usize) -> bool {
        let Some(other) = other.as_any().downcast_ref::<Allocation>() else { return false };
        let Allocation { queue, at, bytes: size, .. } = &self.memory;
        assert!(bytes <= *size.min(&other.bytes), "{bytes} bytes of {size} and {}", other.bytes);
        let (device, there) = (&queue.device, &other.queue.device);
        if device.has_failed() || bytes == 0 || !device.reaches(there) {
            return bytes == 0;
        }
        // the other stream finishes with the bytes before this one reads, and this one before the
        // other writes again
        let copied = other.queue.wait_for_compute().and_then(|()| other.queue.synchronize()).and_then(|()| {
            // SAFETY: both have this size; the source is valid until the copy is done, which is
            // waited for
            unsafe { device.driver().copy(other.at, *at, bytes, queue.stream)? };
            queue.synchronize()
        });
        copied.unwrap_or_else(|error| device.fail(error));
        true
    }

    /// The memory without the values' type, so that buffers of any types copy from each other.
    fn as_any(&self) -> &dyn Any {
        &self.memory
    }
}

/// Memory of a queue as an allocator for matrices.
#[derive(Clone, Debug)]
pub struct Memory(pub Arc<Queue>);

impl Accelerator for Memory {
    fn device(&self) -> usize {
        self.0.device.number()
    }

    fn allocate(&self, bytes: usize) -> Option<Arc<dyn DeviceMemory>> {
        match self.0.take::<u8>(bytes) {
            Ok(buffer) => Some(Arc::new(buffer)),
            Err(error) => {
                self.0.device.fail(error);
                None
            }
        }
    }

    fn read_only(&self, bytes: &[u8]) -> Option<Arc<dyn DeviceMemory>> {
        match self.0.upload(bytes) {
            Ok(buffer) => Some(Arc::new(buffer)),
            Err(error) => {
                self.0.device.fail(error);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_whose_positions_would_wrap_are_outside() {
        assert!(holds(8, 0, 8) && holds(8, 8, 0) && holds(8, 5, 3));
        assert!(!holds(8, 6, 3) && !holds(8, 9, 0) && !holds(8, usize::MAX, 1) && !holds(8, 1, usize::MAX));
    }

    #[test]
    fn rounding_wastes_at_most_an_eighth() {
        assert_eq!([0, 1, 512, 513].map(rounded), [0, 512, 512, 1024]);
        assert_eq!(rounded(69 << 30), 69 << 30);
        assert_eq!(rounded((69 << 30) + 1), (69 << 30) + LARGE_GRAIN);
        for bytes in (4096..1 << 22).step_by(4999) {
            let size = rounded(bytes);
            assert!(size >= bytes && size - bytes <= bytes / 8, "{bytes} to {size}");
        }
    }
}
