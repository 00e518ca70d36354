//! A device for tests: the kernels, unchanged, compiled for the processor.
//!
//! Work is done at once, by the thread that queues it, so streams are always empty and events are moments of
//! the clock. What a device would let pass is refused: barriers that only some threads reach, addresses where
//! nothing lies, memory over the budget, arguments of the wrong number. Fresh device memory holds NaNs. The
//! order in which threads and blocks run can be set.

use std::{
    collections::{BTreeMap, HashMap},
    env,
    ffi::{CStr, CString, c_char, c_void},
    ops::Bound,
    ptr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, ThreadId},
    time::Instant,
};

use super::{
    Address, Collective, Driver, Event, Graph, HostMemory, Kernel, Product, Properties, Shape, Stream,
};
use crate::{Error, Result};

/// An order of what nothing orders: a block's threads between two barriers, a grid's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// As they are numbered.
    Forward,
    /// Backwards.
    Reverse,
    /// By a seed: warps, the lanes of a warp, and blocks.
    Shuffled(u64),
}

impl Order {
    /// Reads `forward`, `reverse` or `shuffled:SEED`.
    fn parse(text: &str) -> Option<Self> {
        match text {
            "forward" => Some(Self::Forward),
            "reverse" => Some(Self::Reverse),
            _ => text.strip_prefix("shuffled:")?.parse().ok().map(Self::Shuffled),
        }
    }

    /// The shim's number for it, and the seed.
    fn number(self) -> (u32, u64) {
        match self {
            Self::Forward => (0, 0),
            Self::Reverse => (1, 0),
            Self::Shuffled(seed) => (2, seed),
        }
    }
}

/// What a device for tests is like.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of its memory.
    pub memory: u64,
    /// Whether memory ends where a page does that nobody may touch. Addresses are multiples of 16 bytes then,
    /// not of 256.
    pub guard: bool,
    /// In which order blocks and their threads run.
    pub order: Order,
    /// Whether work can be captured.
    pub captures: bool,
    /// The number of a device that fails, after so many kernels.
    pub fails: Option<(usize, u64)>,
    /// Sums over devices before they fail.
    pub sums: u64,
}

impl Default for Options {
    /// 1 GiB, guarded, in the order that the environment names by `GRAPHMILL_SHIM_ORDER` (`forward`,
    /// `reverse`, `shuffled:SEED`), forward where it does not. Nothing fails but what it names: `GRAPHMILL_SHIM_FAILS` a device and how many
    /// kernels before (`1:500`), `GRAPHMILL_SHIM_SUMS` how many sums over devices.
    fn default() -> Self {
        let order = env::var("GRAPHMILL_SHIM_ORDER").ok().and_then(|text| Order::parse(&text));
        let fails = env::var("GRAPHMILL_SHIM_FAILS").ok().and_then(|text| {
            let (device, kernels) = text.split_once(':')?;
            Some((device.parse().ok()?, kernels.parse().ok()?))
        });
        let sums = env::var("GRAPHMILL_SHIM_SUMS").ok().and_then(|text| text.parse().ok());
        Self {
            memory: 1 << 30,
            guard: true,
            order: order.unwrap_or(Order::Forward),
            captures: true,
            fails,
            sums: sums.unwrap_or(u64::MAX),
        }
    }
}

/// A kernel of the table that the build makes.
#[repr(C)]
struct Entry {
    name: *const c_char,
    parameters: u32,
    call: extern "C" fn(*mut *mut c_void),
    keep: extern "C" fn(*mut *mut c_void, *mut u64),
}

#[repr(C)]
struct Failure {
    message: [c_char; 400],
    address: u64,
}

unsafe extern "C" {
    fn shim_find(name: *const c_char) -> *const Entry;
    fn shim_most_shared() -> u32;
    fn shim_launch(
        kernel: *const Entry,
        grid: *const u32,
        block: *const u32,
        shared: u32,
        arguments: *mut *mut c_void,
        thread_order: u32,
        block_order: u32,
        seed: u64,
        failure: *mut Failure,
    ) -> bool;
}

