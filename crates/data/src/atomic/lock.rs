//! Lock files: exclusive access of one process to a directory or to a partial download.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::Path,
};

#[cfg(unix)]
use rustix::{fs::OFlags, io::Errno};

use super::{disk::parent, forgetting::note};

/// Number of attempts to open a file that other processes remove or rename at the same time.
const ATTEMPTS: usize = 100;

/// Opens the file `path` for reading and writing, creates it if it is missing, and locks it until
/// it is closed. Returns `None` if another process holds the lock.
///
/// A symbolic link of that name is replaced and its target stays unchanged. On a file system
/// without locks (Lustre without `-o flock`, some NFS and FUSE mounts) the file is returned
/// unlocked: there, the user must not start two processes on one target.
///
/// # Errors
/// The file cannot be opened or created.
pub fn lock(path: &Path) -> io::Result<Option<File>> {
    lock_by(path, &File::try_lock)
}

/// Variant of [`lock`] with a replaceable system call, for tests.
pub(crate) fn lock_by(path: &Path, try_lock: &TryLock) -> io::Result<Option<File>> {
    for _ in 0..ATTEMPTS {
        let Some(file) = open(path)? else {
            unlink_link(path)?;
            continue;
        };
        match try_lock(&file) {
            Err(TryLockError::WouldBlock) => return Ok(None),
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        // The process that held the lock may have removed or renamed the file since it was opened.
        if is_still(&file, path)? {
            note(path, |disk| disk.locked(path));
            return Ok(Some(file));
        }
    }
    Err(io::Error::other("other processes remove it as fast as it is created"))
}

/// System call behind [`lock`].
pub(crate) type TryLock<'a> = dyn Fn(&File) -> Result<(), TryLockError> + 'a;

/// Opens or creates the file; `None` if the path is a symbolic link.
#[cfg(unix)]
fn open(path: &Path) -> io::Result<Option<File>> {
    use std::os::unix::fs::OpenOptionsExt;
    match options().custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(e) if Errno::from_io_error(&e) == Some(Errno::LOOP) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Opens or creates the file; `None` if the path is a symbolic link. Until the file is closed, no
/// process can remove or rename it, because the others may read and write it, but not delete it.
#[cfg(windows)]
fn open(path: &Path) -> io::Result<Option<File>> {
    use std::os::windows::fs::OpenOptionsExt;
    const SHARE_READ_AND_WRITE: u32 = 1 | 2;
    const OPEN_REPARSE_POINT: u32 = 0x0020_0000;
    let file = options().share_mode(SHARE_READ_AND_WRITE).custom_flags(OPEN_REPARSE_POINT).open(path)?;
    let is_link = file.metadata()?.is_symlink();
    Ok((!is_link).then_some(file))
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options
}

/// Removes `path` if it is a symbolic link, one process at a time.
fn unlink_link(path: &Path) -> io::Result<()> {
    // Other systems cannot lock a directory; there, and on a file system without locks, the check
    // below has to suffice.
    let dir = if cfg!(unix) { Some(File::open(parent(path))?) } else { None };
    let _ = dir.as_ref().map(File::lock);
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => fs::remove_file(path),
        _ => Ok(()),
    }
}

/// Returns true if `path` still names the open file.
#[cfg(unix)]
fn is_still(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let of = |found: fs::Metadata| (found.dev(), found.ino());
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(of(found) == of(file.metadata()?)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Returns true: an open file keeps its name ([`open`]).
#[cfg(windows)]
fn is_still(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Errors that file systems return when they do not support locks.
    pub(crate) const UNSUPPORTED: [Errno; 3] = [Errno::NOSYS, Errno::OPNOTSUPP, Errno::NOLCK];

    #[test]
    fn a_lock_is_exclusive_until_its_file_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = lock(&path).unwrap().unwrap();
        assert!(lock(&path).unwrap().is_none());
        drop(held);
        assert!(lock(&path).unwrap().is_some());
    }

    #[test]
    fn file_systems_without_locks_return_unlocked_files() {
        let dir = tempfile::tempdir().unwrap();
        for error in UNSUPPORTED {
            let locked = lock_by(&dir.path().join("lock"), &|_| Err(TryLockError::Error(error.into())));
            assert!(locked.unwrap().is_some(), "{error}");
        }
        let locked = lock_by(&dir.path().join("lock"), &|_| Err(TryLockError::WouldBlock));
        assert!(locked.unwrap().is_none());
    }

    #[test]
    fn a_linked_lock_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let [path, target] = ["lock", "target"].map(|name| dir.path().join(name));
        for exists in [true, false] {
            if exists {
                fs::write(&target, "mine").unwrap();
            } else {
                fs::remove_file(&target).unwrap();
                fs::remove_file(&path).unwrap();
            }
            std::os::unix::fs::symlink(&target, &path).unwrap();
            assert!(lock(&path).unwrap().is_some());
            assert!(fs::symlink_metadata(&path).unwrap().is_file());
            assert_eq!(fs::read(&target).ok(), exists.then(|| b"mine".to_vec()));
        }
    }

    #[test]
    fn a_file_renamed_before_locking_is_reopened() {
        let dir = tempfile::tempdir().unwrap();
        let [path, finished] = ["file.part", "file"].map(|name| dir.path().join(name));
        fs::write(&path, "whole").unwrap();
        // The lock holder finishes between our open and our lock.
        let renamed = |_: &File| {
            let _ = fs::rename(&path, &finished);
            Ok(())
        };
        let locked = lock_by(&path, &renamed).unwrap_err();
        assert!(locked.to_string().contains("as fast as it is created"), "{locked}");
        fs::write(&path, "whole").unwrap();
        let first = std::cell::Cell::new(true);
        let renamed_once = |_: &File| {
            if first.replace(false) {
                fs::rename(&path, &finished).unwrap();
            }
            Ok(())
        };
        let locked = lock_by(&path, &renamed_once).unwrap().unwrap();
        assert_eq!(locked.metadata().unwrap().len(), 0, "a new file");
        assert_eq!(fs::read(&finished).unwrap(), b"whole");
    }
}
