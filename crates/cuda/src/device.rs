//! A device: its driver, its kernels, the part of its memory that may be used, and its first
//! failure.

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

/// Threads of a block of most kernels.
pub const THREADS: u32 = 256;
/// Bytes of a device that are left to its driver, at most.
const DRIVERS_OWN: u64 = 1 << 30;
/// Lanes of a warp.
pub const WARP: u32 = 32;

/// Memory of a device that is kept for later.
pub(crate) trait MemoryCache: Send + Sync {
    /// Gives unused memory back to the driver.
    ///
    /// # Errors
    /// A kernel failed.
    fn trim(&self) -> Result<()>;
}

/// A device of this process.
pub struct Device {
    /// Of all devices of this process.
    number: usize,
    /// Of the driver's devices.
    index: usize,
    name: String,
    driver: Replay,
    /// Bytes that may be taken from the driver.
    budget: u64,
    taken: AtomicU64,
    most: AtomicU64,
    kernels: RwLock<HashMap<&'static str, Kernel>>,
    failure: OnceLock<Error>,
    /// Those of its queues, which keep freed memory.
    caches: Mutex<Vec<Weak<dyn MemoryCache>>>,
    /// Which other devices it reads.
    reached: Mutex<HashMap<usize, bool>>,
    /// The stream that trains: what others made ready for it is freed when it is done.
    pub(crate) compute: Mutex<Option<Stream>>,
}

impl Device {
    /// Device `index` of a driver, of whose memory at most `budget` bytes are used (0: all that is
    /// free).
    ///
    /// # Errors
    /// The driver fails.
    pub fn new(driver: Arc<dyn Driver>, index: usize, budget: u64) -> Result<Arc<Self>> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let (free, _) = driver.memory()?;
        // what the driver and its libraries take later: code of kernels, workspaces of products
        let free = free - (free / 32).min(DRIVERS_OWN);
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

    /// Its number among all devices of this process.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Its number among the driver's devices.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Its name: `cuda:0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is.
    pub fn properties(&self) -> &Properties {
        self.driver.properties()
    }

    /// Its driver.
    pub fn driver(&self) -> &dyn Driver {
        &self.driver
    }

    /// The driver as who records the steps of a stream.
    pub(crate) fn replay(&self) -> &Replay {
        &self.driver
    }

    /// What became of the steps that came again.
    pub fn replayed(&self) -> Counts {
        self.driver.counts()
    }

    /// Whether it reads the memory of another device of this process itself. Asked of the driver
    /// once a pair.
    pub(crate) fn reaches(&self, other: &Self) -> bool {
        if self.number == other.number {
            return true;
        }
        let mut reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        *reached.entry(other.number).or_insert_with(|| self.driver.enable_peer(other.index).unwrap_or(false))
    }

    /// Bytes that may be used in all.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Bytes taken from the driver now, and the most that ever were.
    pub fn taken(&self) -> (u64, u64) {
        (self.taken.load(Relaxed), self.most.load(Relaxed))
    }

    /// Memory from the driver, within the budget.
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

    /// Gives memory of [`Device::take`] back.
    ///
    /// # Safety
    /// Nothing that is queued or will be uses it.
    pub(crate) unsafe fn give(&self, at: Address, bytes: u64) {
        // SAFETY: the caller's promise
        unsafe { self.driver.free(at) };
        self.taken.fetch_sub(bytes, Relaxed);
    }

    /// Trims this memory with [`Device::trim`] from now on.
    pub(crate) fn add_cache(&self, cache: Weak<dyn MemoryCache>) {
        let mut caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        caches.retain(|cache| cache.strong_count() > 0);
        caches.push(cache);
    }

    /// Gives unused memory that queues keep back to the driver.
    ///
    /// # Errors
    /// A kernel failed.
    pub fn trim(&self) -> Result<()> {
        let caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner).clone();
        caches.iter().filter_map(Weak::upgrade).try_for_each(|cache| cache.trim())
    }

    /// A stream that trained and goes.
    pub(crate) fn forget_stream(&self, stream: Stream) {
        let mut compute = self.compute.lock().unwrap_or_else(PoisonError::into_inner);
        if *compute == Some(stream) {
            *compute = None;
        }
    }

    /// Remembers the first failure.
    pub(crate) fn fail(&self, error: Error) {
        let _ = self.failure.set(error);
    }

    /// Whether something failed: what follows does nothing.
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    /// # Errors
    /// The first failure of work that has no result to say so.
    pub fn check(&self) -> Result<()> {
        self.failure.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The stream whose work is behind whatever was made ready for it.
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
    /// The driver refuses it.
    ///
    /// # Safety
    /// `arguments` are what the kernel's signature says: addresses of as much live memory as it
    /// reads and writes for this shape, which stays until the stream has run it.
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
        // where late values are comes last
        let count = arguments.len() + usize::from(late != 0);
        // SAFETY: the caller's promise
        unsafe { self.driver.launch(kernel, shape, &mut values[..count], late, stream) }
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.name)
    }
}

/// The value of a kernel's parameter.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the type is the parameter's")]
pub enum Argument {
    Pointer(Address),
    U64(u64),
    U32(u32),
    I32(i32),
    F32(f32),
    /// One that is another from step to step: see [`Late`].
    Late(u64),
}

/// A value that is another whenever the same launch comes again. A kernel that takes such values
/// has one more parameter, the last: where they are, a word of 64 bits each in the order of the
/// parameters, or null, where they are those that it was started with (`kernels/common.cuh`).
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

/// A count or a size: 64 bits.
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

/// The arguments of a kernel, each by its type: `usize` and `u64` are 64 bits wide there, `u32`,
/// `i32` and `f32` 32.
#[macro_export]
macro_rules! arguments {
    ($($value:expr),* $(,)?) => { &[$($crate::device::Argument::from($value)),*] };
}
