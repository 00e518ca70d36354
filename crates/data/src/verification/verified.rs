//! Record of the files that were verified: `verified.json` in the dataset's directory, and in the
//! folders of neighbours of a partitioned one.
//!
//! A file counts as verified while its size, modification time and inode are those of the record,
//! so that opening a dataset again reads neither its topology nor its features. No manifest lists
//! the record, because its contents can be recomputed at any time: a missing, unreadable or old
//! record only means that files are verified again. A directory that cannot be written keeps none.
//!
//! A file that was modified less than [`SETTLED`] ago is verified but not recorded: another change
//! within one tick of the file system's clock would leave its modification time as it is.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fs::{self, Metadata},
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

use super::Verify;
use crate::atomic;

/// Name of the record.
const VERIFIED: &str = "verified.json";
/// Age of the last change of a file that is recorded: two ticks of a slow clock.
const SETTLED: Duration = Duration::from_millis(20);

/// Value of the field `format`.
const FORMAT: &str = "graphmill-verified-1";
/// Maximum length of a record; longer ones are ignored.
const MAX_BYTES: u64 = 64 << 20;

/// Returns true if a directory may hold an entry of that name because of a record: the record, or
/// the temporary sibling that a killed process left.
pub(crate) fn is_own_file(name: &str) -> bool {
    let is_temporary = name.starts_with(&format!(".{VERIFIED}.")) && name.ends_with(".tmp");
    name == VERIFIED || is_temporary
}

/// Record of a directory that is being opened: the files that were verified earlier, and those that
/// are verified now.
pub(crate) struct Record {
    known: Verified,
    found: RefCell<Verified>,
    /// True while all files were verified earlier.
    is_trusted: Cell<bool>,
}

impl Record {
    /// Reads the record in `place`, of files that the manifest with that checksum lists. With
    /// [`Verify::All`] no file counts as verified.
    pub(crate) fn open(place: &Path, manifest: &str, verify: Verify) -> Self {
        let known = match verify {
            Verify::All => Verified::new(manifest),
            _ => Verified::read(place, manifest),
        };
        Self { known, found: RefCell::new(Verified::new(manifest)), is_trusted: Cell::new(true) }
    }

    /// Returns true if all files so far are unchanged since they and their contents were verified.
    pub(crate) fn is_trusted(&self) -> bool {
        self.is_trusted.get()
    }

    /// Returns true if the file `name` was verified in this state.
    pub(crate) fn knows(&self, name: &str, state: Option<FileState>) -> bool {
        let stamp = state.map(|state| state.stamp);
        let Some(known) = self.known.files.get(name).copied().filter(|known| stamp == Some(*known)) else {
            self.is_trusted.set(false);
            return false;
        };
        self.found.borrow_mut().files.insert(name.into(), known);
        true
    }

    /// Adds the file `name` of `dir`, which was verified after `before` was its state; a file that
    /// changed meanwhile, or just before, is not recorded.
    pub(crate) fn add(&self, dir: &Path, name: &str, before: Option<FileState>) {
        if let (Some(before), Some(now)) = (before, stamp_of(dir, name))
            && before.stamp == now
            && before.is_settled
        {
            self.found.borrow_mut().files.insert(name.into(), now);
        }
    }

    /// Writes the record to `place`, if a file was verified now. Called when the contents were
    /// found consistent. A failure only means that files are verified again.
    pub(crate) fn store(&self, place: &Path) {
        if !self.is_trusted() {
            self.found.borrow().store(place);
        }
    }
}

/// Returns true if the file `name` of `dir` was verified in its present state, or if `check` passes
/// now. The record at `dir/record` is of this file alone, with the contents `of`.
pub(crate) fn once(
    dir: &Path,
    (name, record): (&str, &str),
    of: &str,
    verify: Verify,
    check: impl FnOnce() -> bool,
) -> bool {
    let path = dir.join(record);
    let known = if verify == Verify::All { Verified::new(of) } else { Verified::read_from(&path, of) };
    let before = FileState::of(dir, name);
    if before.is_some_and(|before| known.files.get(name) == Some(&before.stamp)) {
        return true;
    }
    if !check() {
        return false;
    }
    if let (Some(before), Some(now)) = (before, stamp_of(dir, name))
        && before.stamp == now
        && before.is_settled
    {
        let mut found = Verified::new(of);
        found.files.insert(name.into(), now);
        found.store_to(&path);
    }
    true
}

