//! Temporary directory, removed with its contents when it is dropped, or after its process was
//! killed by the next process that makes one.
//!
//! Each directory holds a file that its process keeps locked. The system releases the lock with the
//! process, however it ends, so that a directory whose lock can be taken is stale. This holds for
//! processes of several containers, too, whose ids repeat.
//!
//! It lies in the system's directory of temporary files, or, if that cannot be written, in the
//! working directory: a container may have no directory for temporary files.
//!
//! Making one costs one listing of both directories for each process. Nothing in it is synced:
//! after a loss of power its process is gone, and the command runs again from the beginning.

use std::{
    fs::{self, File, TryLockError},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use graphmill_core::Error;

use crate::Result;

/// Start of the names of all directories.
const PREFIX: &str = "graphmill-new-";
/// Name of the locked file.
const LOCK: &str = "lock";

/// Number of directories that this process created.
static CREATED: AtomicU64 = AtomicU64::new(0);

/// A new directory for temporary files.
pub(super) struct ScratchDir {
    path: PathBuf,
    /// Locked until the directory is removed.
    _lock: File,
}

impl ScratchDir {
    /// Creates the directory; the first one of a process removes stale ones.
    ///
    /// # Errors
    /// It can be created in none of the places; the error is that of the first.
    pub(super) fn create() -> Result<Self> {
        if CREATED.load(Relaxed) == 0 {
            remove_stale();
        }
        Self::create_in_one_of(&places())
    }

    fn create_in_one_of([first, second]: &[PathBuf; 2]) -> Result<Self> {
        Self::create_in(first).or_else(|error| {
            Self::create_in(second).map_err(|_| {
                let place = second.display();
                Error::invalid(format!(
                    "{error}, and {place} cannot be written either; set TMPDIR to a directory for \
                     temporary files"
                ))
                .into()
            })
        })
    }

    fn create_in(parent: &Path) -> Result<Self> {
        loop {
            let number = CREATED.fetch_add(1, Relaxed);
            let path = parent.join(format!("{PREFIX}{}-{number}", process::id()));
            match fs::create_dir(&path) {
                Ok(()) => {}
                // A process of the same id owns it: in containers, ids repeat.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(Error::io(&path, "create", e).into()),
            }
            let name = path.join(LOCK);
            let lock = match File::create_new(&name) {
                Ok(lock) => lock,
                // Another process took the directory, still empty, for a stale one.
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                Err(e) => return Err(Error::io(&name, "create", e).into()),
            };
            // Without locks in this file system, no process can take the lock to remove it.
            let is_taken = matches!(lock.try_lock(), Err(TryLockError::WouldBlock));
            if !is_taken && name.exists() {
                return Ok(Self { path, _lock: lock });
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // The next process removes a remainder.
        remove(&self.path);
    }
}

/// Places for the directory: that of temporary files, and the working directory.
fn places() -> [PathBuf; 2] {
    [std::env::temp_dir(), std::env::current_dir().unwrap_or_else(|_| ".".into())]
}

/// Removes the directories of killed processes. Those that it may not remove stay.
pub fn remove_stale() {
    places().iter().for_each(|place| remove_stale_in(place));
}

fn remove_stale_in(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_dir && entry.file_name().to_string_lossy().starts_with(PREFIX) {
            remove_if_stale(&entry.path());
        }
    }
}

fn remove_if_stale(dir: &Path) {
    let name = dir.join(LOCK);
    if !fs::symlink_metadata(&name).is_ok_and(|found| found.is_file()) {
        // Killed before it made the lock; a directory with other contents is not empty and stays.
        let _ = fs::remove_dir(dir);
    } else if let Ok(lock) = File::open(&name)
        && lock.try_lock().is_ok()
    {
        remove(dir);
    }
}

/// Removes the directory, and its lock after all other entries: without it, the next process would
/// take a remainder for a directory of other programs.
fn remove(dir: &Path) {
    remove_listed(dir, fs::read_dir(dir).map(|entries| entries.map(|entry| Ok(entry?.path()))));
}

/// Removes the directory with these entries; its lock only if all of them are known.
fn remove_listed(dir: &Path, entries: io::Result<impl Iterator<Item = io::Result<PathBuf>>>) {
    let lock = dir.join(LOCK);
    let Ok(entries) = entries else { return };
    let mut is_bare = true;
    for entry in entries {
        is_bare &= match entry {
            Ok(path) if path == lock => true,
            Ok(path) if path.is_dir() => fs::remove_dir_all(&path).is_ok(),
            Ok(path) => fs::remove_file(&path).is_ok(),
            Err(_) => false,
        };
    }
    if is_bare && fs::remove_file(&lock).is_ok() {
        let _ = fs::remove_dir(dir);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader},
        process::{Command, Stdio},
    };

    use super::*;

    /// Directory in which the process to kill makes its own.
    const PARENT: &str = "GRAPHMILL_TEST_SCRATCH_PARENT";

    fn count(parent: &Path) -> usize {
        fs::read_dir(parent).unwrap().count()
    }

    #[test]
    fn without_a_directory_for_temporary_files_the_second_place_serves() {
        let parent = tempfile::tempdir().unwrap();
        let [missing, place] = [parent.path().join("missing"), parent.path().to_path_buf()];
        let dir = ScratchDir::create_in_one_of(&[missing.clone(), place.clone()]).unwrap();
        assert_eq!(dir.path().parent(), Some(&*place));
        drop(dir);
        assert_eq!(count(&place), 0);
        let error = ScratchDir::create_in_one_of(&[missing.clone(), missing]).err().unwrap().to_string();
        assert!(error.contains("cannot create") && error.contains("set TMPDIR"), "{error}");
    }

    #[test]
    fn child_that_holds_a_directory() {
        let Some(parent) = std::env::var_os(PARENT) else { return };
        let dir = ScratchDir::create_in(Path::new(&parent)).unwrap();
        fs::write(dir.path().join("rows"), "1").unwrap();
        println!("\nready");
        std::thread::sleep(std::time::Duration::from_secs(600));
    }

    #[test]
    fn directories_of_killed_processes_are_removed_and_others_stay() {
        let parent = tempfile::tempdir().unwrap();
        let name = "saved::on::scratch::tests::child_that_holds_a_directory";
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(PARENT, parent.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "ready"));
        fs::create_dir(parent.path().join("graphmill-new-1-0")).unwrap();
        fs::create_dir_all(parent.path().join("graphmill-new-2-0/no-lock")).unwrap();
        fs::create_dir(parent.path().join("other")).unwrap();
        let own = ScratchDir::create_in(parent.path()).unwrap();
        remove_stale_in(parent.path());
        assert_eq!(count(parent.path()), 4, "only the empty directory is removed");
        // what cannot be removed keeps its lock
        let rest = parent.path().join("graphmill-new-3-0");
        fs::create_dir_all(rest.join("rows")).unwrap();
        fs::write(rest.join(LOCK), "").unwrap();
        remove(&rest.join("rows"));
        assert!(rest.join("rows").exists() && rest.join(LOCK).exists(), "it has no lock");
        // neither does what cannot be listed
        let failure = || io::Error::from(ErrorKind::Other);
        remove_listed(&rest, Err::<std::iter::Empty<_>, _>(failure()));
        remove_listed(&rest, Ok([Ok(rest.join(LOCK)), Err(failure())].into_iter()));
        assert!(rest.join(LOCK).exists());
        remove_stale_in(parent.path());
        assert!(!rest.exists());
        // SIGKILL
        child.kill().unwrap();
        child.wait().unwrap();
        remove_stale_in(parent.path());
        assert_eq!(count(parent.path()), 3, "the directory of the killed process is removed");
        assert!(own.path().join(LOCK).exists());
        drop(own);
        assert_eq!(count(parent.path()), 2);
    }
}
