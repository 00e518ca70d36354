//! Arrays listed in a manifest, mapped after checking each against its entry.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use graphmill_core::{Buffer, Error, Result};
use rayon::prelude::*;

use crate::{
    atomic, checksum,
    npy::{self, Dtype, Element},
    signed::FileEntry,
    verification::{
        self, ChunkVerifier, Verify, leaves,
        verified::{FileState, Record},
    },
};

/// Bytes of a file that are scanned before their pages are released.
const WINDOW: usize = 64 << 20;

/// Tag of the buffer that maps an array file which agrees with its manifest: the file's checksum.
struct FileChecksum(String);

/// Checksum of the array file of this `shape` that `data` maps, by its manifest, or of the file
/// that would hold values in memory. O(1), or a pass over the values in memory.
pub(crate) fn checksum_of<T: Element>(data: &Buffer<T>, shape: &[usize]) -> String {
    if let Some(FileChecksum(sum)) = data.tag() {
        return sum.clone();
    }
    if let Some(verifier) = data.tag::<ChunkVerifier>() {
        return verifier.checksum().into();
    }
    match npy::written(data) {
        Some(written) => written.entry.checksum.clone(),
        None => unwritten::<T>(data, shape).checksum,
    }
}

/// Files of a directory, by relative path, as its manifest describes them.
#[derive(Clone, Copy)]
pub(crate) struct Files<'a> {
    /// Directory of the files.
    pub(crate) dir: &'a Path,
    /// File name of the manifest.
    pub(crate) manifest: &'a str,
    /// Entry of each file.
    pub(crate) entries: &'a BTreeMap<String, FileEntry>,
    /// Extent of the verification.
    pub(crate) verify: Verify,
    /// Record of verified files, whose checksums and values are not read again.
    pub(crate) record: Option<&'a Record>,
}

/// A file that is open once: all of its bytes, which are verified, and its array, which is used.
struct MappedArray<T> {
    bytes: Buffer<u8>,
    data: Buffer<T>,
    /// State of the open file; `None` if it cannot be known.
    state: Option<FileState>,
}

