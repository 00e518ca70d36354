//! A device: its driver, its kernels, its memory budget, and its first failure.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use crate::{
    Error, Result,
    driver::{Address, Driver, Kernel, Properties, Shape, Stream},
    kernels::Call,
    replay::{Counts, Replay},
};

/// Threads per block of most kernels.
pub const THREADS: u32 = 256;
/// Maximum number of bytes reserved for the driver.
const DRIVER_RESERVE: u64 = 1 << 30;
/// Lanes per warp.
pub const WARP: u32 = 32;

/// Unused memory of a device that is cached for later.
pub(crate) trait MemoryCache: Send + Sync {
    /// Returns unused memory to the driver.
    ///
    /// # Errors
    /// A kernel failed.
    fn trim(&self) -> Result<()>;
}

/// Device of this process.
pub struct Device {
    /// Number among all devices of this process.
    number: usize,
    /// Number among the driver's devices.
    index: usize,
    name: String,
    driver: Replay,
    /// Bytes that may be allocated from the driver.
    budget: u64,
    taken: AtomicU64,
    most: AtomicU64,
    kernels: RwLock<HashMap<&'static str, Kernel>>,
    failure: OnceLock<Error>,
    /// Its queues, which cache freed memory.
    caches: Mutex<Vec<Weak<dyn MemoryCache>>>,
    /// Other devices, with true if this device can read their memory.
    reached: Mutex<HashMap<usize, bool>>,
    /// The compute stream: memory prepared for it is reused after its work is done.
    pub(crate) compute: Mutex<Option<Stream>>,
}

impl Device {
    /// Opens device `index` of a driver, with a memory budget of `budget` bytes (0: all free
    /// memory).
    ///
    /// # Errors
    /// The driver fails.
    pub fn new(driver: Arc<dyn Driver>, index: usize, budget: u64) -> Result<Arc<Self>> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let (free, _) = driver.memory()?;
        // memory that the driver and its libraries allocate later: kernel code, workspaces of
        // products
        let free = free - (free / 32).min(DRIVER_RESERVE);
        let budget = if budget == 0 { free } else { budget.min(free) };
        Ok(Arc::new(Self {
            number: NUMBER.fetch_add(1, Relaxed),
            index,
            name: format!("cuda:{index}"),
            driver: Replay::new(driver),
            budget,
            taken: AtomicU64::new(0),
            most: AtomicU64::new(0),
            kernels: RwLock::default(),
            failure: OnceLock::new(),
            caches: Mutex::default(),
            reached: Mutex::default(),
            compute: Mutex::new(None),
        }))
    }

    /// Number among all devices of this process.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Number among the driver's devices.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Name, such as `cuda:0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Properties of the device.
    pub fn properties(&self) -> &Properties {
        self.driver.properties()
    }

    /// Driver of the device.
    pub fn driver(&self) -> &dyn Driver {
        &self.driver
    }

    /// The driver, with the recording of a stream's steps.
    pub(crate) fn replay(&self) -> &Replay {
        &self.driver
    }

    /// Counts of replayed steps.
    pub fn replayed(&self) -> Counts {
        self.driver.counts()
    }

    /// Returns true if this device can read the memory of another device of this process. The
    /// driver is queried once per pair.
    pub(crate) fn reaches(&self, other: &Self) -> bool {
        if self.number == other.number {
            return true;
        }
        let mut reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        *reached.entry(other.number).or_insert_with(|| self.driver.enable_peer(other.index).unwrap_or(false))
    }

    /// Memory budget in bytes.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Bytes allocated from the driver now, and their maximum so far.
    pub fn taken(&self) -> (u64, u64) {
        (self.taken.load(Relaxed), self.most.load(Relaxed))
    }

    /// Allocates memory from the driver, within the budget.
    pub(crate) fn take(&self, bytes: u64) -> Result<Address> {
        let fits = |taken: u64| taken.checked_add(bytes).filter(|&all| all <= self.budget);
        let before = self.taken.fetch_update(Relaxed, Relaxed, fits).map_err(|taken| Error::OutOfMemory {
            device: self.name.clone(),
            bytes,
            free: self.budget.saturating_sub(taken),
            budget: self.budget,
        })?;
        self.most.fetch_max(before + bytes, Relaxed);
        self.driver.allocate(bytes as usize).inspect_err(|_| {
            self.taken.fetch_sub(bytes, Relaxed);
        })
    }

    /// Frees memory of [`Device::take`].
    ///
    /// # Safety
    /// No queued or later work uses it.
    pub(crate) unsafe fn give(&self, at: Address, bytes: u64) {
        // SAFETY: by the caller's guarantee
        unsafe { self.driver.free(at) };
        self.taken.fetch_sub(bytes, Relaxed);
    }

    /// Registers a cache that [`Device::trim`] empties.
    pub(crate) fn add_cache(&self, cache: Weak<dyn MemoryCache>) {
        let mut caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        caches.retain(|cache| cache.strong_count() > 0);
        caches.push(cache);
    }

    /// Returns unused memory that queues cache to the driver.
    ///
    /// # Errors
    /// A kernel failed.
    pub fn trim(&self) -> Result<()> {
        let caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner).clone();
        caches.iter().filter_map(Weak::upgrade).try_for_each(|cache| cache.trim())
    }

    /// Unregisters a compute stream that is being destroyed.
    pub(crate) fn forget_stream(&self, stream: Stream) {
        let mut compute = self.compute.lock().unwrap_or_else(PoisonError::into_inner);
        if *compute == Some(stream) {
            *compute = None;
        }
    }

    /// Stores the first failure.
    pub(crate) fn fail(&self, error: Error) {
        let _ = self.failure.set(error);
    }

    /// Returns true if an operation failed; later operations are no-ops.
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    /// Returns the first failure of work that cannot return it directly.
    ///
    /// # Errors
    /// The first failure.
    pub fn check(&self) -> Result<()> {
        self.failure.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The compute stream, if any.
    pub(crate) fn compute_stream(&self) -> Option<Stream> {
        *self.compute.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kernel(&self, name: &'static str) -> Result<Kernel> {
        let kernels = self.kernels.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(&kernel) = kernels.get(name) {
            return Ok(kernel);
        }
        drop(kernels);
        let kernel = self.driver.kernel(name)?;
        self.kernels.write().unwrap_or_else(PoisonError::into_inner).insert(name, kernel);
        Ok(kernel)
    }

    /// Queues a kernel.
    ///
    /// # Errors
    /// The driver rejects it.
    ///
    /// # Safety
    /// Addresses are valid for all memory that the kernel accesses with this shape, until the
    /// stream has run it. The types of the arguments are those of the kernel's parameters
    /// ([`crate::kernels`]).
    pub(crate) unsafe fn launch(&self, shape: Shape, mut call: Call, stream: Stream) -> Result<()> {
        if shape.grid.contains(&0) || shape.block.contains(&0) {
            return Ok(());
        }
        let kernel = self.kernel(call.name())?;
        let (values, late) = call.values();
        // SAFETY: by the caller's guarantee
        unsafe { self.driver.launch(kernel, shape, values, late, stream) }
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.name)
    }
}
