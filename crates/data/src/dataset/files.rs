//! Arrays that a manifest lists, mapped after checking each against what is said of it there.

use std::{collections::BTreeMap, fs, path::Path};

use graphmill_core::{Buffer, Error, Result};
use rayon::prelude::*;

use super::{
    checksum::{self, checksum},
    manifest::FileEntry,
};
use crate::npy::{self, Dtype, Element};

/// Bytes of a file that are looked at before their pages are given back.
const WINDOW: usize = 64 << 20;

/// The files of a directory, by their paths in it, as its manifest describes them.
#[derive(Clone, Copy)]
pub(crate) struct Files<'a> {
    /// The directory.
    pub(crate) dir: &'a Path,
    /// What the manifest's file is called.
    pub(crate) manifest: &'a str,
    /// What each file must be.
    pub(crate) entries: &'a BTreeMap<String, FileEntry>,
}

impl Files<'_> {
    /// Something that the manifest says cannot be.
    pub(crate) fn wrong(&self, place: &str, message: &str) -> Error {
        Error::format(self.dir.join(self.manifest), place, message)
    }

    /// Whether the manifest lists the file.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// The number of entries that the manifest says an array of one axis has.
    pub(crate) fn length(&self, name: &str) -> usize {
        self.entries.get(name).and_then(|file| file.shape.first().copied()).unwrap_or(0)
    }

    /// The type of an array's values, by the manifest.
    pub(crate) fn dtype(&self, name: &str) -> Option<Dtype> {
        Dtype::parse(&self.entries.get(name)?.dtype)
    }

    /// Maps the file `name` and the array in it after checking header and length against the manifest, and the manifest
    /// against the `shape` that the counts ask for.
    pub(crate) fn map<T: Element>(&self, name: &str, shape: &[usize]) -> Result<(Buffer<u8>, Buffer<T>)> {
        let place = format!("files, {name}");
        let Some(entry) = self.entries.get(name) else {
            return Err(self.wrong(&place, "the manifest does not list this file"));
        };
        if entry.shape != shape || entry.dtype != T::DTYPE.to_string() {
            let expected = T::DTYPE;
            return Err(self.wrong(
                &place,
                &format!(
                    "shape {:?} of {} disagrees with the counts, which ask for {shape:?} of {expected}",
                    entry.shape, entry.dtype
                ),
            ));
        }
        let path = self.dir.join(name);
        let bytes = map_whole(&path)?;
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
        let array = npy::open(&path)?;
        if array.shape != shape {
            return Err(Error::format(
                &path,
                "header",
                format!("shape {:?} found, {shape:?} expected", array.shape),
            ));
        }
        Ok((bytes, array.map()?))
    }

    /// As [`Files::map`], with the checksum of the whole file and the first value for which `bad` holds: one pass.
    pub(crate) fn scan<T: Element>(
        &self,
        name: &str,
        shape: &[usize],
        bad: impl Fn(&T) -> bool + Sync,
    ) -> Result<(Buffer<T>, Option<usize>)> {
        let (bytes, data) = self.map::<T>(name, shape)?;
        let header = bytes.len() - size_of_val(&data[..]);
        let (mut leaves, mut first) = (Vec::with_capacity(bytes.len() / checksum::CHUNK + 1), None);
        bytes.scan(WINDOW, |start, window| {
            let look = |(i, chunk): (usize, &[u8])| {
                // a chunk of the file begins with a value, as the data does at a multiple of their width
                let at = (start + i * checksum::CHUNK).max(header);
                let skipped = at - (start + i * checksum::CHUNK);
                let values: &[T] = bytemuck::cast_slice(chunk.get(skipped..).unwrap_or_default());
                let any = values.iter().fold(false, |any, value| any | bad(value));
                let place = any.then(|| values.iter().position(&bad)).flatten();
                (checksum::leaf(chunk), place.map(|i| (at - header) / size_of::<T>() + i))
            };
            let seen: Vec<_> = window.par_chunks(checksum::CHUNK).enumerate().map(look).collect();
            leaves.extend(seen.iter().map(|(leaf, _)| leaf));
            first = first.or_else(|| seen.iter().find_map(|(_, place)| *place));
        });
        let found = checksum::root(bytes.len() as u64, &leaves);
        let expected = &self.entries[name].checksum;
        if found == *expected {
            return Ok((data, first));
        }
        Err(Error::format(
            self.dir.join(name),
            "checksum",
            format!(
                "the file is damaged: its checksum is {found}, the manifest says {expected}; restore it or make the directory again"
            ),
        ))
    }

    /// As [`Files::scan`], for values that are looked at later.
    pub(crate) fn read<T: Element>(&self, name: &str, shape: &[usize]) -> Result<Buffer<T>> {
        Ok(self.scan(name, shape, |_| false)?.0)
    }
}

/// Writes the file `name` of the directory `dir` and enters it, with the checksum of what the disk now holds.
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
    let entry = FileEntry {
        dtype: T::DTYPE.to_string(),
        shape: shape.to_vec(),
        bytes: bytes.len() as u64,
        checksum: checksum(&bytes),
    };
    entries.insert(name.into(), entry);
    Ok(())
}

/// The entry of the file that [`write`] would make of the array.
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

fn map_whole(path: &Path) -> Result<Buffer<u8>> {
    let file = fs::File::open(path).map_err(|e| Error::io(path, "open", e))?;
    let size = file.metadata().map_err(|e| Error::io(path, "read the size of", e))?.len();
    let size = usize::try_from(size).map_err(|_| Error::format(path, "size", "too large to map"))?;
    Buffer::map(&file, path, 0, size)
}
