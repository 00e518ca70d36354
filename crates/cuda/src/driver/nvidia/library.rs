//! The vendor's libraries, loaded at run time. A check here precedes every call into one of them: a
//! missing or outdated library is an error, never a panic.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::{
    env,
    ffi::OsStr,
    fs, mem,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use cudarc::{cublas, driver::sys};

/// Variable that names directories searched for libraries before the system's, separated by colons
/// as in `PATH`.
pub(super) const DIRECTORIES: &str = "GRAPHMILL_CUDA_PATH";

/// Functions used of the driver's library.
const DRIVER_CALLS: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetAttribute",
    "cuDeviceCanAccessPeer",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuCtxEnablePeerAccess",
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemHostGetDevicePointer_v2",
    "cuCtxGetStreamPriorityRange",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuEventElapsedTime_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyAsync",
    "cuMemsetD32Async",
    "cuModuleLoadDataEx",
    "cuModuleGetFunction",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuLaunchKernel",
];

/// Functions used of the driver's library to capture graphs.
const GRAPH_CALLS: &[&str] = &[
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
];

/// Functions used of cuBLAS.
const BLAS_CALLS: &[&str] = &[
    "cublasCreate_v2",
    "cublasDestroy_v2",
    "cublasSetStream_v2",
    "cublasSetWorkspace_v2",
    "cublasGemmEx",
    "cublasGemmStridedBatchedEx",
    "cublasGetStatusString",
];

/// Lowest CUDA version whose drivers accept the kernels' PTX (version 8.7), in the driver's
/// encoding: 1000 times the major version plus 10 times the minor one.
const MIN_CUDA: i32 = 12_080;

/// Alternative named in every error.
const ALTERNATIVE: &str = "or use --devices cpu";

/// Number of devices of the machine's driver, or the reason why it has none.
pub(super) fn devices() -> Result<usize, String> {
    static FOUND: OnceLock<Result<usize, String>> = OnceLock::new();
    FOUND.get_or_init(find_devices).clone()
}

fn find_devices() -> Result<usize, String> {
    // SAFETY: opens the library and closes it again.
    if !unsafe { sys::is_culib_present() } {
        return Err(format!("no NVIDIA driver was found (libcuda.so.1); install one, {ALTERNATIVE}"));
    }
    for call in DRIVER_CALLS {
        // SAFETY: the library is loaded; the symbol is only looked up, not called.
        let found = unsafe { sys::culib().get::<unsafe extern "C" fn()>(call.as_bytes()).is_ok() };
        if !found {
            return Err(format!(
                "the NVIDIA driver lacks {call}; install version 570 or later, {ALTERNATIVE}"
            ));
        }
    }
    // SAFETY: the symbol was found; initialization may be repeated.
    let status = unsafe { sys::cuInit(0) };
    match status {
        sys::CUresult::CUDA_SUCCESS => {}
        sys::CUresult::CUDA_ERROR_NO_DEVICE => {
            return Err(format!(
                "the NVIDIA driver reports no devices; check nvidia-smi and CUDA_VISIBLE_DEVICES, \
                 {ALTERNATIVE}"
            ));
        }
        other => {
            return Err(format!(
                "the NVIDIA driver cannot be used: cuInit: {}; check nvidia-smi, {ALTERNATIVE}",
                text(other)
            ));
        }
    }
    let (mut version, mut count) = (0, 0);
    // SAFETY: the symbols were found, and the outputs outlive the calls.
    let (versioned, counted) =
        unsafe { (sys::cuDriverGetVersion(&raw mut version), sys::cuDeviceGetCount(&raw mut count)) };
    for (call, status) in [("cuDriverGetVersion", versioned), ("cuDeviceGetCount", counted)] {
        if status != sys::CUresult::CUDA_SUCCESS {
            return Err(format!(
                "the NVIDIA driver cannot be used: {call}: {}; check nvidia-smi, {ALTERNATIVE}",
                text(status)
            ));
        }
    }
    if version < MIN_CUDA {
        return Err(format!(
            "the NVIDIA driver supports CUDA {}.{}, the kernels need 12.8; \
            install version 570 or later, {ALTERNATIVE}",
            version / 1000,
            version % 1000 / 10
        ));
    }
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Message of the driver for a status. The driver must have been found.
pub(super) fn text(status: sys::CUresult) -> String {
    let error = cudarc::driver::result::DriverError(status);
    let name = error.error_name().map(|name| name.to_string_lossy().into_owned());
    let words = error.error_string().map(|words| words.to_string_lossy().into_owned());
    match (name, words) {
        (Ok(name), Ok(words)) => format!("{words} ({name})"),
        _ => format!("error {}", status as u32),
    }
}

/// A function for graphs that the driver lacks, if any. The driver must have been found.
pub(super) fn missing_for_graphs() -> Option<&'static str> {
    static MISSING: OnceLock<Option<&'static str>> = OnceLock::new();
    *MISSING.get_or_init(|| {
        GRAPH_CALLS.iter().copied().find(|call| {
            // SAFETY: the library is there; the symbol is only looked up, not called.
            unsafe { sys::culib().get::<unsafe extern "C" fn()>(call.as_bytes()).is_err() }
        })
    })
}

