//! Sums over several devices of this process by NCCL, whose library (`libnccl.so.2`) is loaded at
//! run time.
//!
//! Each device has one communicator. One thread creates and uses all of them, in groups, because a
//! call for a single device would wait for the others.

#![allow(unsafe_code, reason = "device memory and kernels")]

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr,
    sync::{Mutex, OnceLock, PoisonError},
};

use libloading::Library;

use super::{device::starts_group, library};
use crate::{
    Error, Result,
    driver::{Address, Collective, Stream},
};

/// Communicator of the library.
type Communicator = *mut c_void;
/// Status of a call; 0 is success.
type Status = c_int;

/// Name of the library.
const NAME: &str = "libnccl.so.2";
/// `ncclFloat32` and `ncclSum`.
const FLOAT: c_int = 7;
const SUM: c_int = 0;

/// Functions of the library.
struct Calls {
    version: unsafe extern "C" fn(*mut c_int) -> Status,
    text: unsafe extern "C" fn(Status) -> *const c_char,
    init_all: unsafe extern "C" fn(*mut Communicator, c_int, *const c_int) -> Status,
    destroy: unsafe extern "C" fn(Communicator) -> Status,
    abort: unsafe extern "C" fn(Communicator) -> Status,
    group_start: unsafe extern "C" fn() -> Status,
    group_end: unsafe extern "C" fn() -> Status,
    all_reduce: unsafe extern "C" fn(
        *const c_void,
        *mut c_void,
        usize,
        c_int,
        c_int,
        Communicator,
        *mut c_void,
    ) -> Status,
}

/// The library, or the reason why it cannot be used.
fn calls() -> Result<&'static Calls, String> {
    static FOUND: OnceLock<Result<Calls, String>> = OnceLock::new();
    FOUND.get_or_init(find).as_ref().map_err(Clone::clone)
}

fn find() -> Result<Calls, String> {
    library::preload("nccl");
    // SAFETY: the library's initializers run; it stays loaded until exit.
    let Ok(library) = (unsafe { Library::new(NAME) }) else {
        return Err(format!(
            "no NCCL was found ({NAME}); install it, or set {} to its directory",
            library::DIRECTORIES
        ));
    };
    // the functions are used until exit
    let library: &Library = Box::leak(Box::new(library));
    // SAFETY: functions of these names have these signatures in all versions 2 of the library
    // (nccl.h).
    unsafe {
        Ok(Calls {
            version: symbol(library, "ncclGetVersion")?,
            text: symbol(library, "ncclGetErrorString")?,
            init_all: symbol(library, "ncclCommInitAll")?,
            destroy: symbol(library, "ncclCommDestroy")?,
            abort: symbol(library, "ncclCommAbort")?,
            group_start: symbol(library, "ncclGroupStart")?,
            group_end: symbol(library, "ncclGroupEnd")?,
            all_reduce: symbol(library, "ncclAllReduce")?,
        })
    }
}

/// Looks up a function.
///
/// # Safety
/// The function has the signature `F`.
unsafe fn symbol<F: Copy>(library: &Library, name: &str) -> Result<F, String> {
    // SAFETY: the caller guarantees the signature.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    found.map(|found| *found).map_err(|_| format!("NCCL lacks {name}; install version 2"))
}

/// Communicators of several devices, by rank.
pub(super) struct Nccl {
    calls: &'static Calls,
    name: String,
    ranks: Mutex<Ranks>,
}

struct Ranks {
    communicators: Vec<Communicator>,
    /// True if a call failed: pending work is then not waited for.
    failed: bool,
}

// SAFETY: the library allows any thread to use a communicator, one at a time; all are behind a
// lock.
unsafe impl Send for Ranks {}

/// Creates communicators of the devices of these numbers; ranks are indices into the list.
///
/// # Errors
/// The library is not available, or fails.
pub(super) fn open(devices: &[usize]) -> Result<Nccl> {
    let calls = calls().map_err(Error::Unavailable)?;
    let numbers: Vec<c_int> = devices.iter().map(|&device| device as c_int).collect();
    let mut communicators: Vec<Communicator> = vec![ptr::null_mut(); devices.len()];
    let mut version = 0;
    // SAFETY: the symbols were found; there is an entry for each device's communicator, and numbers
    // outlive the calls.
    unsafe {
        check(calls, "ncclGetVersion", (calls.version)(&raw mut version))?;
        let status = (calls.init_all)(communicators.as_mut_ptr(), numbers.len() as c_int, numbers.as_ptr());
        check(calls, "ncclCommInitAll", status)?;
    }
    let name = format!("NCCL {}.{}.{}", version / 10_000, version / 100 % 100, version % 100);
    Ok(Nccl { calls, name, ranks: Mutex::new(Ranks { communicators, failed: false }) })
}

fn check(calls: &Calls, call: &'static str, status: Status) -> Result<()> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: the symbol was found; the text belongs to the library and stays valid.
    let words = unsafe {
        let words = (calls.text)(status);
        if words.is_null() { None } else { Some(CStr::from_ptr(words).to_string_lossy().into_owned()) }
    };
    let message = words.unwrap_or_else(|| format!("status {status}"));
    Err(Error::Driver { device: "NCCL".into(), call, message })
}

impl Collective for Nccl {
    fn name(&self) -> &str {
        &self.name
    }

    unsafe fn sum(&self, ranks: &[(Vec<Address>, Stream)], counts: &[usize]) -> Result<()> {
        let mut group = self.ranks.lock().unwrap_or_else(PoisonError::into_inner);
        if group.failed {
            return Err(Error::Driver {
                device: "NCCL".into(),
                call: "ncclAllReduce",
                message: "an earlier call failed".into(),
            });
        }
        let calls = self.calls;
        let _alone = starts_group();
        // SAFETY: the symbols were found; the caller guarantees addresses and streams. A group that
        // was begun is ended even if a call within it fails.
        let summed = unsafe {
            check(calls, "ncclGroupStart", (calls.group_start)()).and_then(|()| {
                let mut all = Ok(());
                for (i, &count) in counts.iter().enumerate() {
                    for ((values, stream), &rank) in ranks.iter().zip(&group.communicators) {
                        if all.is_ok() {
                            let (at, stream) = (values[i].0 as *mut c_void, stream.0 as *mut c_void);
                            let status = (calls.all_reduce)(at, at, count, FLOAT, SUM, rank, stream);
                            all = check(calls, "ncclAllReduce", status);
                        }
                    }
                }
                let ended = check(calls, "ncclGroupEnd", (calls.group_end)());
                all.and(ended)
            })
        };
        group.failed |= summed.is_err();
        summed
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        let group = self.ranks.get_mut().unwrap_or_else(PoisonError::into_inner);
        for rank in group.communicators.drain(..) {
            // SAFETY: the library created it, and it is not used again. After a failure,
            // destruction would wait for its work forever.
            unsafe {
                if group.failed {
                    (self.calls.abort)(rank)
                } else {
                    (self.calls.destroy)(rank)
                };
            }
        }
    }
}
