//! Interface of a device driver: memory, copies, streams, kernels. It has two implementations: the
//! vendor's driver ([`nvidia`]) and, for tests, the CPU (`shim`, with the feature of that name),
//! which runs the same kernels.
//!
//! Everything above this trait is the same for both, so tests without a device cover all code
//! except the vendor's.

#![allow(unsafe_code, reason = "device memory and kernels")]

pub mod nvidia;
#[cfg(feature = "shim")]
pub mod shim;

use std::ffi::c_void;

use crate::Result;

/// Address in a device's memory, or in host memory as seen by a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address(pub u64);

impl Address {
    /// The address `bytes` bytes after this one.
    pub fn offset(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }
}

/// Queue of work that runs in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stream(pub u64);

/// Point in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event(pub u64);

/// Kernel found by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kernel(pub u64);

/// Captured work that can be launched repeatedly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Graph(pub u64);

/// Page-locked host memory that a device reads and writes in place.
#[derive(Clone, Copy, Debug)]
pub struct HostMemory {
    /// Address on the host.
    pub pointer: *mut u8,
    /// Address on the device.
    pub address: Address,
}

/// Properties of a device.
#[derive(Clone, Debug)]
pub struct Properties {
    /// Name.
    pub name: String,
    /// Bytes of memory.
    pub memory: u64,
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Compute capability: major and minor number.
    pub capability: (u32, u32),
    /// Maximum bytes of shared memory per block.
    pub shared: u32,
}

/// Number of threads of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks in each dimension.
    pub grid: [u32; 3],
    /// Threads per block in each dimension.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory per block.
    pub shared: u32,
}

/// Precision of a product's factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// 32-bit floats throughout.
    F32,
    /// Factors rounded to a mantissa of 10 bits, sums in f32.
    Tf32,
    /// Factors rounded to bf16, sums in f32.
    Bf16,
}

/// `c = beta c + op(a) op(b)`, row-major f32: `c` is `m x n`, `op(a)` `m x k`, `op(b)` `k x n`.
/// Rows of stored matrices are `lda`, `ldb` and `ldc` values apart, and `batch` such products are
/// `strides` values (of `a`, `b`, `c`) apart.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the formula names them")]
pub struct Product {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: Address,
    pub lda: usize,
    pub transpose_a: bool,
    pub b: Address,
    pub ldb: usize,
    pub transpose_b: bool,
    pub beta: f32,
    pub c: Address,
    pub ldc: usize,
    pub batch: usize,
    pub strides: [usize; 3],
    pub arithmetic: Arithmetic,
}

/// Library that sums over several devices of one process.
///
/// ```
/// # #[cfg(feature = "shim")]
/// # {
/// use graphmill_cuda::driver::{Driver, shim};
///
/// let device = shim::open(0, shim::Options::default());
/// let collective = device.collective(&[0])?;
/// assert_eq!(collective.name(), "the shim, by rank");
/// # }
/// # Ok::<(), graphmill_cuda::Error>(())
/// ```
pub trait Collective: Send + Sync {
    /// Name and version.
    fn name(&self) -> &str;

    /// Replaces f32 values of every rank by their sums over all ranks, in place: sum `i` covers
    /// `counts[i]` values from the `i`-th address of each rank on. Only queues work in the ranks'
    /// streams. All ranks receive the same bits.
    ///
    /// # Errors
    /// The library fails.
    ///
    /// # Safety
    /// Each address is valid for that many values on the rank's device until the rank's stream has
    /// done the work.
    unsafe fn sum(&self, ranks: &[(Vec<Address>, Stream)], counts: &[usize]) -> Result<()>;
}

/// Driver of a device. Calls that name a stream only queue work there.
///
/// # Safety
/// For the unsafe calls: addresses and lengths are valid for this driver until the stream has done
/// the work, and arguments match the kernel's signature.
///
/// ```
/// # #[cfg(feature = "shim")]
/// # {
/// use graphmill_cuda::driver::{Driver, shim};
///
/// let device = shim::open(0, shim::Options::default());
/// let (at, stream) = (device.allocate(8)?, device.stream(false)?);
/// let mut words = [0u32; 2];
/// // SAFETY: both are 8 bytes, and the device's memory is freed after its work is done.
/// unsafe {
///     device.fill(at, 7, 2, stream)?;
///     device.download(at, words.as_mut_ptr().cast(), 8, stream)?;
///     device.synchronize(stream)?;
///     device.free(at);
/// }
/// assert_eq!(words, [7, 7]);
/// # }
/// # Ok::<(), graphmill_cuda::Error>(())
/// ```
pub trait Driver: Send + Sync {
    /// Properties of the device.
    fn properties(&self) -> &Properties;

    /// Free bytes, and all bytes.
    ///
    /// # Errors
    /// The driver fails, as in all following methods.
    fn memory(&self) -> Result<(u64, u64)>;

    /// Allocates device memory, aligned to 256 bytes.
    ///
    /// # Errors
    /// Memory is insufficient ([`crate::Error::OutOfMemory`]).
    fn allocate(&self, bytes: usize) -> Result<Address>;

    /// Frees memory of [`Driver::allocate`] after all queued work is done.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn free(&self, at: Address);

    /// Allocates zeroed, page-locked host memory that the device reads and writes in place.
    ///
    /// # Errors
    /// Memory is insufficient.
    fn allocate_host(&self, bytes: usize) -> Result<HostMemory>;

