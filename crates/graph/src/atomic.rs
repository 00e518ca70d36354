//! Files and directories that appear whole or not at all: written beside, synced, renamed.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::{Error, Result};

/// Writes the file `path` through `fill`, beside it first. An existing file is replaced in one
/// step; after an error it is as it was.
///
/// # Errors
/// Creating, writing, syncing or renaming fails (a full disk, a missing directory, no permission).
pub fn write(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
    let temporary = Temporary(sibling(path)?);
    write_synced(&temporary.0, fill).map_err(|e| Error::io(path, "write", e))?;
    fs::rename(&temporary.0, path).map_err(|e| Error::io(path, "rename the finished file to", e))?;
    sync_dir(parent(path))
}

/// Writes the directory `path` through `fill`, which is handed a fresh sibling directory;
/// missing parents are made. With `replace`, an existing directory is moved aside, the new one moved in, and the old one removed;
/// otherwise `path` must be missing or empty. After an error `path` is as it was.
///
/// # Errors
/// What `fill` reports, or creating, syncing or renaming fails.
pub fn write_dir(path: &Path, replace: bool, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let temporary = Temporary(sibling(path)?);
    fs::create_dir_all(parent(path))
        .and_then(|()| fs::create_dir(&temporary.0))
        .map_err(|e| Error::io(path, "create the directory", e))?;
    fill(&temporary.0)?;
    sync_dir(&temporary.0)?;
    let moved = |e| Error::io(path, "move the finished directory to", e);
    if replace && path.exists() {
        let old = sibling(path)?;
        fs::rename(path, &old).map_err(moved)?;
        if let Err(e) = fs::rename(&temporary.0, path) {
            // Back to how it was; the first error is the one to tell.
            let _ = fs::rename(&old, path);
            return Err(moved(e));
        }
        sync_dir(parent(path))?;
        return fs::remove_dir_all(&old).map_err(|e| Error::io(&old, "remove the replaced directory", e));
    }
    // Only an empty directory can be removed this way, so nothing of the user's is lost.
    match fs::remove_dir(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            return Err(Error::io(path, "replace the directory", e));
        }
        _ => fs::rename(&temporary.0, path).map_err(moved)?,
    }
    sync_dir(parent(path))
}

/// Creates `path`, fills it and waits until it is on the disk.
pub(crate) fn write_synced(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let mut writer = BufWriter::with_capacity(1 << 20, file);
    fill(&mut writer)?;
    writer.flush()?;
    writer.get_ref().sync_all()
}

/// A name beside `path` that nothing else uses: hidden, and marked as temporary.
fn sibling(path: &Path) -> Result<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let Some(name) = path.file_name() else {
        return Err(Error::invalid(format!("{}: not a name that can be written", path.display())));
    };
    let count = COUNT.fetch_add(1, Relaxed);
    let name = format!(".{}.{}-{count}.tmp", name.to_string_lossy(), std::process::id());
    Ok(parent(path).join(name))
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes renames in `dir` last. Systems that cannot sync a directory do without.
fn sync_dir(dir: &Path) -> Result<()> {
    #[cfg(unix)]
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|e| Error::io(dir, "sync the directory", e))?;
    Ok(())
}

/// Removes the unfinished file or directory; after the rename there is nothing left to remove.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.0.is_dir() {
            let _ = fs::remove_dir_all(&self.0);
        } else {
            let _ = fs::remove_file(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_no_litter() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        write(&path, |w| w.write_all(b"old")).unwrap();
        let full = |w: &mut BufWriter<File>| {
            w.write_all(b"half")?;
            Err(io::Error::new(io::ErrorKind::StorageFull, "disk full"))
        };
        let error = write(&path, full).unwrap_err().to_string();
        assert!(error.contains("disk full"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_replaces_only_what_it_may() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d");
        let fill = |text: &'static str| {
            move |d: &Path| fs::write(d.join("f"), text).map_err(|e| Error::io(d, "write", e))
        };
        fs::create_dir(&path).unwrap();
        write_dir(&path, false, fill("one")).unwrap();
        assert!(write_dir(&path, false, fill("two")).is_err());
        assert_eq!(fs::read(path.join("f")).unwrap(), b"one");
        assert!(write_dir(&path, true, |_| Err(Error::invalid("no"))).is_err());
        assert_eq!(fs::read(path.join("f")).unwrap(), b"one");
        write_dir(&path, true, fill("three")).unwrap();
        assert_eq!(fs::read(path.join("f")).unwrap(), b"three");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
