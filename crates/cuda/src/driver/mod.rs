//! What the crate asks of a device: memory, copies, streams, kernels. There are two answers, the
//! vendor's driver ([`nvidia`]) and, for tests, the processor (`shim`, with the feature of that
//! name), which runs the same kernels.
//!
//! Everything above this trait is the same for both, so tests without a device cover all of it but
//! the vendor's own code.

pub mod nvidia;
#[cfg(feature = "shim")]
pub mod shim;

use std::ffi::c_void;

use crate::Result;

/// An address in a device's memory, or in host memory as a device sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address(pub u64);

impl Address {
    /// So many bytes behind this one.
    pub fn offset(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }
}

/// A queue of work, done in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stream(pub u64);

/// A moment in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event(pub u64);

/// A kernel that was looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kernel(pub u64);

/// Work that was captured, to be done again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Graph(pub u64);

/// Page-locked host memory that a device reads and writes in place.
#[derive(Clone, Copy, Debug)]
pub struct HostMemory {
    /// Where the processor sees it.
    pub pointer: *mut u8,
    /// Where the device does.
    pub address: Address,
}

/// What a device is.
#[derive(Clone, Debug)]
pub struct Properties {
    /// Its name.
    pub name: String,
    /// Bytes of its memory.
    pub memory: u64,
    /// How many multiprocessors.
    pub multiprocessors: u32,
    /// Major and minor number of what it can compute.
    pub capability: (u32, u32),
    /// Bytes of shared memory that one block may ask for.
    pub shared: u32,
}

/// How many threads a kernel is started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks, each way.
    pub grid: [u32; 3],
    /// Threads of a block, each way.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory of a block.
    pub shared: u32,
}

/// The type of a matrix' values in a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// 32-bit floats throughout.
    F32,
    /// Factors rounded to 10 bits of mantissa, sums in f32.
    Tf32,
    /// Factors rounded to bf16, sums in f32.
    Bf16,
}

/// `c = beta c + op(a) op(b)`, row-major f32: `c` is `m x n`, `op(a)` `m x k`, `op(b)` `k x n`;
/// rows of stored matrices are `lda`, `ldb` and `ldc` values apart. `batch` such products lie
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

/// A library that sums over several devices of one process.
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
    /// Its name and version.
    fn name(&self) -> &str;

    /// Replaces runs of f32 values of every rank by their sums over all ranks, in place: run `i` is
    /// of `counts[i]` values, from the `i`-th address of each rank on. Only queues work in the
    /// ranks' streams. All ranks get the same bits.
    ///
    /// # Errors
    /// The library fails.
    ///
    /// # Safety
    /// Addresses are of as many values of live memory of the rank's device, which stays until the
    /// rank's stream has done the work.
    unsafe fn sum(&self, ranks: &[(Vec<Address>, Stream)], counts: &[usize]) -> Result<()>;
}