/// Returns true if cuBLAS is available, with all functions used.
pub(super) fn has_blas() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // cuBLAS itself loads the first one
        preload("cublasLt");
        preload("cublas");
        // SAFETY: opens the library and closes it again; symbols are only looked up, and only if
        // the library is available.
        unsafe {
            cublas::sys::is_culib_present()
                && BLAS_CALLS
                    .iter()
                    .all(|call| cublas::sys::culib().get::<unsafe extern "C" fn()>(call.as_bytes()).is_ok())
        }
    })
}

/// Loads a library from one of [`DIRECTORIES`], if it is there: later loads by its name then find
/// this one.
pub(super) fn preload(name: &str) {
    let prefix = format!("lib{name}.so");
    let directories = env::var_os(DIRECTORIES).unwrap_or_default();
    for directory in env::split_paths(&directories).filter(|directory| !directory.as_os_str().is_empty()) {
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut found: Vec<PathBuf> =
            entries.filter(|path| path.file_name().is_some_and(|file| is_library(file, &prefix))).collect();
        // the longest name is the library itself; others are links to it
        found.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
        if found.pop().is_some_and(|path| load(&path)) {
            return;
        }
    }
}

/// Loads a library until exit, so that others find its functions; returns true on success.
#[cfg(unix)]
fn load(path: &Path) -> bool {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    // SAFETY: the library's initializers run, as in a load by name.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.map(mem::forget).is_ok()
}

/// Loads a library until exit, so that others find its functions; returns true on success.
#[cfg(not(unix))]
fn load(path: &Path) -> bool {
    // SAFETY: the library's initializers run, as in a load by name.
    unsafe { libloading::Library::new(path) }.map(mem::forget).is_ok()
}

/// Returns true if the file has the library's name, with or without a version suffix.
fn is_library(file: &OsStr, prefix: &str) -> bool {
    file.to_str().and_then(|name| name.strip_prefix(prefix)).is_some_and(|rest| {
        rest.is_empty()
            || rest.starts_with('.') && rest.bytes().all(|byte| byte == b'.' || byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::is_library;

    #[test]
    fn libraries_are_recognized_by_name() {
        for name in ["libcublas.so", "libcublas.so.12", "libcublas.so.12.8.4.1"] {
            assert!(is_library(name.as_ref(), "libcublas.so"), "{name}");
        }
        for name in ["libcublasLt.so.12", "libcublas.so.12.old", "cublas.so"] {
            assert!(!is_library(name.as_ref(), "libcublas.so"), "{name}");
        }
    }
}