/// Larger memory is not guarded: it would be slow to map.
const MOST_GUARDED: usize = 1 << 26;
/// What nobody has written: NaNs, as f32.
const UNWRITTEN: u32 = 0x7fc0_dead;

/// Memory that a device may touch.
#[derive(Clone, Copy, Debug)]
struct Region {
    bytes: usize,
    /// Of which device; none for the host's.
    device: Option<usize>,
    /// What was mapped or allocated for it, and how much.
    base: usize,
    size: usize,
    mapped: bool,
}

/// The memory of all devices, by address.
static REGIONS: Mutex<BTreeMap<u64, Region>> = Mutex::new(BTreeMap::new());

fn locked<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Work that is being captured, and the thread that does.
#[derive(Debug)]
struct Capture {
    stream: Stream,
    by: ThreadId,
    work: Vec<Captured>,
    /// What cannot be captured and was asked for.
    spoilt: Option<String>,
}

/// Captured work.
#[derive(Clone, Debug)]
enum Captured {
    Launch { kernel: Kernel, shape: Shape, values: Vec<u64> },
    Copy { from: Address, to: Address, bytes: usize },
    Fill { at: Address, word: u32, words: usize },
}

/// A device for tests.
#[derive(Debug)]
pub struct Shim {
    index: usize,
    properties: Properties,
    options: Mutex<Options>,
    used: AtomicU64,
    next: AtomicU64,
    events: Mutex<HashMap<u64, Option<Instant>>>,
    capture: Mutex<Option<Capture>>,
    graphs: Mutex<HashMap<u64, Arc<[Captured]>>>,
    launches: AtomicU64,
}

/// The device of this number, made as the options say.
pub fn open(index: usize, options: Options) -> Arc<Shim> {
    let properties = Properties {
        name: format!("shim {index}"),
        memory: options.memory,
        multiprocessors: 2,
        capability: (8, 0),
        // SAFETY: the function only returns a constant.
        shared: unsafe { shim_most_shared() },
    };
    Arc::new(Shim {
        index,
        properties,
        options: Mutex::new(options),
        used: AtomicU64::new(0),
        next: AtomicU64::new(1),
        events: Mutex::default(),
        capture: Mutex::default(),
        graphs: Mutex::default(),
        launches: AtomicU64::new(0),
    })
}

impl Shim {
    /// Sets the order in which blocks and threads of later launches run.
    pub fn set_order(&self, order: Order) {
        locked(&self.options).order = order;
    }

    fn failed(&self, call: &'static str, message: impl Into<String>) -> Error {
        Error::Driver { device: self.name(), call, message: message.into() }
    }

    /// Takes work of a stream that is being captured; false where it is not.
    fn captured(&self, stream: Stream, work: impl FnOnce() -> Captured) -> bool {
        let mut capture = locked(&self.capture);
        let captured = capture.as_mut().filter(|capture| capture.stream == stream);
        captured.map(|capture| capture.work.push(work())).is_some()
    }

    /// Refuses what nobody may do while work is captured: with that stream, with the whole device, or, of what takes or gives memory, the
    /// thread that captures. The capture is spoilt.
    fn refuse_in_capture(&self, call: &'static str, stream: Option<Stream>, memory: bool) -> Result<()> {
        let mut capture = locked(&self.capture);
        let meets = |capture: &&mut Capture| match stream {
            Some(stream) => capture.stream == stream,
            None => !memory || capture.by == thread::current().id(),
        };
        let Some(capture) = capture.as_mut().filter(meets) else { return Ok(()) };
        capture.spoilt = Some(format!("{call} while work was captured"));
        Err(self.failed(call, "work is being captured"))
    }

    fn name(&self) -> String {
        format!("shim:{}", self.index)
    }

