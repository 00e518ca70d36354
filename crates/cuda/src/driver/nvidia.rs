//! The vendor's driver, by its library, which is looked for at run time.
//!
//! `libcuda.so.1` comes with the machine's driver. cuBLAS is used for dense products where it is found: on the loader's path, or in a
//! directory that `GRAPHMILL_CUDA_PATH` names (several are separated by colons), such as `nvidia/cublas/lib` of a Python environment's
//! packages; where it is not, the crate's own kernel multiplies.

mod blas;
mod library;

use std::{
    collections::HashMap,
    ffi::{CStr, CString, c_char, c_int, c_void},
    ptr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUresult};

use self::blas::Blas;
use super::{Address, Driver, Event, HostMemory, Kernel, Product, Properties, Shape, Stream};
use crate::{Error, Result, ptx};

/// What every block may have of shared memory; more must be asked for, kernel by kernel.
const PLAIN_SHARED: u32 = 48 << 10;
/// The oldest devices that the kernels are for.
const OLDEST: (u32, u32) = (8, 0);
/// Bytes of a module's log that are kept.
const LOG: usize = 8 << 10;

/// How many devices the machine has.
///
/// # Errors
/// There is no driver, or it is too old, or sees no device.
pub fn count() -> Result<usize> {
    library::devices().map_err(|why| Error::Unavailable(format!("--devices cuda: {why}")))
}

/// The device of this number, as the driver numbers those that `CUDA_VISIBLE_DEVICES` lets it see.
///
/// # Errors
/// There is no such device, no driver, or one that is too old.
pub fn open(index: usize) -> Result<Arc<dyn Driver>> {
    let unavailable = |why: String| Error::Unavailable(format!("--devices cuda:{index}: {why}"));
    let count = library::devices().map_err(unavailable)?;
    let ordinal = c_int::try_from(index).ok().filter(|_| index < count).ok_or_else(|| {
        unavailable(format!("the NVIDIA driver sees {count} devices, numbered from 0; use one of those"))
    })?;
    let device = Device::open(index, ordinal)?;
    let (major, minor) = device.properties.capability;
    if device.properties.capability < OLDEST {
        let name = &device.properties.name;
        return Err(unavailable(format!(
            "{name} has compute capability {major}.{minor}, the kernels need 8.0; use another device, or --devices cpu"
        )));
    }
    Ok(Arc::new(device))
}

/// A device's primary context, and what was made in it.
struct Device {
    name: String,
    index: usize,
    device: sys::CUdevice,
    context: sys::CUcontext,
    properties: Properties,
    /// Modules that were loaded, by name.
    modules: Mutex<HashMap<&'static str, Pointer<sys::CUmod_st>>>,
    /// Bytes of dynamic shared memory that kernels were allowed, where those are more than all may have.
    allowed: Mutex<HashMap<u64, u32>>,
    /// Devices whose contexts are held for their memory.
    peers: Mutex<Vec<sys::CUdevice>>,
    blas: Blas,
}

/// One of the driver's handles.
#[derive(Clone, Copy)]
struct Pointer<T>(*mut T);

// SAFETY: the driver's handles are names of things that it guards itself; every thread may use them.
unsafe impl<T> Send for Pointer<T> {}
// SAFETY: the context is such a handle; all else is behind locks, or never changes.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

