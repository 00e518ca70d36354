//! A driver that counts operations, and whose events complete when a test decides.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::{
    ffi::c_void,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use graphmill_cuda::{
    Result,
    driver::{
        Address, Collective, Driver, Event, Graph, HostMemory, Kernel, Product, Properties, Shape, Stream,
    },
};

/// Wrapper of a driver that counts its calls.
pub(crate) struct Counting {
    inner: Arc<dyn Driver>,
    downloads: AtomicUsize,
    /// Numbers of waits for a stream, and of queued copies and fills.
    waits: AtomicUsize,
    moves: AtomicUsize,
    launches: AtomicUsize,
    graphs: AtomicUsize,
    done: AtomicBool,
    slow: AtomicBool,
}

impl Counting {
    pub(crate) fn new(inner: Arc<dyn Driver>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            downloads: AtomicUsize::new(0),
            waits: AtomicUsize::new(0),
            moves: AtomicUsize::new(0),
            launches: AtomicUsize::new(0),
            graphs: AtomicUsize::new(0),
            done: AtomicBool::new(true),
            slow: AtomicBool::new(false),
        })
    }

    /// Sets whether events are reported as done.
    pub(crate) fn set_done(&self, done: bool) {
        self.done.store(done, Relaxed);
    }

    /// Delays captures and the recording of events, so that other threads run in between.
    pub(crate) fn go_slowly(&self) {
        self.slow.store(true, Relaxed);
    }

    fn linger(&self, milliseconds: u64) {
        if self.slow.load(Relaxed) {
            std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        }
    }

    pub(crate) fn downloads(&self) -> usize {
        self.downloads.load(Relaxed)
    }

    /// Numbers of waits for a stream so far, and of copies and fills.
    pub(crate) fn waited_and_moved(&self) -> (usize, usize) {
        (self.waits.load(Relaxed), self.moves.load(Relaxed))
    }

    /// Numbers of kernels launched or captured, and of launched graphs.
    pub(crate) fn started(&self) -> (usize, usize) {
        (self.launches.load(Relaxed), self.graphs.load(Relaxed))
    }
}

impl Driver for Counting {
    fn properties(&self) -> &Properties {
        self.inner.properties()
    }

    fn memory(&self) -> Result<(u64, u64)> {
        self.inner.memory()
    }

    fn allocate(&self, bytes: usize) -> Result<Address> {
        self.inner.allocate(bytes)
    }

    unsafe fn free(&self, at: Address) {
        // SAFETY: by the caller's guarantee
        unsafe { self.inner.free(at) }
    }

    fn allocate_host(&self, bytes: usize) -> Result<HostMemory> {
        self.inner.allocate_host(bytes)
    }

    unsafe fn free_host(&self, memory: HostMemory) {
        // SAFETY: by the caller's guarantee
        unsafe { self.inner.free_host(memory) }
    }

    unsafe fn register(&self, at: *const u8, bytes: usize) -> Result<Address> {
        // SAFETY: by the caller's guarantee
        unsafe { self.inner.register(at, bytes) }
    }

    unsafe fn unregister(&self, at: *const u8) {
        // SAFETY: by the caller's guarantee
        unsafe { self.inner.unregister(at) }
    }

    fn stream(&self, urgent: bool) -> Result<Stream> {
        self.inner.stream(urgent)
    }

    fn synchronize(&self, stream: Stream) -> Result<()> {
        self.waits.fetch_add(1, Relaxed);
        self.inner.synchronize(stream)
    }

    unsafe fn destroy_stream(&self, stream: Stream) {
        // SAFETY: by the caller's guarantee
        unsafe { self.inner.destroy_stream(stream) }
    }

    unsafe fn destroy_event(&self, event: Event) {
        // SAFETY: by the caller's guarantee
        unsafe { self.inner.destroy_event(event) }
    }

    fn is_done(&self, event: Event) -> Result<bool> {
        Ok(self.inner.is_done(event)? && self.done.load(Relaxed))
    }

    fn event(&self, timed: bool) -> Result<Event> {
        self.inner.event(timed)
    }

    fn record(&self, event: Event, stream: Stream) -> Result<()> {
        self.linger(1);
        self.inner.record(event, stream)
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<()> {
        self.inner.wait(stream, event)
    }

    fn seconds_between(&self, from: Event, to: Event) -> Result<f64> {
        self.inner.seconds_between(from, to)
    }

    unsafe fn upload(&self, from: *const u8, to: Address, bytes: usize, stream: Stream) -> Result<()> {
        self.moves.fetch_add(1, Relaxed);
        // SAFETY: by the caller's guarantee
        unsafe { self.inner.upload(from, to, bytes, stream) }
    }

    unsafe fn download(&self, from: Address, to: *mut u8, bytes: usize, stream: Stream) -> Result<()> {
        self.downloads.fetch_add(1, Relaxed);
        self.moves.fetch_add(1, Relaxed);
        // SAFETY: by the caller's guarantee
        unsafe { self.inner.download(from, to, bytes, stream) }
    }

    unsafe fn copy(&self, from: Address, to: Address, bytes: usize, stream: Stream) -> Result<()> {
        self.moves.fetch_add(1, Relaxed);
        // SAFETY: by the caller's guarantee
        unsafe { self.inner.copy(from, to, bytes, stream) }
    }

    unsafe fn fill(&self, at: Address, word: u32, words: usize, stream: Stream) -> Result<()> {
        self.moves.fetch_add(1, Relaxed);
        // SAFETY: by the caller's guarantee
        unsafe { self.inner.fill(at, word, words, stream) }
    }

    fn kernel(&self, name: &str) -> Result<Kernel> {
        self.inner.kernel(name)
    }

    unsafe fn launch(
        &self,
        kernel: Kernel,
        shape: Shape,
        arguments: &mut [*mut c_void],
        stream: Stream,
    ) -> Result<()> {
        self.launches.fetch_add(1, Relaxed);
        // SAFETY: by the caller's guarantee
        unsafe { self.inner.launch(kernel, shape, arguments, stream) }
    }

    fn multiplies(&self, product: &Product) -> bool {
        self.inner.multiplies(product)
    }

    unsafe fn product(&self, product: &Product, stream: Stream) -> Result<bool> {
        // SAFETY: by the caller's guarantee
        unsafe { self.inner.product(product, stream) }
    }

    fn enable_peer(&self, other: usize) -> Result<bool> {
        self.inner.enable_peer(other)
    }

    fn collective(&self, devices: &[usize]) -> Result<Box<dyn Collective>> {
        self.inner.collective(devices)
    }

    fn begin_capture(&self, stream: Stream) -> Result<()> {
        let begun = self.inner.begin_capture(stream);
        self.linger(10);
        begun
    }

    fn end_capture(&self, stream: Stream) -> Result<Graph> {
        self.inner.end_capture(stream)
    }

    unsafe fn launch_graph(&self, graph: Graph, stream: Stream) -> Result<()> {
        self.graphs.fetch_add(1, Relaxed);
        // SAFETY: by the caller's guarantee
        unsafe { self.inner.launch_graph(graph, stream) }
    }

    unsafe fn destroy_graph(&self, graph: Graph) {
        // SAFETY: by the caller's guarantee
        unsafe { self.inner.destroy_graph(graph) }
    }
}