    /// Whether all of these bytes lie in one region.
    fn check(&self, call: &'static str, at: Address, bytes: usize) -> Result<()> {
        if bytes == 0
            || region_of(at.0).is_some_and(|(first, of)| at.0 - first + bytes as u64 <= of.bytes as u64)
        {
            return Ok(());
        }
        Err(self.failed(call, format!("{bytes} bytes at {:#x}: {}", at.0, describe(at.0))))
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Maps memory, the device's own or the host's.
    fn map(&self, bytes: usize, device: bool) -> Result<Address> {
        let guard = locked(&self.options).guard;
        let wanted = bytes.max(1);
        let free = self.properties.memory.saturating_sub(self.used.load(Ordering::Relaxed));
        let full = || Error::OutOfMemory {
            device: self.name(),
            bytes: bytes as u64,
            free,
            budget: self.properties.memory,
        };
        if device && wanted as u64 > free {
            return Err(full());
        }
        // the host's starts at a page, as a driver's does
        let alignment = if device { 16 } else { 4096 };
        let guarded = guard && wanted <= MOST_GUARDED;
        let page = 4096.max(page_size());
        let padded = wanted.next_multiple_of(alignment).next_multiple_of(page);
        let size = if guarded { padded + page } else { padded };
        // SAFETY: new anonymous memory, at an address that the system picks.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(full());
        }
        let at = if guarded {
            // SAFETY: the last page of what was just mapped; nobody has an address of it yet.
            unsafe { libc::mprotect(base.byte_add(padded), page, libc::PROT_NONE) };
            base as usize + padded - wanted.next_multiple_of(alignment)
        } else {
            base as usize
        };
        if device {
            // SAFETY: what was just mapped up to the guard: at least `padded` bytes from `base` on, words
            // aligned as pages are.
            unsafe { std::slice::from_raw_parts_mut(base.cast::<u32>(), padded / 4) }.fill(UNWRITTEN);
            self.used.fetch_add(wanted as u64, Ordering::Relaxed);
        }
        let region = Region {
            bytes: wanted,
            device: device.then_some(self.index),
            base: base as usize,
            size,
            mapped: true,
        };
        locked(&REGIONS).insert(at as u64, region);
        Ok(Address(at as u64))
    }

    /// Unmaps what [`Shim::map`] has mapped.
    fn unmap(&self, at: Address) {
        let Some(region) = locked(&REGIONS).remove(&at.0) else { return };
        if region.device.is_some() {
            self.used.fetch_sub(region.bytes as u64, Ordering::Relaxed);
        }
        if region.mapped {
            // SAFETY: the region is no longer listed, so this is the only time that its mapping is given
            // back; that nobody uses it any more is what whoever frees it promises.
            unsafe { libc::munmap(region.base as *mut c_void, region.size) };
        }
    }
}

