//! Names of mapped files by address, for a handler of signals: a read of a mapped page fails with
//! SIGBUS if the file shrank or its disk cannot be read, and the handler can then name the file.
//!
//! A record stays for the life of the process and is used again by the next map of the same file,
//! so that a handler never reads memory that was freed: one small record for each file that was
//! mapped.

#![allow(unsafe_code, reason = "mapped files")]

#[cfg(target_os = "linux")]
use rustix::mm::{Advice, madvise};
use std::{
    ops::Range,
    path::Path,
    ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst},
    },
};

use bytemuck::NoUninit;

/// Record of a map.
struct Record {
    /// Path of the file.
    path: Box<[u8]>,
    /// Odd while the file is mapped at the addresses, which change only while it is even.
    version: AtomicUsize,
    /// First address.
    start: AtomicUsize,
    /// Address after the last byte.
    end: AtomicUsize,
    next: Option<&'static Record>,
}

impl Record {
    /// Addresses of the map: both of one map, because none counts that begins or ends meanwhile.
    /// Tests run `between` between the two reads.
    fn addresses(&self, between: impl FnOnce()) -> Option<Range<usize>> {
        let version = self.version.load(SeqCst);
        let start = self.start.load(SeqCst);
        between();
        let end = self.end.load(SeqCst);
        let is_listed = !version.is_multiple_of(2) && self.version.load(SeqCst) == version;
        is_listed.then_some(start..end)
    }
}

/// Head of the list of all records. Records are leaked and never removed.
static RECORDS: AtomicPtr<Record> = AtomicPtr::new(ptr::null_mut());

/// Held by writers of the list; readers need no lock.
static WRITER: Mutex<()> = Mutex::new(());

fn records() -> impl Iterator<Item = &'static Record> {
    // SAFETY: the pointer is null or from `Box::leak`, and records are never freed or changed
    // except through their atomics.
    let first = unsafe { RECORDS.load(SeqCst).as_ref() };
    std::iter::successors(first, |record| record.next)
}

/// A map that is listed until this value is dropped.
pub(crate) struct Listed(&'static Record);

impl Listed {
    /// Lists the map of the file `path` at these addresses.
    pub(crate) fn new(path: &Path, addresses: Range<usize>) -> Self {
        let _held = WRITER.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = path.as_os_str().as_encoded_bytes();
        let is_free = |record: &&Record| record.version.load(SeqCst).is_multiple_of(2);
        let free = records().find(|record| is_free(record) && *record.path == *bytes);
        let record = free.unwrap_or_else(|| {
            let record = Box::leak(Box::new(Record {
                path: bytes.into(),
                version: AtomicUsize::new(0),
                start: AtomicUsize::new(0),
                end: AtomicUsize::new(0),
                next: records().next(),
            }));
            RECORDS.store(record, SeqCst);
            record
        });
        record.start.store(addresses.start, SeqCst);
        record.end.store(addresses.end, SeqCst);
        record.version.fetch_add(1, SeqCst);
        Self(record)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let _held = WRITER.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.version.fetch_add(1, SeqCst);
    }
}

/// Path and byte of the mapped file at `address`; `None` if no file is mapped there. Neither
/// allocates nor locks, so a signal handler may call it.
pub fn find(address: usize) -> Option<(&'static [u8], usize)> {
    records().find_map(|record| {
        let addresses = record.addresses(|| ())?;
        addresses.contains(&address).then(|| (&*record.path, address - addresses.start))
    })
}

/// Reads `values` ahead, if they lie in a mapped file. A refusal costs only speed.
pub fn expect<T: NoUninit>(values: &[T]) {
    #[cfg(target_os = "linux")]
    if let Some((first, bytes)) = pages(values) {
        // SAFETY: the pages lie in a listed map; reading them ahead changes no value.
        let _ = unsafe { madvise(first as *mut _, bytes, Advice::WillNeed) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = values;
}

/// Takes the pages of `values` out of the memory of this process until they are used again, if they
/// lie in a mapped file. Other memory is unchanged. A refusal costs only memory.
///
/// For passes over data that may be larger than memory. The system writes changed pages back, and
/// may keep them in its cache.
pub fn release<T: NoUninit>(values: &[T]) {
    #[cfg(target_os = "linux")]
    if let Some((first, bytes)) = pages(values) {
        // SAFETY: the pages lie in a listed map, and all of these are shared maps of files: without
        // its pages such a map reads the same bytes, from the file again.
        let _ = unsafe { madvise(first as *mut _, bytes, Advice::LinuxDontNeed) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = values;
}

/// Address of the first page of values in a mapped file, which is of the same map, and the bytes
/// from there to the last value.
#[cfg(target_os = "linux")]
fn pages<T: NoUninit>(values: &[T]) -> Option<(usize, usize)> {
    let addresses = values.as_ptr_range();
    let (start, end) = (addresses.start as usize, addresses.end as usize);
    let first = start - start % rustix::param::page_size();
    (start < end && find(start).is_some()).then_some((first, end - first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_found_while_they_exist() {
        let at = |path: &str, range| Listed::new(path.as_ref(), range);
        let (a, b) = (at("maps-test-a", 16..32), at("maps-test-b", 32..40));
        assert_eq!(find(31), Some((&b"maps-test-a"[..], 15)));
        assert_eq!(find(32), Some((&b"maps-test-b"[..], 0)));
        assert_eq!((find(15), find(40)), (None, None));
        drop(a);
        assert_eq!(find(31), None);
        // the record is used again
        let before = records().count();
        let _again = at("maps-test-a", 48..56);
        assert_eq!(records().filter(|record| *record.path == *b"maps-test-a").count(), 1);
        assert!(records().count() >= before);
        assert_eq!(find(48), Some((&b"maps-test-a"[..], 0)));
        drop(b);
    }

    #[test]
    fn addresses_of_two_maps_of_a_file_are_never_joined() {
        let at = |range| Listed::new("maps-test-moved".as_ref(), range);
        let (first, mut second) = (at(64..72), None);
        let record = first.0;
        let seen = record.addresses(|| {
            drop(first);
            second = Some(at(96..104));
        });
        // memory between them is that of others
        assert_eq!(seen, None);
        assert!(second.is_some_and(|second| ptr::eq(second.0, record)));
        let _third = at(80..88);
        assert_eq!(record.addresses(|| ()), Some(80..88));
    }
}