    /// Frees memory of [`Driver::allocate_host`].
    ///
    /// # Safety
    /// See the trait.
    unsafe fn free_host(&self, memory: HostMemory);

    /// Page-locks existing host memory, maps it for the device to read, and returns its device
    /// address.
    ///
    /// # Errors
    /// The system cannot lock this memory (for example a mapped file).
    ///
    /// # Safety
    /// The memory is valid until [`Driver::unregister`].
    unsafe fn register(&self, at: *const u8, bytes: usize) -> Result<Address>;

    /// Reverts [`Driver::register`].
    ///
    /// # Safety
    /// See the trait.
    unsafe fn unregister(&self, at: *const u8);

    /// Creates a stream; `urgent` streams run before others.
    ///
    /// # Errors
    /// See above.
    fn stream(&self, urgent: bool) -> Result<Stream>;

    /// Destroys a stream after all its work is done.
    ///
    /// # Safety
    /// The stream is not used again.
    unsafe fn destroy_stream(&self, stream: Stream);

    /// Waits until all work of a stream is done.
    ///
    /// # Errors
    /// A kernel failed.
    fn synchronize(&self, stream: Stream) -> Result<()>;

    /// Creates an event; [`Driver::seconds_between`] requires `timed` events.
    ///
    /// # Errors
    /// See above.
    fn event(&self, timed: bool) -> Result<Event>;

    /// Destroys an event.
    ///
    /// # Safety
    /// The event is not used again.
    unsafe fn destroy_event(&self, event: Event);

    /// Returns true if the work before a recorded event is done. Does not wait.
    ///
    /// # Errors
    /// See above.
    fn is_done(&self, event: Event) -> Result<bool>;

    /// Records the work queued in the stream so far in the event.
    ///
    /// # Errors
    /// See above.
    fn record(&self, event: Event, stream: Stream) -> Result<()>;

    /// Makes later work of the stream wait for the event.
    ///
    /// # Errors
    /// See above.
    fn wait(&self, stream: Stream, event: Event) -> Result<()>;

    /// Seconds between two events; waits for the second.
    ///
    /// # Errors
    /// See above.
    fn seconds_between(&self, from: Event, to: Event) -> Result<f64>;

    /// Copies from host to device. Memory that is not page-locked may be reused when this returns.
    ///
    /// # Errors
    /// See above.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn upload(&self, from: *const u8, to: Address, bytes: usize, stream: Stream) -> Result<()>;

    /// Copies from device to host; the data is complete after [`Driver::synchronize`].
    ///
    /// # Errors
    /// See above.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn download(&self, from: Address, to: *mut u8, bytes: usize, stream: Stream) -> Result<()>;

    /// Copies within the device, or between devices with access to each other
    /// ([`Driver::enable_peer`]).
    ///
    /// # Errors
    /// See above.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn copy(&self, from: Address, to: Address, bytes: usize, stream: Stream) -> Result<()>;

    /// Sets 32-bit words.
    ///
    /// # Errors
    /// See above.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn fill(&self, at: Address, word: u32, words: usize, stream: Stream) -> Result<()>;

    /// Finds a kernel by its name in the source.
    ///
    /// # Errors
    /// The kernel does not exist: a bug.
    fn kernel(&self, name: &str) -> Result<Kernel>;

    /// Launches a kernel; `arguments` point to the values of its parameters, which are copied
    /// before this returns.
    ///
    /// # Errors
    /// See above.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn launch(
        &self,
        kernel: Kernel,
        shape: Shape,
        arguments: &mut [*mut c_void],
        stream: Stream,
    ) -> Result<()>;

    /// Returns true if the vendor's library is available and supports this product.
    fn multiplies(&self, product: &Product) -> bool;

    /// Computes a dense product by the vendor's library. Returns false, without any effect, if it
    /// is not available.
    ///
    /// # Errors
    /// See above.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn product(&self, product: &Product, stream: Stream) -> Result<bool>;

    /// Enables reads of the memory of device `other`. Returns false if the hardware does not
    /// support it.
    ///
    /// # Errors
    /// See above.
    fn enable_peer(&self, other: usize) -> Result<bool>;

    /// Creates sums over the devices of these numbers; ranks are indices into the list.
    ///
    /// # Errors
    /// No library is available ([`crate::Error::Unavailable`]), or it fails.
    fn collective(&self, devices: &[usize]) -> Result<Box<dyn Collective>>;

    /// Captures what this thread queues in the stream from now on instead of running it: kernels,
    /// copies on the device, fills, products. During a capture, no thread may wait for the stream
    /// or for the whole device.
    ///
    /// # Errors
    /// The driver does not support capture.
    fn begin_capture(&self, stream: Stream) -> Result<()>;

    /// Ends the capture, on the same thread. The stream accepts work again, even if this fails.
    ///
    /// # Errors
    /// An operation cannot be captured or replayed.
    fn end_capture(&self, stream: Stream) -> Result<Graph>;

    /// Runs captured work, with the addresses and values of the capture.
    ///
    /// # Errors
    /// See above.
    ///
    /// # Safety
    /// See the trait, for all captured work.
    unsafe fn launch_graph(&self, graph: Graph, stream: Stream) -> Result<()>;

    /// Destroys a graph after it has run.
    ///
    /// # Safety
    /// The graph is not used again.
    unsafe fn destroy_graph(&self, graph: Graph);
}
