//! The driver's calls: some are recorded, some first flush the recorded commands, and some pass
//! through.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::ffi::c_void;

use super::Replay;
use crate::{
    Result,
    driver::{
        Address, Collective, Driver, Event, Graph, HostMemory, Kernel, Product, Properties, Shape, Stream,
    },
};

impl Driver for Replay {
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
        self.after_flush(|driver| unsafe { driver.free(at) });
    }

    fn allocate_host(&self, bytes: usize) -> Result<HostMemory> {
        self.inner.allocate_host(bytes)
    }

    unsafe fn free_host(&self, memory: HostMemory) {
        // SAFETY: by the caller's guarantee
        self.after_flush(|driver| unsafe { driver.free_host(memory) });
    }

    unsafe fn register(&self, at: *const u8, bytes: usize) -> Result<Address> {
        // SAFETY: by the caller's guarantee
        unsafe { self.inner.register(at, bytes) }
    }

    unsafe fn unregister(&self, at: *const u8) {
        // SAFETY: by the caller's guarantee
        self.after_flush(|driver| unsafe { driver.unregister(at) });
    }

    fn stream(&self, urgent: bool) -> Result<Stream> {
        self.inner.stream(urgent)
    }

    unsafe fn destroy_stream(&self, stream: Stream) {
        let _ = self.after_flush_on(stream, |driver| {
            // SAFETY: by the caller's guarantee
            unsafe { driver.destroy_stream(stream) };
            Ok(())
        });
    }

    fn synchronize(&self, stream: Stream) -> Result<()> {
        self.after_flush_on(stream, |driver| driver.synchronize(stream))
    }

    fn event(&self, timed: bool) -> Result<Event> {
        self.inner.event(timed)
    }

    unsafe fn destroy_event(&self, event: Event) {
        // SAFETY: by the caller's guarantee
        unsafe { self.inner.destroy_event(event) }
    }

    fn is_done(&self, event: Event) -> Result<bool> {
        self.inner.is_done(event)
    }

    fn record(&self, event: Event, stream: Stream) -> Result<()> {
        self.after_flush_on(stream, |driver| driver.record(event, stream))
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<()> {
        self.after_flush_on(stream, |driver| driver.wait(stream, event))
    }

    fn seconds_between(&self, from: Event, to: Event) -> Result<f64> {
        self.inner.seconds_between(from, to)
    }

    unsafe fn upload(&self, from: *const u8, to: Address, bytes: usize, stream: Stream) -> Result<()> {
        if bytes > 0 && self.records(stream) {
            // SAFETY: by the caller's guarantee: this many bytes are there
            let values = unsafe { std::slice::from_raw_parts(from, bytes) };
            if self.recorded(stream, |now| now.upload(values, to)) {
                return Ok(());
            }
        }
        // SAFETY: by the caller's guarantee
        unsafe { self.inner.upload(from, to, bytes, stream) }
    }

    unsafe fn download(&self, from: Address, to: *mut u8, bytes: usize, stream: Stream) -> Result<()> {
        self.after_flush_on(stream, |driver| {
            // SAFETY: by the caller's guarantee
            unsafe { driver.download(from, to, bytes, stream) }
        })
    }

    unsafe fn copy(&self, from: Address, to: Address, bytes: usize, stream: Stream) -> Result<()> {
        if bytes == 0 || self.recorded(stream, |now| now.copy(from, to, bytes)) {
            return Ok(());
        }
        // SAFETY: by the caller's guarantee
        unsafe { self.inner.copy(from, to, bytes, stream) }
    }

    unsafe fn fill(&self, at: Address, word: u32, words: usize, stream: Stream) -> Result<()> {
        if words == 0 || self.recorded(stream, |now| now.fill(at, word, words)) {
            return Ok(());
        }
        // SAFETY: by the caller's guarantee
        unsafe { self.inner.fill(at, word, words, stream) }
    }

    fn kernel(&self, name: &str) -> Result<Kernel> {
        self.inner.kernel(name)
    }

    /// Launches a kernel with arguments of unknown sizes, which are not recorded;
    /// [`Replay::launch`] records.
    unsafe fn launch(
        &self,
        kernel: Kernel,
        shape: Shape,
        arguments: &mut [*mut c_void],
        stream: Stream,
    ) -> Result<()> {
        self.after_flush_on(stream, |driver| {
            // SAFETY: by the caller's guarantee
            unsafe { driver.launch(kernel, shape, arguments, stream) }
        })
    }

    fn multiplies(&self, product: &Product) -> bool {
        self.inner.multiplies(product)
    }

    unsafe fn product(&self, product: &Product, stream: Stream) -> Result<bool> {
        if self.records(stream) {
            if !self.multiplies(product) {
                return Ok(false);
            }
            if self.recorded(stream, |now| now.product(*product)) {
                return Ok(true);
            }
        }
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
        self.after_flush_on(stream, |driver| driver.begin_capture(stream))
    }

    fn end_capture(&self, stream: Stream) -> Result<Graph> {
        self.after_flush_on(stream, |driver| driver.end_capture(stream))
    }

    unsafe fn launch_graph(&self, graph: Graph, stream: Stream) -> Result<()> {
        self.after_flush_on(stream, |driver| {
            // SAFETY: by the caller's guarantee
            unsafe { driver.launch_graph(graph, stream) }
        })
    }

    unsafe fn destroy_graph(&self, graph: Graph) {
        // SAFETY: by the caller's guarantee
        unsafe { self.inner.destroy_graph(graph) }
    }
}
