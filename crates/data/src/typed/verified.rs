//! Record of the files that were verified: `verified.json` in the dataset's directory.
//!
//! A file counts as verified while its size, modification time and inode are those of the record,
//! so that opening a dataset again reads neither its topology nor its features. No manifest lists
//! the record, because its contents can be recomputed at any time: a missing, unreadable or old
//! record only means that files are verified again. A directory that cannot be written keeps none.

use std::{
    collections::BTreeMap,
    fs::{self, Metadata},
    path::Path,
    time::UNIX_EPOCH,
};

use serde::{Deserialize, Serialize};

use super::names::VERIFIED;
use crate::atomic;

/// Value of the field `format`.
const FORMAT: &str = "graphmill-verified-1";
/// Maximum length of a record; longer ones are ignored.
const MAX_BYTES: u64 = 64 << 20;

/// Verified files of one state of a directory.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Verified {
    format: String,
    /// Checksum of the manifest with which the files agree.
    manifest: String,
    files: BTreeMap<String, Stamp>,
}

/// State of a file on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stamp {
    bytes: u64,
    /// Nanoseconds since 1970.
    modified: i64,
    inode: u64,
}

impl Verified {
    /// Creates an empty record for the files of a manifest.
    pub(super) fn new(manifest: &str) -> Self {
        Self { format: FORMAT.into(), manifest: manifest.into(), files: BTreeMap::new() }
    }

    /// Reads the record of `dir`, if it belongs to the manifest.
    pub(super) fn read(dir: &Path, manifest: &str) -> Self {
        let path = dir.join(VERIFIED);
        let is_small = fs::metadata(&path).is_ok_and(|found| found.len() <= MAX_BYTES);
        let record = || serde_json::from_slice::<Self>(&fs::read(&path).ok()?).ok();
        let found = if is_small { record() } else { None };
        found
            .filter(|found| found.format == FORMAT && found.manifest == manifest)
            .unwrap_or_else(|| Self::new(manifest))
    }

    /// Returns true if the file at the relative path `name` is unchanged since it was verified.
    pub(super) fn has(&self, dir: &Path, name: &str) -> bool {
        self.files.get(name).is_some_and(|stamp| stamp_of(dir, name) == Some(*stamp))
    }

    /// Records the present state of a file, which was verified after `before` was taken by
    /// [`Verified::stamp`]; a file that changed meanwhile is not recorded.
    pub(super) fn add(&mut self, dir: &Path, name: &str, before: Option<VerifiedStamp>) {
        if let (Some(VerifiedStamp(before)), Some(now)) = (before, stamp_of(dir, name))
            && before == now
        {
            self.files.insert(name.into(), now);
        }
    }

    /// State of a file before it is verified.
    pub(super) fn stamp(dir: &Path, name: &str) -> Option<VerifiedStamp> {
        stamp_of(dir, name).map(VerifiedStamp)
    }

    /// Writes the record into `dir`. A failure only means that files are verified again.
    pub(super) fn store(&self, dir: &Path) {
        if let Ok(text) = serde_json::to_vec_pretty(self) {
            let _ = atomic::write(&dir.join(VERIFIED), |file| file.write_all(&text));
        }
    }
}

/// State of a file, for [`Verified::add`].
#[derive(Clone, Copy, Debug)]
pub(super) struct VerifiedStamp(Stamp);

fn stamp_of(dir: &Path, name: &str) -> Option<Stamp> {
    let found = fs::metadata(dir.join(name)).ok()?;
    let modified = found.modified().ok()?;
    let modified = match modified.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).ok()?,
        Err(before) => -i64::try_from(before.duration().as_nanos()).ok()?,
    };
    Some(Stamp { bytes: found.len(), modified, inode: inode(&found) })
}

#[cfg(unix)]
fn inode(found: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(found)
}

#[cfg(not(unix))]
fn inode(_: &Metadata) -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_files_are_not_verified() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        for name in ["a", "b"] {
            fs::write(dir.join(name), "one").unwrap();
        }
        let mut record = Verified::new("sum");
        for name in ["a", "b", "missing"] {
            let before = Verified::stamp(dir, name);
            record.add(dir, name, before);
        }
        record.store(dir);
        let read = || Verified::read(dir, "sum");
        assert_eq!(read(), record);
        assert!(read().has(dir, "a") && read().has(dir, "b") && !read().has(dir, "missing"));
        // The same length, and the same time of modification in another file.
        let time = fs::metadata(dir.join("a")).unwrap().modified().unwrap();
        fs::write(dir.join("a"), "two").unwrap();
        let later = time + std::time::Duration::from_nanos(1);
        fs::File::options().write(true).open(dir.join("a")).unwrap().set_modified(later).unwrap();
        assert!(!read().has(dir, "a") && read().has(dir, "b"));
        fs::write(dir.join("c"), "new").unwrap();
        fs::rename(dir.join("c"), dir.join("b")).unwrap();
        assert!(!read().has(dir, "b"));
        assert_eq!(Verified::read(dir, "other").files.len(), 0);
        fs::write(dir.join(VERIFIED), "{").unwrap();
        assert_eq!(read().files.len(), 0);
    }
}