fn page_size() -> usize {
    // SAFETY: asks the system for a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// The region that starts at or before this address, where the address lies in it.
fn region_of(at: u64) -> Option<(u64, Region)> {
    let regions = locked(&REGIONS);
    let (&first, &region) = regions.range(..=at).next_back()?;
    (at - first < region.bytes as u64).then_some((first, region))
}

/// Where an address lies that is in no region.
fn describe(at: u64) -> String {
    let regions = locked(&REGIONS);
    let below = regions.range(..=at).next_back();
    let above = regions.range((Bound::Excluded(at), Bound::Unbounded)).next();
    let behind = below.map(|(first, of)| (at - first, of.bytes));
    match (behind, above) {
        (Some((by, bytes)), _) if by < 2 * bytes as u64 + 8192 => {
            format!("byte {by} of memory of {bytes} bytes")
        }
        (_, Some((first, of))) if first - at < 8192 => {
            format!("{} bytes before memory of {} bytes", first - at, of.bytes)
        }
        _ => "no memory of a device".to_owned(),
    }
}

/// Sums over devices in the order of their ranks.
struct InOrder {
    ranks: usize,
    /// Sums that go well from now on.
    left: AtomicU64,
}

impl Collective for InOrder {
    fn name(&self) -> &str {
        "the shim, by rank"
    }

    unsafe fn sum(&self, ranks: &[(Vec<Address>, Stream)], counts: &[usize]) -> Result<()> {
        assert_eq!(ranks.len(), self.ranks, "all ranks sum");
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err() {
            let message = "this sum fails".to_owned();
            return Err(Error::Driver { device: self.name().to_owned(), call: "sum", message });
        }
        for (i, &count) in counts.iter().enumerate() {
            for at in ranks.iter().map(|(values, _)| values[i].0).filter(|_| count > 0) {
                let fits = region_of(at).is_some_and(|(first, of)| {
                    of.device.is_some() && at - first + 4 * count as u64 <= of.bytes as u64
                });
                assert!(fits, "{count} values at {at:#x}: {}", describe(at));
            }
            for element in 0..count {
                let at = |(values, _): &(Vec<Address>, Stream)| values[i].0 as *mut f32;
                // SAFETY: all lie in memory that was just looked up, and are aligned as f32 are.
                unsafe {
                    let sum = ranks.iter().map(|rank| *at(rank).add(element)).reduce(|sum, x| sum + x);
                    ranks.iter().for_each(|rank| *at(rank).add(element) = sum.unwrap_or(0.0));
                }
            }
        }
        Ok(())
    }
}

impl Driver for Shim {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn memory(&self) -> Result<(u64, u64)> {
        let all = self.properties.memory;
        Ok((all.saturating_sub(self.used.load(Ordering::Relaxed)), all))
    }

    fn allocate(&self, bytes: usize) -> Result<Address> {
        self.refuse_in_capture("allocate", None, true)?;
        self.map(bytes, true)
    }

    unsafe fn free(&self, at: Address) {
        // a device is waited for first
        if self.refuse_in_capture("free", None, false).is_ok() {
            self.unmap(at);
        }
    }

    fn allocate_host(&self, bytes: usize) -> Result<HostMemory> {
        let address = self.map(bytes, false)?;
        Ok(HostMemory { pointer: address.0 as *mut u8, address })
    }

    unsafe fn free_host(&self, memory: HostMemory) {
        self.unmap(memory.address);
    }

    unsafe fn register(&self, at: *const u8, bytes: usize) -> Result<Address> {
        let region = Region { bytes, device: None, base: 0, size: 0, mapped: false };
        if locked(&REGIONS).insert(at as u64, region).is_some() {
            return Err(self.failed("register", format!("the memory at {at:?} is registered already")));
        }
        Ok(Address(at as u64))
    }

    unsafe fn unregister(&self, at: *const u8) {
        self.unmap(Address(at as u64));
    }

    fn stream(&self, _urgent: bool) -> Result<Stream> {
        Ok(Stream(self.number()))
    }

    unsafe fn destroy_stream(&self, _stream: Stream) {}

    fn synchronize(&self, stream: Stream) -> Result<()> {
        self.refuse_in_capture("synchronize", Some(stream), false)
    }

    fn event(&self, _timed: bool) -> Result<Event> {
        let number = self.number();
        locked(&self.events).insert(number, None);
        Ok(Event(number))
    }

    unsafe fn destroy_event(&self, event: Event) {
        locked(&self.events).remove(&event.0);
    }

    fn is_done(&self, event: Event) -> Result<bool> {
        match locked(&self.events).get(&event.0) {
            Some(_) => Ok(true),
            None => Err(self.failed("is_done", "an event that is none")),
        }
    }

    fn record(&self, event: Event, stream: Stream) -> Result<()> {
        self.refuse_in_capture("record", Some(stream), false)?;
        locked(&self.events).insert(event.0, Some(Instant::now()));
        Ok(())
    }

    fn wait(&self, stream: Stream, _event: Event) -> Result<()> {
        self.refuse_in_capture("wait", Some(stream), false)
    }

    fn seconds_between(&self, from: Event, to: Event) -> Result<f64> {
        let events = locked(&self.events);
        let at = |event: Event| events.get(&event.0).copied().flatten();
        match (at(from), at(to)) {
            (Some(from), Some(to)) => Ok(to.saturating_duration_since(from).as_secs_f64()),
            _ => Err(self.failed("seconds_between", "an event that was not recorded")),
        }
    }

    unsafe fn upload(&self, from: *const u8, to: Address, bytes: usize, stream: Stream) -> Result<()> {
        // a device would read the host's memory again whenever the graph runs
        self.refuse_in_capture("upload", Some(stream), false)?;
        self.check("upload", to, bytes)?;
        // SAFETY: the region was just looked up, and host memory is the caller's promise. Both may be the
        // same memory.
        unsafe { ptr::copy(from, to.0 as *mut u8, bytes) };
        Ok(())
    }

    unsafe fn download(&self, from: Address, to: *mut u8, bytes: usize, stream: Stream) -> Result<()> {
        self.refuse_in_capture("download", Some(stream), false)?;
        self.check("download", from, bytes)?;
        // SAFETY: as for uploads.
        unsafe { ptr::copy(from.0 as *const u8, to, bytes) };
        Ok(())
    }

    unsafe fn copy(&self, from: Address, to: Address, bytes: usize, stream: Stream) -> Result<()> {
        self.check("copy", from, bytes)?;
        self.check("copy", to, bytes)?;
        if self.captured(stream, || Captured::Copy { from, to, bytes }) {
            return Ok(());
        }
        // SAFETY: both regions were just looked up.
        unsafe { ptr::copy(from.0 as *const u8, to.0 as *mut u8, bytes) };
        Ok(())
    }

    unsafe fn fill(&self, at: Address, word: u32, words: usize, stream: Stream) -> Result<()> {
        self.check("fill", at, words.saturating_mul(4))?;
        if !at.0.is_multiple_of(4) {
            return Err(self.failed("fill", format!("{:#x} is not a multiple of 4", at.0)));
        }
        if self.captured(stream, || Captured::Fill { at, word, words }) {
            return Ok(());
        }
        if words > 0 {
            // SAFETY: the region was just looked up, and the address is aligned.
            unsafe { std::slice::from_raw_parts_mut(at.0 as *mut u32, words) }.fill(word);
        }
        Ok(())
    }

    fn kernel(&self, name: &str) -> Result<Kernel> {
        let entry = CString::new(name).map_or(ptr::null(), |name| {
            // SAFETY: a string that ends with a zero, which is only read.
            unsafe { shim_find(name.as_ptr()) }
        });
        if entry.is_null() {
            return Err(self.failed("kernel", format!("there is no kernel {name:?}")));
        }
        Ok(Kernel(entry as u64))
    }

    unsafe fn launch(
        &self,
        kernel: Kernel,
        shape: Shape,
        arguments: &mut [*mut c_void],
        stream: Stream,
    ) -> Result<()> {
        let entry = kernel.0 as *const Entry;
        // SAFETY: kernels come from `kernel`, which gives addresses of a table that is never changed; names
        // end with a zero.
        let (name, parameters) =
            unsafe { (CStr::from_ptr((*entry).name).to_string_lossy(), (*entry).parameters as usize) };
        let failed = |message: String| self.failed("launch", format!("kernel {name}: {message}"));
        if arguments.len() != parameters {
            return Err(failed(format!("{} arguments for {parameters} parameters", arguments.len())));
        }
        let threads: u64 = shape.block.iter().map(|&way| u64::from(way)).product();
        let limits = [i32::MAX as u32, 65_535, 65_535];
        let grid = shape.grid.iter().zip(limits).all(|(&way, limit)| (1..=limit).contains(&way));
        if !grid || !(1..=1024).contains(&threads) || shape.shared > self.properties.shared {
            return Err(failed(format!("no device runs the shape {shape:?}")));
        }
        let launches = self.launches.fetch_add(1, Ordering::Relaxed);
        if locked(&self.options).fails.is_some_and(|(index, most)| index == self.index && launches >= most) {
            return Err(failed("this device fails".to_owned()));
        }
        let values = || {
            let mut values = vec![0; arguments.len()];
            // SAFETY: as many values as parameters, which the arguments point to, as the caller promises.
            unsafe { ((*entry).keep)(arguments.as_mut_ptr(), values.as_mut_ptr()) };
            Captured::Launch { kernel, shape, values }
        };
        if self.captured(stream, values) {
            return Ok(());
        }
        let (order, seed) = locked(&self.options).order.number();
        let mut failure = Failure { message: [0; 400], address: 0 };
        // SAFETY: the shape was checked, as many arguments as parameters are there, and what they point to is
        // the caller's promise.
        let done = unsafe {
            shim_launch(
                entry,
                shape.grid.as_ptr(),
                shape.block.as_ptr(),
                shape.shared,
                arguments.as_mut_ptr(),
                order,
                order,
                seed,
                &raw mut failure,
            )
        };
        if done {
            return Ok(());
        }
        // SAFETY: the shim has written a message that ends with a zero.
        let message = unsafe { CStr::from_ptr(failure.message.as_ptr()) }.to_string_lossy().into_owned();
        let place =
            if failure.address == 0 { String::new() } else { format!(": {}", describe(failure.address)) };
        Err(failed(format!("{message}{place}")))
    }

    fn multiplies(&self, _product: &Product) -> bool {
        false
    }

    unsafe fn product(&self, _product: &Product, _stream: Stream) -> Result<bool> {
        Ok(false)
    }

    fn enable_peer(&self, _other: usize) -> Result<bool> {
        Ok(true)
    }

    fn collective(&self, devices: &[usize]) -> Result<Box<dyn Collective>> {
        let left = AtomicU64::new(locked(&self.options).sums);
        Ok(Box::new(InOrder { ranks: devices.len(), left }))
    }

    fn begin_capture(&self, stream: Stream) -> Result<()> {
        self.refuse_in_capture("begin_capture", Some(stream), false)?;
        if !locked(&self.options).captures {
            return Err(self.failed("begin_capture", "this device does not capture"));
        }
        let by = thread::current().id();
        *locked(&self.capture) = Some(Capture { stream, by, work: Vec::new(), spoilt: None });
        Ok(())
    }

    fn end_capture(&self, stream: Stream) -> Result<Graph> {
        let ended = |message: &str| self.failed("end_capture", message);
        let capture = locked(&self.capture).take().filter(|capture| capture.stream == stream);
        let capture = capture.ok_or_else(|| ended("nothing is being captured"))?;
        if capture.by != thread::current().id() {
            return Err(ended("another thread began"));
        }
        if let Some(why) = capture.spoilt {
            return Err(ended(&why));
        }
        let number = self.number();
        locked(&self.graphs).insert(number, capture.work.into());
        Ok(Graph(number))
    }

    unsafe fn launch_graph(&self, graph: Graph, stream: Stream) -> Result<()> {
        let work = locked(&self.graphs).get(&graph.0).cloned();
        let work = work.ok_or_else(|| self.failed("launch_graph", "a graph that is none"))?;
        for one in work.iter().cloned() {
            // SAFETY: what was captured was promised of memory that is still there, as the caller promises.
            unsafe {
                match one {
                    Captured::Launch { kernel, shape, mut values } => {
                        let mut pointers: Vec<*mut c_void> =
                            values.iter_mut().map(|value| ptr::from_mut(value).cast()).collect();
                        self.launch(kernel, shape, &mut pointers, stream)?;
                    }
                    Captured::Copy { from, to, bytes } => self.copy(from, to, bytes, stream)?,
                    Captured::Fill { at, word, words } => self.fill(at, word, words, stream)?,
                }
            }
        }
        Ok(())
    }

    unsafe fn destroy_graph(&self, graph: Graph) {
        locked(&self.graphs).remove(&graph.0);
    }
}
