//! Writing files so that a reader, or a run that comes back after a crash, never meets half of one.
//!
//! The steps are behind [`Disk`] so that tests can stop the world after any of them.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::{Error, Result};

/// The steps that change a file system.
pub(crate) trait Disk {
    /// Makes a directory.
    fn create_dir(&mut self, path: &Path) -> io::Result<()>;
    /// Writes a new file and waits until it is on the disk. A crash may leave any part of it.
    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Waits until a directory's entries are on the disk.
    fn sync_dir(&mut self, path: &Path) -> io::Result<()>;
    /// Renames, atomically.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&mut self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&mut self, path: &Path) -> io::Result<()>;
}

/// The operating system's file system.
pub(crate) struct Real;

impl Disk for Real {
    fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }
}

/// `path` with `suffix` behind its name: a sibling.
pub(crate) fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(suffix);
    name.into()
}

/// The directory that `path` lies in.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Removes a directory of plain files, if it is there.
pub(crate) fn remove_all(disk: &mut impl Disk, path: &Path) -> Result<()> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::io(path, "read", e)),
    };
    for entry in entries {
        let entry = entry.map_err(|e| Error::io(path, "read", e))?.path();
        disk.remove_file(&entry).map_err(|e| Error::io(&entry, "remove", e))?;
    }
    disk.remove_dir(path).map_err(|e| Error::io(path, "remove", e))
}

/// Replaces the file at `path` by `bytes`, or leaves it as it was: written beside, synced, renamed.
pub(crate) fn write_atomic(disk: &mut impl Disk, path: &Path, bytes: &[u8]) -> Result<()> {
    let beside = sibling(path, ".tmp");
    let written = disk
        .write(&beside, bytes)
        .map_err(|e| Error::io(&beside, "write", e))
        .and_then(|()| disk.rename(&beside, path).map_err(|e| Error::io(path, "replace", e)));
    if written.is_err() {
        // a full disk should get its space back; if not even that works, the first error is the one to tell
        let _ = disk.remove_file(&beside);
    }
    written?;
    disk.sync_dir(parent(path)).map_err(|e| Error::io(parent(path), "sync", e))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A file system that lives for so many steps; the write that kills it leaves half of its bytes.
    pub(crate) struct Mortal(pub(crate) usize);

    impl Mortal {
        fn step(&mut self) -> io::Result<()> {
            self.0 = self.0.checked_sub(1).ok_or_else(|| io::Error::other("killed"))?;
            Ok(())
        }
    }

    impl Disk for Mortal {
        fn create_dir(&mut self, path: &Path) -> io::Result<()> {
            self.step()?;
            fs::create_dir(path)
        }
        fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
            self.step()?;
            fs::write(path, &bytes[..bytes.len() / 2])?;
            self.step()?;
            fs::write(path, bytes)
        }
        fn sync_dir(&mut self, _: &Path) -> io::Result<()> {
            self.step()
        }
        fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
            self.step()?;
            fs::rename(from, to)
        }
        fn remove_file(&mut self, path: &Path) -> io::Result<()> {
            self.step()?;
            fs::remove_file(path)
        }
        fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
            self.step()?;
            fs::remove_dir(path)
        }
    }

    #[test]
    fn a_file_is_the_old_one_or_the_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for steps in 0.. {
            fs::write(&path, "old").unwrap();
            let done = write_atomic(&mut Mortal(steps), &path, b"new one").is_ok();
            let now = fs::read_to_string(&path).unwrap();
            assert!(now == "new one" || (!done && now == "old"), "{now} after {steps} steps");
            if done {
                break;
            }
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
    }

    #[test]
    fn errors_name_the_file() {
        let message = write_atomic(&mut Real, Path::new("no/such/dir/file"), b"").unwrap_err().to_string();
        assert!(message.starts_with("no/such/dir/file.tmp: cannot write: "), "{message}");
    }
}
