//! The vendor's driver, whose library is loaded at run time.
//!
//! `libcuda.so.1` is part of the machine's driver. Dense products use cuBLAS if it is found on the
//! loader's path or in a directory of `GRAPHMILL_CUDA_PATH` (separated by colons), such as
//! `nvidia/cublas/lib` of a Python environment's packages; otherwise they use the crate's own
//! kernel.

#![allow(unsafe_code, reason = "device memory and kernels")]

mod blas;
mod device;
mod graph;
mod library;
mod nccl;

use std::{
    ffi::{CString, c_int, c_void},
    ptr,
    sync::Arc,
};

use cudarc::driver::sys::{self, CUresult};

use self::device::{Device, MAX_DYNAMIC_SHARED, locked};
use super::{
    Address, Collective, Driver, Event, Graph, HostMemory, Kernel, Product, Properties, Shape, Stream,
};
use crate::{Error, Result, ptx};

/// Lowest compute capability that the kernels support.
const MIN_CAPABILITY: (u32, u32) = (8, 0);
/// Number of devices of the machine.
///
/// # Errors
/// No driver is found, it is too old, or it reports no devices.
pub fn count() -> Result<usize> {
    library::devices().map_err(|why| Error::Unavailable(format!("--devices cuda: {why}")))
}

/// Opens the device of this number, as the driver numbers the devices that `CUDA_VISIBLE_DEVICES`
/// allows.
///
/// # Errors
/// The device does not exist, or the driver or device is missing or too old.
pub fn open(index: usize) -> Result<Arc<dyn Driver>> {
    let unavailable = |why: String| Error::Unavailable(format!("--devices cuda:{index}: {why}"));
    let count = library::devices().map_err(unavailable)?;
    let ordinal = c_int::try_from(index).ok().filter(|_| index < count).ok_or_else(|| {
        unavailable(format!("the NVIDIA driver reports {count} devices, numbered from 0; use one of those"))
    })?;
    let device = Device::open(index, ordinal)?;
    let (major, minor) = device.properties.capability;
    if device.properties.capability < MIN_CAPABILITY {
        let name = &device.properties.name;
        return Err(unavailable(format!(
            "{name} has compute capability {major}.{minor}, the kernels need 8.0; use another device, \
             or --devices cpu"
        )));
    }
    Ok(Arc::new(device))
}