impl Files<'_> {
    /// Error about a field of the manifest.
    pub(crate) fn wrong(&self, place: &str, message: &str) -> Error {
        Error::format(self.dir.join(self.manifest), place, message)
    }

    /// Returns true if the manifest lists the file.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// Number of entries of an array of one axis, by the manifest.
    pub(crate) fn length(&self, name: &str) -> usize {
        self.entries.get(name).and_then(|file| file.shape.first().copied()).unwrap_or(0)
    }

    /// Element type of an array, by the manifest.
    pub(crate) fn dtype(&self, name: &str) -> Option<Dtype> {
        Dtype::parse(&self.entries.get(name)?.dtype)
    }

    /// Maps the file `name` after checking its header and length against the manifest, and the
    /// manifest against the `shape` that the counts require.
    fn map<T: Element>(&self, name: &str, shape: &[usize]) -> Result<MappedArray<T>> {
        let place = format!("files, {name}");
        let Some(entry) = self.entries.get(name) else {
            return Err(self.wrong(&place, "the manifest does not list this file"));
        };
        if entry.shape != shape || entry.dtype != T::DTYPE.to_string() {
            let expected = T::DTYPE;
            return Err(self.wrong(
                &place,
                &format!(
                    "shape {:?} of {} disagrees with the counts, which require {shape:?} of {expected}",
                    entry.shape, entry.dtype
                ),
            ));
        }
        let path = self.dir.join(name);
        let file = fs::File::open(&path).map_err(|e| Error::io(&path, "open", e))?;
        let state = FileState::of_file(&file);
        // both maps are of this file, whatever takes its name meanwhile
        let bytes = map_all(&file, &path)?;
        if bytes.len() as u64 != entry.bytes {
            return Err(Error::format(
                &path,
                format!("byte {}", (bytes.len() as u64).min(entry.bytes)),
                format!(
                    "the file has {} bytes, the manifest says {}; restore it or make the directory again",
                    bytes.len(),
                    entry.bytes
                ),
            ));
        }
        let array = npy::of_file(file, &path)?;
        if array.shape != shape {
            return Err(Error::format(
                &path,
                "header",
                format!("shape {:?} found, {shape:?} expected", array.shape),
            ));
        }
        Ok(MappedArray { bytes, data: array.map()?, state })
    }

    /// Maps feature rows as [`Files::map`] does, with a verifier for those who read them.
    pub(crate) fn map_deferred<T: Element>(&self, name: &str, shape: &[usize]) -> Result<Buffer<T>> {
        let MappedArray { bytes, data, .. } = self.map::<T>(name, shape)?;
        let (header, entry) = (bytes.len() - size_of_val(&data[..]), &self.entries[name]);
        let is_off = self.verify == Verify::NoFeatures;
        let leaves = if is_off { None } else { leaves::read(self.dir, name, entry)? };
        let verifier =
            verification::verifier::<T>(self.dir.join(name), bytes, header, &entry.checksum, leaves);
        if is_off {
            verifier.turn_off();
        }
        Ok(data.tagged(Arc::new(verifier)))
    }

    /// Maps a file as [`Files::map`] does and, in the same pass, verifies its checksum and returns
    /// the first value for which `bad` holds. A file that the record has was found without any.
    pub(crate) fn scan<T: Element>(
        &self,
        name: &str,
        shape: &[usize],
        bad: impl Fn(&T) -> bool + Sync,
    ) -> Result<(Buffer<T>, Option<usize>)> {
        let MappedArray { bytes, data, state } = self.map::<T>(name, shape)?;
        let data = data.tagged(Arc::new(FileChecksum(self.entries[name].checksum.clone())));
        if self.record.is_some_and(|record| record.knows(name, state)) {
            return Ok((data, None));
        }
        let header = bytes.len() - size_of_val(&data[..]);
        let first = self.verify(name, &bytes, &|start, chunk| {
            // A chunk of the file begins with a value, because the data begins at a multiple of
            // their width.
            let at = start.max(header);
            let values: &[T] = bytemuck::cast_slice(chunk.get(at - start..).unwrap_or_default());
            let any = values.iter().fold(false, |any, value| any | bad(value));
            let place = any.then(|| values.iter().position(&bad)).flatten();
            place.map(|i| (at - header) / size_of::<T>() + i)
        })?;
        if let (Some(record), None) = (self.record, first) {
            record.add(self.dir, name, state);
        }
        Ok((data, first))
    }

    /// Verifies the checksum of a file and returns the first result of `find(start, chunk)`.
    fn verify(
        &self,
        name: &str,
        bytes: &Buffer<u8>,
        find: &(dyn Fn(usize, &[u8]) -> Option<usize> + Sync),
    ) -> Result<Option<usize>> {
        let (mut leaves, mut first) = (Vec::with_capacity(bytes.len() / checksum::CHUNK + 1), None);
        bytes.scan(WINDOW, |start, window| {
            let look = |(i, chunk): (usize, &[u8])| {
                (checksum::leaf(chunk), find(start + i * checksum::CHUNK, chunk))
            };
            let seen: Vec<_> = window.par_chunks(checksum::CHUNK).enumerate().map(look).collect();
            leaves.extend(seen.iter().map(|(leaf, _)| leaf));
            first = first.or_else(|| seen.iter().find_map(|(_, place)| *place));
        });
        let found = checksum::root(bytes.len() as u64, &leaves);
        let expected = &self.entries[name].checksum;
        if found == *expected {
            if self.verify == Verify::All {
                leaves::renew(self.dir, name, &self.entries[name], &leaves)?;
            }
            return Ok(first);
        }
        Err(Error::format(
            self.dir.join(name),
            "checksum",
            format!(
                "the file is damaged: its checksum is {found}, the manifest says {expected}; restore it or \
                 make the directory again"
            ),
        ))
    }

    /// Maps a file as [`Files::scan`] does, for values that are checked later.
    pub(crate) fn read<T: Element>(&self, name: &str, shape: &[usize]) -> Result<Buffer<T>> {
        Ok(self.scan(name, shape, |_| false)?.0)
    }
}

