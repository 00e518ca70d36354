//! Primary context of a device, and the objects created in it.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::{
    collections::HashMap,
    ffi::{CStr, CString, c_char, c_int, c_void},
    ptr,
    sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUresult};

use super::{blas::Blas, library};
use crate::{
    Error, Result,
    driver::{Address, Driver as _, Kernel, Properties},
    ptx,
};

/// Attribute for the dynamic shared memory of a kernel's blocks.
pub(super) const MAX_DYNAMIC_SHARED: sys::CUfunction_attribute =
    sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
/// Bytes of a module's log that are kept.
const LOG: usize = 8 << 10;

/// Locked exclusively while kernels that wait for each other on several devices (a library's
/// collectives) are launched.
static GROUP_LAUNCH: RwLock<()> = RwLock::new(());

/// Guard for calls in which the driver may hold a lock until a device has done all its work:
/// freeing and allocating memory, loading kernels. Between the launches of a group, such a call
/// would wait for the first kernel, which waits for the second, which could not be launched
/// ([NVIDIA/nccl#48](https://github.com/NVIDIA/nccl/issues/48),
/// [#744](https://github.com/NVIDIA/nccl/issues/744)).
pub(super) fn waits_for_all() -> RwLockReadGuard<'static, ()> {
    GROUP_LAUNCH.read().unwrap_or_else(PoisonError::into_inner)
}

/// Guard for a group of kernels that wait for each other on several devices, until all are
/// launched.
pub(super) fn starts_group() -> RwLockWriteGuard<'static, ()> {
    GROUP_LAUNCH.write().unwrap_or_else(PoisonError::into_inner)
}

/// Primary context of a device, and the objects created in it.
pub(super) struct Device {
    pub(super) name: String,
    pub(super) index: usize,
    pub(super) device: sys::CUdevice,
    context: sys::CUcontext,
    pub(super) properties: Properties,
    /// Loaded modules, by name.
    modules: Mutex<HashMap<&'static str, sys::CUmodule>>,
    /// Bytes of dynamic shared memory that a kernel's blocks may use: initially the rest of 48 KiB
    /// besides static memory, more on request.
    pub(super) allowed: Mutex<HashMap<u64, u32>>,
    /// Devices whose contexts are retained for access to their memory.
    pub(super) peers: Mutex<Vec<sys::CUdevice>>,
    pub(super) blas: Blas,
}

// SAFETY: the driver's handles identify objects that it synchronizes itself, so every thread may
// use them; all other fields are behind locks or never change.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

pub(super) fn locked<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device {
    /// Retains the primary context. The driver must be initialized and have this device.
    pub(super) fn open(index: usize, ordinal: c_int) -> Result<Self> {
        let name = format!("cuda:{index}");
        let check = |call, status| checked(&name, call, status);
        let mut device = 0;
        let mut words = [0 as c_char; 256];
        let mut memory = 0;
        // SAFETY: the driver has the calls; outputs outlive them, and the name's length is that of
        // its array.
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
            // SAFETY: the driver null-terminates the name within the array.
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

    pub(super) fn failed(&self, call: &'static str, message: impl Into<String>) -> Error {
        Error::Driver { device: self.name.clone(), call, message: message.into() }
    }

    pub(super) fn check(&self, call: &'static str, status: CUresult) -> Result<()> {
        checked(&self.name, call, status)
    }

    /// Makes the context current on the calling thread. Other code may have changed it meanwhile,
    /// so every call does this; it costs some tens of nanoseconds.
    pub(super) fn enter(&self) -> Result<()> {
        // SAFETY: the context is retained until the device is dropped.
        self.check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.context) })
    }

    /// Allocates device memory. See [`waits_for_all`].
    pub(super) fn take(&self, bytes: usize) -> Result<Address> {
        self.enter()?;
        let mut at = 0;
        // SAFETY: the address outlives the call. The driver rejects allocations of 0 bytes.
        let status = unsafe { sys::cuMemAlloc_v2(&raw mut at, bytes.max(1)) };
        if status == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            let (free, budget) = self.memory()?;
            return Err(Error::OutOfMemory { device: self.name.clone(), bytes: bytes as u64, free, budget });
        }
        self.check("cuMemAlloc", status)?;
        Ok(Address(at))
    }

    /// The module of this name, loaded on first use.
    pub(super) fn module(&self, module: &'static ptx::Module) -> Result<sys::CUmodule> {
        let mut modules = locked(&self.modules);
        if let Some(&loaded) = modules.get(module.name) {
            return Ok(loaded);
        }
        let text = CString::new(module.text()?).map_err(|_| {
            self.failed("cuModuleLoadDataEx", format!("{}.ptx contains a zero byte", module.name))
        })?;
        let mut log = vec![0_u8; LOG];
        let mut options = [
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        // a size is passed in place of a pointer
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), LOG as *mut c_void];
        let mut loaded = ptr::null_mut();
        // SAFETY: the text is null-terminated; the number of options matches their values, which
        // outlive the call together with the log.
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
        modules.insert(module.name, loaded);
        Ok(loaded)
    }

    /// Allows blocks of a kernel to use this much dynamic shared memory.
    pub(super) fn allow_shared(&self, kernel: Kernel, bytes: u32) -> Result<()> {
        let mut allowed = locked(&self.allowed);
        if allowed.get(&kernel.0).is_some_and(|&most| bytes <= most) {
            return Ok(());
        }
        let value = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        // SAFETY: kernels come from `kernel`; their modules stay loaded.
        let status =
            unsafe { sys::cuFuncSetAttribute(kernel.0 as sys::CUfunction, MAX_DYNAMIC_SHARED, value) };
        self.check("cuFuncSetAttribute", status)?;
        allowed.insert(kernel.0, bytes);
        Ok(())
    }
}

/// Converts the status of a call to an error of this device.
fn checked(device: &str, call: &'static str, status: CUresult) -> Result<()> {
    if status == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    Err(Error::Driver { device: device.to_owned(), call, message: library::text(status) })
}

impl Drop for Device {
    fn drop(&mut self) {
        // handles belong to the context, so they are destroyed first
        let entered = self.enter().is_ok();
        if entered {
            for memory in self.blas.clear() {
                // SAFETY: workspaces of destroyed handles.
                unsafe { self.free(memory) };
            }
        }
        for peer in locked(&self.peers).drain(..).chain([self.device]) {
            // SAFETY: each was retained once; buffers keep the device alive, so all are freed.
            // Streams, events and modules are destroyed with the context.
            unsafe { sys::cuDevicePrimaryCtxRelease_v2(peer) };
        }
    }
}