impl Driver for Device {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn memory(&self) -> Result<(u64, u64)> {
        self.enter()?;
        let (mut free, mut all) = (0, 0);
        // SAFETY: the numbers outlive the call.
        let status = unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut all) };
        self.check("cuMemGetInfo", status)?;
        Ok((free as u64, all as u64))
    }

    fn allocate(&self, bytes: usize) -> Result<Address> {
        let _no_group = device::waits_for_all();
        self.take(bytes)
    }

    unsafe fn free(&self, at: Address) {
        let _no_group = device::waits_for_all();
        if self.enter().is_ok() {
            // SAFETY: memory of this context, by the caller's guarantee. An error would be that of
            // earlier work, which the thread that waits for that work receives.
            unsafe {
                sys::cuCtxSynchronize();
                sys::cuMemFree_v2(at.0);
            }
        }
    }

    fn allocate_host(&self, bytes: usize) -> Result<HostMemory> {
        let _no_group = device::waits_for_all();
        self.enter()?;
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        let (mut pointer, mut address) = (ptr::null_mut(), 0);
        // SAFETY: pointers outlive the calls. The memory has the requested length when it is
        // filled.
        unsafe {
            let status = sys::cuMemHostAlloc(&raw mut pointer, bytes.max(1), flags);
            if status != CUresult::CUDA_SUCCESS {
                let message = format!("{bytes} bytes of page-locked host memory: {}", library::text(status));
                return Err(self.failed("cuMemHostAlloc", message));
            }
            ptr::write_bytes(pointer.cast::<u8>(), 0, bytes);
            let status = sys::cuMemHostGetDevicePointer_v2(&raw mut address, pointer, 0);
            if let Err(error) = self.check("cuMemHostGetDevicePointer", status) {
                sys::cuMemFreeHost(pointer);
                return Err(error);
            }
        }
        Ok(HostMemory { pointer: pointer.cast(), address: Address(address) })
    }

    unsafe fn free_host(&self, memory: HostMemory) {
        let _no_group = device::waits_for_all();
        if self.enter().is_ok() {
            // SAFETY: as for `free`.
            unsafe {
                sys::cuCtxSynchronize();
                sys::cuMemFreeHost(memory.pointer.cast());
            }
        }
    }

    unsafe fn register(&self, at: *const u8, bytes: usize) -> Result<Address> {
        let _no_group = device::waits_for_all();
        self.enter()?;
        let pointer = at.cast_mut().cast::<c_void>();
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        let mut address = 0;
        // SAFETY: the memory is valid until it is unregistered, by the caller's guarantee. Not
        // every system supports read-only registration, but memory that is read-only on the host
        // cannot be registered otherwise, so both are tried.
        unsafe {
            let mut status =
                sys::cuMemHostRegister_v2(pointer, bytes, flags | sys::CU_MEMHOSTREGISTER_READ_ONLY);
            if status != CUresult::CUDA_SUCCESS {
                status = sys::cuMemHostRegister_v2(pointer, bytes, flags);
            }
            if status != CUresult::CUDA_SUCCESS {
                let message = format!("page-locking {bytes} bytes: {}", library::text(status));
                return Err(self.failed("cuMemHostRegister", message));
            }
            let status = sys::cuMemHostGetDevicePointer_v2(&raw mut address, pointer, 0);
            if let Err(error) = self.check("cuMemHostGetDevicePointer", status) {
                sys::cuMemHostUnregister(pointer);
                return Err(error);
            }
        }
        Ok(Address(address))
    }

    unsafe fn unregister(&self, at: *const u8) {
        let _no_group = device::waits_for_all();
        if self.enter().is_ok() {
            // SAFETY: as for `free`.
            unsafe {
                sys::cuCtxSynchronize();
                sys::cuMemHostUnregister(at.cast_mut().cast());
            }
        }
    }

    fn stream(&self, urgent: bool) -> Result<Stream> {
        self.enter()?;
        let mut stream = ptr::null_mut();
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: the numbers and the handle outlive the calls.
        unsafe {
            let status = sys::cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest);
            self.check("cuCtxGetStreamPriorityRange", status)?;
            // the lowest priority is numerically the greatest
            let priority = if urgent { greatest } else { least };
            let status = sys::cuStreamCreateWithPriority(&raw mut stream, flags, priority);
            self.check("cuStreamCreateWithPriority", status)?;
        }
        Ok(Stream(stream as u64))
    }

    unsafe fn destroy_stream(&self, stream: Stream) {
        if self.enter().is_ok() {
            // the handle is destroyed first, because another stream may get the same name
            let memory = {
                // the library frees memory of its own
                let _no_group = device::waits_for_all();
                self.blas.forget(stream)
            };
            if let Some(memory) = memory {
                // SAFETY: workspace of a destroyed handle.
                unsafe { self.free(memory) };
            }
            // SAFETY: a stream of `stream`, which is not used again.
            let _ = unsafe { sys::cuStreamDestroy_v2(stream.0 as sys::CUstream) };
        }
    }

    fn synchronize(&self, stream: Stream) -> Result<()> {
        self.enter()?;
        // SAFETY: streams come from `stream` and are valid as long as the context; so are those
        // below.
        self.check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream.0 as sys::CUstream) })
    }

    fn event(&self, timed: bool) -> Result<Event> {
        self.enter()?;
        let mut event = ptr::null_mut();
        let flags = if timed {
            sys::CUevent_flags_enum::CU_EVENT_DEFAULT
        } else {
            sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING
        } as u32;
        // SAFETY: the handle outlives the call.
        let status = unsafe { sys::cuEventCreate(&raw mut event, flags) };
        self.check("cuEventCreate", status)?;
        Ok(Event(event as u64))
    }

    unsafe fn destroy_event(&self, event: Event) {
        if self.enter().is_ok() {
            // SAFETY: an event of `event`, which is not used again.
            let _ = unsafe { sys::cuEventDestroy_v2(event.0 as sys::CUevent) };
        }
    }

    fn is_done(&self, event: Event) -> Result<bool> {
        self.enter()?;
        // SAFETY: events come from `event` and are valid until they are destroyed.
        match unsafe { sys::cuEventQuery(event.0 as sys::CUevent) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            status => self.check("cuEventQuery", status).map(|()| true),
        }
    }

    fn record(&self, event: Event, stream: Stream) -> Result<()> {
        self.enter()?;
        // SAFETY: events come from `event` and are valid as long as the context.
        let status = unsafe { sys::cuEventRecord(event.0 as sys::CUevent, stream.0 as sys::CUstream) };
        self.check("cuEventRecord", status)
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<()> {
        self.enter()?;
        // SAFETY: as above.
        let status = unsafe { sys::cuStreamWaitEvent(stream.0 as sys::CUstream, event.0 as sys::CUevent, 0) };
        self.check("cuStreamWaitEvent", status)
    }

    fn seconds_between(&self, from: Event, to: Event) -> Result<f64> {
        self.enter()?;
        let (from, to) = (from.0 as sys::CUevent, to.0 as sys::CUevent);
        let mut milliseconds = 0.0_f32;
        // SAFETY: as above; the number outlives the call.
        unsafe {
            self.check("cuEventSynchronize", sys::cuEventSynchronize(from))?;
            self.check("cuEventSynchronize", sys::cuEventSynchronize(to))?;
            let status = sys::cuEventElapsedTime_v2(&raw mut milliseconds, from, to);
            self.check("cuEventElapsedTime", status)?;
        }
        Ok(f64::from(milliseconds) / 1e3)
    }

    unsafe fn upload(&self, from: *const u8, to: Address, bytes: usize, stream: Stream) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.enter()?;
        // SAFETY: by the caller's guarantee.
        let status =
            unsafe { sys::cuMemcpyHtoDAsync_v2(to.0, from.cast(), bytes, stream.0 as sys::CUstream) };
        self.check("cuMemcpyHtoDAsync", status)
    }

    unsafe fn download(&self, from: Address, to: *mut u8, bytes: usize, stream: Stream) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.enter()?;
        // SAFETY: by the caller's guarantee.
        let status =
            unsafe { sys::cuMemcpyDtoHAsync_v2(to.cast(), from.0, bytes, stream.0 as sys::CUstream) };
        self.check("cuMemcpyDtoHAsync", status)
    }

    unsafe fn copy(&self, from: Address, to: Address, bytes: usize, stream: Stream) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.enter()?;
        // SAFETY: by the caller's guarantee. Addresses identify their device.
        let status = unsafe { sys::cuMemcpyAsync(to.0, from.0, bytes, stream.0 as sys::CUstream) };
        self.check("cuMemcpyAsync", status)
    }

    unsafe fn fill(&self, at: Address, word: u32, words: usize, stream: Stream) -> Result<()> {
        if words == 0 {
            return Ok(());
        }
        self.enter()?;
        // SAFETY: by the caller's guarantee.
        let status = unsafe { sys::cuMemsetD32Async(at.0, word, words, stream.0 as sys::CUstream) };
        self.check("cuMemsetD32Async", status)
    }

    fn kernel(&self, name: &str) -> Result<Kernel> {
        let missing = || self.failed("cuModuleGetFunction", format!("unknown kernel {name:?}"));
        let of = |module: &&ptx::Module| module.kernels.contains(&name);
        let module = ptx::MODULES.iter().find(of).ok_or_else(missing)?;
        let _no_group = device::waits_for_all();
        self.enter()?;
        let module = self.module(module)?;
        let name = CString::new(name).map_err(|_| missing())?;
        let mut function = ptr::null_mut();
        // SAFETY: the module stays loaded as long as the context; the name is null-terminated.
        let status = unsafe { sys::cuModuleGetFunction(&raw mut function, module, name.as_ptr()) };
        self.check("cuModuleGetFunction", status)?;
        let mut allowed = 0;
        // SAFETY: the function was just found; the number outlives the call.
        let status = unsafe { sys::cuFuncGetAttribute(&raw mut allowed, MAX_DYNAMIC_SHARED, function) };
        self.check("cuFuncGetAttribute", status)?;
        locked(&self.allowed).entry(function as u64).or_insert(u32::try_from(allowed).unwrap_or(0));
        Ok(Kernel(function as u64))
    }

    unsafe fn launch(
        &self,
        kernel: Kernel,
        shape: Shape,
        arguments: &mut [*mut c_void],
        stream: Stream,
    ) -> Result<()> {
        self.enter()?;
        if shape.shared > 0 {
            self.allow_shared(kernel, shape.shared)?;
        }
        let ([gx, gy, gz], [bx, by, bz]) = (shape.grid, shape.block);
        // SAFETY: kernels come from `kernel`; the caller guarantees that the arguments match the
        // kernel. They are copied.
        let status = unsafe {
            sys::cuLaunchKernel(
                kernel.0 as sys::CUfunction,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                shape.shared,
                stream.0 as sys::CUstream,
                arguments.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        if status != CUresult::CUDA_SUCCESS {
            return Err(self.failed("cuLaunchKernel", format!("{shape:?}: {}", library::text(status))));
        }
        Ok(())
    }

    fn multiplies(&self, product: &Product) -> bool {
        blas::takes(product)
    }

    unsafe fn product(&self, product: &Product, stream: Stream) -> Result<bool> {
        self.enter()?;
        // the library's own default: larger on devices whose matrix units work in groups of warps
        let workspace = if self.properties.capability >= (9, 0) { 32 << 20 } else { 8 << 20 };
        let fail = |(call, message): blas::Failure| self.failed(call, message);
        // a stream's first product allocates memory, and a new kind of product loads a kernel
        let _no_group = device::waits_for_all();
        // SAFETY: the context was just made current; the caller guarantees the matrices.
        unsafe { self.blas.multiply(product, stream, workspace, |bytes| self.take(bytes), fail) }
    }

    fn collective(&self, devices: &[usize]) -> Result<Box<dyn Collective>> {
        Ok(Box::new(nccl::open(devices)?))
    }

    fn begin_capture(&self, stream: Stream) -> Result<()> {
        graph::begin(self, stream)
    }

    fn end_capture(&self, stream: Stream) -> Result<Graph> {
        graph::end(self, stream)
    }

    unsafe fn launch_graph(&self, graph: Graph, stream: Stream) -> Result<()> {
        // SAFETY: by the caller's guarantee.
        unsafe { graph::launch(self, graph, stream) }
    }

    unsafe fn destroy_graph(&self, graph: Graph) {
        // SAFETY: by the caller's guarantee.
        unsafe { graph::destroy(self, graph) }
    }

    fn enable_peer(&self, other: usize) -> Result<bool> {
        if other == self.index {
            return Ok(true);
        }
        self.enter()?;
        let count = library::devices().map_err(|why| self.failed("cuDeviceGet", why))?;
        let ordinal = c_int::try_from(other).ok().filter(|_| other < count).ok_or_else(|| {
            self.failed("cuDeviceGet", format!("device {other} does not exist; the driver reports {count}"))
        })?;
        let (mut peer, mut can, mut context) = (0, 0, ptr::null_mut());
        // SAFETY: outputs outlive the calls; the other context is released when this device is
        // dropped.
        unsafe {
            self.check("cuDeviceGet", sys::cuDeviceGet(&raw mut peer, ordinal))?;
            let status = sys::cuDeviceCanAccessPeer(&raw mut can, self.device, peer);
            self.check("cuDeviceCanAccessPeer", status)?;
            if can == 0 {
                return Ok(false);
            }
            let status = sys::cuDevicePrimaryCtxRetain(&raw mut context, peer);
            self.check("cuDevicePrimaryCtxRetain", status)?;
            locked(&self.peers).push(peer);
            match sys::cuCtxEnablePeerAccess(context, 0) {
                CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(true),
                CUresult::CUDA_ERROR_TOO_MANY_PEERS | CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED => {
                    Ok(false)
                }
                status => self.check("cuCtxEnablePeerAccess", status).map(|()| true),
            }
        }
    }
}
