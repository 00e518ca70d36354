//! Checksums of the chunks of a feature file, beside it: `features_checksums.npy`, `u1 [chunks,
//! 16]`, the little-endian XXH3-128 of each MiB.
//!
//! No manifest lists the file, because the checksum of the features in the manifest is that of
//! these checksums: a file with any other contents is refused. A feature file of one chunk has
//! none.

use std::path::Path;

use graphmill_core::{Error, Result};

use crate::{
    atomic::{self, Disk, Real},
    checksum::{self, CHUNK},
    npy::{self, Element},
    signed::FileEntry,
};

/// Name of the file.
pub(crate) const FILE_NAME: &str = "features_checksums.npy";
/// Bytes of a checksum.
const WIDTH: usize = 16;

/// Relative path of the checksums of the array at the path `name`, if it holds feature rows.
fn beside(name: &str) -> Option<String> {
    let directory = name.strip_suffix("features.npy")?;
    (directory.is_empty() || directory.ends_with('/')).then(|| format!("{directory}{FILE_NAME}"))
}

/// Returns true if `name` is the name of the file, finished or temporary.
pub(crate) fn is_own_file(name: &str) -> bool {
    let is_temporary =
        name.starts_with(&format!(".{FILE_NAME}.")) && name.ends_with(atomic::TEMPORARY_SUFFIX);
    name == FILE_NAME || is_temporary
}

/// Writes the checksums of the chunks of the array `name` in the fresh directory `dir`, if it holds
/// feature rows in several chunks.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(dir: &Path, name: &str, leaves: &[u128]) -> Result<()> {
    let Some(beside) = beside(name).filter(|_| leaves.len() > 1) else { return Ok(()) };
    let path = dir.join(beside);
    let bytes = to_bytes(leaves);
    Real.write(&path, |file| npy::write_to(file, &bytes, &[leaves.len(), WIDTH]))
        .map_err(|e| Error::io(&path, "write", e))
}

/// Checks the checksums of the array `name`, which was just verified, and adds them to a dataset of
/// an older version. A directory that cannot be written stays without.
///
/// # Errors
/// The file has other checksums.
pub(crate) fn renew(dir: &Path, name: &str, entry: &FileEntry, leaves: &[u128]) -> Result<()> {
    let Some(beside) = beside(name).filter(|_| leaves.len() > 1) else { return Ok(()) };
    if read(dir, name, entry)?.is_none() {
        let _ = atomic::write(&dir.join(beside), |file| {
            npy::write_to(file, &to_bytes(leaves), &[leaves.len(), WIDTH])
        });
    }
    Ok(())
}

/// Reads the checksums of the chunks of the array `name`; `None` without the file.
///
/// # Errors
/// The file cannot be read, or is not the one that was written with the array.
pub(crate) fn read(dir: &Path, name: &str, entry: &FileEntry) -> Result<Option<Vec<u128>>> {
    let Some(path) = beside(name).map(|beside| dir.join(beside)) else { return Ok(None) };
    if !path.try_exists().map_err(|e| Error::io(&path, "look for", e))? {
        return Ok(None);
    }
    let wrong = |message: String| {
        let remedy = "restore the file, or delete it: graphmill info --verify writes it again";
        Error::format(&path, "checksum", format!("{message}; {remedy}"))
    };
    let array = npy::open(&path)?;
    let shape = [entry.bytes.div_ceil(CHUNK as u64) as usize, WIDTH];
    if array.shape != shape || array.dtype != u8::DTYPE {
        let (found, dtype) = (&array.shape, array.dtype);
        return Err(wrong(format!(
            "shape {found:?} of {dtype} found, but {name} has chunk checksums of shape {shape:?} of |u1"
        )));
    }
    let bytes = array.map::<u8>()?;
    let (checksums, _) = bytes.as_chunks::<WIDTH>();
    let leaves: Vec<u128> = checksums.iter().map(|bytes| u128::from_le_bytes(*bytes)).collect();
    let found = checksum::root(entry.bytes, &leaves);
    if found != entry.checksum {
        let expected = &entry.checksum;
        return Err(wrong(format!(
            "these chunk checksums are damaged: they belong to a file with the checksum {found}, the \
             manifest says {expected} of {name}"
        )));
    }
    Ok(Some(leaves))
}

fn to_bytes(leaves: &[u128]) -> Vec<u8> {
    leaves.iter().flat_map(|leaf| leaf.to_le_bytes()).collect()
}
