//! Memory of the machine and the limits of this process, and allocation of sizes that a file
//! declares: an implausible size is rejected with a message, and never aborts. (Every reader first
//! limits the size by the bytes that are present; this is the last line of defence.)
//!
//! Intermediate results, whose sizes follow from options and draws, grow by [`demand`].

#![forbid(unsafe_code)]

mod limits;
mod refusal;

use std::{fs, sync::OnceLock};

use bytemuck::Zeroable;

pub use refusal::{
    catch, demand, demand_append, demand_collect, demand_copy, demand_extend, demand_in_map, demand_in_set,
    demand_len, demand_par_collect, demand_push, demand_zeros, refusal,
};

use crate::{Error, Result};

/// Memory of the machine in bytes, or the smallest limit of this process below it (a container's,
/// `ulimit -v`), if the system reports either.
pub fn total() -> Option<u64> {
    static TOTAL: OnceLock<Option<u64>> = OnceLock::new();
    *TOTAL.get_or_init(|| smallest(installed(), limits::all().iter().map(|limit| limit.bytes)))
}

/// Memory of the machine in bytes, whatever the limits of this process, if the system reports it.
pub fn installed() -> Option<u64> {
    machine("MemTotal")
}

/// Memory that this process can allocate without evicting others, in bytes, if the system reports
/// it: what the machine has, or less if a limit of the process leaves less. Cached file pages count
/// as free: the pages of a mapped dataset are evicted.
pub fn available() -> Option<u64> {
    smallest(machine("MemAvailable"), limits::all().iter().map(limits::Limit::left))
}

/// Field of `/proc/meminfo`, in bytes.
fn machine(name: &str) -> Option<u64> {
    bytes_of(&fs::read_to_string("/proc/meminfo").ok()?, name)
}

fn smallest(machine: Option<u64>, limits: impl Iterator<Item = u64>) -> Option<u64> {
    machine.into_iter().chain(limits).min()
}

/// Peak memory of this process in bytes, if the system reports it.
pub fn peak() -> Option<u64> {
    bytes_of(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM")
}

/// Current memory of this process in bytes, pages of mapped files included, if the system reports
/// it.
pub fn resident() -> Option<u64> {
    bytes_of(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS")
}

/// Parses a field of the files above (proc_meminfo(5), proc_pid_status(5)): `name:   12340 kB` on a
/// separate line.
fn bytes_of(text: &str, name: &str) -> Option<u64> {
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(field, _)| *field == name)?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Rejects `count` elements of `T` that exceed the machine's memory.
fn check<T>(count: usize) -> Result<()> {
    let bytes = (count as u128) * size_of::<T>() as u128;
    match total() {
        Some(total) if bytes > u128::from(total) => Err(Error::invalid(format!(
            "{bytes} bytes would be needed, but this machine has {total}: either the size is damaged or the \
             data needs a larger machine"
        ))),
        _ => Ok(()),
    }
}

/// Allocates an empty vector with capacity for `count` elements.
///
/// # Errors
/// They exceed the machine's memory, or the system refuses.
pub fn reserve<T>(count: usize) -> Result<Vec<T>> {
    check::<T>(count)?;
    let mut data = Vec::new();
    data.try_reserve_exact(count).map_err(|_| no_memory::<T>(count))?;
    Ok(data)
}

/// Allocates `count` zeros.
///
/// # Errors
/// They exceed the machine's memory, or the system refuses.
pub fn zeroed<T: Zeroable>(count: usize) -> Result<Vec<T>> {
    check::<T>(count)?;
    bytemuck::allocation::try_zeroed_vec(count).map_err(|()| no_memory::<T>(count))
}

/// Allocates `count` copies of `value`.
///
/// # Errors
/// They exceed the machine's memory, or the system refuses.
pub fn filled<T: Clone>(value: T, count: usize) -> Result<Vec<T>> {
    let mut data = reserve(count)?;
    data.resize(count, value);
    Ok(data)
}

/// Changes the length of `data` to `len`, with copies of `value` at the end.
///
/// # Errors
/// They exceed the machine's memory, or the system refuses; then `data` is unchanged.
pub fn resize<T: Clone>(data: &mut Vec<T>, len: usize, value: T) -> Result<()> {
    grow(data, len.saturating_sub(data.len()))?;
    data.resize(len, value);
    Ok(())
}

/// Reserves capacity for `more` elements behind those of `data`.
///
/// # Errors
/// All of them exceed the machine's memory, or the system refuses; then `data` is unchanged.
pub fn grow<T>(data: &mut Vec<T>, more: usize) -> Result<()> {
    check::<T>(data.len().saturating_add(more))?;
    data.try_reserve(more).map_err(|_| no_memory::<T>(more))
}

/// Error about `count` values for which the system has no memory.
fn no_memory<T>(count: usize) -> Error {
    let bytes = count.saturating_mul(size_of::<T>());
    Error::Memory(format!(
        "{bytes} bytes of memory for {count} values were refused: the memory, or the limit of this process, \
         is exhausted; lower the options that need it, or raise the limit"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn implausible_sizes_are_errors() {
        assert!(zeroed::<u64>(usize::MAX).is_err());
        assert!(reserve::<u64>(usize::MAX / 16).is_err());
        assert_eq!(zeroed::<u8>(3).unwrap(), [0, 0, 0]);
        assert!(filled(-1i64, usize::MAX / 8).is_err());
        assert_eq!(filled(-1, 3).unwrap(), [-1; 3]);
        let mut data = vec![7u64];
        for length in [usize::MAX, usize::MAX / 16] {
            assert!(resize(&mut data, length, 0).is_err() && grow(&mut data, length).is_err());
        }
        assert_eq!(data, [7]);
        resize(&mut data, 3, 9).unwrap();
        assert_eq!(data, [7, 9, 9]);
        resize(&mut data, 1, 9).unwrap();
        assert_eq!(data, [7]);
    }

    #[test]
    fn fields_are_read_with_their_unit() {
        let text = "Name:\tx\nVmHWMax: 1 kB\nVmHWM:\t   12340 kB\nVmRSS:\t 1 kB\nBare: 7\n";
        assert_eq!(bytes_of(text, "VmHWM"), Some(12_636_160));
        assert_eq!((bytes_of(text, "Vm"), bytes_of(text, "Bare"), bytes_of("", "VmHWM")), (None, None, None));
        if cfg!(target_os = "linux") {
            assert!(available().unwrap() <= total().unwrap() && peak().unwrap() > 1 << 20);
        }
    }
}