/// Adds the array `data` to the directory `dir` as the file `name`, with its entry: links the file
/// if this process wrote it, and writes it otherwise.
pub(crate) fn add<T: Element>(
    entries: &mut BTreeMap<String, FileEntry>,
    dir: &Path,
    name: &str,
    data: &Buffer<T>,
    shape: &[usize],
) -> Result<()> {
    let is_same = |entry: &FileEntry| entry.shape == shape && entry.dtype == T::DTYPE.to_string();
    match npy::written(data).filter(|written| is_same(&written.entry)) {
        // A file system without hard links gets a copy.
        Some(written) if atomic::hard_link(&written.path, &dir.join(name)).is_ok() => {
            entries.insert(name.into(), written.entry.clone());
            match &written.leaves {
                Some(leaves) => leaves::write(dir, name, leaves),
                None => leaves::write(dir, name, &checksum::leaves(&map_whole(&written.path)?)),
            }
        }
        _ => write(entries, dir, name, data, shape),
    }
}

/// Writes the file `name` of the directory `dir` and adds its entry, with the checksum of the
/// written bytes.
pub(crate) fn write<T: Element>(
    entries: &mut BTreeMap<String, FileEntry>,
    dir: &Path,
    name: &str,
    data: &[T],
    shape: &[usize],
) -> Result<()> {
    let path = dir.join(name);
    npy::write_new(&path, data, shape)?;
    let bytes = map_whole(&path)?;
    let leaves = checksum::leaves(&bytes);
    let entry = FileEntry {
        dtype: T::DTYPE.to_string(),
        shape: shape.to_vec(),
        bytes: bytes.len() as u64,
        checksum: checksum::root(bytes.len() as u64, &leaves),
    };
    entries.insert(name.into(), entry);
    leaves::write(dir, name, &leaves)
}

/// Entry of the file that [`write`] would create for the array.
pub(crate) fn unwritten<T: Element>(data: &[T], shape: &[usize]) -> FileEntry {
    let header = npy::header_of::<T>(shape);
    let data: &[u8] = bytemuck::cast_slice(data);
    FileEntry {
        dtype: T::DTYPE.to_string(),
        shape: shape.to_vec(),
        bytes: (header.len() + data.len()) as u64,
        checksum: checksum::of_parts(&header, data),
    }
}

/// Default name of a dataset: that of its directory.
pub(crate) fn directory_name(dir: &Path) -> String {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
    dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn map_whole(path: &Path) -> Result<Buffer<u8>> {
    map_all(&fs::File::open(path).map_err(|e| Error::io(path, "open", e))?, path)
}

/// Maps all bytes of `file`, which was opened at `path`.
fn map_all(file: &fs::File, path: &Path) -> Result<Buffer<u8>> {
    let size = file.metadata().map_err(|e| Error::io(path, "read the size of", e))?.len();
    let size = usize::try_from(size).map_err(|_| Error::format(path, "size", "too large to map"))?;
    Buffer::map(file, path, 0, size)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;

    #[test]
    fn the_file_that_is_verified_is_the_file_that_is_mapped() {
        let root = tempfile::tempdir().unwrap();
        let (dir, mut entries) = (root.path(), BTreeMap::new());
        for (value, name) in [(1u32, "one.npy"), (2, "two.npy"), (1, "a.npy")] {
            write(&mut entries, dir, name, &[value; 1000], &[1000]).unwrap();
        }
        let files = Files { dir, manifest: "m", entries: &entries, verify: Verify::Once, record: None };
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // another program replaces the file again and again
            scope.spawn(|| {
                for name in ["two.npy", "one.npy"].into_iter().cycle().take(1 << 20) {
                    fs::hard_link(dir.join(name), dir.join("next")).unwrap();
                    fs::rename(dir.join("next"), dir.join("a.npy")).unwrap();
                    if is_over.load(Relaxed) {
                        break;
                    }
                }
            });
            let agree = (0..3000).all(|_| {
                let MappedArray { bytes, data, .. } = files.map::<u32>("a.npy", &[1000]).unwrap();
                bytes[bytes.len() - size_of_val(&data[..])..] == *bytemuck::cast_slice::<u32, u8>(&data)
            });
            is_over.store(true, Relaxed);
            assert!(agree, "the verified bytes are those of another file");
        });
    }
}
