//! Owned vectors and memory maps behind one type.

#![allow(unsafe_code, reason = "mapped files")]

use std::{
    any::Any,
    fs::File,
    marker::PhantomData,
    ops::{Deref, Range},
    path::Path,
    sync::Arc,
};

use bytemuck::Pod;
use memmap2::{Mmap, MmapMut};

use crate::{Error, Result, maps::Listed, memory};

/// Elements copied between two releases of pages.
const WINDOW: usize = 16 << 20;

/// Read-only array of `T`: owned, mapped from a file, or in anonymous huge pages. Cloning shares
/// the memory.
#[derive(Clone)]
pub struct Buffer<T> {
    storage: Storage<T>,
}

#[derive(Clone)]
enum Storage<T> {
    Owned(Arc<Vec<T>>),
    /// Shared read-only map of a file if it is listed, otherwise anonymous memory.
    Mapped {
        map: Arc<Map>,
        offset: usize,
        len: usize,
        /// The file, if it has a name.
        #[cfg_attr(not(unix), expect(dead_code, reason = "only Unix takes advice on maps"))]
        file: Option<Arc<File>>,
        of: PhantomData<T>,
        tag: Option<Tag>,
    },
}

/// Memory map that is listed under its file's name, if it has one.
struct Map {
    // dropped before the memory is unmapped
    #[cfg_attr(not(unix), expect(dead_code, reason = "only Unix takes advice on maps"))]
    listed: Option<Listed>,
    memory: Mmap,
}

impl Deref for Map {
    type Target = Mmap;

    fn deref(&self) -> &Mmap {
        &self.memory
    }
}

/// Value attached to a buffer's memory by its creator, such as the file that it maps.
pub type Tag = Arc<dyn Any + Send + Sync>;

impl<T: Pod> Buffer<T> {
    /// Maps `len` elements of `file` starting at byte `offset`. `path` is for messages.
    ///
    /// # Errors
    /// The file is too short, the offset is not aligned for `T`, or mapping fails.
    pub fn map(file: &File, path: &Path, offset: usize, len: usize) -> Result<Self> {
        if len == 0 {
            return Ok(Vec::new().into());
        }
        let size = file.metadata().map_err(|e| Error::io(path, "read the size of", e))?.len();
        let end = len
            .checked_mul(size_of::<T>())
            .and_then(|bytes| bytes.checked_add(offset))
            .filter(|end| *end as u64 <= size)
            .ok_or_else(|| {
                Error::format(
                    path,
                    format!("byte {size}"),
                    format!(
                        "the file ends early: {len} elements of {} bytes expected after byte {offset}; \
                        the file is truncated; write it again",
                        size_of::<T>()
                    ),
                )
            })?;
        // SAFETY: the map is read-only, and this process does not write to the file: files of a
        // dataset are written to a temporary sibling and renamed, never changed in place. As with
        // every memory-mapped file, another process that truncates the file during a read raises
        // SIGBUS, which a program can report by `maps::find`.
        let map = unsafe { memmap2::MmapOptions::new().len(end).map(file) }
            .map_err(|e| Error::io(path, "map", e))?;
        if !(map.as_ptr() as usize + offset).is_multiple_of(align_of::<T>()) {
            return Err(Error::format(path, format!("byte {offset}"), "the data is not aligned"));
        }
        let start = map.as_ptr() as usize;
        let listed = Listed::new(path, start..start + end);
        Ok(Self {
            storage: Storage::Mapped {
                map: Arc::new(Map { listed: Some(listed), memory: map }),
                offset,
                len,
                file: file.try_clone().ok().map(Arc::new),
                of: PhantomData,
                tag: None,
            },
        })
    }

    /// Copies to anonymous memory backed by huge pages if the system grants them: random reads of a
    /// large table then cause fewer TLB misses.
    ///
    /// # Errors
    /// The allocation fails.
    pub fn to_huge_pages(&self) -> Result<Self>
    where
        T: Send + Sync,
    {
        self.convert_to_huge_pages(|from, to| to.copy_from_slice(from))
    }

    /// Allocates `len` zeros in huge pages, which `fill` overwrites.
    ///
    /// # Errors
    /// The allocation fails, or `fill` fails.
    pub fn filled_huge_pages(len: usize, fill: impl FnOnce(&mut [T]) -> Result<()>) -> Result<Self> {
        if len == 0 {
            fill(&mut [])?;
            return Ok(Vec::new().into());
        }
        let bytes = len.saturating_mul(size_of::<T>());
        let mut map = huge_pages(bytes)?;
        fill(bytemuck::cast_slice_mut(&mut map))?;
        Self::from_map(map, len)
    }

