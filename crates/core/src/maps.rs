//! Names of mapped files by address, for a handler of signals: a read of a mapped page fails with
//! SIGBUS if the file shrank or its disk cannot be read, and the handler can then name the file.
//!
//! A handler never reads memory that was freed: records and paths stay for the life of the process.
//! A record is used again by a later map, so there are as many as maps at one time, and a search is
//! short however many files were mapped before. A path is kept once for all maps of its file.

#![allow(unsafe_code, reason = "mapped files")]

#[cfg(target_os = "linux")]
use rustix::mm::{Advice, madvise};
use std::{
    collections::BTreeMap,
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
    /// Path of the file, which is never freed.
    path: AtomicPtr<Box<[u8]>>,
    /// Odd while the file is mapped at the addresses; these and the path change only while it is
    /// even.
    version: AtomicUsize,
    /// First address.
    start: AtomicUsize,
    /// Address after the last byte.
    end: AtomicUsize,
    next: Option<&'static Record>,
}

impl Record {
    /// A free record before `next`, with a path from [`kept`].
    fn new(path: *mut Box<[u8]>, next: Option<&'static Record>) -> Self {
        let [version, start, end] = [(); 3].map(|()| AtomicUsize::new(0));
        Self { path: AtomicPtr::new(path), version, start, end, next }
    }

    /// Path and addresses of the map: all of one map, because none counts that begins or ends
    /// meanwhile. Tests run `between` between the reads.
    fn map(&self, between: impl FnOnce()) -> Option<(&'static [u8], Range<usize>)> {
        let version = self.version.load(SeqCst);
        let start = self.start.load(SeqCst);
        between();
        let (end, path) = (self.end.load(SeqCst), self.path());
        let is_listed = !version.is_multiple_of(2) && self.version.load(SeqCst) == version;
        is_listed.then_some((path, start..end))
    }

    /// Begins a map at these addresses. The record is free, and no other thread takes it.
    fn begin(&self, addresses: Range<usize>) {
        self.start.store(addresses.start, SeqCst);
        self.end.store(addresses.end, SeqCst);
        self.version.fetch_add(1, SeqCst);
    }

    /// Ends the map.
    fn end(&self) {
        self.version.fetch_add(1, SeqCst);
    }

    /// Path of the present map, or of the last one.
    fn path(&self) -> &'static [u8] {
        // SAFETY: the pointer is from `kept`, so its target is never freed and never changes.
        unsafe { &*self.path.load(SeqCst) }
    }
}

/// Head of the list of all records. Records are leaked and never removed.
static RECORDS: AtomicPtr<Record> = AtomicPtr::new(ptr::null_mut());

/// Paths of all files that were mapped, each with its copy that is never freed.
type Paths = BTreeMap<&'static [u8], &'static Box<[u8]>>;

/// Held by writers of the list; readers need no lock.
static WRITER: Mutex<Paths> = Mutex::new(Paths::new());

fn records() -> impl Iterator<Item = &'static Record> {
    // SAFETY: the pointer is null or from `Box::leak`, and records are never freed or changed
    // except through their atomics.
    let first = unsafe { RECORDS.load(SeqCst).as_ref() };
    std::iter::successors(first, |record| record.next)
}

/// The copy of a path, which is never freed or changed.
fn kept(paths: &mut Paths, path: &[u8]) -> *mut Box<[u8]> {
    let copy = paths.get(path).copied().unwrap_or_else(|| {
        let copy = &*Box::leak(Box::new(Box::from(path)));
        paths.insert(copy, copy);
        copy
    });
    ptr::from_ref(copy).cast_mut()
}

/// A map that is listed until this value is dropped.
pub(crate) struct Listed(&'static Record);

impl Listed {
    /// Lists the map of the file `path` at these addresses.
    pub(crate) fn new(path: &Path, addresses: Range<usize>) -> Self {
        let mut paths = WRITER.lock().unwrap_or_else(PoisonError::into_inner);
        let path = kept(&mut paths, path.as_os_str().as_encoded_bytes());
        let free = records().find(|record| record.version.load(SeqCst).is_multiple_of(2));
        let record = free.unwrap_or_else(|| {
            let record = Box::leak(Box::new(Record::new(path, records().next())));
            RECORDS.store(record, SeqCst);
            record
        });
        record.path.store(path, SeqCst);
        record.begin(addresses);
        Self(record)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let _held = WRITER.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.end();
    }
}

/// Path and byte of the mapped file at `address`; `None` if no file is mapped there. Neither
/// allocates nor locks, so a signal handler may call it.
pub fn find(address: usize) -> Option<(&'static [u8], usize)> {
    records().find_map(|record| {
        let (path, addresses) = record.map(|| ())?;
        addresses.contains(&address).then(|| (path, address - addresses.start))
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
        // a path has one copy
        let _again = at("maps-test-a", 48..56);
        assert_eq!(find(48), Some((&b"maps-test-a"[..], 0)));
        let paths = || WRITER.lock().unwrap_or_else(PoisonError::into_inner);
        let copy = || kept(&mut paths(), b"maps-test-a");
        assert_eq!(copy(), copy());
        drop(b);
    }

    #[test]
    fn records_are_as_many_as_maps_at_one_time() {
        let before = records().count();
        for i in 0..1000 {
            let path = format!("maps-test-many-{i}");
            let _map = Listed::new(path.as_ref(), 128..136);
            assert_eq!(find(130), Some((path.as_bytes(), 2)));
        }
        // other tests map files at the same time
        assert!(records().count() < before + 500, "{before}: {}", records().count());
    }

    #[test]
    fn addresses_of_two_maps_of_a_file_are_never_joined() {
        // of its own, so that no other test takes it
        let path = |path| kept(&mut WRITER.lock().unwrap_or_else(PoisonError::into_inner), path);
        let record = Record::new(path(b"first"), None);
        record.begin(64..72);
        let seen = record.map(|| {
            record.end();
            record.path.store(path(b"second"), SeqCst);
            record.begin(96..104);
        });
        // memory between them is that of others
        assert_eq!(seen, None);
        assert_eq!(record.map(|| ()), Some((&b"second"[..], 96..104)));
        record.end();
        assert_eq!(record.map(|| ()), None);
    }
}
