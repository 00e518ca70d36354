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
    replay::{Counts, PARAMETERS, Replay},
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
    /// `arguments` match the kernel's signature: addresses are valid for all memory that the kernel
    /// accesses with this shape, until the stream has run it.
    pub unsafe fn launch(
        &self,
        name: &'static str,
        shape: Shape,
        arguments: &[Argument],
        stream: Stream,
    ) -> Result<()> {
        if shape.grid.contains(&0) || shape.block.contains(&0) {
            return Ok(());
        }
        let kernel = self.kernel(name)?;
        let mut values = [0u64; PARAMETERS];
        assert!(arguments.len() < PARAMETERS, "{name}: {} arguments", arguments.len());
        let mut late = 0;
        for (i, (argument, value)) in arguments.iter().zip(&mut values).enumerate() {
            // little-endian: a 32-bit parameter is read from the value's first bytes
            *value = argument.bits();
            late |= u32::from(matches!(argument, Argument::Late(_))) << i;
        }
        // the address of the late-bound values is the last parameter
        let count = arguments.len() + usize::from(late != 0);
        // SAFETY: by the caller's guarantee
        unsafe { self.driver.launch(kernel, shape, &mut values[..count], late, stream) }
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.name)
    }
}

/// Value of a kernel's parameter.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "each variant is the type of a parameter")]
pub enum Argument {
    Pointer(Address),
    U64(u64),
    U32(u32),
    I32(i32),
    F32(f32),
    /// A late-bound value: see [`Late`].
    Late(u64),
}

/// Late-bound kernel argument, which may differ each time the same launch is replayed. A kernel
/// with such arguments has one more parameter, the last: the address of their values, a 64-bit word
/// each in parameter order, or null if they are those of the launch itself (`kernels/common.cuh`).
#[derive(Clone, Copy, Debug)]
pub struct Late<T>(pub T);

impl Argument {
    fn bits(self) -> u64 {
        match self {
            Self::Pointer(at) => at.0,
            Self::U64(x) => x,
            Self::U32(x) => x.into(),
            Self::I32(x) => u64::from(x as u32),
            Self::F32(x) => x.to_bits().into(),
            Self::Late(bits) => bits,
        }
    }
}

impl From<Address> for Argument {
    fn from(at: Address) -> Self {
        Self::Pointer(at)
    }
}

impl From<u64> for Argument {
    fn from(x: u64) -> Self {
        Self::U64(x)
    }
}

/// A count or size, in 64 bits.
impl From<usize> for Argument {
    fn from(x: usize) -> Self {
        Self::U64(x as u64)
    }
}

impl From<u32> for Argument {
    fn from(x: u32) -> Self {
        Self::U32(x)
    }
}

impl From<i32> for Argument {
    fn from(x: i32) -> Self {
        Self::I32(x)
    }
}

impl From<f32> for Argument {
    fn from(x: f32) -> Self {
        Self::F32(x)
    }
}

impl From<Late<u64>> for Argument {
    fn from(Late(x): Late<u64>) -> Self {
        Self::Late(x)
    }
}

impl From<Late<f32>> for Argument {
    fn from(Late(x): Late<f32>) -> Self {
        Self::Late(x.to_bits().into())
    }
}

/// Builds a kernel's arguments from typed values: `usize` and `u64` are 64 bits wide in the kernel;
/// `u32`, `i32` and `f32` are 32.
#[macro_export]
macro_rules! arguments {
    ($($value:expr),* $(,)?) => { &[$($crate::device::Argument::from($value)),*] };
}
