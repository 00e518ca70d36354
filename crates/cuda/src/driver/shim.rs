//! A simulated device for tests: the kernels, unchanged, compiled for the CPU.
//!
//! Work runs at once, on the thread that queues it, so streams are always empty and events are
//! times of the clock. Errors that a device would not report are rejected: barriers that only some
//! threads reach, addresses outside allocations, memory over the budget, wrong numbers of
//! arguments. Fresh device memory is filled with NaN. The order of threads and blocks can be set.

#![allow(unsafe_code, reason = "device memory and kernels")]

mod in_order;
mod memory;
mod options;

use std::{
    collections::HashMap,
    ffi::{CStr, CString, c_char, c_void},
    ptr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, ThreadId},
    time::Instant,
};

use self::{
    in_order::InOrder,
    memory::{describe, region_of},
};
use super::{
    Address, Collective, Driver, Event, Graph, HostMemory, Kernel, Product, Properties, Shape, Stream,
};
use crate::{Error, Result};

pub use self::options::{Options, Order};

fn locked<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kernel of the table that the build generates.
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

/// Work being captured, and the capturing thread.
#[derive(Debug)]
struct Capture {
    stream: Stream,
    by: ThreadId,
    work: Vec<Captured>,
    /// First call that made the capture invalid.
    invalid: Option<String>,
}

/// Captured work.
#[derive(Clone, Debug)]
enum Captured {
    Launch { kernel: Kernel, shape: Shape, values: Vec<u64> },
    Copy { from: Address, to: Address, bytes: usize },
    Fill { at: Address, word: u32, words: usize },
}

/// A simulated device for tests.
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

/// Opens the device of this number with these options.
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
    /// Sets the order of blocks and threads in later launches.
    pub fn set_order(&self, order: Order) {
        locked(&self.options).order = order;
    }

    fn failed(&self, call: &'static str, message: impl Into<String>) -> Error {
        Error::Driver { device: self.name(), call, message: message.into() }
    }

    /// Adds work to the capture of this stream. Returns false if the stream is not being captured.
    fn captured(&self, stream: Stream, work: impl FnOnce() -> Captured) -> bool {
        let mut capture = locked(&self.capture);
        let captured = capture.as_mut().filter(|capture| capture.stream == stream);
        captured.map(|capture| capture.work.push(work())).is_some()
    }

    /// Rejects calls that are not allowed during a capture: any on that stream or on the whole
    /// device, and, on the capturing thread, allocations and frees of memory. The capture becomes
    /// invalid.
    fn refuse_in_capture(&self, call: &'static str, stream: Option<Stream>, memory: bool) -> Result<()> {
        let mut capture = locked(&self.capture);
        let meets = |capture: &&mut Capture| match stream {
            Some(stream) => capture.stream == stream,
            None => !memory || capture.by == thread::current().id(),
        };
        let Some(capture) = capture.as_mut().filter(meets) else { return Ok(()) };
        capture.invalid = Some(format!("{call} while work was captured"));
        Err(self.failed(call, "work is being captured"))
    }

    fn name(&self) -> String {
        format!("shim:{}", self.index)
    }

    /// Checks that all of these bytes are in one region.
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
        // a free waits for the whole device
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
        if !Self::list_host(at, bytes) {
            return Err(self.failed("register", format!("the memory at {at:?} is already registered")));
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
            None => Err(self.failed("is_done", "unknown event")),
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
            _ => Err(self.failed("seconds_between", "the event was not recorded")),
        }
    }

    unsafe fn upload(&self, from: *const u8, to: Address, bytes: usize, stream: Stream) -> Result<()> {
        // a device would read the host's memory again in each launch of the graph
        self.refuse_in_capture("upload", Some(stream), false)?;
        self.check("upload", to, bytes)?;
        // SAFETY: the region was just checked, and the caller guarantees the host memory. Both may
        // be the same memory.
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
        // SAFETY: both regions were just checked.
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
            // SAFETY: the region was just checked, and the address is aligned.
            unsafe { std::slice::from_raw_parts_mut(at.0 as *mut u32, words) }.fill(word);
        }
        Ok(())
    }

    fn kernel(&self, name: &str) -> Result<Kernel> {
        let entry = CString::new(name).map_or(ptr::null(), |name| {
            // SAFETY: a null-terminated string, which is only read.
            unsafe { shim_find(name.as_ptr()) }
        });
        if entry.is_null() {
            return Err(self.failed("kernel", format!("unknown kernel {name:?}")));
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
        // SAFETY: kernels come from `kernel`, which returns addresses in an immutable table; names
        // are null-terminated.
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
            return Err(failed(format!("no device supports the shape {shape:?}")));
        }
        let launches = self.launches.fetch_add(1, Ordering::Relaxed);
        if locked(&self.options).fails.is_some_and(|(index, most)| index == self.index && launches >= most) {
            return Err(failed("simulated failure of the device".to_owned()));
        }
        let values = || {
            let mut values = vec![0; arguments.len()];
            // SAFETY: there are as many values as parameters, and the caller guarantees that the
            // arguments point to them.
            unsafe { ((*entry).keep)(arguments.as_mut_ptr(), values.as_mut_ptr()) };
            Captured::Launch { kernel, shape, values }
        };
        if self.captured(stream, values) {
            return Ok(());
        }
        let (order, seed) = locked(&self.options).order.number();
        let mut failure = Failure { message: [0; 400], address: 0 };
        // SAFETY: shape and number of arguments were checked, and the caller guarantees the values
        // that they point to.
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
        // SAFETY: the shim wrote a null-terminated message.
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
            return Err(self.failed("begin_capture", "this device does not support capture"));
        }
        let by = thread::current().id();
        *locked(&self.capture) = Some(Capture { stream, by, work: Vec::new(), invalid: None });
        Ok(())
    }

    fn end_capture(&self, stream: Stream) -> Result<Graph> {
        let ended = |message: &str| self.failed("end_capture", message);
        let capture = locked(&self.capture).take().filter(|capture| capture.stream == stream);
        let capture = capture.ok_or_else(|| ended("nothing is being captured"))?;
        if capture.by != thread::current().id() {
            return Err(ended("another thread began"));
        }
        if let Some(why) = capture.invalid {
            return Err(ended(&why));
        }
        let number = self.number();
        locked(&self.graphs).insert(number, capture.work.into());
        Ok(Graph(number))
    }

    unsafe fn launch_graph(&self, graph: Graph, stream: Stream) -> Result<()> {
        let work = locked(&self.graphs).get(&graph.0).cloned();
        let work = work.ok_or_else(|| self.failed("launch_graph", "unknown graph"))?;
        for one in work.iter().cloned() {
            // SAFETY: the captured work is valid for memory that is still allocated, by the
            // caller's guarantee.
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