    /// Copies as [`Buffer::to_huge_pages`] does, with chunks of the values converted by `convert`.
    ///
    /// # Errors
    /// The allocation fails.
    pub fn convert_to_huge_pages<U: Pod + Send>(
        &self,
        convert: impl Fn(&[T], &mut [U]) + Sync,
    ) -> Result<Buffer<U>>
    where
        T: Sync,
    {
        let values: &[T] = self;
        if values.is_empty() {
            return Ok(Vec::new().into());
        }
        let bytes = size_of_val(values) / size_of::<T>() * size_of::<U>();
        let mut map = huge_pages(bytes)?;
        use rayon::prelude::*;
        let chunk = 1 << 20;
        let mut windows = bytemuck::cast_slice_mut(&mut map).chunks_mut(WINDOW);
        let large = memory::total().is_some_and(|total| bytes as u64 > total / 8);
        self.scan(WINDOW, |at, from| {
            let to = windows.next().expect("as many values go out as come in");
            to.par_chunks_mut(chunk).zip(from.par_chunks(chunk)).for_each(|(to, from)| convert(from, to));
            if large {
                self.forget(at..at + from.len());
            }
        });
        Buffer::from_map(map, values.len())
    }

    /// Returns the first `len` values of the shared map of a file without a name. `path` is for
    /// messages.
    pub(crate) fn of_file_map(map: MmapMut, listed: Listed, path: &Path, len: usize) -> Result<Self> {
        if len == 0 {
            return Ok(Vec::new().into());
        }
        let map = map.make_read_only().map_err(|e| Error::io(path, "protect the map of", e))?;
        let map = Arc::new(Map { listed: Some(listed), memory: map });
        let storage = Storage::Mapped { map, offset: 0, len, file: None, of: PhantomData, tag: None };
        Ok(Self { storage })
    }

    /// Returns the first `len` values of anonymous memory.
    fn from_map(map: MmapMut, len: usize) -> Result<Self> {
        if cfg!(miri) {
            // Miri does not interpret the protection of memory
            return Ok(bytemuck::cast_slice(&map)[..len].to_vec().into());
        }
        let map = map.make_read_only().map_err(|e| Error::invalid(format!("cannot protect memory: {e}")))?;
        let map = Arc::new(Map { listed: None, memory: map });
        let storage = Storage::Mapped { map, offset: 0, len, file: None, of: PhantomData, tag: None };
        Ok(Self { storage })
    }

    /// Calls `see` with consecutive chunks of `window` elements and their starts. Pages of a mapped
    /// file longer than a window are released chunk by chunk, so the memory of this process grows
    /// by one window. (The system may keep the pages in its cache.)
    pub fn scan(&self, window: usize, mut see: impl FnMut(usize, &[T])) {
        let window = window.max(1);
        for (i, run) in self.chunks(window).enumerate() {
            see(i * window, run);
            if self.len() > window {
                self.release(i * window..i * window + run.len());
            }
        }
    }

    /// Releases the pages of a range of a mapped file; reading them again reads the file again.
    ///
    /// # Panics
    /// The range is outside.
    pub fn release(&self, run: Range<usize>) {
        let len = self.len();
        assert!(run.start <= run.end && run.end <= len, "values {run:?} of {len}");
        #[cfg(unix)]
        if let Storage::Mapped { map, offset, .. } = &self.storage
            && map.listed.is_some()
        {
            let (start, bytes) = (offset + run.start * size_of::<T>(), run.len() * size_of::<T>());
            // SAFETY: the range is inside the map (asserted), which is a shared read-only map of a
            // file: without its pages it reads the same bytes, from the file again. A refusal costs
            // only memory.
            let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, bytes) };
        }
    }

    /// Releases pages as [`Buffer::release`] does, also from the system's cache. For data that is
    /// copied and occupies a good part of the memory: a cache full of the original leaves no huge
    /// pages for the copy (of 8 GiB on a machine of 24, 4.3 came in huge pages with it and all
    /// without; batches on 2^25 nodes took a fifth longer).
    fn forget(&self, run: Range<usize>) {
        self.release(run.clone());
        #[cfg(target_os = "linux")]
        if let Storage::Mapped { offset, file: Some(file), .. } = &self.storage {
            let start = (offset + run.start * size_of::<T>()) as u64;
            let bytes = std::num::NonZeroU64::new((run.len() * size_of::<T>()) as u64);
            // A refusal costs only speed.
            let _ = rustix::fs::fadvise(file, start, bytes, rustix::fs::Advice::DontNeed);
        }
    }

    /// Advises the system that a mapped file larger than memory is read at random, so that it reads
    /// only the requested pages and not their neighbours.
    pub fn expect_random_reads(&self) {
        #[cfg(unix)]
        if let Storage::Mapped { map, file: Some(_), .. } = &self.storage {
            let _ = map.advise(memmap2::Advice::Random); // a refusal costs speed only
        }
    }

    /// Attaches a tag to the memory, if it is a map; clones share both.
    #[must_use]
    pub fn tagged(mut self, mark: Tag) -> Self {
        if let Storage::Mapped { tag, .. } = &mut self.storage {
            *tag = Some(mark);
        }
        self
    }

    /// Tag of that type.
    pub fn tag<A: Any>(&self) -> Option<&A> {
        match &self.storage {
            Storage::Mapped { tag, .. } => tag.as_deref().and_then(|tag| tag.downcast_ref()),
            Storage::Owned(_) => None,
        }
    }

    /// Returns true if the bytes come from a map rather than from this process's heap.
    pub fn is_mapped(&self) -> bool {
        matches!(self.storage, Storage::Mapped { .. })
    }
}

