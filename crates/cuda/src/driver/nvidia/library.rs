//! The vendor's libraries, looked for at run time. Every call into one of them follows a check
//! here: a library that is missing, or too old to have what is called, is an answer, never a panic.

use std::{
    env,
    ffi::{CString, OsStr},
    fs,
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
    sync::OnceLock,
};

use cudarc::{cublas, driver::sys};

/// The variable that names directories in which libraries are looked for before the system's:
/// separated by colons, as `PATH` is.
pub(super) const DIRECTORIES: &str = "GRAPHMILL_CUDA_PATH";

/// What is called of the driver's library.
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

/// What is called of the driver's library to capture work as graphs.
const GRAPH_CALLS: &[&str] = &[
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
];

/// What is called of cuBLAS.
const BLAS_CALLS: &[&str] = &[
    "cublasCreate_v2",
    "cublasDestroy_v2",
    "cublasSetStream_v2",
    "cublasSetWorkspace_v2",
    "cublasGemmEx",
    "cublasGemmStridedBatchedEx",
    "cublasGetStatusString",
];

/// The oldest CUDA whose drivers take the kernels' PTX (version 8.7), as the driver tells its own:
/// 1000 times the major version and 10 times the minor one.
const OLDEST: i32 = 12_080;

/// What else can be done.
const INSTEAD: &str = "or use --devices cpu";

/// How many devices the machine's driver has, or why there are none.
pub(super) fn devices() -> Result<usize, String> {
    static FOUND: OnceLock<Result<usize, String>> = OnceLock::new();
    FOUND.get_or_init(find_devices).clone()
}

fn find_devices() -> Result<usize, String> {
    // SAFETY: opens the library and closes it again.
    if !unsafe { sys::is_culib_present() } {
        return Err(format!("no NVIDIA driver was found (libcuda.so.1); install one, {INSTEAD}"));
    }
    for call in DRIVER_CALLS {
        // SAFETY: the library is there; the symbol is only looked up, not called.
        let found = unsafe { sys::culib().get::<unsafe extern "C" fn()>(call.as_bytes()).is_ok() };
        if !found {
            return Err(format!(
                "the NVIDIA driver has no {call}: install one of version 570 or later, {INSTEAD}"
            ));
        }
    }
    // SAFETY: the symbol was found; initialising may be asked for again and again.
    let status = unsafe { sys::cuInit(0) };
    match status {
        sys::CUresult::CUDA_SUCCESS => {}
        sys::CUresult::CUDA_ERROR_NO_DEVICE => {
            return Err(format!(
                "the NVIDIA driver sees no device; look at nvidia-smi and CUDA_VISIBLE_DEVICES, {INSTEAD}"
            ));
        }
        other => {
            return Err(format!(
                "the NVIDIA driver cannot be used: cuInit: {}; look at nvidia-smi, {INSTEAD}",
                text(other)
            ));
        }
    }
    let (mut version, mut count) = (0, 0);
    // SAFETY: symbols that were found write numbers that outlive the calls.
    let (versioned, counted) =
        unsafe { (sys::cuDriverGetVersion(&raw mut version), sys::cuDeviceGetCount(&raw mut count)) };
    for (call, status) in [("cuDriverGetVersion", versioned), ("cuDeviceGetCount", counted)] {
        if status != sys::CUresult::CUDA_SUCCESS {
            return Err(format!("the NVIDIA driver cannot be used: {call}: {}, {INSTEAD}", text(status)));
        }
    }
    if version < OLDEST {
        return Err(format!(
            "the NVIDIA driver is one for CUDA {}.{}, the kernels need 12.8: install version 570 or later, {INSTEAD}",
            version / 1000,
            version % 1000 / 10
        ));
    }
    Ok(usize::try_from(count).unwrap_or(0))
}

/// The driver's words for an answer. The driver has been found by then.
pub(super) fn text(status: sys::CUresult) -> String {
    let error = cudarc::driver::result::DriverError(status);
    let name = error.error_name().map(|name| name.to_string_lossy().into_owned());
    let words = error.error_string().map(|words| words.to_string_lossy().into_owned());
    match (name, words) {
        (Ok(name), Ok(words)) => format!("{words} ({name})"),
        _ => format!("error {}", status as u32),
    }
}

/// What the driver lacks for graphs, if anything. It has been found by then.
pub(super) fn missing_for_graphs() -> Option<&'static str> {
    static MISSING: OnceLock<Option<&'static str>> = OnceLock::new();
    *MISSING.get_or_init(|| {
        GRAPH_CALLS.iter().copied().find(|call| {
            // SAFETY: the library is there; the symbol is only looked up, not called.
            unsafe { sys::culib().get::<unsafe extern "C" fn()>(call.as_bytes()).is_err() }
        })
    })
}

/// Whether cuBLAS is there, and has what is called.
pub(super) fn has_blas() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // cuBLAS itself asks for the second
        preload("cublasLt");
        preload("cublas");
        // SAFETY: opens the library and closes it again; symbols are only looked up, and only where
        // the library is there.
        unsafe {
            cublas::sys::is_culib_present()
                && BLAS_CALLS
                    .iter()
                    .all(|call| cublas::sys::culib().get::<unsafe extern "C" fn()>(call.as_bytes()).is_ok())
        }
    })
}

/// Loads a library of one of [`DIRECTORIES`], where it is there: whoever asks the system for it by
/// name then gets this one.
pub(super) fn preload(name: &str) {
    let prefix = format!("lib{name}.so");
    let directories = env::var_os(DIRECTORIES).unwrap_or_default();
    for directory in env::split_paths(&directories).filter(|directory| !directory.as_os_str().is_empty()) {
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut found: Vec<PathBuf> =
            entries.filter(|path| path.file_name().is_some_and(|file| is_library(file, &prefix))).collect();
        // the longest name is the library itself where the others lead to it
        found.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
        let path = found.pop().and_then(|path| CString::new(path.as_os_str().as_bytes()).ok());
        if let Some(path) = path {
            // SAFETY: a path that ends with a zero. The library's initialisers run, as they would
            // when it is found by name; it stays loaded to the end.
            let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
            if !handle.is_null() {
                return;
            }
        }
    }
}

/// Whether a file is called as the library is, with or without versions behind.
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
    fn libraries_are_told_by_their_names() {
        for name in ["libcublas.so", "libcublas.so.12", "libcublas.so.12.8.4.1"] {
            assert!(is_library(name.as_ref(), "libcublas.so"), "{name}");
        }
        for name in ["libcublasLt.so.12", "libcublas.so.12.old", "cublas.so"] {
            assert!(!is_library(name.as_ref(), "libcublas.so"), "{name}");
        }
    }
}