/// Verified files of one state of a directory.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Verified {
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
    fn new(manifest: &str) -> Self {
        Self { format: FORMAT.into(), manifest: manifest.into(), files: BTreeMap::new() }
    }

    /// Reads the record of `dir`, if it belongs to the manifest.
    fn read(dir: &Path, manifest: &str) -> Self {
        Self::read_from(&dir.join(VERIFIED), manifest)
    }

    /// Reads the record at `path`, if it belongs to the manifest.
    fn read_from(path: &Path, manifest: &str) -> Self {
        let is_small = fs::metadata(path).is_ok_and(|found| found.len() <= MAX_BYTES);
        let record = || serde_json::from_slice::<Self>(&fs::read(path).ok()?).ok();
        let found = if is_small { record() } else { None };
        found
            .filter(|found| found.format == FORMAT && found.manifest == manifest)
            .unwrap_or_else(|| Self::new(manifest))
    }

    /// Writes the record into `dir`.
    fn store(&self, dir: &Path) {
        self.store_to(&dir.join(VERIFIED));
    }

    /// Writes the record to `path`. A failure only means that files are verified again.
    fn store_to(&self, path: &Path) {
        if let Ok(text) = serde_json::to_vec_pretty(self) {
            let _ = atomic::write(path, |file| file.write_all(&text));
        }
    }
}

/// State of a file before it is verified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileState {
    stamp: Stamp,
    /// True if the last change is so old that another one would have another time.
    is_settled: bool,
}

impl FileState {
    /// State of the file at the relative path `name`; `None` if it cannot be known.
    pub(crate) fn of(dir: &Path, name: &str) -> Option<Self> {
        Self::of_stamp(stamp_of(dir, name)?)
    }

    /// State of an open file; `None` if it cannot be known.
    pub(crate) fn of_file(file: &fs::File) -> Option<Self> {
        Self::of_stamp(stamp(&file.metadata().ok()?)?)
    }

    fn of_stamp(stamp: Stamp) -> Option<Self> {
        let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()?;
        let age = u64::try_from(now.checked_sub(stamp.modified)?).ok().map(Duration::from_nanos);
        Some(Self { stamp, is_settled: age.is_some_and(|age| age >= SETTLED) })
    }
}

fn stamp_of(dir: &Path, name: &str) -> Option<Stamp> {
    stamp(&fs::metadata(dir.join(name)).ok()?)
}

fn stamp(found: &Metadata) -> Option<Stamp> {
    let modified = found.modified().ok()?;
    let modified = match modified.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).ok()?,
        Err(before) => -i64::try_from(before.duration().as_nanos()).ok()?,
    };
    Some(Stamp { bytes: found.len(), modified, inode: inode(found) })
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

    /// Sets the modification time of a file to some seconds ago.
    fn age(path: &Path, seconds: u64) {
        let time = SystemTime::now() - Duration::from_secs(seconds);
        fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }

    /// Opens the record of `dir`, and adds the files that it does not know; returns the known ones.
    fn known<'n>(dir: &Path, manifest: &str, verify: Verify, names: &[&'n str]) -> Vec<&'n str> {
        let record = Record::open(dir, manifest, verify);
        let is_known = |name: &&&str| {
            let state = FileState::of(dir, name);
            let is_known = record.knows(name, state);
            if !is_known {
                record.add(dir, name, state);
            }
            is_known
        };
        let known: Vec<&str> = names.iter().filter(is_known).copied().collect();
        assert_eq!(record.is_trusted(), known.len() == names.len());
        record.store(dir);
        known
    }

    #[test]
    fn changed_files_are_not_verified() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        for name in ["a", "b"] {
            fs::write(dir.join(name), "one").unwrap();
            age(&dir.join(name), 20);
        }
        let names = ["a", "b", "missing"];
        let once = || known(dir, "sum", Verify::Once, &names);
        assert!(once().is_empty());
        assert_eq!(once(), ["a", "b"]);
        assert!(known(dir, "sum", Verify::All, &names).is_empty());
        assert_eq!(once(), ["a", "b"], "all files were recorded again");
        // The same length at another time, and another file with the same length and time.
        fs::write(dir.join("a"), "two").unwrap();
        age(&dir.join("a"), 10);
        assert_eq!(once(), ["b"]);
        let time = fs::metadata(dir.join("b")).unwrap().modified().unwrap();
        fs::write(dir.join("c"), "new").unwrap();
        fs::File::options().write(true).open(dir.join("c")).unwrap().set_modified(time).unwrap();
        fs::rename(dir.join("c"), dir.join("b")).unwrap();
        assert_eq!(once(), if cfg!(unix) { vec!["a"] } else { vec!["a", "b"] });
        assert!(known(dir, "other", Verify::Once, &names).is_empty());
        fs::write(dir.join(VERIFIED), "{").unwrap();
        assert!(once().is_empty());
    }

    #[test]
    fn files_that_were_just_written_are_not_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a");
        fs::write(&file, "one").unwrap();
        // a time that has not come yet is as new as one that is just past
        fs::File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_modified(SystemTime::now() + Duration::from_secs(60))
            .unwrap();
        for _ in 0..2 {
            assert!(known(dir.path(), "sum", Verify::Once, &["a"]).is_empty());
        }
        age(&file, 1);
        assert!(known(dir.path(), "sum", Verify::Once, &["a"]).is_empty());
        assert_eq!(known(dir.path(), "sum", Verify::Once, &["a"]), ["a"]);
    }

    #[test]
    fn only_records_are_own_files() {
        assert!(is_own_file(VERIFIED) && is_own_file(".verified.json.7.tmp"));
        assert!(!is_own_file("verified.json.bak") && !is_own_file(".verified.json"));
    }
}