/// A device's driver. Calls that name a stream only queue work there.
///
/// # Safety
/// Of the unsafe calls: addresses and lengths are those of live memory of this driver, which stays
/// until the stream has done the work, and what a kernel is given is what its signature says.
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
    /// What the device is.
    fn properties(&self) -> &Properties;

    /// Bytes that are free, and all.
    ///
    /// # Errors
    /// The driver fails, as in all that follows.
    fn memory(&self) -> Result<(u64, u64)>;

    /// Memory on the device, aligned to 256 bytes.
    ///
    /// # Errors
    /// There is not as much ([`crate::Error::OutOfMemory`]).
    fn allocate(&self, bytes: usize) -> Result<Address>;

    /// Gives memory of [`Driver::allocate`] back, when all queued work is done.
    ///
    /// # Safety
    /// See the trait's.
    unsafe fn free(&self, at: Address);

    /// Page-locked host memory that the device reads and writes in place. Zeros.
    ///
    /// # Errors
    /// There is not as much.
    fn allocate_host(&self, bytes: usize) -> Result<HostMemory>;

    /// Gives memory of [`Driver::allocate_host`] back.
    ///
    /// # Safety
    /// See the trait's.
    unsafe fn free_host(&self, memory: HostMemory);

    /// Page-locks host memory of somebody else and maps it for the device to read; the address that
    /// the device reads it at.
    ///
    /// # Errors
    /// The system does not lock such memory (a file's mapping, say).
    ///
    /// # Safety
    /// The memory stays until [`Driver::unregister`].
    unsafe fn register(&self, at: *const u8, bytes: usize) -> Result<Address>;

    /// Takes [`Driver::register`] back.
    ///
    /// # Safety
    /// See the trait's.
    unsafe fn unregister(&self, at: *const u8);

    /// A new stream; of several with work, an `urgent` one goes first.
    ///
    /// # Errors
    /// See above.
    fn stream(&self, urgent: bool) -> Result<Stream>;

    /// Gives a stream back, when all its work is done.
    ///
    /// # Safety
    /// Nobody names it again.
    unsafe fn destroy_stream(&self, stream: Stream);

    /// Waits until a stream has done all its work.
    ///
    /// # Errors
    /// A kernel failed.
    fn synchronize(&self, stream: Stream) -> Result<()>;

    /// A new event; only a `timed` one is for [`Driver::seconds_between`].
    ///
    /// # Errors
    /// See above.
    fn event(&self, timed: bool) -> Result<Event>;

    /// Gives an event back.
    ///
    /// # Safety
    /// Nobody names it again.
    unsafe fn destroy_event(&self, event: Event);

    /// Whether the work before a recorded event is done. Does not wait.
    ///
    /// # Errors
    /// See above.
    fn is_done(&self, event: Event) -> Result<bool>;

    /// The event becomes what the stream has been given so far.
    ///
    /// # Errors
    /// See above.
    fn record(&self, event: Event, stream: Stream) -> Result<()>;

    /// What is given to the stream from now on waits for the event.
    ///
    /// # Errors
    /// See above.
    fn wait(&self, stream: Stream, event: Event) -> Result<()>;

    /// Seconds between two events; waits for the second.
    ///
    /// # Errors
    /// See above.
    fn seconds_between(&self, from: Event, to: Event) -> Result<f64>;

    /// Copies from host to device. Memory that is not page-locked has been read when this returns.
    ///
    /// # Errors
    /// See above.
    ///
    /// # Safety
    /// See the trait's.
    unsafe fn upload(&self, from: *const u8, to: Address, bytes: usize, stream: Stream) -> Result<()>;

    /// Copies from device to host; what arrives is there after [`Driver::synchronize`].
    ///
    /// # Errors
    /// See above.
    ///
    /// # Safety
    /// See the trait's.
    unsafe fn download(&self, from: Address, to: *mut u8, bytes: usize, stream: Stream) -> Result<()>;

    /// Copies on the device, or from one to another that was given access
    /// ([`Driver::enable_peer`]).
    ///
    /// # Errors
    /// See above.
    ///
    /// # Safety
    /// See the trait's.
    unsafe fn copy(&self, from: Address, to: Address, bytes: usize, stream: Stream) -> Result<()>;

    /// Sets 32-bit words.
    ///
    /// # Errors
    /// See above.
    ///
    /// # Safety
    /// See the trait's.
    unsafe fn fill(&self, at: Address, word: u32, words: usize, stream: Stream) -> Result<()>;

    /// Looks a kernel up by the name in its source.
    ///
    /// # Errors
    /// There is no such kernel: a bug.
    fn kernel(&self, name: &str) -> Result<Kernel>;

    /// Starts a kernel; `arguments` point to the values of its parameters, which are copied before
    /// this returns.
    ///
    /// # Errors
    /// See above.
    ///
    /// # Safety
    /// See the trait's.
    unsafe fn launch(
        &self,
        kernel: Kernel,
        shape: Shape,
        arguments: &mut [*mut c_void],
        stream: Stream,
    ) -> Result<()>;

    /// Whether the vendor's library is there, and takes such a product.
    fn multiplies(&self, product: &Product) -> bool;

    /// A dense product by the vendor's library; false where there is none, and nothing was done.
    ///
    /// # Errors
    /// See above.
    ///
    /// # Safety
    /// See the trait's.
    unsafe fn product(&self, product: &Product, stream: Stream) -> Result<bool>;

    /// Lets this device read the memory of that number; false where the hardware does not.
    ///
    /// # Errors
    /// See above.
    fn enable_peer(&self, other: usize) -> Result<bool>;

    /// What sums over the devices of these numbers, which have the ranks of their places.
    ///
    /// # Errors
    /// There is no library for it ([`crate::Error::Unavailable`]), or it fails.
    fn collective(&self, devices: &[usize]) -> Result<Box<dyn Collective>>;

    /// What this thread gives to the stream from now on is not done but captured: kernels, copies
    /// on the device, words that are set, products. Nobody waits for the stream meanwhile, or for
    /// the whole device.
    ///
    /// # Errors
    /// The driver does not capture.
    fn begin_capture(&self, stream: Stream) -> Result<()>;

    /// What was captured, by the same thread. The stream takes work again, also where this fails.
    ///
    /// # Errors
    /// Something cannot be captured, or done again.
    fn end_capture(&self, stream: Stream) -> Result<Graph>;

    /// Does captured work, with the addresses and values that it was captured with.
    ///
    /// # Errors
    /// See above.
    ///
    /// # Safety
    /// See the trait's, of all that was captured.
    unsafe fn launch_graph(&self, graph: Graph, stream: Stream) -> Result<()>;

    /// Gives a graph back, when it has run.
    ///
    /// # Safety
    /// Nobody names it again.
    unsafe fn destroy_graph(&self, graph: Graph);
}