impl<T: Pod> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.storage {
            Storage::Owned(data) => data,
            Storage::Mapped { map, offset, len, .. } => {
                bytemuck::cast_slice(&map[*offset..*offset + len * size_of::<T>()])
            }
        }
    }
}

impl<T> From<Vec<T>> for Buffer<T> {
    fn from(data: Vec<T>) -> Self {
        Self { storage: Storage::Owned(Arc::new(data)) }
    }
}

impl<T> Default for Buffer<T> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<T: Pod + std::fmt::Debug> std::fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = &self[..self.len().min(8)];
        write!(f, "Buffer(len {}, {shown:?}{})", self.len(), if self.len() > 8 { ".." } else { "" })
    }
}

/// Allocates `bytes` bytes of anonymous memory, in huge pages if the system grants them.
fn huge_pages(bytes: usize) -> Result<MmapMut> {
    let no = |e| Error::Memory(format!("cannot reserve {bytes} bytes of memory: {e}"));
    let map = MmapMut::map_anon(bytes).map_err(no)?;
    #[cfg(all(target_os = "linux", not(miri)))]
    let _ = map.advise(memmap2::Advice::HugePage); // a refusal costs speed only
    Ok(map)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn owned_mapped_and_huge_read_the_same() {
        let data: Vec<u32> = (0..10_000).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[0; 8]).unwrap();
        file.write_all(bytemuck::cast_slice(&data)).unwrap();
        let mapped = Buffer::<u32>::map(file.as_file(), file.path(), 8, data.len()).unwrap();
        assert_eq!(&*mapped, &data[..]);
        assert_eq!(&*mapped.to_huge_pages().unwrap(), &data[..]);
        assert_eq!(&*Buffer::from(data.clone()), &data[..]);
    }

    #[test]
    fn released_pages_read_the_same_again() {
        let data: Vec<u32> = (0..100_000).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytemuck::cast_slice(&data)).unwrap();
        let mapped = Buffer::<u32>::map(file.as_file(), file.path(), 0, data.len()).unwrap();
        // Anonymous maps must not lose their pages.
        for buffer in [&mapped, &mapped.to_huge_pages().unwrap(), &data.clone().into()] {
            buffer.expect_random_reads();
            for window in [1 << 10, 3000, 100_000, usize::MAX] {
                let mut seen = Vec::new();
                buffer.scan(window, |start, run| {
                    assert_eq!(start, seen.len());
                    seen.extend_from_slice(run);
                });
                assert_eq!(seen, data);
                assert_eq!(&**buffer, &data[..]);
            }
        }
    }

    #[test]
    fn pages_outside_the_values_are_not_released() {
        let data: Vec<u64> = (0..1000).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytemuck::cast_slice(&data)).unwrap();
        let mapped = Buffer::<u64>::map(file.as_file(), file.path(), 8, 999).unwrap();
        mapped.release(999..999);
        // they may be those of another allocation, whose values would become zeros
        for run in [500..1000, 1000..1000, 0..usize::MAX, Range { start: 600, end: 500 }] {
            for buffer in [&mapped, &data[1..].to_vec().into()] {
                let release = || buffer.release(run.clone());
                let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(release)).unwrap_err();
                assert!(panic.downcast_ref::<String>().is_some_and(|why| why.contains("of 999")), "{run:?}");
            }
        }
        assert_eq!(&*mapped, &data[1..]);
    }

    #[test]
    fn short_files_are_reported_with_their_path() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = Buffer::<u64>::map(file.as_file(), file.path(), 0, 3).unwrap_err().to_string();
        assert!(error.contains("truncated") && error.contains(file.path().to_str().unwrap()));
        assert!(Buffer::<u64>::map(file.as_file(), file.path(), 0, usize::MAX).is_err());
    }
}