fn locked<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device {
    /// Takes hold of the primary context. The driver has been found and initialised, and has such a device.
    fn open(index: usize, ordinal: c_int) -> Result<Self> {
        let name = format!("cuda:{index}");
        let check = |call, status| checked(&name, call, status);
        let mut device = 0;
        let mut words = [0 as c_char; 256];
        let mut memory = 0;
        // SAFETY: the driver has the calls; what they write to outlives them, and the name's length is its array's.
        unsafe {
            check("cuDeviceGet", sys::cuDeviceGet(&raw mut device, ordinal))?;
            check("cuDeviceGetName", sys::cuDeviceGetName(words.as_mut_ptr(), 255, device))?;
            check("cuDeviceTotalMem", sys::cuDeviceTotalMem_v2(&raw mut memory, device))?;
        }
        let attribute = |which| -> Result<u32> {
            let mut value = 0;
            // SAFETY: as above.
            let status = unsafe { sys::cuDeviceGetAttribute(&raw mut value, which, device) };
            check("cuDeviceGetAttribute", status)?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        let properties = Properties {
            // SAFETY: the driver ends the name with a zero, at the last byte at the latest.
            name: unsafe { CStr::from_ptr(words.as_ptr()) }.to_string_lossy().into_owned(),
            memory: memory as u64,
            multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            capability: (
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            shared: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        };
        let mut context = ptr::null_mut();
        // SAFETY: as above; the context is released when the device is dropped.
        let status = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, device) };
        check("cuDevicePrimaryCtxRetain", status)?;
        Ok(Self {
            name,
            index,
            device,
            context,
            properties,
            modules: Mutex::default(),
            allowed: Mutex::default(),
            peers: Mutex::default(),
            blas: Blas::default(),
        })
    }

    fn failed(&self, call: &'static str, message: impl Into<String>) -> Error {
        Error::Driver { device: self.name.clone(), call, message: message.into() }
    }

    fn check(&self, call: &'static str, status: CUresult) -> Result<()> {
        checked(&self.name, call, status)
    }

    /// Makes the context the calling thread's. Others may have set theirs in the meantime, so that it is done for every call; it costs
    /// some tens of nanoseconds.
    fn enter(&self) -> Result<()> {
        // SAFETY: the context is held until the device is dropped.
        self.check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.context) })
    }

    /// The module of this name, loaded when it is first asked for.
    fn module(&self, module: &'static ptx::Module) -> Result<sys::CUmodule> {
        let mut modules = locked(&self.modules);
        if let Some(loaded) = modules.get(module.name) {
            return Ok(loaded.0);
        }
        let text = CString::new(module.text).map_err(|_| {
            self.failed("cuModuleLoadDataEx", format!("{}.ptx holds a zero byte", module.name))
        })?;
        let mut log = vec![0_u8; LOG];
        let mut options = [
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        // a size is passed in the pointer's place
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), LOG as *mut c_void];
        let mut loaded = ptr::null_mut();
        // SAFETY: the text ends with a zero; options and their values are as many as told, and outlive the call as the log does.
        let status = unsafe {
            sys::cuModuleLoadDataEx(
                &raw mut loaded,
                text.as_ptr().cast(),
                2,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        if status != CUresult::CUDA_SUCCESS {
            let words = log.split(|&byte| byte == 0).next().unwrap_or_default();
            let words = String::from_utf8_lossy(words);
            let message = format!("{}.ptx: {}: {}", module.name, library::text(status), words.trim());
            return Err(self.failed("cuModuleLoadDataEx", message));
        }
        modules.insert(module.name, Pointer(loaded));
        Ok(loaded)
    }

    /// Lets blocks of a kernel ask for so much dynamic shared memory.
    fn allow_shared(&self, kernel: Kernel, bytes: u32) -> Result<()> {
        let mut allowed = locked(&self.allowed);
        if allowed.get(&kernel.0).is_some_and(|&most| bytes <= most) {
            return Ok(());
        }
        let value = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: kernels come from `kernel`; their modules stay loaded.
        let status = unsafe { sys::cuFuncSetAttribute(kernel.0 as sys::CUfunction, attribute, value) };
        self.check("cuFuncSetAttribute", status)?;
        allowed.insert(kernel.0, bytes);
        Ok(())
    }
}

/// An error of this device, where a call did not succeed.
fn checked(device: &str, call: &'static str, status: CUresult) -> Result<()> {
    if status == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    Err(Error::Driver { device: device.to_owned(), call, message: library::text(status) })
}

