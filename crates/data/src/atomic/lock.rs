//! Lock files: one process at a time works in a directory, or on a partly downloaded file.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use rustix::{fs::OFlags, io::Errno};

use super::disk::parent;

/// Number of times to open a file that other processes remove or rename at the same moment.
const ATTEMPTS: usize = 100;

/// Opens the file `path` for reading and writing, creates it if it is missing, and locks it until
/// it is closed. Returns `None` if another process holds the lock.
///
/// A symbolic link of that name is replaced and its target is left alone. On a file system without
/// locks (Lustre without `-o flock`, some NFS and FUSE mounts) the file is returned unlocked: there,
/// the user must not start two processes on one target.
///
/// # Errors
/// The file cannot be opened or created.
pub fn lock(path: &Path) -> io::Result<Option<File>> {
    lock_by(path, &File::try_lock)
}

/// [`lock`] with the system call replaced, for tests.
pub(crate) fn lock_by(path: &Path, try_lock: &TryLock) -> io::Result<Option<File>> {
    for _ in 0..ATTEMPTS {
        let file = match open(path) {
            Ok(file) => file,
            Err(e) if Errno::from_io_error(&e) == Some(Errno::LOOP) => {
                unlink_link(path)?;
                continue;
            }
            Err(e) => return Err(e),
        };
        match try_lock(&file) {
            Err(TryLockError::WouldBlock) => return Ok(None),
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        // the process that held the lock may have removed or renamed the file since it was opened
        if is_still(&file, path)? {
            return Ok(Some(file));
        }
    }
    Err(io::Error::other("other processes remove it as fast as it is created"))
}

/// The system call behind [`lock`].
pub(crate) type TryLock<'a> = dyn Fn(&File) -> Result<(), TryLockError> + 'a;

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path)
}

/// Removes `path` if it is a symbolic link, one process at a time.
fn unlink_link(path: &Path) -> io::Result<()> {
    let dir = File::open(parent(path))?;
    // on a file system without locks the check below has to be enough
    let _ = dir.lock();
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => fs::remove_file(path),
        _ => Ok(()),
    }
}

/// Whether `path` names the open file.
fn is_still(file: &File, path: &Path) -> io::Result<bool> {
    let of = |found: fs::Metadata| (found.dev(), found.ino());
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(of(found) == of(file.metadata()?)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Errors by which file systems report that they have no locks.
    pub(crate) const UNSUPPORTED: [Errno; 3] = [Errno::NOSYS, Errno::OPNOTSUPP, Errno::NOLCK];

    #[test]
    fn a_locked_file_is_refused_until_it_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = lock(&path).unwrap().unwrap();
        assert!(lock(&path).unwrap().is_none());
        drop(held);
        assert!(lock(&path).unwrap().is_some());
    }

    #[test]
    fn a_file_system_without_locks_counts_as_unlocked() {
        let dir = tempfile::tempdir().unwrap();
        for error in UNSUPPORTED {
            let locked = lock_by(&dir.path().join("lock"), &|_| Err(TryLockError::Error(error.into())));
            assert!(locked.unwrap().is_some(), "{error}");
        }
        let locked = lock_by(&dir.path().join("lock"), &|_| Err(TryLockError::WouldBlock));
        assert!(locked.unwrap().is_none());
    }

    #[test]
    fn a_lock_file_that_is_a_link_is_replaced() {
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
    fn a_file_renamed_before_it_was_locked_is_not_taken_for_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let [path, finished] = ["file.part", "file"].map(|name| dir.path().join(name));
        fs::write(&path, "whole").unwrap();
        // the process that held the lock finishes between our open and our lock
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