impl Drop for Device {
    fn drop(&mut self) {
        // handles are of the context: they go before it
        let entered = self.enter().is_ok();
        if entered {
            self.blas.clear();
        }
        for peer in locked(&self.peers).drain(..).chain([self.device]) {
            // SAFETY: each was retained once; buffers hold the device, so that none of them is left. Streams, events and modules go
            // with the context.
            unsafe { sys::cuDevicePrimaryCtxRelease_v2(peer) };
        }
    }
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
        self.enter()?;
        let mut at = 0;
        // SAFETY: the address outlives the call. The driver refuses to give nothing.
        let status = unsafe { sys::cuMemAlloc_v2(&raw mut at, bytes.max(1)) };
        if status == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            let (free, budget) = self.memory()?;
            return Err(Error::OutOfMemory { device: self.name.clone(), bytes: bytes as u64, free, budget });
        }
        self.check("cuMemAlloc", status)?;
        Ok(Address(at))
    }

    unsafe fn free(&self, at: Address) {
        if self.enter().is_ok() {
            // SAFETY: memory of this context, as the caller promises. An error would be that of earlier work, which whoever waits for that
            // work is told.
            unsafe {
                sys::cuCtxSynchronize();
                sys::cuMemFree_v2(at.0);
            }
        }
    }

    fn allocate_host(&self, bytes: usize) -> Result<HostMemory> {
        self.enter()?;
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        let (mut pointer, mut address) = (ptr::null_mut(), 0);
        // SAFETY: pointers outlive the calls. The memory is as long as asked for when it is filled.
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
        if self.enter().is_ok() {
            // SAFETY: as for `free`.
            unsafe {
                sys::cuCtxSynchronize();
                sys::cuMemFreeHost(memory.pointer.cast());
            }
        }
    }

    unsafe fn register(&self, at: *const u8, bytes: usize) -> Result<Address> {
        self.enter()?;
        let pointer = at.cast_mut().cast::<c_void>();
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        let mut address = 0;
        // SAFETY: the memory stays until it is unregistered, as the caller promises. Not every system knows memory that is only read, but
        // memory that the processor itself must not write can be locked in no other way: both are tried.
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
        if self.enter().is_ok() {
            // SAFETY: as for `free`.
            unsafe {
                sys::cuCtxSynchronize();
                sys::cuMemHostUnregister(at.cast_mut().cast());
            }
        }
    }

    fn stream(&self) -> Result<Stream> {
        self.enter()?;
        let mut stream = ptr::null_mut();
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the handle outlives the call.
        let status = unsafe { sys::cuStreamCreate(&raw mut stream, flags) };
        self.check("cuStreamCreate", status)?;
        Ok(Stream(stream as u64))
    }

    fn synchronize(&self, stream: Stream) -> Result<()> {
        self.enter()?;
        // SAFETY: streams come from `stream` and stay until the context goes; so in all that follows.
        self.check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream.0 as sys::CUstream) })
    }

    fn event(&self) -> Result<Event> {
        self.enter()?;
        let mut event = ptr::null_mut();
        let flags = sys::CUevent_flags_enum::CU_EVENT_DEFAULT as u32;
        // SAFETY: the handle outlives the call.
        let status = unsafe { sys::cuEventCreate(&raw mut event, flags) };
        self.check("cuEventCreate", status)?;
        Ok(Event(event as u64))
    }

    fn record(&self, event: Event, stream: Stream) -> Result<()> {
        self.enter()?;
        // SAFETY: events come from `event` and stay until the context goes.
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
        // SAFETY: memory as the caller promises.
        let status =
            unsafe { sys::cuMemcpyHtoDAsync_v2(to.0, from.cast(), bytes, stream.0 as sys::CUstream) };
        self.check("cuMemcpyHtoDAsync", status)
    }

    unsafe fn download(&self, from: Address, to: *mut u8, bytes: usize, stream: Stream) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.enter()?;
        // SAFETY: memory as the caller promises.
        let status =
            unsafe { sys::cuMemcpyDtoHAsync_v2(to.cast(), from.0, bytes, stream.0 as sys::CUstream) };
        self.check("cuMemcpyDtoHAsync", status)
    }

    unsafe fn copy(&self, from: Address, to: Address, bytes: usize, stream: Stream) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.enter()?;
        // SAFETY: memory as the caller promises. Addresses tell of which device they are.
        let status = unsafe { sys::cuMemcpyAsync(to.0, from.0, bytes, stream.0 as sys::CUstream) };
        self.check("cuMemcpyAsync", status)
    }

    unsafe fn fill(&self, at: Address, word: u32, words: usize, stream: Stream) -> Result<()> {
        if words == 0 {
            return Ok(());
        }
        self.enter()?;
        // SAFETY: memory as the caller promises.
        let status = unsafe { sys::cuMemsetD32Async(at.0, word, words, stream.0 as sys::CUstream) };
        self.check("cuMemsetD32Async", status)
    }

    fn kernel(&self, name: &str) -> Result<Kernel> {
        let missing = || self.failed("cuModuleGetFunction", format!("there is no kernel {name:?}"));
        let of = |module: &&ptx::Module| module.kernels.contains(&name);
        let module = ptx::MODULES.iter().find(of).ok_or_else(missing)?;
        self.enter()?;
        let module = self.module(module)?;
        let name = CString::new(name).map_err(|_| missing())?;
        let mut function = ptr::null_mut();
        // SAFETY: the module stays loaded until the context goes; the name ends with a zero.
        let status = unsafe { sys::cuModuleGetFunction(&raw mut function, module, name.as_ptr()) };
        self.check("cuModuleGetFunction", status)?;
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
        if shape.shared > PLAIN_SHARED {
            self.allow_shared(kernel, shape.shared)?;
        }
        let ([gx, gy, gz], [bx, by, bz]) = (shape.grid, shape.block);
        // SAFETY: kernels come from `kernel`; the caller promises that the arguments are what the kernel takes. They are copied.
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

    unsafe fn product(&self, product: &Product, stream: Stream) -> Result<bool> {
        self.enter()?;
        // what the library itself would take: more on devices that have matrix units which work in groups of warps
        let workspace = if self.properties.capability >= (9, 0) { 32 << 20 } else { 8 << 20 };
        let fail = |(call, message): blas::Failure| self.failed(call, message);
        // SAFETY: the context was just made current; the matrices are what the caller promises.
        unsafe { self.blas.multiply(product, stream, workspace, |bytes| self.allocate(bytes), fail) }
    }

    fn enable_peer(&self, other: usize) -> Result<bool> {
        if other == self.index {
            return Ok(true);
        }
        self.enter()?;
        let count = library::devices().map_err(|why| self.failed("cuDeviceGet", why))?;
        let ordinal = c_int::try_from(other)
            .ok()
            .filter(|_| other < count)
            .ok_or_else(|| self.failed("cuDeviceGet", format!("there is no device {other} of {count}")))?;
        let (mut peer, mut can, mut context) = (0, 0, ptr::null_mut());
        // SAFETY: what the calls write to outlives them; the other context is released when this device is dropped.
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
